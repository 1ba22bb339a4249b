"""Guards the sandbox: what student code can see, reach and use up, and that nothing of it is left afterwards."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from grader import sandbox
from grader.errors import GraderError
from grader.model import Limits
from grader.sandbox import command, process, processes, seccomp, warm
from grader.sandbox import zygote as zygote_program
from grader.sandbox.libraries import Libraries
from grader.tests.execution_support import extra, graded, outcome, output_text, run, solution, statuses

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).resolve().parents[2]
GOOD = (solution("def double(x):\n    return 2 * x\n", "good"), graded("assert double(2) == 4", "good_test"))


def said(source: str, limits: Limits) -> str:
    """What a cell prints in the sandbox."""
    return output_text(run(extra(source), limits=limits), 0)


ROOT_USER = os.geteuid() == 0
MODE = "root" if ROOT_USER else "user"


@pytest.fixture(scope="module")
def libraries():
    """The process from which zygotes are forked."""
    return Libraries()


@pytest.fixture(scope="module")
def zygote(libraries):
    """The process from which submissions are forked."""
    made = warm.Zygote(MODE, libraries)
    yield made
    made.close()


@pytest.fixture(scope="class", params=["cold", "warm"])
def box(request, zygote):
    """A sandbox of each kind: what holds for one must hold for the other."""
    with process.Bubblewrap(Limits(), MODE) if request.param == "cold" else warm.Warm(Limits(), zygote) as started:
        yield started


def ask(box, source: str) -> str:
    deadline = time.monotonic() + 30
    box.channel.send({"op": "cell", "key": "0", "role": "given", "source": source}, deadline)
    reply = box.channel.receive(deadline, 1 << 20)
    return "".join(o.get("text") or "" for o in reply["outputs"]) + str((reply["error"] or {}).get("type", ""))


def test_this_machine_has_a_sandbox():
    assert sandbox.problem() is None


class TestWhatCodeSees:
    @pytest.mark.parametrize("path", [ROOT, ROOT / "grader", Path.home(), "/home", "/root", "/mnt", "/srv", "/sys"])
    def test_no_course_and_no_home(self, box, path):
        # The folders above the interpreter exist, and hold nothing but the way to it.
        listed = ask(
            box, f"import os\nprint([n for n in os.listdir({str(path)!r})] if os.path.exists({str(path)!r}) else [])"
        )
        names = set(eval(listed))
        allowed = {
            Path(p).relative_to(path).parts[0]
            for p in command.visible_paths()
            if Path(p).is_relative_to(path) and p != str(path)
        }
        assert names <= allowed

    def test_the_environment_tells_nothing(self, box):
        os.environ["NBGRADER_EXECUTION"] = "autograde"
        try:
            names = ask(box, "import os\nprint(*sorted(os.environ))").split()
        finally:
            del os.environ["NBGRADER_EXECUTION"]
        ipython = {"PAGER", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "COLUMNS", "LINES"}
        assert set(names) <= set(command.environment("", "/x/python")) | ipython | {"PWD", "LC_CTYPE"}

    def test_only_its_own_processes(self, box):
        assert len(ask(box, "import os\nprint(*[n for n in os.listdir('/proc') if n.isdigit()])").split()) <= 3

    def test_no_source_of_the_grader_in_memory_or_arguments(self, box):
        found = ask(
            box, "import sys\nprint([m for m in sys.modules if m.startswith(('grader', 'nbgrader'))], sys.argv)"
        )
        assert found.strip() == "[] ['']"

    def test_no_descriptor_but_its_own_channel(self, box):
        found = ask(
            box,
            "import os\nprint(*[os.readlink(f'/proc/self/fd/{n}') for n in range(64)"
            " if os.path.lexists(f'/proc/self/fd/{n}')])",
        ).split()
        assert found[:3] == ["/dev/null"] * 3 and len(found) == 4 and found[3].startswith("socket:")

    def test_its_user_has_a_name_and_its_limits(self, box):
        names = ("CPU", "NOFILE", "FSIZE", "AS", "CORE")
        assert ask(box, "import pwd, os\nprint(pwd.getpwuid(os.getuid())[0], os.path.expanduser('~'))") == (
            f"student {command.HOME}\n"
        )
        shown = ask(box, f"import resource as r\nprint([r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in {names}])")
        limits = process.rlimits(Limits(), own_processes=True)
        assert eval(shown) == [limits[f"RLIMIT_{name}"] for name in names]

    def test_its_temporary_folders_are_small(self, box):
        shown = ask(
            box,
            "import os\nprint(*[os.statvfs(p).f_blocks * os.statvfs(p).f_frsize >> 20 for p in ('/tmp', '/dev/shm')])",
        )
        assert shown == f"{Limits().tmpfs >> 20} {command.shm_size(Limits()) >> 20}\n"

    @pytest.mark.parametrize(
        "path", ["/", "/etc", "/usr", "/dev", "/run", "/run/runner", "/proc/sys/kernel", sys.prefix]
    )
    def test_nothing_is_writable_but_the_temporary_folder(self, box, path):
        assert ask(box, f"open({path + '/x'!r}, 'w')") in ("OSError", "PermissionError", "FileNotFoundError")

    def test_work_and_home_are_writable_and_empty(self, box):
        source = (
            "import os\nprint(os.getcwd(), os.listdir('.'))\nopen('a', 'w')\nopen(os.path.expanduser('~/b'), 'w')\n"
        )
        assert ask(box, source + "os.remove('a')") == f"{command.WORK} []\n"

    def test_it_is_nobody_and_cannot_become_somebody(self, box):
        assert "0" not in ask(box, "import os\nprint(*{*os.getresuid(), *os.getresgid()}, *os.getgroups())").split()
        assert ask(box, "os.setuid(0)") in ("PermissionError", "OSError")
        status = ask(box, "print(open('/proc/self/status').read())")
        for kind in ("CapPrm", "CapEff", "CapAmb"):
            assert f"{kind}:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status


class TestWhatCodeReaches:
    def test_no_listener_of_the_host(self, box):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert (
                ask(box, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)")
                == "ConnectionRefusedError"
            )

    @pytest.mark.parametrize("address", ["('192.0.2.1', 80)", "('2001:db8::1', 80)"])
    def test_no_network(self, box, address):
        assert ask(box, f"import socket\nsocket.create_connection({address}, 2)") in ("OSError", "TimeoutError")

    @pytest.mark.parametrize("family", [3, 4, 9, 15, 17, 21, 29, 31, 38, 40, 44])
    def test_no_other_kind_of_socket(self, box, family):
        assert ask(box, f"import socket\nsocket.socket({family}, socket.SOCK_RAW)") in ("PermissionError", "OSError")

    @pytest.mark.parametrize(
        "call",
        [
            "libc.unshare(0x10000000)",
            "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
            "libc.ptrace(16, 1, 0, 0)",
            "libc.syscall(321, 0, 0, 0)",
            "libc.syscall(425, 1, 0)",
        ],
    )
    def test_calls_that_reach_around_the_namespaces_are_refused(self, box, call):
        assert (
            ask(box, f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint({call}, ctypes.get_errno())")
            == "-1 1\n"
        )

    def test_the_first_process_of_the_sandbox_cannot_be_killed_from_inside(self, box):
        ask(box, "import os, signal\nos.kill(1, signal.SIGKILL)")
        assert ask(box, "print('alive')") == "alive\n"


# Whether a text lies anywhere in the memory of the process. Neither this source nor its pattern matches itself.
SEARCH = """
import re
found = False
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    start, end = (int(x, 16) for x in span.split("-"))
    if mode.startswith("rw"):
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            found = found or re.search(b"m[y] starters secret", memory.read(end - start)) is not None
print(found)
"""


class TestWarm:
    """What only a process that is forked from another could get wrong."""

    def test_a_signal_to_everybody_reaches_nobody_else(self, zygote):
        source = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor n in (0, -1):\n"
        source += "    try: os.kill(n, signal.SIGTERM)\n    except OSError: pass\nprint('alive')"
        with warm.Warm(Limits(), zygote) as box:
            assert ask(box, source) == "alive\n"
        assert zygote.alive()
        with warm.Warm(Limits(), zygote) as box:
            assert ask(box, "print('next')") == "next\n"

    def test_the_memory_of_its_first_process_cannot_be_read(self, zygote):
        with warm.Warm(Limits(), zygote) as box:
            assert ask(box, "open('/proc/1/mem', 'rb')") == "PermissionError"

    def test_nothing_of_one_reaches_the_next(self, zygote):
        leave = (
            "import os, sys, builtins\nopen('left_by_one', 'w')\nopen('/dev/shm/left_by_one', 'w')\n"
            "open(os.path.expanduser('~/left_by_one'), 'w')\nbuiltins.left = sys.left = left = 1\n"
            "os.fork() or __import__('time').sleep(99)"
        )
        with warm.Warm(Limits(), zygote) as box:
            ask(box, leave)
        look = "import os, sys\nprint([n for top in ('/tmp', '/dev/shm') for _, d, f in os.walk(top) for n in d + f"
        look += " if 'left_by_one' in n], hasattr(sys, 'left'), 'left' in dir(__builtins__))"
        with warm.Warm(Limits(), zygote) as box:
            assert ask(box, look) == "[] False False\n"
            assert box.others() == 0
        assert_nothing_is_left()

    @pytest.mark.skipif(not ROOT_USER, reason="an ordinary user's submissions run one at a time")
    def test_two_at_once_cannot_see_each_other(self, zygote):
        with warm.Warm(Limits(), zygote) as one, warm.Warm(Limits(), zygote) as other:
            listen = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0here')\ns.listen()\n"
            listen += "t = socket.create_server(('127.0.0.1', 7777))\nopen('/dev/shm/seen', 'w')"
            assert ask(one, listen) == ""
            assert (
                ask(other, "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0here')")
                == "ConnectionRefusedError"
            )
            assert ask(other, "socket.create_connection(('127.0.0.1', 7777), 2)") == "ConnectionRefusedError"
            assert ask(other, "import os\nprint(os.listdir('/dev/shm'), os.listdir('/dev/pts'))") == "[] ['ptmx']\n"
            assert ask(other, "print(*sorted(n for n in os.listdir('/proc') if n.isdigit()))") == "1 2\n"

    @pytest.mark.skipif(ROOT_USER, reason="root gives each submission a user of its own")
    def test_an_ordinary_users_second_one_starts_cold(self, zygote):
        with warm.Warm(Limits(), zygote), pytest.raises(warm.NotWarm, match="busy"):
            warm.Warm(Limits(), zygote)
        warm.Warm(Limits(), zygote).close()

    def test_libraries_are_loaded_before(self, zygote):
        ask_loaded = "import sys\nprint('colorsys' in sys.modules)"
        with warm.Warm(Limits(), zygote, ("colorsys", "no_such_module")) as box:
            assert ask(box, ask_loaded) == "True\n"

    def test_a_process_with_two_threads_is_not_forked(self):
        wait = threading.Event()
        thread = threading.Thread(target=wait.wait)
        thread.start()
        try:
            assert "threads after importing json" in zygote_program.loaded(["json"])
        finally:
            wait.set()
            thread.join()

    def test_whoever_ordered_it_takes_it_along(self, zygote):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                box = warm.Warm(Limits(), zygote)
                os.write(writer, str(box.pid).encode())
                time.sleep(99)
            finally:
                os._exit(1)
        os.close(writer)  # so that the reader learns of an early end
        inside = int(os.read(reader, 20))
        assert psutil.pid_exists(inside)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reader)
        assert gone(inside) and zygote.alive()

    def test_memory_is_counted_for_an_ordinary_user_too(self, zygote):
        with warm.Warm(Limits(), zygote) as box:
            hold = "import mmap, os, time\nshared = mmap.mmap(-1, 5 << 20)\nif os.fork() == 0: time.sleep(60)"
            assert ask(box, hold) == "" and processes.proportional_memory(box._proc) > 5 << 20
            assert list(processes.shared_sizes(box._proc).values()) == [5 << 20]
            hide = "import ctypes\nctypes.CDLL(None).prctl(4, 0)"
            assert ask(box, hide) == "" and (ROOT_USER or processes.shared_sizes(box._proc) is None)

    def test_the_zygote_itself_has_left_the_machine_and_its_rights(self, libraries, zygote):
        warm.Warm(Limits(), zygote).close()  # by now it stands
        inside = [p for p in psutil.Process(libraries.process.pid).children(recursive=True) if apart(p.pid)]
        assert inside
        for process_inside in inside:
            status = Path(f"/proc/{process_inside.pid}/status").read_text()
            held = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line[:3] == "Cap"}
            allowed = sum(1 << number for number in warm.CAPABILITIES)
            assert {held["CapPrm:"], held["CapEff:"], held["CapBnd:"]} == {allowed}
            assert held["CapInh:"] == held["CapAmb:"] == 0 and "NoNewPrivs:\t1" in status
            opened = {os.readlink(path) for path in Path(f"/proc/{process_inside.pid}/fd").iterdir()}
            assert all(name == "/dev/null" or name.startswith("socket:") for name in opened)

    def test_nothing_of_its_starter_lies_in_its_memory(self):
        program = (
            "from grader.tests.test_sandbox import *\n"
            "zygote = warm.Zygote(MODE, Libraries())\n"
            "with warm.Warm(Limits(), zygote) as box:\n"
            '    print(ask(box, SEARCH), ask(box, \'kept = "my" + " starters secret"\'), ask(box, SEARCH))\n'
            "zygote.close()\n"
        )
        env = {**os.environ, "SOME_SETTING": "my starters secret"}
        done = subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.split() == ["False", "True"], done.stderr

    def test_without_its_own_bubblewrap_nothing_is_started(self, libraries):
        """A process that stayed on the machine would run student code there."""
        control, theirs = socket.socketpair()
        ready, standing = os.pipe()
        info, tell = os.pipe()
        os.write(standing, b"\n")
        os.write(tell, json.dumps({"child-pid": os.getpid()}).encode())
        message = {"user": False, "capabilities": [], "folder": "/", "program": "/run/runner/worker.py", "words": []}
        libraries.enter(message, [], theirs, ready, info)
        theirs.close()
        control.settimeout(20)
        assert control.recv(1) == b""

    @pytest.mark.parametrize("how", ["killed", "no filter", "refused"])
    def test_without_a_zygote_the_start_is_cold(self, how, libraries, monkeypatch):
        zygote = warm.Zygote(MODE, libraries)
        monkeypatch.setattr(sandbox, "_zygote", zygote)
        if how == "killed":
            warm.Warm(Limits(), zygote).close()
            end(zygote)
        elif how == "no filter":
            monkeypatch.setattr(warm.seccomp, "program", lambda: None)  # as on a rare machine
        else:
            order = warm.order
            monkeypatch.setattr(warm, "order", lambda *args: {**order(*args), "tmpfs": {"/no": 1}})
        try:
            with sandbox.start(Limits(), "bwrap") as box:
                assert type(box) is process.Bubblewrap
                assert ask(box, "print(1)") == "1\n"
        finally:
            zygote.close()

    def test_a_dead_zygote_is_replaced_but_not_for_ever(self, monkeypatch):
        monkeypatch.setattr(sandbox, "_zygote", None)
        monkeypatch.setattr(sandbox, "_zygotes", {})
        monkeypatch.setattr(sandbox, "_starts", 0)
        monkeypatch.setattr(sandbox, "_base", None)
        for count in range(sandbox.RESTARTS + 1):
            sandbox.keep_warm(())
            with sandbox.start(Limits(), "bwrap") as box:
                assert type(box) is warm.Warm
            end(sandbox._zygote)
            if count == 1:  # and so is the process that it was forked from
                sandbox._base.process.kill()
                sandbox._base.process.wait()
        sandbox.keep_warm(())
        assert sandbox._zygote is None


def end(zygote: warm.Zygote) -> None:
    """Kill it as the kernel does when memory runs out."""
    zygote.process.kill()
    zygote.process.wait()
    deadline = time.monotonic() + 20
    while zygote.alive() and time.monotonic() < deadline:
        time.sleep(0.05)


def apart(pid: int) -> bool:
    """Whether a process has namespaces of its own, and isn't just waiting for the one that has."""
    try:
        return all(
            os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
            for kind in ("mnt", "pid", "net", "ipc", "uts")
        )
    except OSError:  # it has ended
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


