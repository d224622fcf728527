"""Reading files that somebody else may have written: regular files of a bounded size, JSON of a bounded depth."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from fedepd.errors import BadData
from fedepd.shown import shown

MAX_JSON_BYTES = 64 * 2**20
"""More than any JSON file that this package writes."""
MAX_DEPTH = 64
"""Levels of nesting; no file of ours has more than ten."""


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; a pipe or a device is refused before it is opened for long."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "the name cannot be used"
        raise BadData(f"cannot read '{shown(path)}': {reason}; check its name and rights") from cause
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadData(f"'{shown(path)}' is not a regular file; give a file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BadData(f"'{shown(path)}' is larger than {limit:,} bytes; it is not a file of fedepd, or it is damaged")
    return content


def parse_json(content: bytes | str, where: str) -> Any:
    """JSON text with at most ``MAX_DEPTH`` levels; ``where`` names it in the refusal."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise BadData(f"{where} is not JSON, or is nested too deeply; restore it or make it again") from cause
    _check_depth(parsed, where)
    return parsed


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> Any:
    return parse_json(read_bytes(path, limit), f"'{shown(path)}'")


def _check_depth(parsed: Any, where: str) -> None:
    level, depth = [parsed], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise BadData(f"{where} is nested more than {MAX_DEPTH} levels deep; restore it or make it again")
        level = [v for each in level for v in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())]
