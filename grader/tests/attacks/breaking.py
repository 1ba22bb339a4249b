"""Attacks on the machine: other people's files, the network, resources, processes, signals and the kernel."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.tests.attacks.case import LITTER, RELU, SURVIVOR, Registry, hostile

case = Registry("cheat: breaking")
PORT = 39753  # stands for the listener that `school` opens


def call(name: str, mechanism: str, body: str, **more: object) -> None:
    """An attack in a call of the second answer; the first is honest."""
    source = "def mean_sq(xs):\n" + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    case.add(name, mechanism, 5, lambda: hostile(RELU, source), **{"status": "partial", **more})


def cell(name: str, mechanism: str, body: str, **more: object) -> None:
    """An attack in a cell of its own, beside two honest answers."""
    case.add(name, mechanism, 10, lambda: hostile(RELU, cell=body), **more)


# ---------------------------------------------------------------------------------------------- files, network, kernel
cell(
    "break_files_everywhere",
    "creates, truncates and deletes files wherever it can",
    f"""
import glob
top = [folder for folder in glob.glob("/*") if os.path.isdir(folder) and folder != "/tmp"]
for folder in ("/", "/usr/bin", "/run/runner", "/var/tmp", "/proc/sys/kernel", os.path.join("/proc/1", "root", "etc"),
               sys.prefix, os.path.dirname(os.__file__), *top):
    attempt("create in " + folder, lambda: open(folder + "/{LITTER}", "w"))
for path in (sys.executable, os.__file__, "/etc/passwd", "/run/runner/worker.py", "/run/runner/codec.py", "/usr/bin/env"):
    attempt("write " + path, lambda: open(path, "r+b"))
    attempt("delete " + path, lambda: os.remove(path) is None)
    attempt("chmod " + path, lambda: os.chmod(path, 0o777) is None)
""",
)
cell(
    "break_links_and_devices",
    "links, device nodes, sockets and fifos as ways out",
    f"""