BOMBS = {
    "memory": ("xs = []\n    while True: xs.append(bytearray(10**7))", {"crashed"}),
    "memory in one go": ("return len(bytearray(10**11))", {"crashed"}),
    "memory of children": (
        "import os, time\n    for _ in range(8):\n        if os.fork() == 0:\n"
        "            x = b'x' * (10**8)\n            time.sleep(60)\n    time.sleep(60)",
        {"crashed"},
    ),
    "memory shared with children that end": (
        "import mmap, os\n    shared = mmap.mmap(-1, 10**9)\n    for start in range(0, 10**9, 10**8):\n"
        "        if os.fork() == 0:\n"
        "            for at in range(start, start + 10**8, 4096): shared[at] = 1\n            os._exit(0)\n"
        "        os.wait()\n    import time\n    time.sleep(60)",
        {"crashed"},
    ),
    "forks": (
        "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
        {"limit", "timed_out"},
    ),
    "threads": (
        "import threading, time\n    while True:\n"
        "        try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
        "        except RuntimeError: pass",
        {"limit", "timed_out"},
    ),
    "output": ("while True: print('x' * 1000)", {"limit"}),
    "a big reply": ("return 'x' * 10**7", {"limit"}),
    "a big file": ("open('f', 'wb').write(bytes(10**8))", {"error"}),
    "disk": (
        "for i in range(10**6):\n        with open(f'f{i}', 'wb') as f: f.write(bytes(10**6))",
        {"error"},
    ),
    "files": ("for i in range(10**7): open(f'f{i}', 'w').close()", {"limit"}),
    "open files": ("return [open('/dev/null') for _ in range(10**4)]", {"error"}),
    "recursion": (
        "import sys\n    sys.setrecursionlimit(10**9)\n    def g(x): return g([x])\n    return g(1)",
        {"crashed", "timed_out"},
    ),
    "a loop": ("while True: pass", {"timed_out"}),
    "a loop in C": ("return sum(iter(int, 1))", {"timed_out"}),
    "sleep with signals ignored": (
        "import signal, time\n    for s in range(1, 65):\n        try: signal.signal(s, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n    time.sleep(99)",
        {"timed_out"},
    ),
    "depth": ("x = []\n    for _ in range(10**5): x = [x]\n    return x", {"limit"}),
}
SMALL = Limits(cell_s=4, call_s=3, notebook_s=30, cpu_s=30, memory=400 << 20, tmpfs=32 << 20, processes=40)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_its_own_question_only_and_leaves_nothing(name):
    body, allowed = BOMBS[name]
    done = run(
        solution(f"def bomb():\n    {body}\n"),
        graded("bomb()", "bomb_test"),
        graded("bomb()", "bomb_again"),
        *GOOD,
        limits=SMALL,
    )
    assert {outcome(done, "bomb_test").status, outcome(done, "bomb_again").status} <= allowed
    assert outcome(done, "good_test").status == "passed"
    assert_nothing_is_left()
    if allowed == {"limit"}:
        assert "sandbox_limit" in {f.kind for f in done.flags}


