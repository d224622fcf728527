"""How much memory a foreign file may ask for, and how freed memory goes back to the system.

A file is refused by its declared sizes, before memory is allocated. The limit is $FEDEPD_MAX_GB, else half of
the machine's memory.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fedepd.errors import BadConfig, BadData

FREE = 64 * 2**20
"""Bytes that a file of any size may unpack to.

Sorted owners or equal labels can shrink a thousandfold when packed.
"""
RATIO = 200
"""Beyond ``FREE``, a file may unpack to at most this many times its own size.

Real features shrink about 50-fold.
"""
COPIES = 4
"""Number of copies of the data that are in memory at once between reading and training, roughly."""
SETTING = "FEDEPD_MAX_GB"


def limit() -> int:
    """Bytes that one file's data may take."""
    chosen = os.environ.get(SETTING)
    if not chosen:
        return _machine() // 2
    try:
        gigabytes = float(chosen)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < 2**20:
        raise BadConfig(f"{SETTING} is not a number of gigabytes above 0; set it to 8, for example")
    return int(gigabytes * 2**30)


@cache
def _machine() -> int:
    """The memory of the machine, or of the container that this runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdigit() else total


def check(needed: int, what: str) -> None:
    """Refuse ``what`` if it would take more memory than the limit."""
    if needed > limit():
        much, cure = "more memory than any machine has", "correct its sizes"
        if needed < 2**50:
            much = f"{_gigabytes(needed)} of memory"
            cure = f"use less data, or raise the limit by setting {SETTING}={math.ceil(needed / 2**30)}"
        raise BadData(f"{what} would need {much}, but the limit is {_gigabytes(limit())}; {cure}")


def _gigabytes(amount: int) -> str:
    return f"{amount / 2**30:,.1f} GB" if amount >= 2**30 else f"{amount / 2**30:.2g} GB"


def check_growth(unfolded: int, size: int, what: str, cure: str) -> None:
    """Refuse a file whose content is out of proportion to its ``size`` in bytes, or needs too much memory."""
    if unfolded > max(FREE, RATIO * size):
        raise BadData(f"{what} claims {unfolded:,} bytes of content in {size:,} bytes; {cure}")
    check(COPIES * unfolded, what)


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's function that does it. Other C libraries have none."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


def give_back() -> None:
    """Give freed memory back to the system.

    glibc keeps freed blocks of up to 32 MB for later, between others that are in use. Without this, half of
    the memory of a run on a large graph is such gaps.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
