"""One database engine for a run.

nbgrader opens and throws away an SQLAlchemy engine about nine times a submission, and inspects and creates all tables
each time. Within :func:`shared_engines` every ``nbgrader.api.Gradebook`` of one address shares one engine.
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
from nbgrader.dbutil import _temp_alembic_ini
from sqlalchemy.exc import SAWarning


@contextmanager
def shared_engines() -> Iterator[None]:
    """Let all gradebooks opened inside share their engine; it is disposed of at the end. Not for several threads."""
    engines: dict[str, Any] = {}
    prepared: set[Any] = set()
    create, create_all = nbgrader.api.create_engine, nbgrader.api.Base.metadata.create_all

    def cached(url: str, **options: Any) -> Any:
        if url not in engines:
            engines[url] = create(url, **options)
        return engines[url]

    def create_once(bind: Any, **options: Any) -> None:
        if bind not in prepared:
            create_all(bind=bind, **options)
            prepared.add(bind)

    with (
        mock.patch.object(nbgrader.api, "create_engine", cached),
        mock.patch.object(nbgrader.api.Base.metadata, "create_all", create_once),
        mock.patch.object(nbgrader.api.Gradebook, "close", lambda self: self.db.remove()),
        mock.patch.object(nbgrader.api, "get_alembic_version", schema_version),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", SAWarning)  # nbgrader 0.9.6 builds its objects before adding them
        try:
            yield
        finally:
            for engine in engines.values():
                engine.dispose()


def schema_version() -> str:
    """The newest revision of nbgrader's database. nbgrader starts the ``alembic`` program for it, if PATH has it."""
    with _temp_alembic_ini("sqlite://") as ini:
        return str(ScriptDirectory.from_config(Config(ini)).get_current_head())
