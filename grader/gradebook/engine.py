"""One database session for a run, one transaction for a student.

For each submission nbgrader opens and throws away about nine SQLAlchemy engines, inspects and creates all tables each
time, and commits after every cell. Within :func:`shared_session` every ``nbgrader.api.Gradebook`` of one address shares
one session, and within :func:`transaction` what nbgrader commits is kept until the end: a student is booked wholly or
not at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
    """A session that stands for nbgrader's ``scoped_session``; inside a transaction a commit only flushes."""

    held = False

    def commit(self) -> None:
        if self.held:
            self.flush()
        else:
            super().commit()

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
        yield
        session.held = False
        session.commit()
    finally:
        session.held = False
        session.close()


def schema_version() -> str:
    """The newest revision of nbgrader's database. nbgrader starts the ``alembic`` program for it, if PATH has it."""
    with _temp_alembic_ini("sqlite://") as ini:
        return str(ScriptDirectory.from_config(Config(ini)).get_current_head())
