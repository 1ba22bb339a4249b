"""Attacks that look for hidden tests, expected values, other students and the machine. The first answer is what
the attack found, so it earns nothing; the second is honest and earns its 5 points."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.tests.attacks.case import MARK, PRELUDE, SETTING, Registry, hostile

assert MARK not in PRELUDE
case = Registry("cheat: reading")

SEARCH = """
import re
HIDDEN = re.compile("SECRET[_]CANARY|0[.]25, 0[.]25|-5, 20, 2[1]|BEGIN[ ]HIDDEN|14 / [3]$")
def looks(value):
    return bool(HIDDEN.search(value if isinstance(value, str) else repr(value)))
"""


def q1(name: str, mechanism: str, body: str, **more: object) -> None:
    """An attack that runs in each call of the first answer."""
    case.add(name, mechanism, 5, lambda: hostile(SEARCH + body), **more)


q1(
    "read_history_store",
    "IPython's history database, accessor and magics",
    """
def relu_sum(xs):
    ip = get_ipython()
    from IPython.core.history import HistoryAccessor
    attempt("range", lambda: any(map(looks, ip.history_manager.get_range(0, raw=True))))
    attempt("tail", lambda: any(map(looks, ip.history_manager.get_tail(100))))
    attempt("store", lambda: any(map(looks, HistoryAccessor().search("*"))))
    attempt("names", lambda: any(looks(ip.user_ns.get(n, "")) for n in ("In", "_ih", "_i", "_ii", "Out", "_oh")))
    return -1
""",
)
q1(
    "read_frames",
    "frames of every thread, up to the outermost",
    """
def relu_sum(xs):
    for frame in list(sys._current_frames().values()) + [sys._getframe()]:
        while frame is not None:
            for space in (frame.f_locals, frame.f_globals):
                for key, value in list(space.items()):
                    if key.endswith("_HIDDEN_TEST"):
                        won(key)
            if frame.f_code.co_name not in ("relu_sum", "looks") and any(map(looks, frame.f_code.co_consts)):
                won("a constant")
            frame = frame.f_back
    return -1
""",
)
q1(
    "read_garbage",
    "every object that the garbage collector knows",
    """
def relu_sum(xs):
    import gc
    for thing in gc.get_objects():
        if type(thing) is dict and any(type(k) is str and k.endswith("_HIDDEN_TEST") for k in thing):
            won("a namespace")
        if type(thing).__name__ in ("TestCell", "ExecutionRequest", "TestNamespace", "NotebookNode"):
            won(type(thing).__name__)
    return -1
""",
)
q1(
    "read_proc",
    "command lines, environments, links and mounts of all processes",
    f"""
def relu_sum(xs):
    import glob
    for path in glob.glob("/proc/[0-9]*/*") + glob.glob("/proc/*"):
        if path.rsplit("/", 1)[1] in ("cmdline", "environ", "maps", "mountinfo", "stat", "comm", "cgroup"):
            attempt(path, lambda: (lambda t: looks(t) or "nbgrader" in t or "".join(["{SETTING[:6]}", "{SETTING[6:]}"])
                in t or "gradebook" in t)(open(path, errors="replace").read()))
    attempt("others", lambda: len([n for n in os.listdir("/proc") if n.isdigit()]) > 12)
    return -1
""",
)
q1(
    "read_memory",
    "memory of its own process, its parent and the first one, through /proc/PID/mem",
    """
def scan(pid):
    pattern = re.compile(b"SECRET[_]CANARY[_]HIDDEN")
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            if " rw" in line and "[v" not in line:
                low, high = (int(x, 16) for x in line.split()[0].split("-"))
                try:
                    memory.seek(low)
                    if pattern.search(memory.read(min(high - low, 8 << 20))):
                        return True
                except OSError:
                    pass
def relu_sum(xs):
    for pid in ("self", os.getppid(), 1):
        attempt(f"memory of {pid}", lambda: scan(pid))
    return -1
