"""Output folders: only a new one may be filled, and only one process at a time works in it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedepd.errors import BadConfig
from fedepd.shown import shown

LOCK = ".lock"
"""The lock file. Only its owner may open it (0600), because whoever can open a file can also lock it."""
_held: set[tuple[int, int]] = set()
_holding = threading.Lock()


def check_new_folder(path: Path) -> None:
    """Refuse an output folder that holds anything. Writes nothing."""
    where = f"'{shown(path, 300)}'"
    try:
        if path.exists() and not path.is_dir():
            raise BadConfig(f"the output {where} is a file; give a folder with --out")
        if path.exists() and any(not is_left_over(file) for file in path.iterdir()):
            raise BadConfig(
                f"the output folder {where} is not empty; give another --out or remove the folder"
            )
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "the name cannot be used"
        raise BadConfig(f"cannot read the output folder {where}: {reason}; give another --out") from cause


def is_left_over(file: Path) -> bool:
    """Whether ``replacing`` or ``held`` left the file behind in a process that was killed."""
    return file.name == LOCK or (file.name.startswith(".") and file.name.endswith(".part"))


def claim_folder(path: Path) -> None:
    """Make a folder that can be written to. Fails before anything is written if that is not possible."""
    check_new_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "the name cannot be used"
        raise BadConfig(
            f"cannot write to the output folder '{shown(path, 300)}': {reason}; give another --out"
        ) from cause


@contextmanager
def new_folder(path: Path, names: Iterable[str]) -> Iterator[None]:
    """Make the folder ``path``. If the block fails, remove the files and folders ``names`` in it.

    ``path`` itself is removed too if it did not exist before.
    """
    names = tuple(names)
    try:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "the name cannot be used"
        raise BadConfig(
            f"cannot make the folder '{shown(path, 300)}' ({reason}); give another one with -o"
        ) from cause
    try:
        yield
    except BaseException:
        for each in (path / name for name in names):
            with suppress(OSError):
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time works in it.

    The system frees the lock however the process ends. ``lockf`` also works over NFS. Its locks belong to the
    process and end when any descriptor of the file is closed. So a second holder in the same process is
    refused before it opens the file.
    """
    busy = f"another process is working in '{shown(folder, 300)}'; let it finish or stop it first"
    try:
        status = folder.stat()
    except OSError as cause:
        raise BadConfig(
            f"cannot work in '{shown(folder, 300)}' ({cause.strerror}); give another folder"
        ) from cause
    key = status.st_dev, status.st_ino
    with _holding:
        if key in _held:
            raise BadConfig(busy)
        _held.add(key)
    try:
        with _holding_file(folder / LOCK, busy):
            yield
    finally:
        with _holding:
            _held.discard(key)


def is_held(folder: Path) -> bool:
    """Whether another process works in the folder. It asks and takes no lock, so it is in nobody's way.

    A lock file that a killed process left behind does not count.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(handle)


_FLOCK = "hhqqi4x"
"""The kernel's record of a lock on 64-bit Linux: type, whence, start, length, process."""


class Busy(BadConfig):
    """Somebody else holds the lock."""


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, which is made and removed here. Raises ``Busy`` if another process has it.

    One lock per process: see ``held``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(
            f"cannot work in '{shown(path.parent, 300)}' ({cause.strerror}); give another folder"
        ) from cause
    with _holding_file(path, f"another process holds '{shown(path, 300)}'; let it finish or stop it first"):
        yield


@contextmanager
def _holding_file(path: Path, busy: str) -> Iterator[None]:
    handle = _locked(path, busy)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before the lock is freed
        os.close(handle)


def _locked(path: Path, busy: str) -> int:
    """A descriptor of the locked file.

    The last holder may remove the file after we open it and before we lock it. Then we try again.
    """
    while True:
        try:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
        except OSError as cause:
            raise BadConfig(
                f"cannot lock '{shown(path, 300)}' ({cause.strerror}); remove it if nobody is working there"
            ) from cause
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadConfig(f"cannot lock '{shown(path, 300)}' (it is not a regular file); remove it")
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    return handle
        except OSError as cause:
            os.close(handle)
            if cause.errno in (errno.EACCES, errno.EAGAIN):
                raise Busy(busy) from None
            raise BadConfig(
                f"cannot lock '{shown(path, 300)}' ({cause.strerror}); use a file system with locks"
            ) from cause
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
