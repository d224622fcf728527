from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDEPD_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    return tmp_path / "kept"


def count_calls(log: list[int], value: int) -> np.ndarray:
    log.append(value)
    return np.arange(value)


def test_the_second_call_is_read_and_every_argument_counts(folder: Path) -> None:
    log: list[int] = []
    key = (1.0, np.arange(4))
    first = cache.remembered("f", key, lambda: count_calls(log, 3))
    assert np.array_equal(cache.remembered("f", (1.0, np.arange(4)), lambda: count_calls(log, 4)), first)
    for other in (
        (2.0, np.arange(4)),
        (1.0, np.arange(5)),
        (1.0, np.arange(4).astype(np.int32)),
        (1.0, np.arange(4)[::-1]),
    ):
        cache.remembered("f", other, lambda: count_calls(log, 5))
    cache.remembered("g", key, lambda: count_calls(log, 6))
    assert log == [3, 5, 5, 5, 5, 6]
    assert folder.stat().st_mode & 0o077 == 0


def test_a_damaged_file_is_computed_anew(folder: Path) -> None:
    log: list[int] = []
    cache.remembered("f", (), lambda: count_calls(log, 3))
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:70])
    assert cache.remembered("f", (), lambda: count_calls(log, 3)).tolist() == [0, 1, 2]
    assert cache.remembered("f", (), lambda: count_calls(log, 3)).tolist() == [0, 1, 2]
    assert len(log) == 2


def test_quick_work_and_a_switched_off_cache_leave_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WORTH_KEEPING", 60.0)
    cache.remembered("f", (), lambda: np.zeros(1))
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    monkeypatch.setenv("FEDEPD_CACHE", "off")
    cache.remembered("f", (), lambda: np.zeros(1))
    assert not folder.exists()


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/proc/version").exists(), reason="needs a place that cannot be written to"
)
def test_a_cache_that_cannot_be_written_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_CACHE", "/proc/version/cache")
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    assert cache.remembered("f", (), lambda: np.ones(2)).tolist() == [1, 1]


@pytest.fixture
def kept(folder: Path) -> Path:
    """The file of ``remembered("f", (), ...)``, whose value is [0, 1, 2]."""
    cache.remembered("f", (), lambda: np.arange(3))
    (file,) = folder.iterdir()
    return file


def plain(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def sealed(key: str, content: bytes) -> bytes:
    return cache._digest(key, content) + content


def removed(file: Path) -> Path:
    file.unlink()
    return file


POISON: dict[str, Callable[[Path], object]] = {
    "another array": lambda file: file.write_bytes(plain(np.full(3, 7))),
    "another array with its own checksum": lambda file: file.write_bytes(sealed("", plain(np.full(3, 7)))),
    "what was kept for another key": lambda file: file.write_bytes(sealed("g-0", plain(np.full(3, 7)))),
    "a flipped bit": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\x09"),
    "objects": lambda file: file.write_bytes(sealed(file.stem, pickle.dumps([1]))),
    "a header of 10^12 numbers": lambda file: file.write_bytes(
        sealed(file.stem, plain(np.arange(3)).replace(b"(3,)", b"(10**12,)"))
    ),
    "fifo": lambda file: os.mkfifo(removed(file)),
    "folder": lambda file: removed(file).mkdir(),
    "loop of links": lambda file: removed(file).symlink_to(file.name),
    "device": lambda file: removed(file).symlink_to("/dev/zero"),
    "ten terabytes": lambda file: os.truncate(file, 10 * 2**40),
    "empty": lambda file: file.write_bytes(b""),
    "other shape, sealed": lambda file: file.write_bytes(sealed(file.stem, plain(np.arange(5)))),
    "other type, sealed": lambda file: file.write_bytes(sealed(file.stem, plain(np.arange(3.0)))),
    "out of range, sealed": lambda file: file.write_bytes(sealed(file.stem, plain(np.arange(3) + 10**6))),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", POISON)
def test_a_poisoned_file_is_computed_anew(kept: Path, case: str) -> None:
    POISON[case](kept)

    def fits(found: np.ndarray) -> bool:
        return found.dtype == np.int64 and found.shape == (3,) and bool(found.max() < 3)

    assert cache.remembered("f", (), lambda: np.arange(3), fits).tolist() == [0, 1, 2]


@pytest.mark.hostile
def test_another_users_file_is_not_believed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.remembered("f", (), lambda: np.zeros(1)).tolist() == [0]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "value",
    [np.zeros(3), np.full(500, -1), np.full(500, 10**9), np.arange(500.0), np.ones((500, 2), dtype=np.int64)],
)
def test_a_run_takes_no_poison_though_it_is_sealed(folder: Path, value: np.ndarray) -> None:
    """Every result that was kept is replaced, under a checksum of its own.

    The bits of the run are the same.
    """
    import fedepd
    from fedepd.datasets import synthetic

    graph = synthetic(nodes=500, edges=1500, classes=4, imbalance=5, features=12, smallest=None)
    quick: dict[str, Any] = {"rounds": 1, "hidden": 4, "clients": 2, "partition": "balanced"}
    wanted = fedepd.run(graph, "fedepd", **quick).summary["weights_sha256"]
    files = list(folder.iterdir())
    assert len(files) >= 3
    for file in files:
        file.write_bytes(sealed(file.stem, plain(value)))
    assert fedepd.run(graph, "fedepd", **quick).summary["weights_sha256"] == wanted
