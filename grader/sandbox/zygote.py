"""The second program inside the sandbox: keeps a worker with its libraries loaded, and forks it for each submission.

It runs in bubblewrap's namespaces like ``worker.py``, which starts it, but was forked from `base.py`, with torch in its
memory where that is wanted, and keeps the capabilities that making namespaces takes.
It never runs student code, nor any operation of a library, so it stays at one thread; it reads orders from whoever
started it and from nobody else. For each order it makes two processes:

* the first, process 1 of a new pid namespace, makes the other namespaces and mounts, gives up every capability and
  loads the seccomp filter. It then only waits until the worker or whoever ordered it ends, and ends all with itself;
* the second is the worker, from there on the same as one that was started cold.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SET_DUMPABLE, SET_SECCOMP, CAPBSET_DROP, CAP_AMBIENT = 4, 22, 24, 47
HARDENED = ("sys", "sysrq-trigger", "irq", "bus")  # what bubblewrap makes read-only in /proc
ORDER_CAP = 1 << 16
HUGE = 2 << 20
WAIT_S = 1.0

libc = ctypes.CDLL(None, use_errno=True)


worker: Any  # the module of ``worker.py``, which can't be imported: it is the main program
codec: Any


def serve(fd: int, worker_module: Any, codec_module: Any, paths: list[str]) -> None:
    """Answer orders until the other side closes.

    Args:
        fd: a socket of sequenced packets; each order is one, with the descriptors of a channel and of a leash.
    """
    global worker, codec
    worker, codec = worker_module, codec_module
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    os.environ.pop("GLIBC_TUNABLES", None)  # libc has read it
    ready = worker.Worker(None)
    gc.disable()  # it finds nothing in imports, and takes a third of their time
    ready.prepare(paths)
    first_use()
    settle()
    children: list[int] = []
    while True:
        data, fds, _, _ = socket.recv_fds(control, ORDER_CAP, 2)
        if not data:
            os._exit(0)
        order = codec.loads(data)
        if not fds:
            loaded(order["modules"])
            continue
        children = _living(children, WAIT_S if order["alone"] else 0)
        channel, leash = fds
        try:
            refused = loaded(order["modules"]) or ("busy" if children and order["alone"] else "")
            if refused:
                _refuse(channel, refused)
            else:
                children.append(_fork(order["clone"], _first, order, channel, leash, ready))
        except OSError:
            pass  # whoever ordered is gone, or no process is to be had: its channel closes
        finally:
            os.close(channel)
            os.close(leash)


def _living(children: list[int], wait_s: float) -> list[int]:
    """Those that haven't ended; waits that long for the last one, which may be about to."""
    deadline = time.monotonic() + wait_s
    while True:
        children = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not children or time.monotonic() >= deadline:
            return children
        time.sleep(0.005)


def loaded(modules: list[str]) -> str:
    """Import what the next submission will; says why this process can no longer be forked, if so."""
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        gc.disable()
        for name in missing:
            with contextlib.suppress(Exception):  # it isn't installed: the student's own import will tell
                importlib.import_module(name)
        first_use()
        settle()
    threads = len(os.listdir("/proc/self/task"))
    return "" if threads == 1 else f"{threads} threads after importing {', '.join(modules)}"


def first_use() -> None:
    """Have torch set up what it puts off until its first operations, which takes each fork 1 ms otherwise.

    The tensors are far too small for a parallel region; `loaded` makes sure that there is no second thread.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    with contextlib.suppress(Exception):
        tiny = torch.ones(2, 2)
        torch.softmax((tiny @ tiny - tiny.amax(1)).exp(), -1).double().tolist()
        repr(tiny)


def settle() -> None:
    """Make forks of this process cheap: with torch in it each costs 10 ms otherwise, and every test takes one."""
    gc.collect()
    gc.freeze()  # a collection in a child then doesn't write to, and so copy, every page
    gc.enable()
    with contextlib.suppress(OSError, AttributeError), open("/proc/self/maps", encoding="ascii") as file:
        for line in file.read().splitlines():
            span, mode, *_, inode = line.split()[:5]
            if mode == "rw-p" and inode == "0":
                start, end = (int(x, 16) for x in span.split("-"))
                _collapse(start, end)


def _collapse(start: int, end: int) -> None:
    """Have huge pages where whole ones fit, so that a fork copies 1/512 of the entries. The kernel may refuse."""
    for address in range(-(-start // HUGE) * HUGE, end - HUGE + 1, HUGE):
        libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(HUGE), 25)  # MADV_COLLAPSE


def _fork(number: int, child: Any, *args: Any) -> int:
    """Fork into a new pid namespace, which libc's fork can't, and run ``child`` there.

    ``number`` is that of the system call clone.

    As with `worker.bare_fork`, nothing that modules registered runs. What libc keeps of its own about a process (the
    thread's id) is right again in the worker, which libc forks.
    """
    pid = ctypes.PyDLL(None, use_errno=True).syscall(number, NEWPID | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        try:
            child(*args)
        finally:
            os._exit(1)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def _refuse(channel: int, why: str) -> None:
    worker.Wire(socket.socket(fileno=os.dup(channel))).send({"refused": why})


def _first(order: dict[str, Any], channel: int, leash: int, ready: Any) -> None:
    """Process 1 of a submission's namespaces."""
    os.setsid()
    _close_all_but(channel, leash)
    try:
        _isolate(order)
        look = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in ("/proc", "/tmp", "/dev/shm")]
        look.append(os.pidfd_open(os.getpid()))
        _drop_bounding_set()
        worker.confine(order)
        _drop_capabilities()
        _filter_calls(base64.b64decode(order["seccomp"]))
    except OSError as e:
        _refuse(channel, str(e))
        return
    sock = socket.socket(fileno=channel)
    frame = codec.dumps({"inside": True})
    socket.send_fds(sock, [frame[:1]], look)
    sock.sendall(frame[1:])
    for descriptor in look:
        os.close(descriptor)
    pid = worker.bare_fork()
    if pid == 0:
        os.close(leash)
        os.setsid()
        ready.begin(worker.Wire(sock))
        ready.serve()
    sock.close()
    libc.prctl(SET_DUMPABLE, 0, 0, 0, 0)
    _wait(pid, leash)


