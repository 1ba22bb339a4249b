"""The global names of test cells."""

from __future__ import annotations

import builtins
import importlib
from typing import Any

from grader.execution.remote import Session


class TestNamespace:
    """Names that test cells define, builtins, and, looked up only when a test uses them, the student's.

    A name that an earlier test cell binds is never the student's, even when that cell failed before binding it, and
    neither is a builtin: else a student could supply the helper that judges him.
    """

    __test__ = False  # not a pytest class

    def __init__(self, helper_imports: dict[str, tuple[str, str | None]]) -> None:
        self.helper_imports = helper_imports
        self.reserved: set[str] = set()
        self.session: Session | None = None
        self.imported: dict[str, Any] = {}
        # Python looks a name up in the globals, then in the builtins; class bodies skip `__missing__` of the former.
        self.globals: dict[str, Any] = {"__name__": "__main__", "__builtins__": _Fallback(self)}

    def find(self, name: str) -> Any:
        """What ``name`` is when neither a test cell nor Python defines it. Raises KeyError or `MissingName`."""
        if name in self.reserved or name.startswith("__"):
            raise KeyError(name)
        if name in self.helper_imports:
            if name not in self.imported:
                module, attribute = self.helper_imports[name]
                found = importlib.import_module(module)
                self.imported[name] = found if attribute is None else getattr(found, attribute)
            return self.imported[name]
        if self.session is None:
            raise KeyError(name)
        return self.session.get(name)


class _Fallback(dict[str, Any]):
    """The builtins, and beyond them the names of the student."""

    def __init__(self, namespace: TestNamespace) -> None:
        super().__init__(vars(builtins))
        self.namespace = namespace

    def __missing__(self, name: str) -> Any:
        return self.namespace.find(name)
