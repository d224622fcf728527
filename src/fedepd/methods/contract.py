"""What can be said of a method from its class alone, before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import torch

from fedepd.errors import BadConfig
from fedepd.methods.base import Method
from fedepd.options import check_derived, class_name, field_types, is_plain
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, widened

RESERVED = ("name", "preset", "method", "label")
"""What config.json and the command line call something else."""


def check_class(cls: object) -> type[Method[Any]]:
    """What every method needs to be run; its settings are then plain values that a file can hold."""
    cls = check_derived(cls, Method, "fedepd.methods.Method")
    who = f"method {class_name(cls)}"
    kinds = field_types(cls, who, RESERVED)
    label = getattr(cls, "label", None)
    if not isinstance(label, str) or not label or shown(label) != label:
        raise BadConfig(f"{who} has no label for tables; write label: ClassVar[str] = 'NAME' in the class")
    for name, kind in kinds.items():
        if kind is not str and not is_plain(kind):
            raise BadConfig(
                f"field '{name}' of {who} has the type {shown(kind)}; use bool, int, float, str,"
                " Literal[...], or a number or None"
            )
    return cls


def readable(method: Method[Any], data: ClientData) -> ClientData:
    """The data with features in a form that the method reads."""
    if method.reads_float16 or data.graph.x.dtype != torch.float16:
        return data
    return replace(data, graph=replace(data.graph, x=widened(data.graph.x)))


def check_weights(method: Method[Any], graph: Graph) -> None:
    """Refuse a graph whose edges have weights where the method would not use them.

    Raises:
        BadConfig: It names the method.
    """
    if graph.edge_weight is not None:
        whose = f"the edges of graph '{shown(graph.name)}'"
        check_weighs(method, whose, "import the graph without --edge-weight")


def check_weighs(method: Method[Any], whose: str, cure: str) -> None:
    """Refuse a method that does not use the weights of edges. ``whose`` names these edges."""
    if not method.weighs_edges:
        raise BadConfig(
            f"{whose} have weights, and {method.label} does not use them; "
            f"choose another method ('fedepd methods' lists them), or {cure}"
        )


def check_named_class(cls: object) -> type[Method[Any]]:
    """Check what a method also needs to be run by name: presets, and options with a help text."""
    cls = check_class(cls)
    who = f"method {class_name(cls)}"
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
