"""Settings are frozen dataclasses; ``option`` gives a field its default and the sentence that explains it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedepd.errors import BadConfig
from fedepd.shown import shown

PLAIN = (bool, int, float)


@dataclass(frozen=True)
class Ladder:
    """The values that a search may give to a setting, in order, and one step beyond either end."""

    values: tuple[Any, ...]
    below: Any = None
    above: Any = None

    def __post_init__(self) -> None:
        steps = [value for value in (self.below, *self.values, self.above) if value is not None]
        if len(self.values) < 2 or any(b <= a for a, b in itertools.pairwise(steps)):
            raise BadConfig(f"a ladder is {shown(steps)}; give two values or more, in ascending order")

    def at(self, rung: int) -> Any:
        """The value at a rung: 0 is the first, -1 the one below it, ``len(values)`` the one above all."""
        return (
            {-1: self.below, len(self.values): self.above}.get(rung)
            if self.beyond(rung)
            else self.values[rung]
        )

    def beyond(self, rung: int) -> bool:
        """Whether a rung is outside of the usual values."""
        return not 0 <= rung < len(self.values)


def ladder(*values: float, below: float | None = None, above: float | None = None) -> Ladder:
    """The values to search among, and one step further where the best is at an end. None: there is none.

    Examples:
        >>> from fedepd.options import ladder
        >>> ladder(0.01, 0.1, above=1.0).at(2)
        1.0
    """
    return Ladder(values, below, above)


def option(
    default: Any,
    help: str,
    choices: Callable[[], Sequence[str]] | None = None,
    search: Ladder | None = None,
) -> Any:
    """``choices``: the names that the setting may have, where they are not known before the program runs.

    ``search``: the values that 'fedepd tune' tries. Without it the setting is not searched.
    """
    return field(default=default, metadata={"help": help, "choices": choices, "search": search})


def choices_of(field: Field[Any], kind: Any) -> tuple[Any, ...]:
    """The values that a setting may have, where they can be listed; else nothing.

    ``kind``: the type of the field, as ``get_type_hints`` gives it.
    """
    if named := field.metadata.get("choices"):
        return tuple(named())
    return get_args(kind) if get_origin(kind) is Literal else ()


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
