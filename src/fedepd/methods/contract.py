"""What can be said of a method from its class alone, before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

from fedepd.errors import BadConfig
from fedepd.methods.base import Method
from fedepd.options import is_plain
from fedepd.shown import shown

RESERVED = ("name", "preset", "method", "label")
"""What config.json and the command line call something else."""


def check_class(cls: object) -> type[Method[Any]]:
    """What every method needs to be run; its settings are then plain values that a file can hold."""
    if not isinstance(cls, type) or not issubclass(cls, Method):
        raise BadConfig(
            f"'{_named(cls)}' is not derived from fedepd.methods.Method; derive the class from it"
        )
    who = f"method {_named(cls)}"
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise BadConfig(f"{who} does not define {missing}; see docs/extend.md for what each does")
    own = cls.__dict__.get("__dataclass_params__")
    if not is_dataclass(cls) or own is None or not own.frozen:
        raise BadConfig(f"{who} is not a frozen dataclass; write @dataclass(frozen=True) above the class")
    label = getattr(cls, "label", None)
    if not isinstance(label, str) or not label or shown(label) != label:
        raise BadConfig(f"{who} has no label for tables; write label: ClassVar[str] = 'NAME' in the class")
    try:
        hints = get_type_hints(cls)
    except Exception as cause:
        raise BadConfig(
            f"the types of {who}'s fields cannot be read ({shown(cause)}); import what they name"
        ) from cause
    for f in fields(cls):
        if f.name in RESERVED or not f.init:
            raise BadConfig(f"field '{f.name}' of {who} cannot be a setting; rename it")
        if not is_plain(hints[f.name]):
            raise BadConfig(
                f"field '{f.name}' of {who} has the type {shown(hints[f.name])}; use bool, int, float,"
                " Literal[...], or one of them or None"
            )
    return cls


def check_named_class(cls: object) -> type[Method[Any]]:
    """Check what a method also needs to be run by name: presets, and options with a help text."""
    cls = check_class(cls)
    who = f"method {_named(cls)}"
    for f in fields(cls):
        if f.default is MISSING:
            raise BadConfig(
                f"field '{f.name}' of {who} has no default; write {f.name}: ... = option(DEFAULT, HELP)"
            )
        if not isinstance(f.metadata.get("help"), str):
            raise BadConfig(f"field '{f.name}' of {who} has no help text; write option(DEFAULT, HELP)")
    presets, known = cls.presets, {f.name for f in fields(cls)}
    if not isinstance(presets, Mapping) or "default" not in presets:
        raise BadConfig(f"the presets of {who} have no 'default'; add it, or leave presets out")
    for name, settings in presets.items():
        if not isinstance(name, str) or shown(name) != name or not settings.keys() <= known:
            raise BadConfig(f"preset '{shown(name)}' of {who} sets what is no field of it; correct it")
    return cls


def _named(cls: object) -> str:
    return shown(cls.__qualname__ if isinstance(cls, type) else cls)
