"""Slow functions of unchanging arrays, remembered on disk by the content of their arguments.

A second run, another seed or a sweep cell does not pay again. Nothing is kept of what takes less than ``WORTH_KEEPING`` seconds. The
folder is $FEDEPD_CACHE (``off``: nothing is kept), else the user's cache folder; only its owner can read it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORTH_KEEPING = 0.2


def remembered(name: str, arguments: tuple[Any, ...], compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """``compute()``, or what it gave for the same arguments (arrays by their bytes, the rest by its text)."""
    folder = cache_folder()
    if folder is None:
        return compute()
    path = folder / f"{name}-{content_hash(*arguments)}.npy"
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):  # absent, or damaged: computed anew
        pass
    start = time.process_time()
    value = compute()
    if time.process_time() - start > WORTH_KEEPING:
        _keep(path, value)
    return value


def cache_folder() -> Path | None:
    chosen = os.environ.get("FEDEPD_CACHE")
    if chosen == "off":
        return None
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "fedepd" / "prepared").expanduser()


def content_hash(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"|{part!r}|".encode())
    return digest.hexdigest()[:32]


def _keep(path: Path, value: NDArray[Any]) -> None:
    """All or nothing; a cache that cannot be written to costs time, never a run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as f:
            np.save(f, value, allow_pickle=False)
        os.replace(temporary, path)
    except OSError:
        return
