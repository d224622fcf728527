from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from fedepd import memory
from fedepd.errors import BadConfig, BadData


def test_the_limit_is_half_the_machine_or_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDEPD_MAX_GB", raising=False)
    monkeypatch.setattr(memory, "_machine", lambda: 10 * 2**30)
    assert memory.limit() == 5 * 2**30
    monkeypatch.setenv("FEDEPD_MAX_GB", "1.5")
    assert memory.limit() == 3 * 2**29


@pytest.mark.hostile
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "many", "8 GB", "\x1b[31m8"])
def test_a_setting_that_is_no_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", value)
    with pytest.raises(BadConfig, match="FEDEPD_MAX_GB is not a number of gigabytes") as caught:
        memory.limit()
    assert "\x1b" not in str(caught.value)


def test_a_refusal_says_how_much_and_how_to_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "2")
    memory.check(2 * 2**30, "a file")
    with pytest.raises(
        BadData,
        match=r"a file would need 3\.0 GB of memory, but the limit is 2\.0 GB; .*FEDEPD_MAX_GB=3",
    ):
        memory.check(3 * 2**30, "a file")
    with pytest.raises(BadData, match="than any machine has"):
        memory.check(10**400, "a file")


def test_small_content_needs_no_proportion_and_large_content_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "64")
    memory.check_growth(memory.FREE, 1, "a file", "write it again")
    memory.check_growth(200 * 2**20, 2**20, "a file", "write it again")
    with pytest.raises(
        BadData, match="a file claims 209,715,201 bytes of content in 1,048,576 bytes; write it again"
    ):
        memory.check_growth(200 * 2**20 + 1, 2**20, "a file", "write it again")


GIVING = """
import resource, sys
from fedepd import memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
kept = []
for _ in range(2000):  # freed blocks of 100,000 bytes between small ones that stay
    kept.append((bytearray(100_000), bytearray(600)))
kept = [small for _, small in kept]
before = resident()
memory.give_back()
print(before - resident())
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library gives back by itself"
)
def test_freed_memory_goes_back_though_memory_behind_it_is_in_use() -> None:
    """200 MB are freed. Every block keeps no more than the two pages at its ends."""
    given = int(subprocess.run([sys.executable, "-c", GIVING], capture_output=True, check=True).stdout)
    assert given > 100 * 10**6


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", lambda: None)
    memory.give_back()