def test_a_bomb_in_a_cell_costs_that_cell_only():
    for body in (
        "while True: print('x' * 1000)",
        "xs = []\nwhile True: xs.append(bytearray(10**7))",
        "while True: pass",
    ):
        done = run(extra(body), *GOOD, limits=SMALL)
        assert statuses(done) == ["passed"] and done.status == "graded"
    assert_nothing_is_left()


def test_processes_that_a_student_starts_do_not_survive():
    source = (
        "import subprocess, sys\n"
        "def f():\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], start_new_session=True)\n"
        "    return 1\n"
        "f()\n"
    )
    done = run(solution(source), graded("assert f() == 1"), graded("assert f() == 1", "t2"))
    assert statuses(done) == ["passed", "passed"]
    assert_nothing_is_left()


def assert_nothing_is_left() -> None:
    """No bubblewrap below this process, and no process of a sandbox's users."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            left = [p for p in bubblewraps() if not is_warm(p) or len(living_below(p)) > 2]
        except psutil.Error:  # one ended while we looked
            continue
        left += [p for p in psutil.process_iter(["cmdline"]) if "time.sleep(99)" in " ".join(p.info["cmdline"] or ())]
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(left)


def bubblewraps() -> list[psutil.Process]:
    """Those below this process, the outer one of each."""
    found = [p for p in living_below(psutil.Process()) if p.name() == "bwrap"]
    return [p for p in found if p.parent() is None or p.parent().name() != "bwrap"]


def living_below(process: psutil.Process) -> list[psutil.Process]:
    return [p for p in process.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def is_warm(bubblewrap: psutil.Process) -> bool:
    """Whether it holds the process from which submissions are forked: that, and its first process, stay."""
    return warm.HOLDER[-1] in bubblewrap.cmdline()


@pytest.mark.parametrize("before", ["", "sandbox.keep_warm(())\n"], ids=["cold", "warm"])
def test_the_process_ends_with_whoever_started_it(before):
    program = (
        "import sys, time\nfrom grader import sandbox\nfrom grader.model import Limits\n"
        f"{before}box = sandbox.start(Limits(), 'bwrap')\nprint(box.pid, flush=True)\ntime.sleep(99)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    pid = int(starter.stdout.readline())
    assert psutil.pid_exists(pid)
    starter.kill()
    starter.wait()
    assert gone(pid)


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_close_ends_everything_inside(start, zygote):
    box = process.Bubblewrap(Limits(), MODE) if start == "cold" else warm.Warm(Limits(), zygote)
    ask(box, "import subprocess\nfor _ in range(5): subprocess.Popen(['sleep', '77'], start_new_session=True)")
    inside = processes.descendants(box._first)
    assert len(inside) >= 6
    box.close()
    assert not any(psutil.pid_exists(pid) for pid in inside)
    assert box.process.returncode is not None


def readable_python() -> str | None:
    """A Python that an ordinary user can start, with this Python's packages."""
    same = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = shutil.which(same, path="/usr/bin:/usr/local/bin")
    return found


