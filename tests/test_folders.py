"""New folders, and one process at a time in each: by a file that nobody else can open."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fedepd.errors import BadConfig
from fedepd.folders import LOCK, check_new_folder, claim_folder, held, is_held, new_folder

hostile = pytest.mark.hostile
SERVER = multiprocessing.get_context("fork")


def hold(folder: Path, says: Connection) -> None:
    """In a process of its own, until it is told to go on."""
    try:
        with held(folder):
            says.send("held")
            says.recv()
    except BadConfig as mistake:
        says.send(str(mistake))


def another(folder: Path) -> tuple[BaseProcess, Connection]:
    ours, theirs = SERVER.Pipe()
    process = SERVER.Process(target=hold, args=(folder, theirs))
    process.start()
    theirs.close()
    return process, ours


def test_another_process_is_kept_out_and_comes_in_after(tmp_path: Path) -> None:
    with held(tmp_path):
        process, pipe = another(tmp_path)
        assert "another process is working" in pipe.recv()
        process.join()
    process, pipe = another(tmp_path)
    assert pipe.recv() == "held"
    with pytest.raises(BadConfig, match="another process is working"), held(tmp_path):
        pass
    pipe.send("go on")
    process.join()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_nothing_that_stops_the_next(tmp_path: Path) -> None:
    process, pipe = another(tmp_path)
    assert pipe.recv() == "held"
    process.kill()
    process.join()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    claim_folder(tmp_path)
    with held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_asks_whether_a_folder_is_held_hinders_nobody(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    process, pipe = another(tmp_path)
    assert pipe.recv() == "held"
    assert is_held(tmp_path)
    assert is_held(tmp_path)
    process.kill()
    process.join()
    assert (tmp_path / LOCK).exists()
    assert not is_held(tmp_path)  # the file alone is no lock
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).symlink_to("elsewhere")
    assert not is_held(tmp_path)


def test_a_second_holder_in_this_process_does_not_undo_the_first(tmp_path: Path) -> None:
    """lockf would give it the lock, and take it from both when it closes the file."""
    with held(tmp_path):
        for _ in range(2):
            with pytest.raises(BadConfig, match="another process is working"), held(tmp_path):
                pass
        process, pipe = another(tmp_path)
        assert "another process is working" in pipe.recv()
        process.join()


@hostile
def test_whoever_may_read_the_folder_cannot_keep_its_owner_out(tmp_path: Path) -> None:
    """The lock used to be one of the folder itself: a reader's flock on it stopped every resume."""
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with held(tmp_path):
            assert stat.S_IMODE((tmp_path / LOCK).stat().st_mode) == 0o600
    finally:
        os.close(handle)


@hostile
@pytest.mark.parametrize("case", ["fifo", "folder", "link", "loop", "dangling"])
def test_a_lock_that_is_no_file_is_said(tmp_path: Path, case: str) -> None:
    lock = tmp_path / LOCK
    ways: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(lock),
        "folder": lock.mkdir,
        "link": lambda: lock.symlink_to("/etc/hostname"),
        "loop": lambda: lock.symlink_to(LOCK),
        "dangling": lambda: lock.symlink_to("victim"),
    }
    ways[case]()
    with pytest.raises(BadConfig, match=r"cannot lock '.*lock'"), held(tmp_path):
        pass
    assert not (tmp_path / "victim").exists()


@hostile
def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot work in"), held(tmp_path / "none"):
        pass


@hostile
@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "loop", "file/new", "fifo"])
def test_names_that_cannot_be_folders(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadConfig, match="the output"):
        claim_folder(tmp_path / name)
    with pytest.raises(BadConfig), new_folder(tmp_path / name, ()):
        check_new_folder(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def fill_and_fail(folder: Path, *names: str) -> None:
    with new_folder(folder, ("a", "b", "c")):
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        raise ZeroDivisionError


def test_a_folder_that_could_not_be_filled_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(ZeroDivisionError):
            fill_and_fail(tmp_path / name, "a", "b/d")
        assert [path.name for path in tmp_path.iterdir()] == ["old"]
        assert list((tmp_path / "old").iterdir()) == []


def test_what_others_put_into_the_folder_stays(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fill_and_fail(tmp_path / "new", "a", "theirs")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["theirs"]