def _close_all_but(*kept: int) -> None:
    below = 3
    for fd in sorted(kept):
        os.closerange(below, fd)
        below = fd + 1
    os.closerange(below, 1 << 16)


def _isolate(order: dict[str, Any]) -> None:
    """New namespaces, and in them the view that a cold start has: see `command.arguments`."""
    _call("unshare", NEWNS | NEWNET | NEWIPC | NEWUTS)
    _mount(None, "/", None, REC | PRIVATE)
    _mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    for name in HARDENED:
        path = f"/proc/{name}"
        if os.path.exists(path):
            _bind_read_only(path, path, NOEXEC)
    _mount("devpts", "/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    hidden = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in order["kept"]}
    for path, size in order["tmpfs"].items():
        _mount("tmpfs", path, "tmpfs", NOSUID | NODEV, f"mode=1777,size={size}")
    for path, descriptor in hidden.items():
        os.makedirs(path)
        _bind_read_only(f"/proc/self/fd/{descriptor}", path)
        os.close(descriptor)
    if order["passwd"]:
        _replace("/etc/passwd", order["passwd"])
    for path in order["folders"]:
        os.mkdir(path)
        os.chmod(path, 0o777)
    os.chdir(order["folders"][0])
    _loopback_up()


def _replace(path: str, text: str) -> None:
    """Lay a new file over one in the read-only root."""
    with open("/tmp/file", "w", encoding="ascii") as file:
        file.write(text)
    os.chmod("/tmp/file", 0o444)
    _call("umount2", path.encode(), 2)  # MNT_DETACH: bubblewrap's file is unlinked, nothing can be mounted on it
    _bind_read_only("/tmp/file", path)
    os.unlink("/tmp/file")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH22x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, request)  # SIOCSIFFLAGS


def _drop_bounding_set() -> None:
    for capability in range(64):
        if libc.prctl(CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # above the last one


def _drop_capabilities() -> None:
    """Give up what is left of them; raises OSError when that fails."""
    libc.prctl(CAP_AMBIENT, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL
    header = struct.pack("Ii", 0x20080522, 0)
    _call("capset", header, bytes(24))
    with open("/proc/self/status", "rb") as file:
        held = [line.split()[1] for line in file if line.startswith((b"CapInh", b"CapPrm", b"CapEff", b"CapAmb"))]
    if len(held) != 4 or any(int(mask, 16) for mask in held):
        raise OSError("capabilities are left")


def _filter_calls(program: bytes) -> None:
    """Load a seccomp filter; `confine` has set no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    _call("prctl", SET_SECCOMP, 2, pointer, 0, 0)


def _bind_read_only(source: str, target: str, more: int = 0) -> None:
    _mount(source, target, None, BIND | REC)
    _mount(None, target, None, BIND | REMOUNT | RDONLY | NOSUID | NODEV | more)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if t is None else t.encode() for t in (source, target, kind, data)]
    try:
        _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    except OSError as e:
        raise OSError(e.errno, f"mount {target}: {os.strerror(e.errno)}") from e


def _call(name: str, *args: Any) -> None:
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _wait(pid: int, leash: int) -> None:
    """Reap until the worker ends, or whoever holds the other end of the leash; the kernel then ends the rest."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    watch = select.poll()
    watch.register(leash, 0)  # only POLLHUP
    watch.register(woken, select.POLLIN)
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if ended == pid:
                    os._exit(0)
        for fd, _ in watch.poll():
            if fd == leash:
                os._exit(0)
            os.read(woken, 4096)
