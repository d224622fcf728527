"""``METHODS``: every method by the name that code, TOML, command line and tables share.

A new method is one file, and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedepd.errors import BadConfig, UnknownName
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.centralised import Centralised
from fedepd.methods.creff import CReFF
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.method import FedEPD
from fedepd.methods.fedgac import FedGACReading
from fedepd.methods.fedgta import FedGTA
from fedepd.methods.fedlc import FedLC
from fedepd.methods.fedproto import FedProto
from fedepd.methods.fedspray import FedSpray
from fedepd.methods.graphfedmig import GraphFedMig
from fedepd.methods.graphsmote import GraphSMOTE
from fedepd.methods.hiertail import HierTail
from fedepd.methods.isolated import Isolated
from fedepd.methods.lws import LWS

METHODS: dict[str, type[Method[Any]]] = {
    "fedepd": FedEPD,
    "fedavg": FedAvg,
    "fedproto": FedProto,
    "fedgta": FedGTA,
    "graphsmote": GraphSMOTE,
    "hiertail": HierTail,
    "lws": LWS,
    "fedlc": FedLC,
    "fedgac": FedGACReading,
    "creff": CReFF,
    "fedspray": FedSpray,
    "graphfedmig": GraphFedMig,
    "isolated": Isolated,
    "centralised": Centralised,
}
"""Every method by its name. A value is the class; its fields are the method's settings, its ``presets`` named sets of them.

Examples:
    >>> import fedepd
    >>> fedepd.METHODS["fedavg"].label
    'FedAvg'
    >>> sorted(fedepd.METHODS["fedepd"].presets)[:2]
    ['corrected', 'default']
"""


def make_method(name: str, preset: str = "default", settings: Mapping[str, Any] | None = None) -> Method[Any]:
    """A method by name: its preset's values, overridden by ``settings``."""
    if name not in METHODS:
        raise UnknownName("method", name, METHODS)
    cls = METHODS[name]
    if preset not in cls.presets:
        raise UnknownName(f"preset of {name}", preset, cls.presets)
    settings = {**cls.presets[preset], **(settings or {})}
    known = [f.name for f in fields(cls)]
    for key in settings:
        if key not in known:
            raise (
                UnknownName(f"setting of {name}", key, known)
                if known
                else BadConfig(f"{name} has no settings, so '{key}' is not one")
            )
    return cls(**settings)


__all__ = ["METHODS", "Client", "Method", "Server", "make_method"]