import socket, stat
os.symlink("/proc/1/root", "out")
attempt("through a link", lambda: open("out/etc/{LITTER}", "w"))
attempt("hard link", lambda: os.link("/etc/passwd", "/etc/{LITTER}") is None)
attempt("device", lambda: os.mknod("disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)) is None and open("disk"))
attempt("kernel memory", lambda: os.mknod("mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1)) is None and open("mem"))
attempt("setuid file", lambda: os.chmod("/usr/bin/env", 0o4755) is None)
""",
)
cell(
    "break_start_up_files",
    "start-up files for the next Python, IPython and shell",
    """
home = os.path.expanduser("~")
for name in (".bashrc", ".profile", ".pythonrc.py", ".config/x", ".ipython/profile_default/startup/0.py", ".jupyter/c.py",
             ".local/lib/python3.11/site-packages/usercustomize.py"):
    os.makedirs(os.path.dirname(os.path.join(home, name)), exist_ok=True)
    open(os.path.join(home, name), "w").write("raise SystemExit(3)")
os.environ["PYTHONSTARTUP"] = os.path.join(home, ".pythonrc.py")
os.environ["LD_PRELOAD"] = os.path.abspath("evil.so")
""",
)
cell(
    "break_network_ip",
    "TCP, UDP, IPv6, multicast and name look-ups",
    """
import socket
for address in (("127.0.0.1", PORT), ("::1", PORT), ("192.0.2.1", 80), ("169.254.169.254", 80), ("10.0.0.1", 53)):
    attempt(f"tcp {address}", lambda: socket.create_connection(address, 0.3))
for host in ("127.0.0.1", "255.255.255.255", "224.0.0.1", "192.0.2.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try:
        s.sendto(b"attack", (host, PORT))
    except OSError:
        pass
attempt("names", lambda: socket.getaddrinfo("example.org", 80))
""".replace("PORT", str(PORT)),
)
cell(
    "break_network_unix",
    "sockets of the machine by path and by abstract name",
    """
import socket, glob
paths = ["\\0attack-canary", "\\0/tmp/.X11-unix/X0", "\\0dbus", "/var/run/docker.sock", "/run/systemd/private",
         "/run/dbus/system_bus_socket", "/tmp/attack_canary.sock", "/".join(["/proc/1", "root", "run/docker.sock"])]
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    for path in paths:
        attempt(f"unix {path!r}", lambda: socket.socket(socket.AF_UNIX, kind).connect(path) is None)
""",
)
cell(
    "break_network_kernel",
    "netlink, vsock, raw, packet, ALG, CAN and Bluetooth sockets",
    """
import socket
def raw_netlink():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    import struct
    s.send(struct.pack("=LHHLLBxHiII", 32, 16, 5, 1, 0, 0, 0, 1, 1, 1))
    s.settimeout(0.3)
    return struct.unpack("=i", s.recv(100)[16:20])[0] == 0
attempt("netlink sets a link up", raw_netlink)
for family in (3, 4, 5, 9, 15, 17, 21, 22, 29, 31, 33, 35, 36, 37, 38, 40, 41, 42, 43, 44):
    attempt(f"family {family}", lambda: [socket.socket(family, k) for k in (1, 2, 3, 5)])
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("raw6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))
""",
)
cell(
    "break_privileges",
    "setuid, capabilities, namespaces, mounts, chroot, ptrace, keys, bpf and io_uring",
    """
for name, call in {
    "setuid": lambda: libc.setuid(0), "setgid": lambda: libc.setgid(0), "setgroups": lambda: libc.setgroups(0, None),
    "unshare user": lambda: libc.unshare(0x10000000), "unshare mount": lambda: libc.unshare(0x20000),
    "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), "remount": lambda: libc.mount(None, b"/", None, 32, None),
    "umount": lambda: libc.umount2(b"/proc", 2), "chroot": lambda: libc.chroot(b"/tmp"),
    "pivot": lambda: libc.syscall(155, b"/", b"/tmp"), "ptrace": lambda: libc.ptrace(16, 1, 0, 0),
    "traceme": lambda: libc.ptrace(0, 0, 0, 0), "setns": lambda: libc.setns(os.open("/proc/1/ns/net", 0), 0),
    "bpf": lambda: libc.syscall(321, 0, 0, 0), "uring": lambda: libc.syscall(425, 1, 0), "keyctl": lambda: libc.syscall(250, 0, -3, 1),
    "perf": lambda: libc.syscall(298, 0, 0, -1, -1, 0), "module": lambda: libc.syscall(175, 0, 0, b""),
    "userfault": lambda: libc.syscall(323, 0), "reboot": lambda: libc.reboot(0), "time": lambda: libc.settimeofday(bytes(16), None),
    "hostname": lambda: libc.sethostname(b"owned", 5), "swap": lambda: libc.swapon(b"/tmp", 0), "syslog": lambda: libc.klogctl(5, None, 0),
    "capset": lambda: libc.syscall(126, bytes([0x22, 5, 8, 0x20, 0, 0, 0, 0]), bytes([255] * 24)),
    "nice": lambda: libc.setpriority(0, 0, -5), "rlimit": lambda: __import__("resource").setrlimit(7, (4096, 4096)) or 0,
    "clone": lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0),
}.items():
    attempt(name, lambda: call() >= 0)
for tool in ("su", "sudo", "mount", "newgrp", "pkexec", "passwd", "ping"):
    attempt(tool, lambda: __import__("subprocess").run([tool, "-c", "id -u"], capture_output=True, input=b"",
                                                       timeout=2).stdout.strip() == b"0")
""",
)
cell(
    "break_proc_writes",
    "kernel settings and other processes through /proc",
    """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/1/mem", "/proc/1/oom_score_adj",
             "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/self/uid_map", "/proc/1/attr/current", "/proc/1/comm"):
    attempt(path, lambda: open(path, "r+b", 0).write(b"-1000") if "mem" not in path else open(path, "r+b", 0))
attempt("oom score lowered", lambda: open("/proc/self/oom_score_adj", "w").write("-900") and open("/proc/self/oom_score_adj").read() == "-900\\n")
""",
)

# --------------------------------------------------------------------------------------------------------- processes
cell(
    "survive_double_fork",
    "a daemon made by forking twice, with its own session",
    """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        named()
        os.closerange(0, 256)
        while True: __import__("time").sleep(1)
    os._exit(0)
""",
    flags=("sandbox_probe",),
)
cell(
    "survive_death_signal",
    "a child that ignores signals and its parent's death",
    """
if os.fork() == 0:
    import signal, time
    libc.prctl(1, 0, 0, 0, 0)
    libc.prctl(36, 1, 0, 0, 0)
    for s in range(1, 65):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
    os.setpgid(0, 0)
    named()
    while True: time.sleep(1)
""",
    flags=("sandbox_probe",),
)
cell(
    "survive_hopping",
    "a process that forks itself on all the time so that no look finds it twice",
    """
if os.fork() == 0:
    import time
    named()
    end = time.time() + 60
    while time.time() < end:
        if os.fork(): os._exit(0)
        os.setsid()
        time.sleep(0.005)
    os._exit(0)
""",
    tags=frozenset({"flags may differ"}),
)
call("survive_from_a_call", "a detached program started in the call of a test",
     f"import subprocess\nsubprocess.Popen(['sh', '-c', 'exec -a {SURVIVOR} sleep 997'], start_new_session=True)\n"
     "subprocess.Popen([sys.executable, '-c', \"import ctypes,time; ctypes.CDLL(None).prctl(15, b'" + SURVIVOR
     + "', 0, 0, 0); time.sleep(997)\"], start_new_session=True)\nreturn -1", status="graded")  # fmt: skip
call("signal_everybody", "SIGKILL to every process that it can see", "os.kill(-1, 9)\nreturn 4.0", status="graded")
call(
    "signal_parent",
    "SIGKILL to the process it came from",
    "os.kill(os.getppid(), 9)\nos.kill(1, 9)\nreturn 4.0",
    status="graded",
)
call("signal_group", "SIGKILL to its process group and session", "os.kill(0, 9)")
call(
    "signal_stops_parent",
    "SIGSTOP to the process it came from, then to itself",
    "import signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)",
)
cell(
    "signal_in_cell",
    "signals to every process number from a cell",
    """
import signal
for pid in range(2, 400):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
""",
)
cell(
    "parent_written",
    "code written into its parent's and its own memory through /proc/PID/mem",
    """
for pid in (os.getppid(), "self"):
    try:
        with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            memory.seek(0x400000)
            memory.write(b"\\xcc")
    except OSError:
        pass
""",
)

# ------------------------------------------------------------------------------------------------------------- bombs
limit = {"flags": ("sandbox_limit",)}
call(
    "bomb_forks",
    "forks until nothing more goes",
    "named()\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    tags=frozenset({"flags may differ"}),
)
call(
    "bomb_threads",
    "threads until nothing more goes",
    "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    "    except RuntimeError: pass",
    **limit,
)
call(
    "bomb_memory",
    "memory, touched page by page",
    "xs = []\nwhile True: xs.append(bytearray(10 ** 7))",
    tags=frozenset({"flags may differ"}),
)
call(
    "bomb_memory_files",
    "memory in anonymous files that no process has mapped",
    "import time\nfor _ in range(60):\n    fd = os.memfd_create('x')\n    os.write(fd, bytes(1 << 25))\ntime.sleep(1)\nreturn 4.1",
    status="graded",
    tags=frozenset({"kernel memory"}),
)
call(
    "bomb_shared_segments",
    "memory in System V segments that no process is attached to",
    "import time\nlibc.shmat.restype = ctypes.c_void_p\nfor _ in range(60):\n    segment = libc.shmget(0, 1 << 25, 0o1600)\n    if segment < 0: raise OSError('refused')\n    at = libc.shmat(segment, None, 0)\n"
    "    ctypes.memset(at, 1, 1 << 25)\n    libc.shmdt(ctypes.c_void_p(at))\ntime.sleep(1)\nreturn 4.1",
    status="graded",
    tags=frozenset({"kernel memory"}),
)
call(
    "bomb_disk",
    "one file after the other until the disk is full",
    "for i in range(10 ** 6):\n    with open(f'{i}', 'wb') as f: f.write(bytes(10 ** 6))",
    status="graded",
)
call("bomb_inodes", "empty files without end", "i = 0\nwhile True:\n    i += 1\n    open(f'{i}', 'w').close()", **limit)
call(
    "bomb_folders",
    "folders nested without end",
    "while True:\n    os.mkdir('d')\n    os.chdir('d')",
    tags=frozenset({"flags may differ"}),
)
call("bomb_sparse_file", "a sparse file of an exabyte", "open('s', 'wb').truncate(1 << 60)", status="graded")
call("bomb_output", "prints without end in a call", "while True: print('x' * 1000)", **limit)
call("bomb_descriptors", "writes without end to descriptors 1 and 2",
     "import time\nend = time.time() + 1\nwhile time.time() < end:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'x' * 65536)\nreturn 4.1",
     status="graded")  # fmt: skip
call(
    "bomb_open_files", "opens files without end", "return [open('/dev/null') for _ in range(10 ** 4)]", status="graded"
)
call("bomb_reply", "a reply of a gigabyte", "return 'x' * 10 ** 9", **limit)
call("bomb_reply_deep", "a reply nested beyond the cap", "x = []\nfor _ in range(10 ** 5): x = [x]\nreturn x", **limit)
call("bomb_reply_elements", "a reply of a million empty lists", "return [[] for _ in range(10 ** 6)]", **limit)
call("bomb_argument", "an argument grown to a gigabyte in place", "xs.extend(range(10 ** 7))\nreturn 4.0", **limit)
call(
    "bomb_stack",
    "recursion with the limit raised",
    "sys.setrecursionlimit(10 ** 9)\ndef g(x): return g([x])\nreturn g(1)",
)
call(
    "bomb_time_in_one_test",
    "a loop that runs only for the input of a hidden test",
    "if xs == [2, 2]:\n    while True: pass\nreturn sum(x * x for x in xs) / len(xs) if xs else 0.0",
)
call(
    "bomb_kills_itself_hidden",
    "ends its process only for the input of a hidden test",
    "if not xs: os.kill(os.getpid(), 11)\nreturn sum(x * x for x in xs) / len(xs)",
)
call(
    "bomb_ignores_signals",
    "sleeps with every signal ignored",
    "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(99)",
)
cell(
    "bomb_output_in_cell",
    "displays without end in a cell",
    "while True: display('x' * 10 ** 5)",
    tags=frozenset({"flags may differ"}),
)
cell(
    "bomb_memory_in_cell",
    "memory in a cell of its own",
    "xs = []\nwhile True: xs.append(bytearray(10 ** 7))",
    tags=frozenset({"flags may differ"}),
)
cell(
    "bomb_cpu_children",
    "dozens of processes that burn the processor",
    """
for _ in range(20):
    if os.fork() == 0:
        named()
        while True: pass
""",
    flags=("sandbox_probe",),
)
