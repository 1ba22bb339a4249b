"""Names, layouts and extra files of hand-ins."""

from __future__ import annotations

import io
import stat
import zipfile

from grader.model import Notebook
from grader.tests.attacks.case import Files, Link, Registry, answers, dump, good
from grader.tests.classroom import filled

case = Registry("files")
names = Registry("names and layouts", quiet=True)
HOSTILE = b"import os\nprint('imported')\nopen('/tmp/attack_litter_import', 'w').close()\nraise SystemExit(3)\n"
unreadable = {"score": None, "status": "unreadable"}


@case("file_link_to_secret", "the notebook is a link to a file of the machine", **unreadable)
def _() -> Files:
    return Files({"ps1.ipynb": Link("/etc/passwd")})


@case("file_link_to_neighbour", "the notebook is a link to another student's", **unreadable)
def _() -> Files:
    return Files({"ps1.ipynb": Link("../zz_good/ps1.ipynb")})


@case("file_link_beside", "right notebook beside a link to the root folder", 10)
def _() -> Files:
    return Files({"ps1.ipynb": good(), "data": Link("/"), "loop": Link(".")})


@case("file_link_dangling", "a link that leads nowhere, and no notebook", **unreadable)
def _() -> Files:
    return Files({"ps1.ipynb": Link("nowhere.ipynb")})


@case("file_folder_named_ipynb", "the notebook inside a folder that is named like it", 10)
def _() -> Files:
    return Files({"ps1.ipynb/ps1.ipynb": good()})


@case(
    "file_startup_hooks",
    "sitecustomize, usercustomize, conftest, .pth and IPython start-up files",
    10,
    flags=("shadow_file",),
)
def _() -> Files:
    return Files(
        {
            "ps1.ipynb": good(),
            "sitecustomize.py": HOSTILE,
            "usercustomize.py": HOSTILE,
            "conftest.py": HOSTILE,
            "evil.pth": b"import os; os._exit(4)\n",
            "ipython_config.py": HOSTILE,
            ".ipython/profile_default/startup/00.py": HOSTILE,
            "pytest.ini": b"[pytest]\naddopts = -p evil\n",
        }
    )


@case("file_course_config", "nbgrader and Jupyter configuration of the student's own", 10, flags=("shadow_file",))
def _() -> Files:
    return Files(
        {
            "ps1.ipynb": good(),
            "nbgrader_config.py": HOSTILE,
            "jupyter_config.py": HOSTILE,
            ".jupyter/jupyter_nbconvert_config.py": HOSTILE,
        }
    )


@case(
    "file_package_grader", "packages named grader, IPython and torch beside a wrong notebook", 0, flags=("shadow_file",)
)
def _() -> Files:
    wrong = answers(
        "import torch\ndef relu_sum(xs):\n    return torch.lie(xs)",
        "import grader\ndef mean_sq(xs):\n    return grader.lie(xs)",
    )
    lie = b"class Yes:\n    __eq__ = lambda s, o: True\ndef lie(xs):\n    return Yes()\n"
    return Files({"ps1.ipynb": wrong, "grader/__init__.py": lie, "torch/__init__.py": lie, "IPython/__init__.py": lie})


@case("file_gradebook", "a gradebook and results of the student's own", 10)
def _() -> Files:
    return Files(
        {
            "ps1.ipynb": good(),
            "gradebook.db": b"SQLite format 3\0" + bytes(100),
            "results.json": b"{}",
            "records/students/zz_good.json": b"{}",
            "grading.json": b"{}",
        }
    )


@case("file_checkpoint_differs", "an older wrong version in .ipynb_checkpoints", 10)
def _() -> Files:
    return Files({"ps1.ipynb": good(), ".ipynb_checkpoints/ps1-checkpoint.ipynb": filled({})})


@case("file_other_notebooks", "notebooks of other courses beside the right one", 10)
def _() -> Files:
    other = {
        **good(),
        "cells": [
            {
                "cell_type": "code",
                "metadata": {},
                "source": "df.head()",
                "outputs": [],
                "execution_count": None,
                "id": "x",
            }
        ],
    }
    return Files({"ps1.ipynb": good(), "zz_later.ipynb": other, "Untitled.ipynb": other})


@case("file_untouched_beside", "an untouched release beside the worked one", 10)
def _() -> Files:
    return Files({"my work.ipynb": good(), "ps1.ipynb": filled({})})


@case("file_no_extension", "notebook without any extension", 10, quiet=True)
def _() -> Files:
    return Files({"ps1": good()})


@case("file_txt_extension", "browser added .txt", 10, quiet=True)
def _() -> Files:
    return Files({"ps1.ipynb.txt": good()})


@case("file_script_only", "a Python script instead of a notebook", **unreadable)
def _() -> Files:
    return Files({"ps1.py": b"def relu_sum(xs):\n    return 0\n"})


@case("file_empty_folder", "an empty folder", **unreadable)
def _() -> Files:
    return Files({".": None})


