"""What somebody may put where a file of ours should be, and how a command must answer.

It answers with one sentence and exit code 2, and writes nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedepd.cli import main

Put = Callable[[Path], None]


def with_bytes(content: bytes) -> Put:
    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    return put


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    """Ten terabytes that take no room."""
    with path.open("wb") as file:
        file.truncate(10 * 2**40)


ANY_FILE: dict[str, Put] = {
    "empty": with_bytes(b""),
    "noise": with_bytes(bytes(range(256)) * 4),
    "missing": lambda path: path.unlink(),
    "fifo": _fifo,
    "folder": _folder,
    "loop of links": _loop,
    "device": _device,
    "ten terabytes": _sparse,
}
"""What no file may be."""

ANY_JSON: dict[str, Put] = {
    "not JSON": with_bytes(b"{"),
    "list": with_bytes(b"[]"),
    "list of lists": with_bytes(b"[[]]"),
    "number": with_bytes(b"7"),
    "null": with_bytes(b"null"),
    "NaN": with_bytes(b"NaN"),
    "empty table": with_bytes(b"{}"),
    "deep lists": with_bytes(b"[" * 100_000),
    "deep tables": with_bytes(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "500 levels": with_bytes(b"[" * 500 + b"]" * 500),
    "latin-1": with_bytes('{"ä": 1}'.encode("latin-1")),
    "number of 5000 digits": with_bytes(b'{"seed": ' + b"9" * 5000 + b"}"),
}
"""What no JSON file of a folder may hold."""


def edited(path: Path, **changes: Any) -> None:
    """A JSON table with keys set, "a.b" for one inside; ``...`` removes it. NaN is written as Python does."""
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        inner = content
        for each in outer:
            inner = inner[each]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    path.write_text(json.dumps(content))


def everything(folder: Path) -> dict[str, Any]:
    """Each path below a folder, and the size and time of each that is a file."""
    found = {path.relative_to(folder): path.lstat() for path in sorted(folder.rglob("*"))}
    times = {
        name: status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0 for name, status in found.items()
    }
    return {str(name): (status.st_mode, status.st_size, times[name]) for name, status in found.items()}


def refusal(capsys: Any, watched: Path, *arguments: str) -> str:
    """The one sentence with which a command refuses; nothing below ``watched`` may change."""
    capsys.readouterr()
    before = everything(watched)
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    assert err.startswith("fedepd: "), err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert everything(watched) == before
    assert len(err) < 1000
    return str(err)
