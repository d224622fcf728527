"""Settings are frozen dataclasses; ``option`` gives a field its default and the sentence that explains it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedepd.errors import BadConfig
from fedepd.shown import shown

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


def class_name(cls: object) -> str:
    """What a class is called in a sentence, or what was given in the place of one."""
    return shown(cls.__qualname__ if isinstance(cls, type) else cls)


def check_derived(cls: object, base: type[Any], full_name: str) -> type[Any]:
    """``cls``, if it is a class derived from ``base`` and has all that this asks for."""
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise BadConfig(f"'{class_name(cls)}' is not derived from {full_name}; derive the class from it")
    return cls


def field_types(cls: type[Any], who: str, reserved: Collection[str]) -> dict[str, Any]:
    """The types of a class's settings, if it is a whole frozen dataclass whose fields can be settings.

    Args:
        cls: A class that another package brings.
        who: What it is called in a sentence.
        reserved: Names that mean something else beside its settings.
    """
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise BadConfig(f"{who} does not define {missing}; see docs/extend.md for what each does")
    own = cls.__dict__.get("__dataclass_params__")
    if own is None or not own.frozen:
        raise BadConfig(f"{who} is not a frozen dataclass; write @dataclass(frozen=True) above the class")
    try:
        hints = get_type_hints(cls)
    except Exception as cause:
        raise BadConfig(
            f"the types of {who}'s fields cannot be read ({shown(cause)}); import what they name"
        ) from cause
    for f in fields(cls):
        if f.name in reserved or not f.init:
            raise BadConfig(f"field '{f.name}' of {who} cannot be a setting; rename it")
    return {f.name: hints[f.name] for f in fields(cls)}
