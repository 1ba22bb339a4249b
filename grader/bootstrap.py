"""Make this folder ready to use: `python3 grader/bootstrap.py` (the Makefile calls it).

Runs on the system's Python with the standard library alone. Makes `.venv`, installs the project's
dependencies into it, and sees to the system packages that pip can't bring. Every failure is one
line with its remedy. A second run does nothing while pyproject.toml is unchanged.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed-for"

# program that must be on PATH → Debian/Ubuntu package that brings it, and why
SYSTEM_PROGRAMS = {"bwrap": ("bubblewrap", "the grader runs student code in a bubblewrap sandbox")}
BROWSER_PROGRAMS = {
    "chromium": (
        "chromium fonts-noto-cjk fonts-noto-color-emoji",
        "the browser tests drive a headless Chromium, with Chinese fonts",
    )
}


def fail(cause: str, remedy: str) -> None:
    sys.exit(f"setup: {cause} → {remedy}")


def venv_python() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def wanted(extra: str) -> str:
    """What the installed environment was made for: pyproject.toml, the interpreter and the extra."""
    text = (ROOT / "pyproject.toml").read_bytes() + sys.version.encode() + extra.encode()
    return hashlib.sha256(text).hexdigest()


def make_venv() -> None:
    if venv_python().exists():
        return
    made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True)
    if made.returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    fail(
        f"Python's venv module does not work here ({(made.stdout + made.stderr).strip().splitlines()[-1:]})",
        f"on Debian or Ubuntu: sudo apt-get install python{version}-venv, then run make again",
    )


def install(extra: str) -> None:
    """pip install the project; PIP_ARGS reaches pip (an index of CPU-only torch builds, a mirror)."""
    stamp = wanted(extra)
    if STAMP.exists() and stamp in STAMP.read_text().split():
        return
    print("setup: installing into .venv (the first time takes some minutes) …", flush=True)
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    args = [str(venv_python()), "-m", "pip", "install", "-qq", *os.environ.get("PIP_ARGS", "").split()]
    if subprocess.run([*args, "--editable", target]).returncode:
        fail(
            "pip could not install the dependencies (its own message is above)",
            "check the network or pass a mirror: make demo PIP_ARGS='--index-url …', then run make again",
        )
    kept = STAMP.read_text().split() if STAMP.exists() else []
    STAMP.write_text("\n".join([*kept, stamp]) + "\n")


def system_programs(programs: dict[str, tuple[str, str]], *, required: bool) -> None:
    """Install missing system programs where that is allowed; else name the command."""
    for program, (packages, why) in programs.items():
        if shutil.which(program) or sys.platform != "linux":
            continue
        command = f"apt-get install -y {packages}"
        may_install = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")
        if may_install:
            print(f"setup: {command} ({why})", flush=True)
            quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
            subprocess.run(["apt-get", "update", "-qq"], **quiet)
            subprocess.run(["apt-get", "install", "-y", "-qq", *packages.split()], **quiet)
        if not shutil.which(program):
            remedy = f"sudo {command}" if shutil.which("apt-get") else f"install {packages} with your package manager"
            if required:
                fail(f"{program} is missing ({why})", remedy)
            print(f"setup: {program} is missing ({why}) → {remedy}", file=sys.stderr)


def main() -> None:
    if sys.version_info < (3, 10):  # noqa: UP036 (this file must say so on an old Python)
        fail(f"Python {sys.version.split()[0]} is too old", "use Python 3.10 or newer: make PYTHON=python3.12 …")
    browser = "--browser" in sys.argv[1:]
    system_programs(SYSTEM_PROGRAMS, required=False)
    if browser:
        system_programs(BROWSER_PROGRAMS, required=True)
    make_venv()
    install("browser,cluster" if browser else "")


if __name__ == "__main__":
    main()
