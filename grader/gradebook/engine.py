"""One database session for a run, one transaction for a student.

For each submission nbgrader opens and throws away about nine SQLAlchemy engines, inspects and creates all tables each
time, asks for every cell by itself and commits after it. Within :func:`shared_session` every
``nbgrader.api.Gradebook`` of one address shares one session, and within :func:`transaction` cells are looked up in
lists and what nbgrader commits is kept until the end: a student is booked wholly or not at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import nbgrader.api
from alembic.config import Config
from alembic.script import ScriptDirectory
from nbgrader.api import Gradebook
from nbgrader.dbutil import _temp_alembic_ini
from sqlalchemy.exc import DatabaseError, SAWarning
from sqlalchemy.orm import Session

from grader.errors import GraderError


class SharedSession(Session):
    """A session that stands for nbgrader's ``scoped_session``; inside a transaction a commit only writes new rows."""

    held = False

    def commit(self) -> None:
        if not self.held:
            super().commit()
        elif self.new or self.deleted:
            self.flush()

    def remove(self) -> None:
        """What nbgrader calls when it closes a gradebook."""
        if not self.held:
            self.close()


@contextmanager
def shared_session() -> Iterator[None]:
    """Let all gradebooks opened inside share their engine and session. Not for several threads.

    Raises:
        GraderError: the database can't be used, because another program holds it, or it is damaged.
    """
    engines: dict[str, Any] = {}
    sessions: dict[Any, SharedSession] = {}
    create, create_all = nbgrader.api.create_engine, nbgrader.api.Base.metadata.create_all
    prepared: set[Any] = set()

    def cached_engine(url: str, **options: Any) -> Any:
        if url not in engines:
            engines[url] = create(url, **options)
        return engines[url]

    def create_once(bind: Any, **options: Any) -> None:
        if bind not in prepared:
            create_all(bind=bind, **options)
            prepared.add(bind)

    def session_of(maker: Any) -> SharedSession:
        engine = maker.kw["bind"]
        if engine not in sessions:
            sessions[engine] = SharedSession(bind=engine, autoflush=True)
        return sessions[engine]

    with (
        mock.patch.object(nbgrader.api, "create_engine", cached_engine),
        mock.patch.object(nbgrader.api, "scoped_session", session_of),
        mock.patch.object(nbgrader.api.Base.metadata, "create_all", create_once),
        mock.patch.object(Gradebook, "close", lambda self: self.db.remove()),
        mock.patch.object(nbgrader.api, "get_alembic_version", schema_version),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", SAWarning)  # nbgrader 0.9.6 builds its objects before adding them
        try:
            yield
        except DatabaseError as error:
            remedy = "close formgrader and run the same command again; if it is damaged, restore or delete it"
            raise GraderError("gradebook.db", f"it can't be used ({error.orig})", remedy) from error
        finally:
            for session in sessions.values():
                session.close()
            for engine in engines.values():
                engine.dispose()


@contextmanager
def transaction(gradebook: Gradebook) -> Iterator[None]:
    """Make everything that nbgrader does to this gradebook's database inside one transaction."""
    session = gradebook.db
    assert isinstance(session, SharedSession), "only inside shared_session()"
    session.held = True
    try:
        with _Lists().in_use():
            yield
        session.held = False
        session.commit()
    finally:
        session.held = False
        session.close()


class _Lists:
    """The cells and grades of a notebook by name, each read at once where nbgrader asks for one cell at a time."""

    # By method of Gradebook: what finds the notebook, and which of its lists the method looks through.
    LOOK_UPS = (
        ("find_source_cell", "find_notebook", ("source_cells",)),
        ("find_graded_cell", "find_notebook", ("grade_cells", "task_cells")),
        ("find_grade", "find_submission_notebook", ("grades",)),
        ("find_comment", "find_submission_notebook", ("comments",)),
    )

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], dict[str, Any]] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with ExitStack() as stack:
            for method, notebook, lists in self.LOOK_UPS:
                stack.enter_context(mock.patch.object(Gradebook, method, self._finder(method, notebook, lists)))
            yield

    def _finder(self, method: str, notebook: str, lists: tuple[str, ...]) -> Callable[..., Any]:
        one_by_one = getattr(Gradebook, method)

        def find(gradebook: Gradebook, name: str, *where: str) -> Any:
            key = (method, *where)
            if key not in self.known:
                found = getattr(gradebook, notebook)(*where)
                self.known[key] = {item.name: item for part in lists for item in getattr(found, part)}
            known = self.known[key]
            return known[name] if name in known else one_by_one(gradebook, name, *where)

        return find


def schema_version() -> str:
    """The newest revision of nbgrader's database. nbgrader starts the ``alembic`` program for it, if PATH has it."""
    with _temp_alembic_ini("sqlite://") as ini:
        return str(ScriptDirectory.from_config(Config(ini)).get_current_head())
