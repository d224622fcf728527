"""Results of slow functions, kept on disk under the hash of their arguments.

A second run, another seed or another job of a sweep then does not compute them again. A result that takes
less than ``WORTH_KEEPING`` seconds is not kept. The folder is $FEDEPD_CACHE (``off``: keep nothing), else the
user's cache folder. Only its owner can read it. A stored result is used only if its checksum is right, which
covers the arguments too, and if it fits. Otherwise it is computed anew.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedepd.arrays import OURS, check_header
from fedepd.errors import BadConfig, BadData
from fedepd.files import DAMAGE, regular_content, write_bytes

WORTH_KEEPING = 0.05
DIGEST = 32
"""Length of a sha256 in bytes."""


def remembered(
    name: str,
    arguments: tuple[Any, ...],
    compute: Callable[[], NDArray[Any]],
    fits: Callable[[NDArray[Any]], bool] = lambda _: True,
) -> NDArray[Any]:
    """The result of ``compute()``, or the one stored for the same arguments if it ``fits``.

    Arrays are compared by their bytes, other arguments by their text.
    """
    folder = cache_folder()
    if folder is None:
        return compute()
    key = f"{name}-{content_hash(*arguments)}"
    found = _found(folder / f"{key}.npy", key)
    if found is not None and fits(found):
        return found
    start = time.process_time()
    value = compute()
    if time.process_time() - start > WORTH_KEEPING:
        _keep(folder / f"{key}.npy", key, value)
    return value


def _found(path: Path, key: str) -> NDArray[Any] | None:
    """The stored result. None if there is none, or if it cannot be trusted.

    A file is not trusted if it belongs to another user, is damaged, or was stored for another key.
    """
    try:
        if path.stat().st_uid != os.getuid():
            return None
        content = regular_content(path, OURS)
        if content[:DIGEST] != _digest(key, content[DIGEST:]):
            return None
        check_header(io.BytesIO(content[DIGEST:]), len(content) - DIGEST, str(path), "remove it")
        return npy.read_array(io.BytesIO(content[DIGEST:]), allow_pickle=False)
    except (BadData, *DAMAGE):
        return None


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"|" + content).digest()


def cache_folder() -> Path | None:
    chosen = os.environ.get("FEDEPD_CACHE")
    if chosen == "off":
        return None
    return Path(
        chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "fedepd" / "prepared"
    ).expanduser()


def content_hash(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"|{part!r}|".encode())
    return digest.hexdigest()[:32]


def _keep(path: Path, key: str, value: NDArray[Any]) -> None:
    """Store a result, whole or not at all.

    A cache that cannot be written costs time, but never ends a run.
    """
    buffer = io.BytesIO()
    npy.write_array(buffer, np.asarray(value), allow_pickle=False)
    with suppress(OSError, BadConfig):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(path, _digest(key, buffer.getvalue()) + buffer.getvalue())
