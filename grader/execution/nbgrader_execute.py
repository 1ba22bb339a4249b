"""nbgrader's Execute step on the grader's path, for plain ``nbgrader autograde`` and formgrader's Autograde button.

There the notebook comes from nbgrader's ``submitted`` folder. It is rebuilt from the instructor's copy first, as
`python -m grader grade` does, so that lost cells are there again and no test comes from the submission.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor

from grader.errors import GraderError
from grader.execution import execute
from grader.model import ExecutionRequest, Notebook


class Execute(NbGraderPreprocessor):
    """Takes the place of nbgrader's Execute in ``Autograde.autograde_preprocessors``."""

    def preprocess(self, nb: Any, resources: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Rebuild and execute one notebook.

        Raises:
            GraderError: no sandbox on this machine, or the instructor's copy isn't there. nbgrader then reports
                that the student could not be graded.
        """
        from grader.rebuild import rebuild

        about = resources["nbgrader"]
        submitted = json.loads(json.dumps(nb))
        source, release = self._editions(about["assignment"], about["notebook"])
        rebuilt = rebuild(source, release, submitted)
        execution = execute(ExecutionRequest(about["student"], rebuilt.notebook, rebuilt.attempted))
        for line in (
            *rebuilt.notes,
            *execution.notes,
            *(f"{f.kind}: {f.detail}" for f in rebuilt.flags + execution.flags),
        ):
            self.log.info("%s: %s", about["student"], line)
        return _with_checksums(nbformat.from_dict(execution.notebook), nb), resources

    def _editions(self, assignment: str, name: str) -> tuple[Notebook, Notebook]:
        """The instructor's copy and the student's edition of a notebook."""
        course = CourseDirectory(config=self.config)
        folders = (course.source_directory, course.release_directory)
        return tuple(_read(Path(course.format_path(f, ".", assignment)) / f"{name}.ipynb") for f in folders)  # type: ignore[return-value]


def _read(path: Path) -> Notebook:
    try:
        return json.loads(json.dumps(nbformat.read(path, as_version=4)))
    except OSError as e:
        raise GraderError(str(path), "this edition of the assignment isn't there", "run `make release`") from e


def _with_checksums(executed: Any, sanitized: Any) -> Any:
    """Carry over what nbgrader computed for its cells: it tells an untouched solution by its checksum."""
    known = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in sanitized.cells if "nbgrader" in c.metadata}
    for cell in executed.cells:
        block = cell.metadata.get("nbgrader")
        if block and "checksum" in known.get(block.grade_id, {}):
            block.checksum = known[block.grade_id].checksum
    return executed
