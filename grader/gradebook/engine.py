"""One database session for a run, one transaction for a student.

For each submission nbgrader opens and throws away about nine SQLAlchemy engines, inspects and creates all tables each
time, asks for every cell by itself and for the same notebook ten times, and commits after each. Within
:func:`shared_session` every ``nbgrader.api.Gradebook`` of one address is the same one with one session, and within
:func:`transaction` what was found once is not asked for again, cells are looked up in lists, and what nbgrader commits
is kept until the end: a student is booked wholly or not at all.
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
from nbgrader.api import BaseCell, Gradebook
from nbgrader.dbutil import _temp_alembic_ini
from sqlalchemy.exc import DatabaseError, SAWarning
from sqlalchemy.orm import Session, with_polymorphic

from grader.errors import GraderError


class SharedSession(Session):
    """A session that stands for nbgrader's ``scoped_session``; inside a transaction a commit only writes new rows."""

    held = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.found: dict[tuple[Any, ...], Any] = {}  # by what was asked for, within a transaction

    def delete(self, instance: Any) -> None:
        self.found.clear()
        super().delete(instance)

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
    opened: dict[tuple[str, str], dict[str, Any]] = {}
    create, open_one = nbgrader.api.create_engine, Gradebook.__init__

    def cached_engine(url: str, **options: Any) -> Any:
        if url not in engines:
            engines[url] = create(url, **options)
        return engines[url]

    def session_of(maker: Any) -> SharedSession:
        engine = maker.kw["bind"]
        if engine not in sessions:
            sessions[engine] = SharedSession(bind=engine, autoflush=True)
        return sessions[engine]

    def open_once(self: Gradebook, db_url: str, course_id: str = "default_course", **options: Any) -> None:
        if (db_url, course_id) not in opened:
            open_one(self, db_url, course_id, **options)
            opened[db_url, course_id] = dict(vars(self))
        vars(self).update(opened[db_url, course_id])

    with (
        mock.patch.object(nbgrader.api, "create_engine", cached_engine),
        mock.patch.object(nbgrader.api, "scoped_session", session_of),
        mock.patch.object(Gradebook, "__init__", open_once),
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
        # All columns at once: where cells are first met as their base class, each would be read again by itself.
        # They are kept, because a session forgets what nobody holds.
        session.found["cells",] = session.query(with_polymorphic(BaseCell, "*")).all()
        with _found_once(session):
            yield
        session.held = False
        session.commit()
    finally:
        session.held = False
        session.found.clear()
        session.close()


# By method of Gradebook: what finds the notebook, and which of its lists the method looks through.
_IN_LISTS = (
    ("find_source_cell", "find_notebook", ("source_cells",)),
    ("find_graded_cell", "find_notebook", ("grade_cells", "task_cells")),
    ("find_grade", "find_submission_notebook", ("grades",)),
    ("find_comment", "find_submission_notebook", ("comments",)),
)
_ALONE = ("find_student", "find_assignment", "find_notebook", "find_submission", "find_submission_notebook")


@contextmanager
def _found_once(session: SharedSession) -> Iterator[None]:
    """Let nbgrader's look-ups be answered from what they found before; what they don't find they ask for again."""
    with ExitStack() as stack:
        for method in _ALONE:
            stack.enter_context(mock.patch.object(Gradebook, method, _remembered(session, method)))
        for method, notebook, lists in _IN_LISTS:
            stack.enter_context(mock.patch.object(Gradebook, method, _listed(session, method, notebook, lists)))
        yield


def _remembered(session: SharedSession, method: str) -> Callable[..., Any]:
    look_up = getattr(Gradebook, method)

    def find(gradebook: Gradebook, *names: str) -> Any:
        key = (method, *names)
        if key not in session.found:
            session.found[key] = look_up(gradebook, *names)
        return session.found[key]

    return find


def _listed(session: SharedSession, method: str, notebook: str, lists: tuple[str, ...]) -> Callable[..., Any]:
    """Looks up one cell, its grade or its comment in all of the notebook's, read at once."""
    one_by_one = getattr(Gradebook, method)

    def find(gradebook: Gradebook, name: str, *where: str) -> Any:
        key = (method, *where)
        if key not in session.found:
            found = getattr(gradebook, notebook)(*where)
            session.found[key] = {item.name: item for part in lists for item in getattr(found, part)}
        known = session.found[key]
        return known[name] if name in known else one_by_one(gradebook, name, *where)

    return find


def schema_version() -> str:
    """The newest revision of nbgrader's database. nbgrader starts the ``alembic`` program for it, if PATH has it."""
    with _temp_alembic_ini("sqlite://") as ini:
        return str(ScriptDirectory.from_config(Config(ini)).get_current_head())
