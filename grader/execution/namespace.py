"""The global names of test cells."""

from __future__ import annotations

import builtins
import importlib
from typing import Any

from grader.execution.remote import Session


class TestNamespace(dict[str, Any]):
    """Names that test cells define, builtins, and, looked up only when a test uses them, the student's.

    A name that an earlier test cell binds is never the student's, even when that cell failed before binding it, and
    neither is a builtin: else a student could supply the helper that judges him.
    """

    __test__ = False  # not a pytest class

    def __init__(self, helper_imports: dict[str, tuple[str, str | None]]) -> None:
        super().__init__(__name__="__main__", __builtins__=builtins)
        self.helper_imports = helper_imports
        self.reserved: set[str] = set()
        self.session: Session | None = None

    def __missing__(self, name: str) -> Any:
        if name in self.reserved or hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        if name in self.helper_imports:
            module, attribute = self.helper_imports[name]
            found = importlib.import_module(module)
            return found if attribute is None else getattr(found, attribute)
        if self.session is None:
            raise KeyError(name)
        return self.session.get(name)
