"""Settings are frozen dataclasses; ``option`` gives a field its default and the sentence that explains it everywhere."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})