@case("file_folders_30_deep", "notebook thirty folders deep, beside nothing", 10, quiet=True)
def _() -> Files:
    return Files({"/".join("d" for _ in range(12)) + "/ps1.ipynb": good()})


def zipped(members: dict[str, bytes], *, mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (2026, 3, 1, 12, 0, 0))
            info.external_attr = (mode or stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@case("file_zip", "a zip with a folder in it", 10, quiet=True)
def _() -> Files:
    return Files({"homework.zip": zipped({"hw/ps1.ipynb": dump(good()), "hw/data.csv": b"1,2"})})


@case("file_zip_escapes", "a zip whose members point outside of it, beside a right one", 10)
def _() -> Files:
    return Files(
        {
            "hw.zip": zipped(
                {"../../zz_good/ps1.ipynb": dump(filled({})), "/tmp/attack_litter_zip": b"x", "ps1.ipynb": dump(good())}
            )
        }
    )


@case("file_zip_of_links", "a zip whose member is a link", **unreadable)
def _() -> Files:
    return Files({"hw.zip": zipped({"ps1.ipynb": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)})


@case("file_zip_bomb", "a zip of one member of 1 GB of zeros", **unreadable)
def _() -> Files:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("ps1.ipynb", "w", force_zip64=True) as member,
    ):
        for _ in range(1024):
            member.write(bytes(1 << 20))
    return Files({"hw.zip": buffer.getvalue()})


@case("file_rar", "an archive of a kind that can't be read", **unreadable)
def _() -> Files:
    return Files({"hw.rar": b"Rar!\x1a\x07\x01\x00" + bytes(64)})


# ------------------------------------------------------------------------------------------------------- names

ODD_NAMES = {
    "name_formula": ("=cmd|' /C calc'!A0", "a folder name that is a spreadsheet formula"),
    "name_formula_at": ("@SUM(1+1)", "a name that begins with @"),
    "name_html": ("<img src=x onerror=alert(1)>", "a name that is HTML"),
    "name_template": ("{{7*7}}{% raw %}", "a name that is template code"),
    "name_shell": ("$(touch attack_litter_name);`id`&", "a name that is shell code"),
    "name_option": ("--force", "a name that is a command line option"),
    "name_rich_markup": ("[bold red]x[", "a name that is markup of the terminal library"),
    "name_format": ("%s%n{0}{student}", "a name that is a format string"),
    "name_newline": ("two\nlines\ttab", "a name with a line end and a tab"),
    "name_escape": ("esc\x1b[2Jape\x07", "a name with terminal escapes"),
    "name_right_to_left": ("\u202egnp.elif\u202c", "a name that reverses its own display"),
    "name_not_utf8": ("caf\udce9", "a name in bytes that are no UTF-8"),
    "name_gbk": (b"\xd5\xc5\xc8\xfd".decode("utf-8", "surrogateescape"), "a Chinese name in GBK bytes"),
    "name_long": ("长" * 80, "a name of 240 bytes"),
    "name_reserved": ("CON", "a name that Windows reserves"),
    "name_dots": ("...", "a name of dots only"),
    "name_sql": ("Robert'); DROP TABLE student;--", "a name that is SQL"),
    "name_url": ("%2e%2e%2fetc", "a name that is an encoded path"),
    "name_blank": (" ", "a name that is one blank"),
    "name_upper_twin": ("TWIN_CASE", "a name that differs from another student's in case only"),
    "name_lower_twin": ("twin_case", "the other student of nearly that name"),
    "name_decomposed": ("Zoe\u0308", "a name with a combining accent"),
}
for _name, (_folder, _what) in ODD_NAMES.items():
    names.add(_name, _what, 10, good, at=_folder)

names.add("layout_flat_chinese", "a file beside the folders, named 李雷-ps1(2).ipynb", 10, good, at="李雷-ps1(2).ipynb")
names.add("layout_flat_canvas", "a file as Canvas names it", 10, good, at="hanmeimei_4711_998877_ps1-1.ipynb")
names.add("layout_moodle_folder", "a folder as Moodle names it", 10, good, at="Jim Green_300123_assignsubmission_file_")
names.add("layout_nbgrader_folder", "the assignment's folder inside the student's, as nbgrader collects", 10,
          lambda: Files({"ps1/ps1.ipynb": good()}))  # fmt: skip
names.add("layout_student_zip", "a zip beside the folders, named after its student", 10,
          lambda: zipped({"ps1.ipynb": dump(good())}), at="lucy_king.zip")  # fmt: skip


@names("layout_resubmissions", "copies (1) and (2) of which only the last is right", 10)
def _() -> Files:
    wrong: Notebook = answers("def relu_sum(xs):\n    return 0", "def mean_sq(xs):\n    return 0")
    return Files({"ps1.ipynb": wrong, "ps1 (1).ipynb": wrong, "ps1 (2).ipynb": good()})
