"""nbgrader in this repository: JUPYTER_CONFIG_PATH=grader jupyter lab (what `make lab` does)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from grader.gradebook.config import configure  # noqa: E402

configure(get_config(), ROOT, source="solutions", release="notebooks")  # noqa: F821 (Jupyter defines get_config)
