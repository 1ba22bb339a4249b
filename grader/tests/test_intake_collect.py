"""Guards collect: whose file is whose, which of several counts, and that nothing odd stops the others."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from grader.errors import GraderError
from grader.intake import collect
from grader.intake.archive import MAX_MEMBERS
from grader.intake.recognise import Fingerprint
from grader.tests.rebuild_support import RELU, SUBMISSIONS, cell, manifest, release, solved

GOOD = json.dumps(solved())
UNTOUCHED = json.dumps(release())
OTHER = json.dumps({"cells": [{"cell_type": "code", "source": "print('another course')"}], "nbformat": 4})


def variant(answer: str) -> str:
    notebook = solved()
    cell(notebook, "q1")["source"] = answer
    return json.dumps(notebook)


def put(path: Path, content: str | bytes = GOOD, time: float | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if time is not None:
        os.utime(path, (time, time))
    return path


def zip_of(members: dict, path: Path | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    if path:
        put(path, buffer.getvalue())
    return buffer.getvalue()


def gather(path: Path, **options):
    """The submissions by student."""
    found = collect(path, "ps1", release(), **options)
    assert len({s.student for s in found}) == len(found)
    assert all((s.notebook is None) == (s.problem is not None) for s in found)
    return {s.student: s for s in found}


def names(path: Path, **options) -> list[str]:
    found = gather(path, **options)
    assert all(s.problem is None for s in found.values()), {n: s.problem for n, s in found.items()}
    return sorted(found)


@pytest.mark.parametrize("case", [c for c in manifest() if c["assignment"] == "ps1"], ids=lambda c: c["name"])
def test_every_case_is_collected_under_the_name_it_was_handed_in(case, tmp_path):
    data = (SUBMISSIONS / f"{case['name']}.ipynb").read_bytes()
    put(tmp_path / "amy" / case["submit_as"], data)
    for extra in (SUBMISSIONS / f"{case['name']}.files").glob("*"):
        put(tmp_path / "amy" / extra.name, extra.read_bytes())
    put(tmp_path / "zz_good" / "ps1.ipynb")
    found = gather(tmp_path)
    assert sorted(found) == ["amy", "zz_good"] and found["zz_good"].problem is None
    unreadable = case["name"] in ("fmt_truncated_json", "fmt_html_saved_as_ipynb")
    assert (found["amy"].problem is not None) == unreadable
    flags = {"cheat_shadow_module_file": ["shadow_file"], "cheat_backdated_timestamp": ["forged_timestamp"]}
    assert [flag.kind for flag in found["amy"].flags] == flags.get(case["name"], [])


@pytest.mark.parametrize(
    "layout",
    [
        ["amy/ps1.ipynb", "bob/ps1.ipynb"],
        ["amy/ps1/ps1.ipynb", "bob/ps1/ps1.ipynb"],
        ["submitted/amy/ps1/ps1.ipynb", "submitted/bob/ps1/ps1.ipynb"],
        ["ps1/amy/x.ipynb", "ps1/bob/y.ipynb"],
        ["Drive Download 2026/amy/Copy_of_ps1.ipynb", "Drive Download 2026/bob/a/b/c/ps1.ipynb"],
        ["section A/amy/ps1.ipynb", "section A/cat/ps1.ipynb", "section B/bob/ps1.ipynb"],
        ["amy.ipynb", "bob.ipynb"],
        ["amy_ps1.ipynb", "ps1-bob.ipynb"],
        ["ps1_amy (1).ipynb", "Copy of bob_ps1.IPYNB"],
        ["amy/ps1.ipynb.txt", "bob/ps1.json"],
        ["amy.ipynb", "bob/PS1.IPYNB"],
        ["amy/v1/ps1.ipynb", "amy/v2/ps1.ipynb", "bob/v1/ps1.ipynb"],
        ["amy.json", "bob.ipynb.json"],
    ],
    ids=lambda layout: layout[0],
)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_layouts(layout, packed, tmp_path):
    if packed:
        zip_of(dict.fromkeys(layout, GOOD), tmp_path / "class.zip")
    for name in () if packed else layout:
        put(tmp_path / name)
    expected = ["amy", "bob", "cat"] if any("cat" in name for name in layout) else ["amy", "bob"]
    assert names(tmp_path / "class.zip" if packed else tmp_path) == expected


@pytest.mark.parametrize(
    ("file", "student"),
    [
        ("张三_ps1.ipynb", "张三"),
        ("ps1-李四 (1).ipynb", "李四"),
        ("ps1王五.ipynb", "王五"),
        ("赵六的ps1.ipynb", "赵六的"),
        ("ps1.ipynb", "ps1"),
        ("2021001_张三.ipynb", "2021001_张三"),
        ("amy@uni.edu_ps1.ipynb", "amy@uni.edu"),
        ("psychology.ipynb", "psychology"),
        ("amy_ps1 - Copy.ipynb", "amy"),
        ("副本 amy_ps1.ipynb", "amy"),
    ],
)
def test_flat_file_names(file, student, tmp_path):
    put(tmp_path / file)
    assert names(tmp_path) == [student]
    assert names(tmp_path / file) == [student]  # the file itself as the path


def test_other_names_of_the_notebook_are_known(tmp_path):
    put(tmp_path / "amy_fusion.ipynb")
    assert names(tmp_path, source_names=["02_fusion.ipynb"]) == ["amy"]


def test_canvas_download(tmp_path):
    members = {
        "doeamy_12345_678910_ps1.ipynb": GOOD,
        "roebob_LATE_12346_678911_ps1-1.ipynb": GOOD,
        "zhangsan_12347_678912_my ps1 (2).ipynb": GOOD,
        "zhangsan_12347_678913_notes.txt": "x",
        "limei_12348_678914_hw.zip": zip_of({"a/ps1.ipynb": GOOD}),
        "anon_x1Yz_12349_678915_ps1.ipynb": GOOD,
    }
    zip_of(members, tmp_path / "submissions.zip")
    for path in (tmp_path / "submissions.zip", tmp_path):  # the zip, and the folder that holds nothing else
        assert names(path) == ["anon_x1Yz", "doeamy", "limei", "roebob", "zhangsan"]
    assert any("LATE" in note for note in gather(tmp_path)["roebob"].notes)


def test_canvas_resubmission_number_decides_between_files_of_the_same_time(tmp_path):
    put(tmp_path / "doeamy_12345_678910_ps1.ipynb", variant("def relu_sum(xs): return 1\n"), 1_700_000_000)
    put(tmp_path / "doeamy_12345_678999_ps1-2.ipynb", variant("def relu_sum(xs): return 2\n"), 1_700_000_000)
    amy = gather(tmp_path)["doeamy"]
    assert "return 2" in cell(amy.notebook, "q1")["source"] and len(amy.other_files) == 1


def test_canvas_namesakes_stay_two(tmp_path):
    put(tmp_path / "doeamy_12345_678910_ps1.ipynb")
    put(tmp_path / "doeamy_55555_678911_ps1.ipynb")
    assert names(tmp_path) == ["doeamy_12345", "doeamy_55555"]


@pytest.mark.parametrize("tail", ["_assignsubmission_file_/ps1.ipynb", "_assignsubmission_file/ps1.ipynb",
                                  "_assignsubmission_file_ps1.ipynb"])  # fmt: skip
def test_moodle_download(tail, tmp_path):
    zip_of(
        {f"张三_1234567{tail}": GOOD, f"Amy Doe_1234568{tail}": GOOD, f"Amy Doe_1234569{tail}": GOOD},
        tmp_path / "m.zip",
    )
    assert names(tmp_path / "m.zip") == ["Amy Doe_1234568", "Amy Doe_1234569", "张三"]


def test_blackboard_download_carries_the_time(tmp_path):
    put(tmp_path / "ps1_amy_attempt_2026-01-31-23-59-58_ps1.ipynb")
    found = gather(tmp_path)["amy"]
    assert found.collected_at.astimezone().strftime("%Y-%m-%d %H:%M:%S") == "2026-01-31 23:59:58"


def test_a_students_own_file_name_makes_it_no_one_elses(tmp_path):
    put(tmp_path / "mallory/bob_12345_678910_ps1.ipynb")
    put(tmp_path / "bob/ps1.ipynb", UNTOUCHED)
    found = gather(tmp_path)
    assert sorted(found) == ["bob", "mallory"]
    assert "NotImplementedError" in cell(found["bob"].notebook, "q1")["source"]


def test_the_newest_by_collected_time_counts_and_all_are_listed(tmp_path):
    put(tmp_path / "amy/z_new.ipynb", variant("def relu_sum(xs): return 'old'\n"), 1_700_000_000)
    put(tmp_path / "amy/a_old.ipynb", variant("def relu_sum(xs): return 'new'\n"), 1_700_009_000)
    put(tmp_path / "amy/notes.txt", "x")
    amy = gather(tmp_path)["amy"]
    assert "'new'" in cell(amy.notebook, "q1")["source"]
    assert amy.collected_at == datetime.fromtimestamp(1_700_009_000, timezone.utc)
    assert sorted(Path(name).name for name in amy.other_files) == ["notes.txt", "z_new.ipynb"]
    assert any("2 份" in note for note in amy.notes)


def test_a_newer_notebook_of_another_course_does_not_count(tmp_path):
    put(tmp_path / "amy/mine.ipynb", GOOD, 1_700_000_000)
    put(tmp_path / "amy/ps1.ipynb", OTHER, 1_700_009_000)
    assert gather(tmp_path)["amy"].path.endswith("mine.ipynb")


def test_a_newer_untouched_copy_does_not_replace_the_work(tmp_path):
    put(tmp_path / "amy/ps1.ipynb", GOOD, 1_700_000_000)
    put(tmp_path / "amy/ps1 (1).ipynb", UNTOUCHED, 1_700_009_000)
    assert cell(gather(tmp_path)["amy"].notebook, "q1")["source"] == RELU


def test_an_unreadable_newer_file_does_not_hide_the_work_and_is_noted(tmp_path):
    put(tmp_path / "amy/ps1.ipynb", GOOD, 1_700_000_000)
    put(tmp_path / "amy/ps1 (1).ipynb", GOOD[:500], 1_700_009_000)
    amy = gather(tmp_path)["amy"]
    assert amy.notebook and any("truncated" in note for note in amy.notes)


def test_only_another_notebook_is_a_plain_reason(tmp_path):
    put(tmp_path / "amy/ps1.ipynb", OTHER)
    assert "another notebook" in gather(tmp_path)["amy"].problem


def test_a_zip_in_a_students_folder_has_the_time_of_the_zip(tmp_path):
    zip_of({"deep/ps1.ipynb": GOOD, "deep/data.csv": "1"}, tmp_path / "amy/hw.zip")
    os.utime(tmp_path / "amy/hw.zip", (1_700_000_000, 1_700_000_000))
    amy = gather(tmp_path)["amy"]
    assert amy.path.endswith("hw.zip!deep/ps1.ipynb")
    assert amy.collected_at == datetime.fromtimestamp(1_700_000_000, timezone.utc)


def test_zip_member_times_are_the_collectors(tmp_path):
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("amy.ipynb", (2026, 1, 2, 3, 4, 6)), GOOD)
        stamped = zipfile.ZipInfo("bob.ipynb", (2026, 1, 2, 3, 4, 6))
        stamped.extra = b"\x55\x54\x05\x00\x01" + (1_700_000_000).to_bytes(4, "little")
        archive.writestr(stamped, GOOD)
    found = gather(tmp_path / "c.zip")
    assert found["amy"].collected_at == datetime(2026, 1, 2, 3, 4, 6).astimezone()
    assert found["bob"].collected_at == datetime.fromtimestamp(1_700_000_000, timezone.utc)


@pytest.mark.parametrize(
    ("claim", "flagged"),
    [("2019-12-31 00:00:00 UTC", True), ("2023-11-14 22:13:20.000000 UTC", False), ("2023-11-15T06:13:20+08:00", False),
     ("when I was done", False), ("9999-99-99 00:00:00 UTC", False)],
)  # fmt: skip
def test_a_timestamp_of_the_student_is_never_believed(claim, flagged, tmp_path):
    put(tmp_path / "amy/ps1.ipynb", GOOD, 1_700_000_000)
    put(tmp_path / "amy/timestamp.txt", claim)
    amy = gather(tmp_path)["amy"]
    assert amy.collected_at == datetime.fromtimestamp(1_700_000_000, timezone.utc)
    assert [flag.kind for flag in amy.flags] == ["forged_timestamp"] * flagged


@pytest.mark.parametrize(
    ("file", "flagged"),
    [("numpy.py", True), ("unittest.py", True), ("json.cpython-311.so", True), ("torch/__init__.py", True),
     ("sitecustomize.py", True), ("helper.py", False), ("numpy.csv", False), ("test.py", False)],
)  # fmt: skip
def test_files_that_shadow_libraries_are_flagged(file, flagged, tmp_path):
    put(tmp_path / "amy/ps1.ipynb")
    put(tmp_path / "amy" / file, "x = 1")
    amy = gather(tmp_path)["amy"]
    assert [flag.kind for flag in amy.flags] == ["shadow_file"] * flagged
    assert any(file.split("/")[-1] in name for name in amy.other_files)


def test_what_systems_leave_behind_is_ignored(tmp_path):
    newer = variant("def relu_sum(xs): return 'junk'\n")
    for junk in (".ipynb_checkpoints/ps1-checkpoint.ipynb", "._ps1.ipynb", ".DS_Store", "__pycache__/a.pyc"):
        put(tmp_path / "amy" / junk, newer)
    for junk in ("__MACOSX/amy/._ps1.ipynb", "Thumbs.db", "~$list.xlsx", "readme.txt", "grades.csv"):
        put(tmp_path / junk, "x")
    put(tmp_path / "amy/ps1.ipynb", GOOD, 1_000_000_000)
    found = gather(tmp_path)
    assert sorted(found) == ["amy"] and found["amy"].other_files == ()


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_links_are_not_followed(packed, tmp_path):
    secret = put(tmp_path / "secret.ipynb", variant("def relu_sum(xs): return 'secret'\n"))
    root = tmp_path / "in"
    put(root / "bob/ps1.ipynb")
    if packed:
        link = zipfile.ZipInfo("amy/ps1.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
            archive.writestr(link, str(secret))
            archive.writestr("bob/ps1.ipynb", GOOD)
    else:
        (root / "amy").mkdir()
        (root / "amy/ps1.ipynb").symlink_to(secret)
        (root / "cat").symlink_to(tmp_path)
    found = gather(tmp_path / "c.zip" if packed else root)
    assert found["bob"].problem is None
    assert "symbolic link" in found["amy"].problem
    assert packed or "symbolic link" in found["cat"].problem


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.timeout(60)
def test_a_pipe_is_not_opened(tmp_path):
    put(tmp_path / "bob/ps1.ipynb")
    (tmp_path / "amy").mkdir()
    os.mkfifo(tmp_path / "amy/ps1.ipynb")
    found = gather(tmp_path)
    assert "special file" in found["amy"].problem and found["bob"].problem is None


@pytest.mark.parametrize("name", ["../../evil/ps1.ipynb", "/etc/ps1.ipynb", "C:\\x\\ps1.ipynb", "a/../../ps1.ipynb"])
def test_members_that_leave_the_zip_are_refused(name, tmp_path):
    zip_of({name: GOOD, "x.txt": "1"}, tmp_path / "amy/hw.zip")
    put(tmp_path / "bob/ps1.ipynb")
    found = gather(tmp_path)
    assert "unsafe path" in found["amy"].problem and found["bob"].problem is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["amy", "bob"]  # nothing was unpacked


def encrypted(data: bytes) -> bytes:
    """The zip with the flag for encryption set in both headers of its one member."""
    raw = bytearray(data)
    raw[6] |= 1
    central = raw.index(b"PK\x01\x02")
    raw[central + 8] |= 1
    return bytes(raw)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"PK\x03\x04 no zip", "damaged"),
        (zip_of({"ps1.ipynb": GOOD})[:-40], "damaged"),
        (encrypted(zip_of({"ps1.ipynb": GOOD})), "encrypted"),
        (zip_of({"readme.md": "x"}), "no .ipynb"),
        (zip_of({}), "no .ipynb"),
        (zip_of({"inner.zip": zip_of({"ps1.ipynb": GOOD})}), "no .ipynb"),
        (zip_of({f"{n}.ipynb": "" for n in range(MAX_MEMBERS + 1)}), "too many"),
        (zip_of({"ps1.ipynb": b" " * (101 << 20)}), "too large"),
        (zip_of({"ps1.ipynb": GOOD}).replace(GOOD.encode()[:5], b"xxxxx", 1), None),
    ],
    ids=["no zip", "cut", "encrypted", "no notebook", "empty", "nested", "count", "bomb", "sound"],
)
def test_zips_of_students(data, word, tmp_path):
    put(tmp_path / "amy/hw.zip", data)
    put(tmp_path / "bob/ps1.ipynb")
    found = gather(tmp_path)
    assert found["bob"].problem is None
    assert found["amy"].problem is None if word is None else word in found["amy"].problem


def test_a_member_with_a_broken_checksum_is_one_students_problem(tmp_path):
    data = bytearray(zip_of({"amy.ipynb": GOOD, "bob.ipynb": GOOD}))
    data[60] ^= 0xFF
    put(tmp_path / "c.zip", bytes(data))
    found = gather(tmp_path / "c.zip")
    assert found["amy"].problem and found["bob"].problem is None


@pytest.mark.parametrize("encoding", ["gbk", "utf-8"])
def test_zip_names_without_the_unicode_mark(encoding, tmp_path):
    placeholder = "QQQQ/ps1.ipynb" if encoding == "gbk" else "QQQQQQ/ps1.ipynb"
    data = zip_of({placeholder: GOOD}).replace(placeholder.encode(), f"{'张三'}/ps1.ipynb".encode(encoding))
    put(tmp_path / "c.zip", data)
    assert names(tmp_path / "c.zip") == ["张三"]


def test_file_names_that_are_no_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/" + "张三".encode("gbk")
    os.mkdir(folder)
    with open(folder + b"/ps1.ipynb", "wb") as file:
        file.write(GOOD.encode())
    found = gather(tmp_path)
    assert list(found) == ["张三"]
    found["张三"].path.encode()


@pytest.mark.parametrize(
    ("folder", "student"),
    [("a+b", "a_b"), (".hidden", "hidden"), ("-rf", "rf"), ("trailing ", "trailing"), ("con", "con_"), ("a\nb", "ab"),
     ("=cmd|' C calc'!A0", "cmd_ C calc_A0"), ("e\u0301va", "\u00e9va"), ("x" * 200, "x" * 60), ("[a]*?", "a"),
     ("\u202egnp", "gnp"), ("+++", "student"), ("O'Brien, Amy", "O_Brien_ Amy"), ("姓名：张三", "姓名_张三")],
)  # fmt: skip
def test_names_are_safe_and_the_original_is_noted(folder, student, tmp_path):
    put(tmp_path / folder / "ps1.ipynb")
    found = gather(tmp_path)
    assert list(found) == [student]
    assert folder == "e\u0301va" or any("原名" in note for note in found[student].notes)


def test_students_whose_cleaned_names_are_equal_stay_two(tmp_path):
    for folder in ("a+b", "a_b", "A_B", "a=b"):
        put(tmp_path / folder / "ps1.ipynb")
    assert len({student.casefold() for student in names(tmp_path)}) == 4


def test_roster_adds_the_missing_and_notes_the_unknown(tmp_path):
    put(tmp_path / "in/2021001_张三/ps1.ipynb")
    put(tmp_path / "in/mallory/ps1.ipynb")
    put(tmp_path / "roster.csv", "姓名,班\n张三,1\n李四,1\n".encode("gbk"))
    for roster in (tmp_path / "roster.csv", ["张三", "李四"]):
        found = gather(tmp_path / "in", roster=roster)
        assert sorted(found) == ["mallory", "张三", "李四"]
        assert found["李四"].problem == "未提交" and found["李四"].path == "" and found["李四"].notebook is None
        assert "不在名单里" in found["mallory"].notes and "不在名单里" not in found["张三"].notes


def test_roster_finds_a_name_inside_a_flat_file_name(tmp_path):
    put(tmp_path / "作业一 计算机2班 张三 final.ipynb")
    found = gather(tmp_path, roster=["张三", "张三丰"])
    assert found["张三"].problem is None and found["张三丰"].problem == "未提交"


@pytest.mark.parametrize(
    ("files", "word"),
    [({"amy/hw.pdf": b"%PDF-1.7"}, "hw.pdf"), ({"amy/hw.rar": b"Rar!"}, "archive"), ({"amy/a.py": b"x = 1"}, "a.py")],
)  # fmt: skip
def test_a_student_without_a_notebook_gets_a_reason(files, word, tmp_path):
    put(tmp_path / "bob/ps1.ipynb")
    for name, data in files.items():
        put(tmp_path / name, data)
    (tmp_path / "cat").mkdir()
    found = gather(tmp_path)
    assert word in found["amy"].problem and "请" in found["amy"].problem
    assert "empty folder" in found["cat"].problem


def test_a_huge_file_is_not_read(tmp_path):
    put(tmp_path / "bob/ps1.ipynb")
    with open(put(tmp_path / "amy/ps1.ipynb", b""), "wb") as file:
        file.truncate(500 << 20)  # sparse: takes no room on the disk
    found = gather(tmp_path)
    assert "500 MB" in found["amy"].problem and found["bob"].problem is None


@pytest.mark.parametrize("kind", ["missing", "empty", "no notebook", "broken zip", "empty zip", "pipe"])
def test_what_the_instructor_must_know(kind, tmp_path):
    path = tmp_path / ("class.zip" if "zip" in kind else "class")
    if kind in ("empty", "no notebook"):
        path.mkdir()
    if kind == "no notebook":
        put(path / "amy/readme.txt", "x")
    if "zip" in kind:
        put(path, b"PK broken" if kind == "broken zip" else zip_of({}))
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(GraderError) as caught:
        collect(path, "ps1", release())
    assert "\n" not in str(caught.value) and caught.value.remedy


def test_an_unreadable_roster_is_named(tmp_path):
    put(tmp_path / "in/amy/ps1.ipynb")
    with pytest.raises(GraderError, match="roster"):
        collect(tmp_path / "in", "ps1", release(), roster=tmp_path / "none.csv")


@pytest.mark.timeout(60)
def test_only_the_beginning_of_nameless_files_is_unpacked(tmp_path):
    one = zip_of({f"{n}.json": b" " * (90 << 20) for n in range(3)})
    members = {f"{n}.txt": b"x" for n in range(900)}
    put(tmp_path / "amy/hw.zip", one)
    zip_of(members, tmp_path / "amy/more.zip")
    put(tmp_path / "bob/ps1.ipynb")
    found = gather(tmp_path)
    assert "no .ipynb" in found["amy"].problem and found["bob"].problem is None


def test_an_unforeseen_fault_is_one_students_problem(tmp_path, monkeypatch):
    put(tmp_path / "amy/ps1.ipynb", GOOD)
    put(tmp_path / "bob/ps1.ipynb", UNTOUCHED)
    original = Fingerprint.likeness

    def fails_for_amy(self, notebook):
        if "NotImplementedError" not in cell(notebook, "q1")["source"]:
            raise KeyError("boom")
        return original(self, notebook)

    monkeypatch.setattr(Fingerprint, "likeness", fails_for_amy)
    found = gather(tmp_path)
    assert "KeyError" in found["amy"].problem and found["bob"].problem is None
