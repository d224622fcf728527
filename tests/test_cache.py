from __future__ import annotations

import os
from pathlib import Path

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
    for other in ((2.0, np.arange(4)), (1.0, np.arange(5)), (1.0, np.arange(4).astype(np.int32)), (1.0, np.arange(4)[::-1])):
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


def test_quick_work_and_a_switched_off_cache_leave_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_KEEPING", 60.0)
    cache.remembered("f", (), lambda: np.zeros(1))
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    monkeypatch.setenv("FEDEPD_CACHE", "off")
    cache.remembered("f", (), lambda: np.zeros(1))
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/version").exists(), reason="needs a place that cannot be written to")
def test_a_cache_that_cannot_be_written_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_CACHE", "/proc/version/cache")
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    assert cache.remembered("f", (), lambda: np.ones(2)).tolist() == [1, 1]
