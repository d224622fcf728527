"""Values of settings: from Python, from a TOML file, from a command line, or from an old run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedepd import files
from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import Method, check_class
from fedepd.network.backbones import BACKBONES, network_name
from fedepd.network.contract import Network
from fedepd.shown import shown


def nameless(backbone: Any) -> str:
    """What a run with a backbone that has no name cannot do."""
    name = network_name(backbone) if isinstance(backbone, Network) else backbone
    return (
        f"the backbone {shown(name)} is an object of a Python program and has no name in fedepd, so such a "
        "run cannot be resumed or exported; give its class a name by an entry point (docs/extend.md) and run "
        "again"
    )


def backbone_of(value: Any) -> str | Network:
    """A backbone from a name, from an object, or from what ``described`` put into a run folder."""
    if isinstance(value, Network):
        return value
    if not isinstance(value, Mapping):
        return str(value)
    if "class" in value:
        raise BadConfig(nameless(value["class"]))
    name, own = value.get("name"), {key: each for key, each in value.items() if key != "name"}
    if not isinstance(name, str) or name not in BACKBONES:
        raise UnknownName("value of backbone", shown(name), [*BACKBONES])
    kinds = get_type_hints(BACKBONES[name])
    known = [f.name for f in fields(BACKBONES[name])]  # type: ignore[arg-type]
    if unknown := [key for key in own if key not in known]:
        raise UnknownName(f"setting of the backbone {name}", shown(unknown[0]), known)
    return BACKBONES[name](**{key: coerced(key, each, kinds[key]) for key, each in own.items()})


def removed(name: str, left: Any) -> str:
    """Why a setting that is no more cannot be given."""
    return (
        f"the setting '{name}' was removed before 0.1.0, and every run now has {name} = {in_words(left)}; "
        "leave it out"
    )


def in_words(value: Any) -> str:
    """A setting's value as a settings file would hold it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def without_retired(method: type[Method[Any]], settings: Mapping[str, Any], trained: bool) -> dict[str, Any]:
    """The settings that are still there.

    One that asks for what was removed is refused, unless only training used it.
    """
    kept = {}
    for name, value in settings.items():
        unused = trained and name in method.retired_in_training
        if name in method.retired:
            if not unused:
                _check_left(name, value, method.retired[name])
        elif not isinstance(value, str) or value not in method.retired_values.get(name, ()):
            kept[name] = value
        elif not unused:
            left = ", ".join(get_args(get_type_hints(method)[name]))
            raise BadConfig(
                f"{name} is '{value}', which was removed before 0.1.0; run anew with one of: {left}"
            )
    return kept


def _check_left(name: str, value: Any, left: Any) -> None:
    """Refuse a removed setting of a file, unless it has the value that is left."""
    try:
        same = value == left if isinstance(left, str) else coerced(name, value, type(left)) == left
    except BadConfig:
        same = False
    if not same:
        raise BadConfig(
            f"{name} is '{shown(value)}', but this setting was removed before 0.1.0 and only "
            f"{name} = {in_words(left)} is left; run it anew without {name}, "
            "or use the version of fedepd that wrote it"
        )


def plain_object(method: object, preset: str = "default") -> Method[Any]:
    """A method given as an object, with settings that are plain values of their types."""
    if isinstance(method, type):
        raise BadConfig(
            f"{shown(method.__name__)} is a class; give an object of it: {shown(method.__name__)}()"
        )
    cls = check_class(type(method))
    if preset != "default":
        raise BadConfig(
            f"preset is '{shown(preset)}', and the {cls.label} object has its own settings; leave preset out"
        )
    assert isinstance(method, Method)
    hints = get_type_hints(cls)
    given = {f.name: getattr(method, f.name) for f in fields(cls)}
    plain = {name: coerced(name, value, hints[name]) for name, value in given.items()}
    same = all(type(plain[name]) is type(value) and plain[name] == value for name, value in given.items())
    return method if same else replace(method, **plain)


def coerced(name: str, value: Any, kind: Any) -> Any:
    """``value`` as the field's type, from Python, TOML or the text of a command line."""
    if get_origin(kind) is UnionType:
        options = get_args(kind)
        if Network in options:
            return backbone_of(value)
        if value is None or (type(None) in options and value in ("none", "None")):
            return None
        return coerced(name, value, next(o for o in options if o is not type(None)))
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        for choice in choices:
            if value == choice or str(value) == str(choice):
                return choice
        raise UnknownName(f"value of {name}", str(value), [str(c) for c in choices])
    if kind is str:
        if not isinstance(value, str):
            raise BadConfig(f"{name} is '{shown(value)}'; give a text")
        return value
    if kind is bool:
        word = str(value).lower()
        if word in ("true", "yes", "1", "on"):
            return True
        if word in ("false", "no", "0", "off"):
            return False
        raise BadConfig(f"{name} is '{value}'; give true or false")
    wanted = "a whole number" if kind is int else "a finite number"
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError) as cause:
        raise BadConfig(f"{name} is '{shown(value)}'; give {wanted}") from cause
    finite = kind is int or math.isfinite(number)
    if isinstance(value, bool) or not finite or (isinstance(value, float) and number != value):
        raise BadConfig(f"{name} is '{shown(value)}'; give {wanted}")
    return number


def read_toml(path: Path) -> dict[str, Any]:
    """Flat settings from a file; tables only group them for the reader."""
    return _flat(files.read_toml(path, f"the settings file {shown(path, 300)}"))


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in content.items():
        for inner, setting in (_flat(value) if isinstance(value, Mapping) else {name: value}).items():
            if inner in out:
                raise BadConfig(
                    f"the setting '{inner}' is given twice in the settings file; remove one of them"
                )
            out[inner] = setting
    return out
