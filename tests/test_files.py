"""Files are whole or not there; their temporary names can be neither guessed nor left behind."""

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from softf1 import files
from softf1.errors import InputError
from softf1.files import (
    finite,
    new_file,
    new_folder,
    read_json,
    remove_unfinished,
    scratch_folder,
    write_json,
    write_text,
)

NAME = re.compile(r"\.softf1-[0-9a-f]{16}\.tmp")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text, **options):
    with new_file(path, **options) as file:
        file.write(text.encode())


def test_a_file_appears_once_it_is_whole(tmp_path):
    path = tmp_path / "deep/er/a.txt"
    with new_file(path) as file:
        file.write(b"half")
        assert not path.exists()
        (unfinished,) = names(path.parent)
        assert NAME.fullmatch(unfinished)
    assert path.read_text() == "half"
    assert names(path.parent) == ["a.txt"]


def test_what_was_there_stays_where_writing_fails(tmp_path):
    write(tmp_path / "a.txt", "old")
    with pytest.raises(TypeError), new_file(tmp_path / "a.txt") as file:
        file.writelines([b"new", None])
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_that_may_not_be_written_to_is_an_error_with_the_name_of_the_file(
    tmp_path, monkeypatch
):
    def refuse(path, _):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # the superuser may write anywhere
    with pytest.raises(PermissionError) as caught:
        write(tmp_path / "a.txt", "new")
    assert caught.value.filename == str(tmp_path / "a.txt")


def test_no_file_is_replaced_where_that_is_not_wanted(tmp_path):
    write(tmp_path / "a.txt", "first", replace=False)
    with pytest.raises(FileExistsError):
        write(tmp_path / "a.txt", "second", replace=False)
    assert (tmp_path / "a.txt").read_text() == "first"
    assert names(tmp_path) == ["a.txt"]


def test_nor_on_a_disk_without_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write(tmp_path / "a.txt", "first", replace=False)
    with pytest.raises(FileExistsError, match=r"a\.txt"):
        write(tmp_path / "a.txt", "second", replace=False)
    assert (tmp_path / "a.txt").read_text() == "first"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write(tmp_path / "a.txt", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode


def test_a_link_in_the_way_is_not_followed(tmp_path, monkeypatch):
    """Somebody guesses the temporary name and puts a link to another's file there."""
    (tmp_path / "victim").write_text("precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0" * 16)
    (tmp_path / f".softf1-{'0' * 16}.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        write(tmp_path / "a.txt", "text")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_link_in_the_place_of_the_file_is_replaced_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a.txt").symlink_to(tmp_path / "victim")
    write(tmp_path / "a.txt", "text")
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "a.txt").is_symlink()


KILLED = """
import os, signal, sys
from pathlib import Path
from softf1.files import new_file, new_folder
folder = Path(sys.argv[1])
with new_file(folder / "a.txt") as file, new_folder(folder / "b") as made:
    file.write(b"half")
    (made / "half").write_text("")
    print("ready", flush=True)
    signal.pause()
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing a file and a folder."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_a_killed_process_left_is_swept_by_the_next_that_writes_there(tmp_path, writer):
    assert len(names(tmp_path)) == 2
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    write(tmp_path / "c.txt", "text")
    assert names(tmp_path) == ["c.txt"]


@pytest.mark.usefixtures("writer")
def test_what_another_process_is_writing_is_not_swept(tmp_path):
    before = names(tmp_path)
    assert len(before) == 2
    write(tmp_path / "c.txt", "text")
    with new_folder(tmp_path / "d"):
        pass
    assert names(tmp_path) == [*before, "c.txt", "d"]


def test_hidden_files_of_others_are_not_swept(tmp_path):
    for name in (".softf1-mine", "softf1-a.tmp", ".a.tmp"):
        (tmp_path / name).write_text("")
    before = names(tmp_path)
    remove_unfinished(tmp_path)
    assert names(tmp_path) == before


def test_a_folder_appears_once_it_is_whole_and_replaces_another(tmp_path):
    for text in ("first", "second"):
        with new_folder(tmp_path / "a") as made:
            (made / "deep").mkdir()
            (made / "deep/file").write_text(text)
            assert len(names(tmp_path)) == 1 + (text == "second")
        assert (tmp_path / "a/deep/file").read_text() == text
        assert names(tmp_path) == ["a"]


def test_a_folder_that_was_moved_away_and_not_replaced_comes_back(tmp_path):
    """Killed between the two renames."""
    with new_folder(tmp_path / "a") as made:
        (made / "old").write_text("")
    (tmp_path / "a").rename(tmp_path / ".softf1-a.old")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "a"):
        raise ZeroDivisionError
    assert names(tmp_path / "a") == ["old"]
    assert names(tmp_path) == ["a"]


def test_a_scratch_folder_is_gone_at_the_end(tmp_path):
    with scratch_folder(tmp_path) as made:
        (made / "file").write_text("")
    assert names(tmp_path) == []


def test_names_are_on_the_disk_before_anything_else_happens(tmp_path, monkeypatch):
    """The folder is synced after the rename: a power cut later does not undo it."""
    done = []
    replace, fsync = Path.replace, os.fsync
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (done.append("rename"), replace(self, to))[1]
    )

    def note(number):
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "a.txt", "text")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "wanted a task in JSON, got "), ("[1]", "wanted an object, got list")],
)
def test_a_file_without_an_object_is_one_line(tmp_path, text, said):
    path = tmp_path / "task.json"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"task.json: {said}")):
        read_json(path, "a task in JSON")


def test_what_is_written_as_json_is_read_again(tmp_path):
    path = tmp_path / "new" / "result.json"
    content = {"name": "Zoë", "scores": {"f1": 0.5}, "best": float("nan")}
    write_json(path, finite(content))
    assert read_json(path) == {**content, "best": None}
    assert path.read_bytes().endswith(b"}\n")
    assert "Zoë" in path.read_text("utf-8")


def test_text_that_utf8_cannot_hold_is_written_as_asked(tmp_path):
    path = tmp_path / "note.txt"
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud83d")
    assert not path.exists()
    write_text(path, "half \ud83d", errors="replace")
    assert path.read_text("utf-8") == "half ?"
