"""The corpus: one JSON text per case, with the name of its format.

It only grows: a case is never taken out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("corpus")


class Case(NamedTuple):
    name: str
    format: str
    note: str
    """Why it is here: a seed, or what it once did."""
    content: bytes


def read_cases(folder: Path = FOLDER) -> list[Case]:
    return [read_case(path) for path in sorted(folder.glob("*.json"))]


def read_case(path: Path) -> Case:
    fields = json.loads(path.read_text())
    content = fields["text"].encode() if "text" in fields else base64.b64decode(fields["base64"])
    return Case(path.stem, fields["format"], fields["note"], content)


def write_case(
    format: str, note: str, content: bytes, name: str | None = None, folder: Path = FOLDER
) -> Path:
    """Text as text, so that a person can read it, and all else as base64."""
    path = folder / f"{format}--{name or 'crash-' + hashlib.sha256(content).hexdigest()[:10]}.json"
    fields = {"format": format, "note": note}
    try:
        fields["text"] = content.decode("ascii")
    except UnicodeDecodeError:
        fields["base64"] = base64.b64encode(content).decode()
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields, indent=1) + "\n")
    return path
