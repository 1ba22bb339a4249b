"""A seccomp filter for student code, as the BPF program that ``bwrap --seccomp`` loads.

It refuses (EPERM) what no course notebook needs and what reaches around the namespaces: sockets other than local,
IP and netlink ones (AF_VSOCK isn't covered by a network namespace), new user namespaces and mounts, other
processes' memory, kernel keys, BPF, performance counters, io_uring, and memory that belongs to no process
(anonymous files, System V segments), which no limit would count. ``clone3`` answers ENOSYS, so that libc falls
back to ``clone``, whose flags a filter can see.
"""

from __future__ import annotations

import platform
import struct

EPERM, ENOSYS = 1, 38
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JEQ, JGE, JSET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NAMESPACE_FLAGS = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x02000000
SOCKET_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# Numbers that are the same on every architecture since Linux 5.1, and the older ones of each.
NEW = {"pidfd_getfd": 438, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432}
NEW |= {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "mount_setattr": 442}
NEW |= {"memfd_secret": 447}
ARCH = {
    "x86_64": (
        0xC000003E,
        {"socket": 41, "clone": 56, "clone3": 435},
        "ptrace=101 mount=165 umount2=166 pivot_root=155 chroot=161 swapon=167 reboot=169 init_module=175 "
        "finit_module=313 delete_module=176 kexec_load=246 kexec_file_load=320 unshare=272 setns=308 "
        "process_vm_readv=310 process_vm_writev=311 bpf=321 perf_event_open=298 userfaultfd=323 add_key=248 "
        "request_key=249 keyctl=250 open_by_handle_at=304 name_to_handle_at=303 kcmp=312 quotactl=179 acct=163 "
        "memfd_create=319 shmget=29 msgget=68 semget=64 mq_open=240",
    ),
    "aarch64": (
        0xC00000B7,
        {"socket": 198, "clone": 220, "clone3": 435},
        "ptrace=117 mount=40 umount2=39 pivot_root=41 chroot=51 swapon=224 reboot=142 init_module=105 "
        "finit_module=273 delete_module=106 kexec_load=104 kexec_file_load=294 unshare=97 setns=268 "
        "process_vm_readv=270 process_vm_writev=271 bpf=280 perf_event_open=241 userfaultfd=282 add_key=217 "
        "request_key=218 keyctl=219 open_by_handle_at=265 name_to_handle_at=264 kcmp=272 quotactl=60 acct=89 "
        "memfd_create=279 shmget=194 msgget=186 semget=190 mq_open=180",
    ),
}


def clone_number() -> int:
    """The number of the system call clone on this machine; KeyError where it isn't known."""
    return ARCH[platform.machine()][1]["clone"]


def _op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, k)


def program(machine: str | None = None) -> bytes | None:
    """The filter for ``machine`` (default: this one), or None where its numbers aren't known."""
    entry = ARCH.get(machine or platform.machine())
    if entry is None:
        return None
    arch, special, listed = entry
    refused = sorted({int(item.split("=")[1]) for item in listed.split()} | set(NEW.values()))
    errno = lambda e: _op(RETURN, ERRNO | e)  # noqa: E731
    out = [_op(LOAD, 4), _op(JEQ, arch, 1, 0), _op(RETURN, KILL), _op(LOAD, 0)]
    if arch == 0xC000003E:
        out += [_op(JGE, 0x40000000, 0, 1), errno(ENOSYS)]  # the x32 numbers
    for number in refused:
        out += [_op(JEQ, number, 0, 1), errno(EPERM)]
    out += [_op(JEQ, special["clone3"], 0, 1), errno(ENOSYS)]
    out += [_op(JEQ, special["clone"], 0, 3), _op(LOAD, 16), _op(JSET, NAMESPACE_FLAGS, 0, 1), errno(EPERM)]
    out += [_op(LOAD, 0), _op(JEQ, special["socket"], 0, len(SOCKET_FAMILIES) + 2), _op(LOAD, 16)]
    for i, family in enumerate(SOCKET_FAMILIES):
        out.append(_op(JEQ, family, len(SOCKET_FAMILIES) - i, 0))
    out += [errno(EPERM), _op(RETURN, ALLOW)]
    return b"".join(out)
