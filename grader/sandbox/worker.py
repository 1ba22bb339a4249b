"""The program inside the sandbox: runs a student's cells, then answers calls to what they define.

It is copied into the sandbox next to ``codec.py`` and knows nothing of tests, scores or expected values. Whoever
started it drives it over one socket with frames of `codec.dumps`:

    prepare                     user, limits of the system and paths; the shell is built
    setup  → ready              what the channel may carry
    cell   → done               run one cell in the shell, return its outputs
    finish → finished           names the parts of the shell and of libraries that student code replaced
    test   → ended              fork (the socket of the child comes with the message); the child answers
    answer                      answer calls in this very process, where fork isn't used
    get    → a value, "callable", "module" or "missing"
    call   → the result, or the exception, and the arguments that changed

From the first cell on this process belongs to the student: nothing it says is trusted.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import socket
import symtable
import sys
import traceback
from types import FunctionType, MethodType, ModuleType
from typing import Any

if __name__ == "__main__":
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    del sys.path[0]  # this folder: a student's import must not find what lies in it

    def load(name: str) -> Any:
        """A module that lies beside this file, or in its place in the project."""
        near = [os.path.join(here, name), os.path.join(os.path.dirname(here), "channel", name)]
        spec = importlib.util.spec_from_file_location(f"_course_{name[:-3]}", next(filter(os.path.exists, near)))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    codec = load("codec.py")
else:
    from grader.channel import codec

MESSAGE_CAP = 2000
OUTPUT_FACTOR = 20  # print this many times the cap and the process is stopped, less is cut silently


# ------------------------------------------------------------------------------------------------------- the wire


class Wire:
    """Frames over a blocking socket. ``fds``: whether descriptors come with them."""

    def __init__(self, sock: socket.socket, *, fds: bool = True) -> None:
        self.sock = sock
        self.fds = fds and hasattr(socket, "recv_fds")
        self.size = 0  # of the last message received, in bytes

    def _exactly(self, n: int) -> bytes:
        parts = []
        while n:
            part = self.sock.recv(min(n, 1 << 20))
            if not part:
                os._exit(0)  # the other side is gone
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it."""
        fds: list[int] = []
        if self.fds:
            first, fds, _, _ = socket.recv_fds(self.sock, 1, 1)
        else:
            first = self._exactly(codec.HEADER.size)
        if not first:
            os._exit(0)
        (size,) = codec.HEADER.unpack(first + self._exactly(codec.HEADER.size - len(first)))
        self.size = codec.HEADER.size + size
        return codec.loads(self._exactly(size)), fds

    def send(self, message: dict[str, Any], cap: int = (1 << 32) - 1) -> None:
        self.sock.sendall(codec.dumps(message, cap))


# ---------------------------------------------------------------------------------------------------------- forking


def bare_fork() -> int:
    """As `os.fork`, without what modules registered to do then, which with torch writes to, and so copies, 250 pages.

    It sets right what other threads held, and there are none. `random` goes on as the cells left it, as in a notebook.
    Only for Linux.
    """
    import ctypes

    pid = ctypes.PyDLL(None, use_errno=True).fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork")
    return pid


# --------------------------------------------------------------------------------------------------- what is allowed


def confine(setup: dict[str, Any]) -> None:
    """Set the resource limits and, started as root inside bubblewrap, give up root for good."""
    if setup["uid"] is not None:
        os.setgroups([])
        os.setresgid(setup["uid"], setup["uid"], setup["uid"])
        os.setresuid(setup["uid"], setup["uid"], setup["uid"])
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: changing the user cleared it, and /proc/self would belong to root
    if setup["rlimits"]:
        import resource

        for name, (soft, hard) in setup["rlimits"].items():
            with contextlib.suppress(ValueError, OSError, AttributeError):
                resource.setrlimit(getattr(resource, name), (soft, hard))


