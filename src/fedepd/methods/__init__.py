"""``METHODS``: every method by the name that code, TOML, command line and tables share.

To add one of our own: one file, one line here. Other packages add theirs by an entry point of the group
``fedepd.methods``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedepd.errors import BadConfig, UnknownName
from fedepd.methods.adafgl import AdaFGL
from fedepd.methods.balanced_experts import BalancedExperts
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.centralised import Centralised
from fedepd.methods.contract import check_class, check_named_class
from fedepd.methods.creff import CReFF
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.feddc import FedDC
from fedepd.methods.fedepd.method import FedEPD
from fedepd.methods.fedgac import FedGACReading
from fedepd.methods.fedgrab import FedGraB
from fedepd.methods.fedgta import FedGTA
from fedepd.methods.fedlc import FedLC
from fedepd.methods.fedlf import FedLF
from fedepd.methods.fedper import FedPer
from fedepd.methods.fedproto import FedProto
from fedepd.methods.fedprox import FedProx
from fedepd.methods.fedpub import FedPUB
from fedepd.methods.fedrep import FedRep
from fedepd.methods.fedsage import FedSagePlus
from fedepd.methods.fedspray import FedSpray
from fedepd.methods.fedtad import FedTAD
from fedepd.methods.fedtgp import FedTGP
from fedepd.methods.fedyoyo import FedYoYo
from fedepd.methods.graphfedmig import GraphFedMig
from fedepd.methods.graphsmote import GraphSMOTE
from fedepd.methods.hiertail import HierTail
from fedepd.methods.isolated import Isolated
from fedepd.methods.logit_adjustment import LogitAdjustment
from fedepd.methods.lte4g import LTE4G
from fedepd.methods.lws import LWS
from fedepd.methods.moon import Moon
from fedepd.methods.rows import BASELINES
from fedepd.methods.s2fgl import S2FGL
from fedepd.methods.scaffold import Scaffold
from fedepd.methods.tailgnn import TailGNN
from fedepd.plugins import Registry
from fedepd.shown import shown

CLASS_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.<>]*")
"""``module:Class``, as a run folder names a method that was given as an object."""
RENAMED_PRESETS = {"official": "authors_values"}
"""Old names of presets, each with its new one. People are told the new one, and old files are still read."""
_OURS: dict[str, type[Method[Any]]] = {
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
    "fedpub": FedPUB,
    "fedtad": FedTAD,
    "fedyoyo": FedYoYo,
    "tailgnn": TailGNN,
    "fedprox": FedProx,
    "logit_adjustment": LogitAdjustment,
    "scaffold": Scaffold,
    "moon": Moon,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedtgp": FedTGP,
    "feddc": FedDC,
    "balanced_experts": BalancedExperts,
    "fedgrab": FedGraB,
    "fedlf": FedLF,
    "s2fgl": S2FGL,
    "lte4g": LTE4G,
    "adafgl": AdaFGL,
    "fedsage": FedSagePlus,
    "isolated": Isolated,
    "centralised": Centralised,
}
METHODS: Registry[type[Method[Any]]] = Registry(
    "fedepd.methods", "method", _OURS, lambda name, found: check_named_class(found)
)
"""Every method by its name.

A value is the class; its fields are the method's settings, its ``presets`` named sets of them.

Examples:
    >>> import fedepd
    >>> fedepd.METHODS["fedavg"].label
    'FedAvg'
    >>> sorted(fedepd.METHODS["fedepd"].presets)[:2]
    ['corrected', 'default']
"""


def method_class(name: str) -> type[Method[Any]]:
    """The class behind a name; an unknown name is refused."""
    if name in METHODS:
        return METHODS[name]
    if name in BASELINES:
        return BASELINES[name]
    if CLASS_NAME.fullmatch(name) and name.partition(":")[0] not in METHODS:
        raise BadConfig(
            f"method '{shown(name)}' is a class that has no name here; pass an object of it in Python, as in"
            " fedepd.run(data, METHOD) or fedepd.resume(folder, method=METHOD), or register it through an"
            " entry point of the group 'fedepd.methods'"
        )
    raise UnknownName("method", name, METHODS)


def name_of(method: Method[Any]) -> str:
    """What an object's class is called: its registered name, else ``module:Class``."""
    cls = type(method)
    baselines: dict[type[Method[Any]], str] = {found: name for name, found in BASELINES.items()}
    return METHODS.name_of(cls) or baselines.get(cls) or f"{cls.__module__}:{cls.__qualname__}"


def preset_now(cls: type[Method[Any]], preset: str) -> str:
    """What a preset is called now. Any name but an old one is what it was."""
    now = RENAMED_PRESETS.get(preset, preset)
    return preset if preset in cls.presets or now not in cls.presets else now


def make_method(name: str, preset: str = "default", settings: Mapping[str, Any] | None = None) -> Method[Any]:
    """A method by name: its preset's values, overridden by ``settings``."""
    cls = method_class(name)
    if (now := preset_now(cls, preset)) != preset:
        raise BadConfig(f"the preset '{preset}' of {name} is now called '{now}'; give that name")
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


__all__ = ["METHODS", "Client", "Method", "Server", "check_class", "make_method", "method_class", "name_of"]
__all__ += ["preset_now"]
