"""That a refusal comes before the damage.

It takes little processor time, and little memory beyond what the process had.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _memory(field: str) -> int:
    """Kilobytes, from the kernel's own account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


@contextmanager
def bounded(seconds: float = 1.0, megabytes: int = 300) -> Iterator[None]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before, start = _memory("VmRSS"), time.process_time()
    gc.disable()  # else the objects of all earlier tests count
    try:
        yield
    finally:
        gc.enable()
    assert time.process_time() - start < seconds
    assert _memory("VmHWM") - before < 1024 * megabytes
