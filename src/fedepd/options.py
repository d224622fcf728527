"""Settings are frozen dataclasses; ``option`` gives a field its default and the sentence that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

PLAIN = (bool, int, float)


def option(default: Any, help: str, choices: Callable[[], Sequence[str]] | None = None) -> Any:
    """``choices``: the names that the setting may have, where they are not known before the program runs."""
    return field(default=default, metadata={"help": help, "choices": choices})


def is_plain(kind: Any) -> bool:
    """Whether a field of this type can be set by a text."""
    if get_origin(kind) in (Union, UnionType):
        return all(part is NoneType or is_plain(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return all(isinstance(choice, str | int) for choice in get_args(kind))
    return kind in PLAIN


def idle_settings(settings: Any) -> Mapping[str, str]:
    """The settings of this group that change nothing, each with the setting that is the reason.

    A group says so in a method ``idle``; in one without it every setting acts.
    """
    found: Mapping[str, str] = settings.idle() if hasattr(settings, "idle") else {}
    return found