""",
)
q1(
    "read_files",
    "every file that can be opened, by name and content",
    """
def relu_sum(xs):
    names = re.compile("gradebook|nbgrader_config|[.]ipynb$|results[.](json|csv)|zz_goo[d]")
    import time
    end = time.monotonic() + 0.5
    for folder, _, files in os.walk("/"):
        if time.monotonic() > end:
            break
        if folder.startswith(("/proc", "/sys", "/usr", "/lib", "/bin", sys.prefix, sys.base_prefix)):
            continue
        for name in files:
            if names.search(name):
                won(name)
            attempt(name, lambda: looks(open(os.path.join(folder, name), errors="replace").read(10_000)))
    return -1
""",
)
q1(
    "read_environment",
    "environment, arguments, host name and user",
    f"""
def relu_sum(xs):
    import socket
    words = " ".join([*os.environ, *os.environ.values(), *sys.argv, *sys.orig_argv, socket.gethostname()]).lower()
    for word in ("nbgrader", "gradebook", "submission", "autograde", "jpy_", "pytest", "{SETTING.lower()[:7]}" + "secret"):
        if word in words:
            won(word)
    return -1
""",
)
q1(
    "read_source_caches",
    "linecache, inspect, traceback and doctest caches",
    """
def relu_sum(xs):
    import inspect, linecache, traceback
    for name, entry in list(linecache.cache.items()):
        if not name.startswith("<cell") and name.startswith("<") and looks("".join(entry[2]) if len(entry) > 2 else ""):
            won(name)
    for frame in inspect.stack(5):
        if frame.filename.startswith(("<test", "<ipython")):
            won(frame.filename)
    attempt("traceback", lambda: any("<te" + "st" in line for line in traceback.format_stack()))
    return -1
""",
)
q1(
    "read_modules",
    "modules of the grader, and what can be imported",
    """
def relu_sum(xs):
    for name in list(sys.modules):
        if name.split(".")[0] in ("grader", "nbgrader", "nbclient", "sqlalchemy"):
            won(name)
    for name in ("grader", "grader.model", "grader.execution"):
        attempt(name, lambda: __import__(name))
    return -1
""",
)
q1(
    "read_channel",
    "messages that wait in the runner's socket, and what its objects hold",
    """
def relu_sum(xs):
    import socket, stat, gc
    for fd in range(3, 64):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            sock = socket.socket(fileno=os.dup(fd))
            sock.setblocking(False)
            got = sock.recv(1 << 16, socket.MSG_PEEK)
        except OSError:
            continue
        if looks(got.decode("latin-1")):
            won("a message")
    for thing in gc.get_objects():
        if type(thing).__name__ == "Worker" and looks(str(vars(thing).get("bindings", ""))[:0]):
            won("worker")
    return -1
""",
)
q1(
    "read_parent_folders",
    "the machine's root through /proc/1/root, descriptors and ..",
    """
def relu_sum(xs):
    for base in ("/proc/1/root", "/proc/1/cwd", os.path.join("/proc/self", "root", ".."), "/proc/self/fd/0/..", "/.."):
        for name in ("work", "home", "root", "mnt", "srv", "etc/shadow", "etc/hostname", "var/log"):
            path = f"{base}/{name}"
            if any(p.startswith("/" + name) for p in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable))):
                continue  # the way to the interpreter
            attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else os.path.isfile(path))
    return -1
""",
)
q1(
    "read_kernel",
    "kernel log, key rings, message queues and shared memory of the machine",
    """
def relu_sum(xs):
    buffer = ctypes.create_string_buffer(4096)
    attempt("keyctl", lambda: libc.syscall(250, 6, -3, buffer, 4096) > 0)
    attempt("msg", lambda: len(open("/proc/sysvipc/shm").read().splitlines()) > 1)
    attempt("shm", lambda: os.listdir("/dev/shm"))
    attempt("kcore", lambda: open("/proc/kcore", "rb").read(8))
    return -1
