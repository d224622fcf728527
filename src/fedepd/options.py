"""Settings are frozen dataclasses; ``option`` gives a field its default and the sentence that explains it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any


def option(default: Any, help: str, choices: Callable[[], Sequence[str]] | None = None) -> Any:
    """``choices``: the names that the setting may have, where they are not known before the program runs."""
    return field(default=default, metadata={"help": help, "choices": choices})
