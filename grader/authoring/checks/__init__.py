"""Release checks: reasons to refuse an instructor's notebook before a student sees it."""

from __future__ import annotations

from pathlib import Path

from grader.authoring.checks.chapter import check_chapter
from grader.authoring.checks.finding import Finding, is_chapter, refuse
from grader.authoring.checks.graded import check_by_running, check_graded_cells, check_ids_and_points
from grader.authoring.checks.leaks import check_leaks
from grader.authoring.checks.links import check_links
from grader.authoring.checks.markers import check_markers
from grader.authoring.checks.stranded import check_stranded
from grader.authoring.settings import CourseSettings, course
from grader.model import Notebook

__all__ = ["Finding", "check_all", "check_folder", "refuse"]


def check_all(
    source: Notebook, name: str, *, settings: CourseSettings | None = None, run: bool = True
) -> list[Finding]:
    """Every release check on an instructor's notebook and on the student's edition made from it.

    Args:
        source: the instructor's notebook, with or without outputs.
        name: its name without .ipynb.
        settings: where links into the repository are looked up.
        run: also run the reference; without it (the code has not changed since it was last run) only the text is read.

    Raises:
        GraderError: nbgrader's release step itself refuses the notebook for a reason that no check names.
    """
    from grader.authoring.release import release_notebook

    settings = settings or course()
    findings = check_ids_and_points(source) + check_markers(source)
    graded, undecided = check_graded_cells(source)
    findings += graded + check_links(source, settings)
    if check_ids_and_points(source) or check_markers(source):
        return findings  # nbgrader can't release it, or would release the wrong lines
    released = release_notebook(source, name)
    findings += check_leaks(source, released) + check_stranded(source, released)
    if is_chapter(source):
        findings += check_chapter(source, released)
    if run and not graded:
        findings += check_by_running(source, released, undecided)
    return findings


def check_folder(folder: Path, name: str) -> list[Finding]:
    """Any file but the notebook in a released chapter's folder (Jupyter's own checkpoints left out)."""
    if not folder.is_dir():
        return []
    extra = [
        path.relative_to(folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and ".ipynb_checkpoints" not in path.parts
        and path.relative_to(folder) != Path(f"{name}.ipynb")
    ]
    return [Finding("", f"the release holds another file: {path}", "remove it: students get the notebook only")
            for path in extra]  # fmt: skip