class Printed(io.TextIOBase):
    """A text stream into the outputs of the running cell."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, name: str, room: Room) -> None:
        super().__init__()
        self.name = name
        self.room = room

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.room.add(self.name, text)
        return len(text)

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """A cell that closes its output goes on without harm."""

    def fileno(self) -> int:
        return 1 if self.name == "stdout" else 2  # /dev/null, for code that hands it to a subprocess


class Room:
    """The outputs of the running cell.

    Text above the cap (characters, for the whole notebook) is cut; a flood ends the process.
    """

    def __init__(self) -> None:
        self.left = self.flood = 0
        self.keep = True
        self.outputs: list[dict[str, Any]] = []
        self.wire: Wire | None = None

    def open(self, cap: int, wire: Wire) -> None:
        """Have room for ``cap`` characters; a flood is told over ``wire``."""
        self.left, self.flood, self.wire = cap, cap * OUTPUT_FACTOR, wire

    def add(self, name: str, text: str) -> None:
        self.flood -= len(text)
        if self.flood < 0:
            with contextlib.suppress(BaseException):
                self.wire.send({"limit": "output"})
            os._exit(1)
        kept = text[: self.left] if self.keep else ""
        if not kept:
            return
        self.left -= len(kept)
        last = self.outputs[-1] if self.outputs else None
        if last is not None and last.get("stream") == name and isinstance(last["text"], list):
            last["text"].append(kept)
        else:
            self.outputs.append({"stream": name, "text": [kept]})

    def show(self, kind: str, text: str) -> None:
        kept = text[: max(0, self.left)]
        self.left -= len(kept)
        self.outputs.append({kind: kept})

    def take(self) -> list[dict[str, Any]]:
        taken, self.outputs = self.outputs, []
        return [{**o, "text": "".join(o["text"])} if "stream" in o else o for o in taken]


# ------------------------------------------------------------------------------------------------------- the shell


def build_shell(room: Room) -> Any:
    """An IPython shell without history file, configuration, colours or terminal."""
    import bdb  # noqa: F401 (as the logger: what IPython puts off until its first cell)

    from IPython.core import compilerop, displayhook, displaypub, interactiveshell, logger  # noqa: F401
    from traitlets.config import Config

    class CellCompiler(compilerop.CachingCompiler):
        """Names a cell's code after the cell, so that a traceback tells which one."""

        cell = "0"

        def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
            return f"<cell {self.cell}>"

    class Hook(displayhook.CapturingDisplayHook):
        is_active = False

        def __call__(self, result: Any = None) -> None:
            if result is not None:
                self.shell.user_ns["_"] = result
                room.show("result", plain_text(self.shell, result))

    class Publisher(displaypub.DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, **_: Any) -> None:
            room.show("display", str(data.get("text/plain", "")))

        def clear_output(self, wait: bool = False) -> None:
            room.outputs.clear()

    class Kernel:
        """What code written for Jupyter expects at ``get_ipython().kernel``. It does nothing."""

        async def do_execute(self, code: str, silent: bool, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {"status": "ok", "execution_count": 0, "user_expressions": {}, "payload": []}

        def do_shutdown(self, restart: bool) -> dict[str, Any]:
            return {"status": "ok", "restart": restart}

    class Shell(interactiveshell.InteractiveShell):
        compiler_class = CellCompiler

        transformed: tuple[str, str] | None = None

        def transform_cell(self, raw_cell: str) -> str:
            """The source as Python. It is asked for twice in a row, and takes longer than many a cell."""
            before, self.transformed = self.transformed, None
            if before is None or before[0] != raw_cell:
                before = self.transformed = raw_cell, super().transform_cell(raw_cell)
            return before[1]

        def ask_exit(self) -> None:
            """exit() in a notebook ends nothing here."""

        def init_displayhook(self) -> None:
            super().init_displayhook()
            self.displayhook = Hook(self)
            self.display_trap.hook = self.displayhook

        def init_display_pub(self) -> None:
            self.display_pub = Publisher(parent=self, shell=self)

        def init_virtualenv(self) -> None:
            """The interpreter already is the right one."""

        def showtraceback(self, *args: Any, **kwargs: Any) -> None:
            """`run_cell` reports the error from its result."""

        showsyntaxerror = showtraceback

        def _format_exception_for_storage(self, *args: Any, **kwargs: Any) -> list[str]:
            """No history of tracebacks either: IPython 9 would take 20 ms to write one."""
            return []

        def enable_gui(self, gui: Any = None) -> None:
            """No event loop here."""

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryAccessor.enabled = False
    config.InteractiveShell.cache_size = 0
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.automagic = True
    shell = Shell.instance(config=config)
    shell.display_formatter.active_types = ["text/plain"]
    shell.kernel = Kernel()
    return shell


def plain_text(shell: Any, value: Any) -> str:
    data, _ = shell.display_formatter.format(value, include={"text/plain"})
    return str(data.get("text/plain", ""))


def bound_names(source: str) -> list[str]:
    """Names that a cell binds at its top level."""
    table = symtable.symtable(source, "cell", "exec")
    return [s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()]


def definitions_only(source: str) -> str:
    """The imports, functions and classes of a cell, each on its line, and nothing that runs."""
    kept = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    lines = source.splitlines()
    out = [""] * len(lines)
    for node in ast.parse(source).body:
        if isinstance(node, kept):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            out[first - 1 : node.end_lineno] = lines[first - 1 : node.end_lineno]
    return "\n".join(out)


# ------------------------------------------------------------------------------------------------------- exceptions


def safe_text(value: Any) -> str:
    try:
        text = str(value)
        return str.__str__(text)[:MESSAGE_CAP]
    except BaseException:
        return ""


def place(tb: Any) -> tuple[str | None, int | None]:
    """Key and line of the innermost frame that lies in a cell."""
    found: tuple[str | None, int | None] = (None, None)
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if name.startswith("<cell ") and name.endswith(">"):
            found = (name[6:-1], tb.tb_lineno)
        tb = tb.tb_next
    return found


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: its type, nearest builtin base, text, and the cell and line it came from."""
    base = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    cell, line = place(error.__traceback__)
    if isinstance(error, SyntaxError):
        name = error.filename or ""
        if isinstance(name, str) and name.startswith("<cell "):
            cell, line = name[6:-1], error.lineno
        text = safe_text(error.msg)
    else:
        text = safe_text(error)
    return {
        "type": codec._type_name(type(error)),
        "base": base,
        "text": text,
        "cell": cell,
        "line": line if type(line) is int else None,
        "trace": trace(error),
    }


def trace(error: BaseException) -> list[str]:
    """The traceback as text, the student's frames only, for the instructor."""
    lines = []
    try:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith("<cell "):
                lines.append(
                    f"  {frame.filename[1:-1]}, line {frame.lineno}, in {frame.name}: {frame.line or ''}"[:300]
                )
    except BaseException:
        return []
    return lines[:10] + lines[10:][-20:]


# --------------------------------------------------------------------------------------------- was anything replaced?


def version(namespace: dict[str, Any]) -> int:
    """A number that changes with every change of a dict, where Python keeps one (PEP 509).

    To look at a thousand values writes to each one's count of references, and so copies a thousand shared pages.
    """
    import ctypes

    return ctypes.c_uint64.from_address(id(namespace) + 24).value


class Integrity:
    """Looks for parts of the shell and of common libraries that student code has replaced. A hint, not a wall."""

    SHELL = [
        "run_cell",
        "run_cell_async",
        "run_code",
        "run_ast_nodes",
        "showtraceback",
        "_showtraceback",
        "showsyntaxerror",
        "compile",
        "display_pub",
        "displayhook",
        "events",
        "user_ns",
        "user_module",
        "input_transformer_manager",
        "should_run_async",
        "transform_cell",
        "kernel",
        "set_custom_exc",
    ]
    MODULES = [
        "unittest.case",
        "math",
        "cmath",
        "json",
        "json.decoder",
        "json.encoder",
        "random",
        "time",
        "pytest",
        "_pytest.python_api",
        "numpy",
        "numpy.testing",
        "numpy._core.numeric",
        "torch",
        "torch.testing",
        "copy",
        "operator",
    ]
    EXPECTED_BUILTINS = {"_", "display", "get_ipython", "print", "input", "exit", "quit", "open"}

    def __init__(self, shell: Any) -> None:
        import builtins

        self.shell = shell
        self.kind = type(shell)
        self.parts = {n: self.value(shell, n) for n in self.SHELL}
        self.classes = [c for c in self.kind.__mro__ if c.__module__.startswith(("IPython", "__main__", "grader"))]
        self.methods = {(c, n): v for c in self.classes for n, v in vars(c).items() if isinstance(v, FunctionType)}
        self.kernel = dict(vars(type(shell.kernel)))
        self.lists = self.transformers()
        self.builtins = dict(vars(builtins))
        self.modules = {n: dict(vars(sys.modules[n])) for n in ("math", "json") if n in sys.modules}
        self.versions: dict[str, int] = {}

    def begin(self) -> None:
        """Remember which state the modules are in: those that stay in it need not be looked through."""
        probe = {"a": 1}
        before, probe["a"] = version(probe), 2
        if before != version(probe) == version(probe):  # this Python keeps such numbers
            loaded = {n: sys.modules[n] for n in self.MODULES if isinstance(sys.modules.get(n), ModuleType)}
            self.versions = {n: version(vars(module)) for n, module in loaded.items()}

    @staticmethod
    def value(owner: Any, name: str) -> Any:
        found = getattr(owner, name, None)
        return (found.__func__, found.__self__) if isinstance(found, MethodType) else found

    def transformers(self) -> dict[str, list[Any]]:
        manager = self.shell.input_transformer_manager
        return {
            "an input transformer": [*manager.cleanup_transforms, *manager.line_transforms, *manager.token_transformers]
            + list(self.shell.input_transformers_post),
            "an AST transformer": list(self.shell.ast_transformers),
        }

    @staticmethod
    def by_student(value: Any) -> bool:
        value = value.__func__ if isinstance(value, MethodType) else value
        return type(value) is FunctionType and value.__code__.co_filename.startswith("<cell ")

    def findings(self) -> list[str]:
        """What was replaced, in words. The look itself uses the builtins as they were at the start."""
        import builtins

        now = dict(vars(builtins))
        vars(builtins).update(self.builtins)
        try:
            found = [f"builtins.{n}" for n, v in self.builtins.items() if self.replaced_builtin(n, now.get(n), v)]
            for check in (self.shell_parts, self.hooks, self.libraries):
                try:
                    found += check()
                except BaseException as e:
                    found.append(f"the shell is damaged ({type(e).__name__})")
            return [f[:200] for f in dict.fromkeys(found)][:40]
        finally:
            vars(builtins).update(now)

    def replaced_builtin(self, name: str, now: Any, before: Any) -> bool:
        return now is not before and name not in self.EXPECTED_BUILTINS

    def shell_parts(self) -> list[str]:
        import IPython

        found = [f"get_ipython().{n}" for n, v in self.parts.items() if not self.same(self.value(self.shell, n), v)]
        found += [f"{c.__name__}.{n}" for (c, n), v in self.methods.items() if vars(c).get(n) is not v]
        kernel = self.shell.kernel
        found += [f"get_ipython().kernel.{n}" for n in vars(kernel)]
        found += [f"kernel.{n}" for n, v in self.kernel.items() if callable(v) and vars(type(kernel)).get(n) is not v]
        if IPython.get_ipython() is not self.shell:
            found.append("get_ipython()")
        if self.shell.custom_exceptions != ():
            found.append("the exception handler (set_custom_exc)")
        return found

    @staticmethod
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return all(x is y for x, y in zip(a, b, strict=True))
        return a is b

    def hooks(self) -> list[str]:
        found = [name for name, now in self.transformers().items() if any(map(self.by_student_object, now))]
        for event, callbacks in self.shell.events.callbacks.items():
            if any(map(self.by_student_object, callbacks)):
                found.append(f"a callback on {event}")
        found += [
            f"sys.{n}" for n in ("settrace", "setprofile") if self.by_student_object(getattr(sys, "get" + n[3:])())
        ]
        found += ["an import hook" for finder in sys.meta_path if self.by_student_object(finder)]
        return found

    def by_student_object(self, value: Any) -> bool:
        if value is None:
            return False
        kind = value if isinstance(value, type) else type(value)
        return self.by_student(value) or kind.__module__ == "__main__" and kind.__name__ not in ("Shell", "Kernel")

    def libraries(self) -> list[str]:
        found = []
        for name in self.MODULES:
            module = sys.modules.get(name)
            if module is None:
                continue
            if not isinstance(module, ModuleType):
                found.append(f"module {name}")
                continue
            if self.versions.get(name) == version(vars(module)) and name != "unittest.case":
                continue  # of that one, classes are looked into
            for attribute, value in list(vars(module).items()):
                if self.by_student(value):
                    found.append(f"{name}.{attribute}")
                elif isinstance(value, type) and value.__module__.startswith("unittest"):
                    methods = [n for n, v in list(vars(value).items()) if self.by_student(v)]
                    more = f" and {len(methods) - 3} more" if len(methods) > 3 else ""
                    if methods:
                        found.append(f"{name}.{attribute}: {', '.join(methods[:3])}{more}")
        for name, before in self.modules.items():
            now = vars(sys.modules[name]) if isinstance(sys.modules.get(name), ModuleType) else {}
            replaced = [f"{name}.{n}" for n, v in before.items() if callable(v) and now.get(n) is not v]
            found += [f for f in replaced if f not in found]
        return found


# ------------------------------------------------------------------------------------------------------- the worker


class Worker:
    def __init__(self, wire: Wire | None) -> None:
        self.wire = wire
        self.bindings: dict[str, dict[str, Any]] = {}  # by cell: the names it bound, as it left them
        self.roles: dict[str, str] = {}
        self.ever: set[str] = set()

    def begin(self, wire: Wire) -> None:
        """Take up a channel, in a process that was prepared before it was forked."""
        import gc

        gc.unfreeze()  # what code sees in gc.get_objects() is the same as after a cold start
        self.wire = wire
        with contextlib.suppress(Exception):  # the folder was made in the home of the process that forked
            self.shell.profile_dir.check_dirs()

    def serve(self) -> None:
        """Answer messages until the other side closes."""
        while True:
            message, fds = self.wire.receive()
            getattr(self, "on_" + message["op"])(message, fds)

    def prepare(self, paths: list[str]) -> None:
        """Build the shell: all that can be done before it is known for whom."""
        sys.path.extend(p for p in paths if p not in sys.path)
        sys.path.append("")  # a student's own files come last: they never hide a library
        self.room = Room()
        self.shell = build_shell(self.room)
        sys.stdout, sys.stderr = Printed("stdout", self.room), Printed("stderr", self.room)
        self.integrity = Integrity(self.shell)

    def on_prepare(self, message: dict[str, Any], fds: list[int]) -> None:
        confine(message)
        self.prepare(message["paths"])

    def on_setup(self, message: dict[str, Any], fds: list[int]) -> None:
        import random

        self.caps = codec.Caps(size=message["reply"], depth=message["depth"])
        self.room.open(message["output"], self.wire)
        random.seed(0)
        self.integrity.begin()
        self.wire.send({"ready": True})

    def on_cell(self, message: dict[str, Any], fds: list[int]) -> None:
        key, source = message["key"], message["source"]
        self.roles[key] = message["role"]
        self.shell.compile.cell = key
        names: list[str] = []
        try:
            transformed = self.shell.transform_cell(source)
            names = bound_names(transformed)
            if message.get("definitions_only"):
                source = definitions_only(transformed)
        except BaseException:
            names = []
            if message.get("definitions_only"):
                source = ""
        ns = self.shell.user_ns
        before = {n: ns[n] for n in names if n in ns}
        error = self.run(source)
        fresh = {n: ns[n] for n in names if n in ns and (error is None or ns[n] is not before.get(n))}
        self.ever.update(n for n in names if n in ns)
        self.bindings[key] = fresh
        self.wire.send({"done": key, "outputs": self.room.take(), "error": error})

    def run(self, source: str) -> dict[str, Any] | None:
        try:
            result = self.shell.run_cell(source, store_history=True)
            error = result.error_before_exec or result.error_in_exec
        except BaseException as e:
            error = e
        return None if error is None else describe(error)

    def on_finish(self, message: dict[str, Any], fds: list[int]) -> None:
        findings = self.integrity.findings()
        with contextlib.suppress(Exception):
            self.stop_background()
        self.wire.send({"finished": findings})

    def stop_background(self) -> None:
        """End the thread that %%bash and its like leave behind: a process with one thread can be forked."""
        import threading

        for magics in list(self.shell.magics_manager.registry.values()):
            loop = getattr(magics, "event_loop", None)
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
                magics.event_loop = None
        for thread in threading.enumerate():
            if "run_forever" in thread.name:
                thread.join(1.0)

    def on_test(self, message: dict[str, Any], fds: list[int]) -> None:
        (fd,) = fds
        sock = socket.socket(fileno=fd)
        pid = bare_fork()
        if pid == 0:
            try:
                self.wire.sock.close()
                self.wire = Wire(sock, fds=False)
                self.on_answer(message, [])
                self.serve()
            finally:
                os._exit(0)
        sock.close()
        _, status = os.waitpid(pid, 0)
        self.wire.send({"ended": message["test"], "status": status})

    def on_answer(self, message: dict[str, Any], fds: list[int]) -> None:
        """Make ready to answer calls for one test: its own question's definitions count, helpers are restored."""
        self.room.keep = False
        self.room.wire = self.wire
        self.room.flood = self.caps.size * OUTPUT_FACTOR
        ns = self.shell.user_ns
        for role in ("solution", "locked"):
            for key, names in self.bindings.items():
                if self.roles[key] == role:
                    ns.update(names)
            if role == "solution":
                ns.update(self.bindings.get(message["question"], {}))

    def on_get(self, message: dict[str, Any], fds: list[int]) -> None:
        name, ns = message["name"], self.shell.user_ns
        if name not in ns:
            reply: dict[str, Any] = {"kind": "missing", "deleted": name in self.ever}
        elif isinstance(ns[name], ModuleType):
            reply = {"kind": "module", "module": safe_text(getattr(ns[name], "__name__", ""))}
        elif callable(ns[name]) and not self.is_plain(ns[name]):
            reply = {"kind": "callable"}
        else:
            reply = {"kind": "value", **self.encoded(ns[name], self.caps)}
        self.reply(message, reply, self.caps.size)

    @staticmethod
    def is_plain(value: Any) -> bool:
        """Values that cross although they can be called: numpy and torch dtypes and arrays have such methods."""
        return type(value).__module__ in ("numpy", "torch") and not isinstance(value, type)

    @staticmethod
    def encoded(value: Any, caps: Any) -> dict[str, Any]:
        try:
            return {"value": codec.encode(value, caps)}
        except codec.TooLarge as e:
            return {"refused": str(e), "large": True}
        except codec.CodecError as e:
            return {"refused": str(e), "large": False}

    def on_call(self, message: dict[str, Any], fds: list[int]) -> None:
        size = self.caps.size + self.wire.size  # what came may go back
        caps = codec.Caps(size=size, depth=self.caps.depth)
        ns = self.shell.user_ns
        sent = [*message["args"], *(a for _, a in message["kwargs"])]
        given = [codec.decode(a, caps, resolve=ns.__getitem__) for a in sent]
        args, names = given[: len(message["args"])], [k for k, _ in message["kwargs"]]
        kwargs = dict(zip(names, given[len(args) :], strict=True))
        try:
            result = ns[message["name"]](*args, **kwargs)
            reply = self.encoded(result, caps)
        except BaseException as e:
            reply = {"error": describe(e)}
        changed = []
        for index, (value, data) in enumerate(zip(given, sent, strict=True)):
            after = self.encoded(value, caps)
            # What was sent may be written in another way than this process does: then make the value once more.
            if after.get("value") != data and after != self.encoded_again(data, caps):
                changed.append([index, after])
        self.reply(message, {**reply, "changed": changed}, size)

    def encoded_again(self, data: Any, caps: Any) -> dict[str, Any]:
        try:
            return self.encoded(codec.decode(data, caps, resolve=self.shell.user_ns.__getitem__), caps)
        except codec.CodecError:
            return {}

    def reply(self, message: dict[str, Any], reply: dict[str, Any], size: int) -> None:
        try:
            self.wire.send({"id": message["id"], **reply}, 2 * size + 65536)
        except codec.TooLarge as e:
            self.wire.send({"id": message["id"], "refused": str(e), "large": True})


def main() -> None:
    """``worker.py FD`` (a socket) or, where sockets can't be inherited, ``worker.py PORT TOKEN``.

    ``worker.py FD warm PATH…`` keeps workers ready: see ``zygote.py``.
    """
    if sys.argv[2:3] == ["warm"]:
        fd, paths = int(sys.argv[1]), sys.argv[3:]
        sys.argv = [""]
        load("zygote.py").serve(fd, sys.modules[__name__], codec, paths)
    if len(sys.argv) == 2:
        sock = socket.socket(fileno=int(sys.argv[1]))
    else:
        sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        sock.sendall(sys.argv[2].encode())
    sock.setblocking(True)
    sock.set_inheritable(False)
    sys.argv = [""]
    Worker(Wire(sock)).serve()


if __name__ == "__main__":
    main()
