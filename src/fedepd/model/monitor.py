"""A file that grows by one line whenever a model is watched, so that months can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import MISSING, node_ids
from fedepd.errors import BadConfig, BadData
from fedepd.files import as_line, encoded, read_bytes, read_lines, write_bytes
from fedepd.folders import held
from fedepd.model.drift import Watched
from fedepd.model.model import Model
from fedepd.runs.folder import weights_sha256
from fedepd.shapes import EVERY, NUMBER, TABLE, TEXT, expect, whole
from fedepd.shown import shown

HISTORY, PAGE = "monitor.jsonl", "monitor.html"
MAX_HISTORY = 2**26
"""Most bytes of a history: some ten thousand months."""
MAX_WHEN = 60
"""Most characters of a period's name."""
REMOVE = "remove the line, or give another --out"
LINE: dict[str, Any] = {
    "when": TEXT,
    "model": TEXT,
    "data": TEXT,
    "nodes": whole(1),
    "figures": {EVERY: (NUMBER,)},
    "passed": [TEXT],
    "labelled": (TABLE,),
}


def line_of(watched: Watched, model: Model, when: str, data: str) -> dict[str, Any]:
    """What is kept of one month: numbers of the whole, of no row."""
    names = [each.name for each in watched.figures]
    named = [
        f"{each.name} ({each.kind})" if names.count(each.name) > 1 else each.name for each in watched.figures
    ]
    return {
        "when": when,
        "model": weights_sha256(model.tensors)[:12],
        "data": data,
        "nodes": watched.nodes,
        "figures": {name: each.value for name, each in zip(named, watched.figures, strict=True)},
        "passed": [each.name for each in watched.passed],
        "labelled": watched.labelled,
    }


def check_when(when: str) -> str:
    """A period's name, or one sentence on why it is none."""
    if not 0 < len(when) <= MAX_WHEN or not when.isprintable():
        raise BadConfig(f"--when is '{shown(when)}'; give 1 to {MAX_WHEN} printable characters, as 2026-02")
    return when


def history_of(folder: Path) -> list[dict[str, Any]]:
    """The months so far, checked, because the file may have been edited."""
    path = folder / HISTORY
    if not path.exists():
        return []
    lines = read_lines(path, MAX_HISTORY, REMOVE)
    for number, line in enumerate(lines, 1):
        expect(line, LINE, f"line {number} of '{shown(path, 300)}'", REMOVE)
    return lines


def check_new(lines: list[dict[str, Any]], when: str, folder: Path) -> None:
    """Refuse a period that is in the history already."""
    if any(line["when"] == when for line in lines):
        raise BadConfig(
            f"'{shown(folder / HISTORY, 300)}' has '{shown(when)}' already; give another --when, or remove "
            "that line"
        )


def add_to_history(folder: Path, line: dict[str, Any]) -> list[dict[str, Any]]:
    """Add one line to the history, whole or not at all. What was there stays byte for byte.

    Args:
        folder: It is made where it is not there yet.
        line: From ``line_of``.

    Returns:
        All months, this one the last.

    Raises:
        BadConfig: The period is there already, or the folder cannot be written to.
        BadData: The history is damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(
            f"cannot make the folder '{shown(folder, 300)}' ({cause.strerror}); give another --out"
        ) from cause
    with held(folder):
        lines, path = history_of(folder), folder / HISTORY
        check_new(lines, line["when"], folder)
        before = read_bytes(path, MAX_HISTORY, REMOVE) if path.exists() else b""
        if before and not before.endswith(b"\n"):
            before += b"\n"
        write_bytes(path, before + encoded(as_line(line)))
    return [*lines, line]


def read_labels(path: str | Path, id_column: str, label_column: str) -> dict[str, str]:
    """Labels that came later, by id. Rows with an empty label are left out."""
    table = read_table(path)
    ids = node_ids(table, id_column if id_column in table.columns else "id")
    cure = "name it as in the training tables, or label"
    name = label_column if label_column in table.columns else "label"
    texts = table.column(name, cure).texts()
    found = {node: text for node, text in zip(ids, texts, strict=True) if text not in MISSING}
    if not found:
        raise BadData(f"{table.name} holds no label; give at least one, or leave --labels out")
    return found
