"""The site's own book of what left the house: one line for each answer, by field and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from fedepd.deploy.wire import Parts, Sum
from fedepd.errors import BadData
from fedepd.files import append_line, parse_json, read_bytes
from fedepd.rounds.sums import MASKS, WEIGHT, Layout
from fedepd.shapes import EVERY, FLAG, TEXT, Table, expect, whole

SENT = "sent.jsonl"
"""The file in the folder of a run's state."""
MAX_SENT = 256 * 2**20
LINE: Table = {"what": TEXT, "round": whole(), "masked": FLAG, "fields": {EVERY: whole()}}


class Sent:
    """Adds a line for every answer that leaves, before it leaves."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SENT

    def note(self, what: str, round: int, fields: Mapping[str, int], masked: bool = False) -> None:
        """``fields``: bytes by name. ``masked``: the coordinator sees only the sum over all sites."""
        append_line(self._path, {"what": what, "round": round, "masked": masked, "fields": dict(fields)})

    def note_vector(self, which: Sum, layout: Layout) -> None:
        """The parts of a vector that leaves under masks."""
        self.note(which.purpose, which.round, vector_bytes(layout), masked=True)

    def note_masks(self, which: Sum, parts: Parts) -> None:
        """Keys and shares, which are random numbers to everybody else."""
        self.note(which.purpose, which.round, {MASKS: sum(part.nbytes for part in parts.values())}, True)


def vector_bytes(layout: Layout) -> dict[str, int]:
    """Bytes by field of a vector of whole numbers."""
    out: dict[str, int] = {}
    for name, shape in layout:
        field = name.removesuffix(WEIGHT)
        out[field] = out.get(field, 0) + 8 * prod(shape)
    return out


def record_bytes(record: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by field of a record that leaves as it is: arrays by their names, 8 for each number."""
    out: dict[str, int] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            out |= {field: getattr(part, "nbytes", 8) for field, part in value.items()}
        elif isinstance(value, str | list):
            out[name] = len(value) if isinstance(value, str) else sum(map(len, value))
        else:
            out[name] = 8
    return out


def read_sent(folder: Path) -> list[dict[str, Any]]:
    """All lines of a run; none if nothing has left yet."""
    path = folder / SENT
    if not path.exists():
        return []
    out = []
    for number, text in enumerate(read_bytes(path, MAX_SENT).splitlines(), 1):
        line = parse_json(text, f"line {number} of '{SENT}'")
        if not isinstance(line, dict):
            raise BadData(f"line {number} of '{SENT}' is not a table; restore the file")
        expect(line, LINE, f"line {number} of '{SENT}'")
        out.append(line)
    return out
