"""The same hostile graph files through every command that reads one.

Each answers with one sentence and exit code 2. It writes nothing and takes no time and no memory.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bounded import bounded
from fedepd.cli import main

pytestmark = pytest.mark.hostile

Make = Callable[[Path], None]


def good(**change: Any) -> dict[str, Any]:
    """60 nodes on a ring, 3 classes."""
    ring = np.arange(60)
    arrays = {
        "edge_index": np.stack([ring, (ring + 1) % 60]),
        "y": ring % 3,
        "x": np.eye(60, 8, dtype=np.float32),
    }
    return {name: np.asarray(array) for name, array in (arrays | change).items() if array is not None}


def npz(**change: Any) -> Make:
    return lambda path: np.savez_compressed(path, **good(**change))


def csr(columns: int) -> dict[str, Any]:
    parts = {
        "x_data": np.ones(60),
        "x_indices": np.zeros(60, int),
        "x_indptr": np.arange(61),
        "x_shape": [60, columns],
    }
    return {"x": None, **parts}


def many_zeros(path: Path) -> None:
    """136 MB of zeros in 140 kB."""
    np.savez(path, **good(x=None))
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f4", "fortran_order": False, "shape": (17, 2**21)}
        )
        for _ in range(17):
            member.write(bytes(2**23))


def text_of(code: int) -> Any:
    return np.array([code, 65, 66], dtype=np.uint32).view("<U1")


FILES: dict[str, Make] = {
    "zeros that unfold": many_zeros,
    "60 nodes of 10,000 classes": npz(num_classes=10_000),
    "2^40 columns": npz(**csr(2**40)),
    "a label beyond Unicode": npz(label_names=text_of(0x7FFFFFFF)),
    "a label of half a character": npz(label_names=text_of(0xD800)),
    "objects": lambda path: np.savez(path, **good(y=np.array([0, 1, "a"] * 20, dtype=object))),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "itself": lambda path: path.symlink_to(path),
    "nothing": lambda path: path.touch(),
}

COMMANDS = {
    "run": ["run", "fedavg", "--data", "FILE", "--rounds", "1", "--out", "OUT"],
    "show": ["data", "show", "FILE"],
    "check": ["data", "check", "FILE"],
    "split": ["data", "split", "FILE", "-o", "OUT"],
    "clients": ["run", "fedavg", "--clients-dir", "CLIENTS", "--rounds", "1", "--out", "OUT"],
    "predict": ["predict", "MODEL", "--data", "FILE", "-o", "OUT.csv"],
    "features": [
        "data",
        "import",
        "--nodes",
        "NODES",
        "--edges",
        "NODES",
        "--features-npz",
        "FILE",
        "-o",
        "OUT.npz",
    ],
}
UNREAD = {"60 nodes of 10,000 classes", "a label beyond Unicode", "a label of half a character", "objects"}
"""What stands in arrays that a graph to classify, or features alone, are read without."""
PAIRS = [
    (command, case)
    for command in COMMANDS
    for case in FILES
    if command not in ("predict", "features") or case not in UNREAD
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    np.savez(folder / "good.npz", **good())
    run = [
        "run",
        "fedavg",
        "--data",
        str(folder / "good.npz"),
        "--rounds",
        "1",
        "--clients",
        "2",
        "--out",
        str(folder / "run"),
        "--quiet",
    ]
    assert main(run) == 0
    assert main(["export", str(folder / "run"), "-o", str(folder / "model")]) == 0
    return folder / "model"


@pytest.mark.parametrize(("command", "case"), PAIRS)
def test_one_sentence_and_exit_code_2(
    command: str,
    case: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "8")
    path = tmp_path / "clients" / "one" / "graph.npz"
    path.parent.mkdir(parents=True)
    FILES[case](path)
    (tmp_path / "nodes.csv").write_text("id,label\na,0\nb,1\n")
    named = {
        "FILE": path,
        "OUT": tmp_path / "out",
        "CLIENTS": tmp_path / "clients",
        "MODEL": model,
        "NODES": tmp_path / "nodes.csv",
    }
    named |= {"OUT.csv": tmp_path / "out.csv", "OUT.npz": tmp_path / "out.npz"}
    before = sorted(tmp_path.iterdir())
    capsys.readouterr()
    with bounded():
        assert main([str(named.get(word, word)) for word in COMMANDS[command]]) == 2
    told = capsys.readouterr().err
    assert told.startswith("fedepd: ")
    assert told.count("\n") == 1
    assert "Traceback" not in told
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", ["run", "show", "check", "split"])
@pytest.mark.parametrize(
    "name",
    ["x" * 300, "a\0b", "\ud800", os.fsdecode(b"\xff"), "\x1b[31m", "", "x" * 300 + ".npz", "\ud800.npz"],
)
def test_names_that_no_file_has(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main([{"FILE": name, "OUT": str(tmp_path / "out")}.get(word, word) for word in COMMANDS[command]])
        == 2
    )
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_a_sound_file_under_a_name_that_is_not_utf_8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.npz")
    np.savez(tmp_path / "good.npz", **good())
    (tmp_path / "good.npz").rename(path)
    assert main(["data", "show", str(path)]) == 0
    capsys.readouterr().out.encode()  # it could be shown
