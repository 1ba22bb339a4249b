"""The student's names as a test sees them: proxies that call into the student's process."""

from __future__ import annotations

import builtins
import secrets
import time
from collections.abc import Callable
from typing import Any

from grader.channel import codec
from grader.channel.wire import Channel, Closed, TimedOut
from grader.execution.stubs import Stub
from grader.model import Limits

REQUEST_CAPS = codec.Caps(size=256 << 20, depth=512, elements=20_000_000)
TEST_CALLS = 3  # all calls of one test together may take this many times the limit of one
SORTED_ITEMS = 10_000  # in longer lists nested objects are matched by their place alone
# A function that used up its whole time in so many tests gets this part of it in the later ones.
PATIENCE, IMPATIENT = 2, 0.2
# Modules that a test may use through the student's import of them, resolved on this side.
SHARED_MODULES = frozenset(
    [
        "math",
        "cmath",
        "itertools",
        "functools",
        "collections",
        "operator",
        "random",
        "statistics",
        "fractions",
        "decimal",
        "datetime",
        "re",
        "json",
        "string",
        "copy",
        "typing",
        "dataclasses",
        "time",
        "numpy",
        "torch",
    ]
)


class Stop(BaseException):
    """The student's process can't answer any more. No `except Exception` of a test catches it."""

    def __init__(self, status: str, message: str, *, flag: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.flag = flag


class StudentFault:
    """Mixed into the exception that stands for one of the student's. ``info`` is what `worker.describe` told."""

    type_name = ""
    kind = ""  # the builtin type that it is: a student names his own types, and could name one after hidden inputs
    text = ""
    cell: str | None = None
    line: int | None = None
    trace: tuple[str, ...] = ()

    def __init__(self, *_: object) -> None:
        """Takes anything: some builtin exceptions insist on arguments that don't cross."""

    def __str__(self) -> str:
        return self.text


class StudentError(StudentFault, RuntimeError):
    """A student's exception that must not be taken for one of the test or of the interpreter."""


class MissingName(NameError):
    """A name that the student's process doesn't have."""

    def __init__(self, name: str, deleted: bool) -> None:
        super().__init__(f"name {name!r} is not defined" + (" (it was deleted)" if deleted else ""))
        self.missing = name
        self.deleted = deleted


def _bases() -> dict[str, type[BaseException]]:
    """The builtin exceptions that may stand for a student's; a group needs arguments that don't cross."""
    kinds = [v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, Exception)]
    return {k.__name__: k for k in kinds if k is not AssertionError and not k.__name__.endswith("ExceptionGroup")}


BUILTIN_BASES = _bases()
BUILTIN_EXCEPTIONS = frozenset(
    name for name, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException)
)


def _text(value: object, cap: int) -> str:
    if type(value) is not str:
        return ""
    kept = value[:cap]
    return kept if kept.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in kept)


def exception(info: Any) -> Exception:
    """The exception that stands for a student's, from untrusted data.

    It is an instance of the nearest builtin class, so `assertRaises(ValueError)` works for an honest ValueError; an
    AssertionError or SystemExit of the student becomes a `StudentError`.
    """
    if type(info) is not dict:
        raise codec.CodecError("a malformed exception")
    base = BUILTIN_BASES.get(info.get("base") if type(info.get("base")) is str else "", StudentError)
    name = _text(info.get("type"), 100) or "Exception"
    bases = (base,) if issubclass(base, StudentFault) else (StudentFault, base)
    error = type(name, bases, {"__module__": "student"})()
    error.type_name = name
    error.kind = info["base"] if type(info.get("base")) is str and info["base"] in BUILTIN_EXCEPTIONS else "Exception"
    error.text = _text(info.get("text"), 2000)
    error.cell = info["cell"] if type(info.get("cell")) is str else None
    error.line = info["line"] if type(info.get("line")) is int else None
    trace = info.get("trace")
    error.trace = tuple(_text(t, 300) for t in trace[:30]) if type(trace) is list else ()
    return error


