"""Guards the figures: a script draws each of them, as it is committed, and every figure that a text shows exists."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import image

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "assets" / "figures"
DRAWN_WITH = "3.11."  # the matplotlib of the committed files; others place letters differently
TOLERANCE = 0.001 if matplotlib.__version__.startswith(DRAWN_WITH) else 0.03  # mean difference, of 0 to 1


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the scripts draw."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FIGURES))
        import drawing

        patch.setattr(drawing, "FOLDER", folder)
        for script in sorted(FIGURES.glob("*_figures.py")):
            runpy.run_path(str(script), run_name="__main__")
        sys.modules.pop("drawing")
    return folder


def test_the_scripts_draw_what_is_committed(drawn: Path) -> None:
    committed = {path.name for path in FIGURES.glob("*.png")}
    assert {path.name for path in drawn.iterdir()} == committed
    for name in sorted(committed):
        old, new = image.imread(FIGURES / name)[..., :3], image.imread(drawn / name)[..., :3]
        height, width = (min(old.shape[axis], new.shape[axis]) for axis in (0, 1))
        assert max(old.shape[0], new.shape[0]) <= height + 3 and max(old.shape[1], new.shape[1]) <= width + 3, name
        difference = np.abs(old[:height, :width] - new[:height, :width]).mean()
        assert difference < TOLERANCE, f"{name}: run its script (mean difference {difference:.3f})"


def test_every_figure_that_a_text_shows_is_there_and_every_figure_is_shown() -> None:
    texts = [*ROOT.glob("solutions/*/*.py"), *ROOT.glob("*.md"), *ROOT.glob("grader/*.md")]
    shown = {name for text in texts for name in re.findall(r"figures/(\w+\.png)", text.read_text("utf-8"))}
    assert shown == {path.name for path in FIGURES.glob("*.png")}
