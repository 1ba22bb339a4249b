"""Guards the set-up: one list of dependencies, a Makefile that explains itself, clear words when something lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grader.authoring.settings import load_pyproject, read_toml

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "grader" / "bootstrap.py"


def conda_pip_section() -> list[str]:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    return [line.strip()[2:].strip()[1:-1] for line in text.partition("- pip:\n")[2].splitlines() if line.strip()]


def test_environment_yml_has_the_same_pins_as_pyproject():
    assert conda_pip_section() == load_pyproject()["project"]["dependencies"]


def test_environment_yml_allows_the_same_pythons():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    lowest = re.search(r"python>=([\d.]+)", text)[1]
    assert load_pyproject()["project"]["requires-python"] == f">={lowest}"


@pytest.mark.parametrize("package", ["jupyterlab", "nbgrader", "torch", "matplotlib", "pytest", "nbval"])
def test_the_packages_of_the_course_are_dependencies(package):
    assert any(re.match(rf"{package}\b", line) for line in load_pyproject()["project"]["dependencies"])


def test_make_alone_lists_the_targets():
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "test-all", "lab", "build", "release", "check", "grade"):
        assert re.search(rf"make {target}\s+\S", shown), f"make help does not explain {target}"


def test_every_make_target_is_phony():
    """A folder named like a target (build/, release/) would make `make` say 'up to date' and do nothing."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert targets <= set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())


def run_bootstrap_function(code: str, path: str) -> subprocess.CompletedProcess:
    head = f"import sys; sys.path.insert(0, {str(BOOTSTRAP.parent)!r}); import bootstrap, os; os.geteuid = lambda: 1000"
    code = f"{head}; {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": path})


@pytest.mark.skipif(sys.platform != "linux", reason="names Debian's packages")
def test_a_missing_system_program_is_named_with_its_command(tmp_path):
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").chmod(0o755)
    code = "bootstrap.system_programs(bootstrap.SYSTEM_PROGRAMS, required=True)"
    done = run_bootstrap_function(code, str(tmp_path))
    assert done.returncode == 1
    assert "bwrap is missing" in done.stderr
    assert "sudo apt-get install -y bubblewrap" in done.stderr


def test_an_old_python_is_told_so():
    done = run_bootstrap_function("sys.version_info = (3, 8, 0); bootstrap.main()", os.environ["PATH"])
    assert done.returncode == 1
    assert "too old" in done.stderr and "3.10" in done.stderr


def test_no_path_of_a_developers_machine_and_no_registry_host_in_the_repo():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    homes, hosts = (
        r"(?<!\w)/(?:home/[a-z]+|root)/|/Users/[A-Za-z]+/",
        r"files\.pythonhosted|pypi\.org|download\.pytorch\.org",
    )
    forbidden = re.compile(f"{homes}|{hosts}")
    hits = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in {".png", ".pdf", ".zip"} or path == Path(__file__).resolve() or not path.is_file():
            continue
        if forbidden.search(path.read_text(encoding="utf-8", errors="replace")):
            hits.append(name)
    assert not hits


def chapters_with_a_master() -> list[dict]:
    listed = read_toml(ROOT / "solutions" / "series.toml")["chapter"]
    return [c for c in listed if (ROOT / "solutions" / c["folder"] / f"{c['folder']}.py").exists()]


@pytest.mark.parametrize("chapter", chapters_with_a_master(), ids=lambda c: c["folder"])
def test_the_map_gives_the_time_that_the_chapter_itself_gives(chapter):
    text = (ROOT / "solutions" / chapter["folder"] / f"{chapter['folder']}.py").read_text(encoding="utf-8")
    assert int(re.search(r"预计用时\D*(\d+)\s*分钟", text)[1]) == chapter["minutes"]