class Session:
    """The student's process during one test.

    Args:
        connect: makes the channel to the process that answers this test, when the test first wants something of it.
            May raise `Stop`.
        ended: called once when the process can't answer any more, with the reason and the operation that got
            no reply; tells the status and what to say of it.
        overdue: function → in how many tests it ran out of time; shared by the sessions of one student.
        stubs: functions for which no process need be asked.
    """

    def __init__(
        self,
        connect: Callable[[], Channel],
        limits: Limits,
        ended: Callable[[str, str], Stop],
        overdue: dict[str, int] | None = None,
        stubs: dict[str, Stub] | None = None,
    ) -> None:
        self.connect = connect
        self.channel: Channel | None = None
        self.stubs = stubs or {}
        self.overdue = {} if overdue is None else overdue
        self.limits = limits
        self.ended = ended
        self.stop: Stop | None = None
        self.left = TEST_CALLS * limits.call_s
        self.asked = ""  # the operation that waits for its reply
        self.values: dict[str, Any] = {}

    def _request(self, message: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Send one request. Returns the reply to it and how large values in it may be; any failure ends the session.

        What was sent may come back, so a large request has a large reply.
        """
        if self.stop is not None:
            raise self.stop
        self.asked = message["op"]
        channel = self._connected()
        token = secrets.token_hex(8)
        begun = time.monotonic()
        impatient = self.overdue.get(message["name"], 0) >= PATIENCE
        deadline = begun + min(self.limits.call_s * (IMPATIENT if impatient else 1), self.left)
        try:
            size = self.limits.reply + channel.send({**message, "id": token}, deadline)
            reply = channel.receive(deadline, 2 * size + 65536)
            if reply.get("limit") == "output":
                raise self._fail("output")
            if reply.get("id") != token:
                raise codec.CodecError("a reply to no request")
            self.asked = ""
            return reply, size
        except TimedOut:
            raise self._late(message["name"], impatient) from None
        except Closed:
            raise self._fail("closed") from None
        except codec.TooLarge:
            raise self._fail("reply") from None
        except codec.CodecError:
            raise self._fail("forged") from None
        finally:
            self.left -= time.monotonic() - begun

    def _connected(self) -> Channel:
        if self.channel is None:
            try:
                self.channel = self.connect()
            except Stop as stop:
                self.stop = stop
                raise
        return self.channel

    def _fail(self, why: str) -> Stop:
        self.stop = self.ended(why, self.asked)
        return self.stop

    def _late(self, name: str, impatient: bool) -> Stop:
        self.overdue[name] = self.overdue.get(name, 0) + 1
        stop = self._fail("time")
        if impatient:
            stop.message = f"`{name}` 此前已有 {PATIENCE} 项测试超时，这一项没有再等满时限 (time limit)"
        return stop

    def value(self, reply: dict[str, Any], size: int) -> Any:
        """The value in a reply."""
        if "refused" in reply:
            if reply.get("large") is True:
                raise self._fail("reply")
            raise exception({"type": "TypeError", "base": "TypeError", "text": _text(reply["refused"], 200)})
        try:
            return codec.decode(reply["value"], codec.Caps(size=2 * size + 65536, depth=self.limits.depth))
        except codec.TooLarge:
            raise self._fail("reply") from None
        except (codec.CodecError, KeyError):
            raise self._fail("forged") from None

    def get(self, name: str) -> Any:
        """What ``name`` is in the student's process: a value, or a proxy for what can be called."""
        if name in self.values:
            return self.values[name]
        if name in self.stubs:
            return Unfilled(self.stubs[name], self)
        reply, size = self._request({"op": "get", "name": name})
        kind = reply.get("kind")
        if kind == "value":
            found = self.value(reply, size)
        elif kind == "callable":
            found = StudentFunction(name, self)
        elif kind == "module":
            found = self._module(reply.get("module"))
        elif kind == "missing":
            raise MissingName(name, reply.get("deleted") is True)
        else:
            raise self._fail("forged")
        self.values[name] = found
        return found

    @staticmethod
    def _module(name: object) -> Any:
        if type(name) is str and name in SHARED_MODULES:
            import importlib

            return importlib.import_module(name)
        return codec.Opaque("module")

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``name`` in the student's process; changed arguments are changed here too."""
        # A call may change any value, but a function's proxy names it, whatever the name stands for by then.
        self.values = {n: v for n, v in self.values.items() if type(v) is StudentFunction}
        encoded = [codec.encode(a, REQUEST_CAPS, strict=True) for a in (*args, *kwargs.values())]
        named = list(zip(kwargs, encoded[len(args) :], strict=True))
        reply, size = self._request({"op": "call", "name": name, "args": encoded[: len(args)], "kwargs": named})
        self._copy_back([*args, *kwargs.values()], reply.get("changed"), size)
        if "error" in reply:
            try:
                error = exception(reply["error"])
            except codec.CodecError:
                raise self._fail("forged") from None
            raise error
        return self.value(reply, size)

    def _copy_back(self, given: list[Any], changed: Any, size: int) -> None:
        if type(changed) is not list or len(changed) > len(given):
            if changed is None:
                return
            raise self._fail("forged")
        for item in changed:
            if type(item) is not list or len(item) != 2 or type(item[0]) is not int or type(item[1]) is not dict:
                raise self._fail("forged")
            index, after = item
            if not 0 <= index < len(given):
                raise self._fail("forged")
            update(given[index], self.value(after, size))


class StudentFunction(codec.Reference):
    """A function of the student's process. It can be called, and passed to another such function."""

    __slots__ = ("__name__", "__qualname__", "_session")

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name)
        self.__name__ = self.__qualname__ = name
        self._session = session

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.call(self.name, args, kwargs)

    def __repr__(self) -> str:
        return f"<function {self.name}>"