@pytest.mark.skipif(not ROOT_USER, reason="this user already is an ordinary one: all tests here run as it")
@pytest.mark.skipif(readable_python() is None, reason="no Python that an ordinary user can start")
def test_an_ordinary_user_gets_a_sandbox_too():
    """The tests of what code sees and reaches once more, as a user without rights, and then an execution.

    That user sees this folder in another place, since it may lie in one that only root may enter.
    """
    program = (
        "import sys\nsys.path[:0] = sys.argv[1:]\nimport pytest\nfrom grader.tests.test_sandbox import ordinary\n"
        "chosen = ['--pyargs', 'grader.tests.test_sandbox', '-k', 'TestWhatCode or TestWarm']\n"
        "if __name__ == '__main__':\n    ordinary()\n    "
        "print('tests:', int(pytest.main([*chosen, '-p', 'no:cacheprovider'])))\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        start = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', str(ROOT), place]
        start += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", readable_python(), "-c", program]
        paths = [path.replace(str(ROOT), place, 1) for path in (str(ROOT), *command.package_paths())]
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run([*start, *paths], env=env, capture_output=True, text=True, timeout=240, cwd="/")
    assert "tests: 0" in done.stdout, done.stdout[-3000:] + done.stderr


def ordinary() -> None:
    """A sandbox with a user namespace, and an execution in it."""
    assert os.geteuid() != 0 and sandbox._probe() == "user"
    done = run(
        solution(f"def double(x):\n    return 2 * x\ndef bomb():\n    {BOMBS['forks'][0]}\n"),
        graded("bomb()", "bomb"),
        graded("assert double(2) == 4"),
        limits=SMALL,
    )
    assert outcome(done).status == "passed" and outcome(done, "bomb").status in ("limit", "timed_out")


class TestRefusal:
    @pytest.fixture(autouse=True)
    def fresh(self):
        sandbox._probe.cache_clear()
        yield
        sandbox._probe.cache_clear()

    def test_no_bubblewrap(self, monkeypatch):
        monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
        found = sandbox.problem()
        assert "apt install bubblewrap" in found.remedy and "--unsafe-no-sandbox" in found.remedy
        with pytest.raises(GraderError, match="isn't installed"):
            sandbox.start(Limits(), "bwrap")

    def test_no_linux(self, monkeypatch):
        monkeypatch.setattr(sandbox.sys, "platform", "darwin")
        assert "needs Linux" in sandbox.problem().cause and "WSL2" in sandbox.problem().remedy

    def test_apparmor(self, monkeypatch, tmp_path):
        setting = tmp_path / "restrict"
        setting.write_text("1\n")
        monkeypatch.setattr(sandbox, "APPARMOR", setting)
        monkeypatch.setattr(sandbox, "_try", lambda mode: "bwrap: setting up uid map: Permission denied")
        found = sandbox.problem()
        assert "apparmor_restrict_unprivileged_userns=0" in found.remedy and "uid map" in found.cause

    def test_user_namespaces_switched_off(self, monkeypatch, tmp_path):
        setting = tmp_path / "clone"
        setting.write_text("0\n")
        monkeypatch.setattr(sandbox, "USERNS", (setting,))
        monkeypatch.setattr(sandbox, "_try", lambda mode: "No permissions to create new namespace")
        assert "unprivileged_userns_clone=1" in sandbox.problem().remedy

    def test_anything_else_is_told_in_bubblewraps_words(self, monkeypatch):
        monkeypatch.setattr(sandbox.shutil, "which", lambda name: "/bin/false")
        monkeypatch.setattr(command.shutil, "which", lambda name: "/bin/false")
        assert "exit code 1" in sandbox.problem().cause


def test_filters_exist_for_both_common_machines_and_only_for_them():
    assert seccomp.program("x86_64") != seccomp.program("aarch64")
    assert seccomp.program("riscv64") is None
    assert len(seccomp.program("x86_64")) % 8 == 0


def test_the_limits_reach_the_process():
    limits = Limits(cpu_s=33, open_files=99, file_size=1 << 20, address_space=3 << 30, processes=55)
    names = ("CPU", "NOFILE", "FSIZE", "AS", "CORE")
    shown = said(f"import resource as r\nprint([r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in {names}])", limits)
    assert eval(shown) == [(33, 38), (99, 99), (1 << 20, 1 << 20), (3 << 30, 3 << 30), (0, 0)]
    assert process.rlimits(limits, own_processes=True)["RLIMIT_NPROC"] == (55, 55)


def test_a_python_below_tmp_is_there_and_cannot_be_changed(libraries, monkeypatch):
    """A forked submission gets an empty /tmp of its own, which must not hide an environment that lies in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        inside = Path(folder) / "course" / ".venv"
        inside.mkdir(parents=True)
        (inside / "file").write_text("here")
        (inside.parent / "answers").write_text("secret")
        paths = [*command.visible_paths(), str(inside)]
        monkeypatch.setattr(command, "visible_paths", lambda: paths)
        zygote = warm.Zygote(MODE, libraries)
        try:
            with warm.Warm(Limits(), zygote) as box:
                look = f"import os\nprint(open('{inside}/file').read(), os.listdir('{inside.parent}'))"
                assert ask(box, look) == "here ['.venv']\n"
                assert ask(box, f"open('{inside}/file', 'w')") == "OSError"
                assert ask(box, f"os.rename('{folder}', '/tmp/other')") in ("OSError", "PermissionError")
        finally:
            zygote.close()