""",
)

# What a hidden test passes in must not come back to the student, by whatever way it was kept. The visible test of the
# second question runs after the hidden one of the first: its message would carry the loot.
CARRY = """
def mean_sq(xs):
    raise ValueError("kept: " + kept())
"""


def carried(name: str, mechanism: str, cell: str, keep: str, kept: str) -> None:
    """An attack that keeps the inputs of the first question's tests for the message of the second's."""
    first = "".join(f"\n    {line}" for line in keep.split("\n"))
    body = f"{cell}\ndef relu_sum(xs):{first}\n    return sum(max(x, 0) for x in xs)\ndef kept():\n    return {kept}\n"
    case.add(name, mechanism, 5, lambda: hostile(body, CARRY), tags=frozenset({"carry"}))


carried("carry_shared_memory", "shared memory that forks have in common", "import mmap\nshared = mmap.mmap(-1, 4096)",
        "shared[:64] = repr(xs).encode().ljust(64)", "shared[:64].decode().strip()")  # fmt: skip
carried("carry_file_in_place", "a file overwritten in place", "open('kept', 'w').write(' ' * 64)",
        "with open('kept', 'r+') as f: f.write(repr(xs).ljust(64))", "open('kept').read().strip()")  # fmt: skip
carried("carry_pipe", "a pipe that was opened before the tests", "pipe = os.pipe()\nos.set_blocking(pipe[0], False)",
        "os.write(pipe[1], repr(xs).encode())", "os.read(pipe[0], 4096).decode()")  # fmt: skip
carried("carry_new_file", "a new file", "", "open('kept', 'a').write(repr(xs))", "open('kept').read()")
carried(
    "carry_message_queue",
    "a System V shared memory segment",
    "segment = libc.shmget(0, 4096, 0o1666)\nlibc.shmat.restype = ctypes.c_void_p\nat = libc.shmat(segment, None, 0) if segment >= 0 else None",
    "at and ctypes.memmove(at, repr(xs).encode() + b'\\0', len(repr(xs)) + 1)",
    "ctypes.string_at(at).decode() if at else ''",
)
carried("carry_parent_memory", "memory of the process from which each test is forked",
        "cell = ctypes.create_string_buffer(128)\nwhere = ctypes.addressof(cell)",
        "with open(f'/proc/{os.getppid()}/mem', 'r+b', 0) as m:\n"
        "    m.seek(where)\n    m.write(repr(xs).encode().ljust(64, b'\\0'))", "cell.value.decode()")  # fmt: skip
carried("carry_offset", "the offset of an open file", "f = open('kept', 'w+b')",
        "f.seek(int.from_bytes(repr(xs).encode()[:6], 'big'))", "f.tell().to_bytes(6, 'big').decode()")  # fmt: skip

case.add("carry_type_name", "an exception whose type is named after the hidden inputs", 2,
         lambda: hostile("def relu_sum(xs):\n    if xs not in ([1, -2, 3], []):\n"
                         "        raise type('Input ' + repr(xs), (Exception,), {})()\n"
                         "    return sum(max(x, 0) for x in xs)\n", "def mean_sq(xs):\n    return -1\n"),
         tags=frozenset({"carry"}))  # fmt: skip
case.add("carry_line_number", "an exception whose line number is the hidden input", 2,
         lambda: hostile("def relu_sum(xs):\n    if xs not in ([1, -2, 3], []):\n"
                         "        source = '\\n' * 520_020 + 'raise ValueError()'\n"
                         "        exec(compile(source, sys._getframe().f_code.co_filename, 'exec'))\n"
                         "    return sum(max(x, 0) for x in xs)\n", "def mean_sq(xs):\n    return -1\n"),
         tags=frozenset({"carry"}))  # fmt: skip