class Unfilled(StudentFunction):
    """A function that is still as it was given out, and is known to raise."""

    __slots__ = ("_stub",)

    def __init__(self, stub: Stub, session: Session) -> None:
        super().__init__(stub.name, session)
        self._stub = stub

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise exception(self._stub.error(args, kwargs))


def update(old: Any, new: Any) -> Any:
    """Make ``old`` what ``new`` is, in place where it can be, and return the object to use.

    Nested mutable objects keep their identity where the structure stayed the same, and where a list was only put
    into another order.
    """
    if type(old) is not type(new):
        return new
    if isinstance(old, list):
        old[:] = _merged(old, new)
    elif isinstance(old, dict):
        merged_dict = {k: update(old[k], v) if k in old else v for k, v in new.items()}
        old.clear()
        old.update(merged_dict)
    elif isinstance(old, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray):
        old[:] = new
    elif isinstance(old, tuple):
        merged_tuple = tuple(update(a, b) for a, b in zip(old, new, strict=False)) + new[len(old) :]
        same = len(old) == len(merged_tuple) and all(a is b for a, b in zip(old, merged_tuple, strict=True))
        return old if same else merged_tuple
    elif type(old).__module__ == "numpy" and type(old).__name__ == "ndarray":
        if old.shape != new.shape or old.dtype != new.dtype:
            return new
        old[...] = new
    elif type(old).__module__.startswith("torch") and type(old).__name__ == "Tensor":
        if old.shape != new.shape or old.dtype != new.dtype:
            return new
        old.detach().copy_(new.detach())
    else:
        return new
    return old


def _merged(old: list[Any], new: list[Any]) -> list[Any]:
    """The items of ``new``. One that equals an old item is that very object, at whatever place it stood before."""
    if len(old) > SORTED_ITEMS or not any(isinstance(item, (list, dict, set, bytearray)) for item in old):
        return [update(a, b) for a, b in zip(old, new, strict=False)] + new[len(old) :]
    before, after = ([codec.dumps(codec.encode(item, REQUEST_CAPS)) for item in items] for items in (old, new))
    unmoved = {i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a == b}
    spare: dict[bytes, list[int]] = {}
    for index in reversed(range(len(old))):
        if index not in unmoved:
            spare.setdefault(before[index], []).append(index)
    source = {index: index for index in unmoved}
    for index, key in enumerate(after):
        if index not in unmoved and spare.get(key):
            source[index] = spare[key].pop()
    taken = set(source.values())
    merged = []
    for index, item in enumerate(new):
        if index in source:
            merged.append(old[source[index]])
        elif index < len(old) and index not in taken:
            merged.append(update(old[index], item))
        else:
            merged.append(item)
    return merged
