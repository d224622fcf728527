"""One experiment, completely: every setting that moves a number, under one flat set of names.

A name here is the name in Python, in TOML and on the command line. The run's identity is the hash of the resolved settings and the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedepd import files
from fedepd.clients.partition import PartitionConfig
from fedepd.clients.split import SplitConfig
from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import Method, check_class, make_method, method_class, name_of
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.options import option
from fedepd.rounds.attack import Attack
from fedepd.rounds.defence import Defence
from fedepd.shown import shown


@dataclass(frozen=True)
class Protocol:
    """The frame of a run."""

    seed: int = option(0, "varies the split, the initial weights and dropout")
    rounds: int = option(200, "communication rounds")
    evaluate_every: int = option(5, "rounds between evaluations; the last round is always evaluated")
    select: Literal["val_macro_f1", "val_acc", "last"] = option(
        "val_macro_f1",
        "the reported round: best pooled validation macro-F1, best validation accuracy, or the last",
    )
    features: Literal["raw", "row_normalised"] = option(
        "raw", "features as published, or each row divided by its sum of absolute values"
    )

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadConfig(f"rounds is {self.rounds}; give at least 1")
        if self.evaluate_every < 1:
            raise BadConfig(f"evaluate_every is {self.evaluate_every}; give at least 1")
        if self.seed < 0:
            raise BadConfig(f"seed is {self.seed}; give 0 or more")


GROUPS: dict[str, type[Any]] = {
    "protocol": Protocol,
    "partition": PartitionConfig,
    "split": SplitConfig,
    "model": Backbone,
    "training": Training,
    "defence": Defence,
    "attack": Attack,
}
ADDED = ("defence", "attack")
"""Groups that came later. At their defaults they are left out of a run's identity, so that older runs keep theirs."""


@dataclass(frozen=True)
class Experiment:
    method_name: str
    preset: str
    method: Method[Any]
    protocol: Protocol
    partition: PartitionConfig
    split: SplitConfig
    model: Backbone
    training: Training
    defence: Defence = Defence()
    attack: Attack = Attack()

    @classmethod
    def make(
        cls, method: str | Method[Any] = "fedepd", preset: str = "default", **settings: Any
    ) -> Experiment:
        """From flat settings; a name may belong to the method or to one of the groups.

        A method that is an object brings its own settings. Only those of the groups are given beside it.
        """
        chosen = None if isinstance(method, str) else plain_object(method, preset)
        owners = setting_owners(method if isinstance(method, str) else type(method))
        for name in settings:
            if name not in owners:
                raise UnknownName("setting", name, owners)
            if chosen is not None and owners[name][0] == "method":
                raise BadConfig(
                    f"'{name}' is a setting of the {chosen.label} object; set it where that is made"
                )
        of: dict[str, dict[str, Any]] = {group: {} for group in (*GROUPS, "method")}
        for name, value in settings.items():
            group, kind = owners[name]
            of[group][name] = coerced(name, value, kind)
        return cls(
            method if isinstance(method, str) else name_of(method),
            preset,
            make_method(str(method), preset, of["method"]) if chosen is None else chosen,
            **{name: GROUPS[name](**of[name]) for name in GROUPS},
        )

    def resolved(self) -> dict[str, Any]:
        """Every setting with its value, as JSON would hold it."""
        groups = {name: asdict(getattr(self, name)) for name in GROUPS}
        return {"method": {"name": self.method_name, "preset": self.preset, **asdict(self.method)}, **groups}

    def config_hash(self, graph_sha256: str) -> str:
        settings = self.resolved()
        del settings["method"]["preset"]  # a preset is a name for values that are there in full
        for group in ADDED:
            if getattr(self, group) == GROUPS[group]():
                del settings[group]
        text = json.dumps([settings, graph_sha256], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def sentence(self) -> str:
        """The protocol in words, printed with every number."""
        p, s, t, m = self.partition, self.split, self.training, self.model
        test = round(100 * (1 - s.train_share - s.val_share))
        select = {
            "val_macro_f1": "best pooled validation macro-F1",
            "val_acc": "best pooled validation accuracy",
            "last": "last round",
        }
        clients = (
            "one client holds the whole graph"
            if self.method.merges_clients
            else f"{p.clients} clients ({p.partition})"
        )
        parts = [
            clients,
            f"split {s.split} {round(100 * s.train_share)}/{round(100 * s.val_share)}/{test} per client and class",
            f"{m.backbone} hidden {m.hidden}, dropout {m.dropout:g}, {m.head} head",
            f"{self.protocol.rounds} rounds of {t.epochs} epochs, {t.optimizer} lr {t.lr:g}, weight decay {t.weight_decay:g}",
            f"{round(100 * t.participation)} % participation, weights by {t.weighting}",
            f"round selected by {select[self.protocol.select]}, evaluated every {self.protocol.evaluate_every} rounds",
            f"features {self.protocol.features.replace('_', ' ')}",
        ]
        if self.defence.robust != "off":
            parts.append(f"robust rule {self.defence.robust}")
        if self.defence.cap_weights:
            parts.append("weights capped at half of all and 3 of the median size")
        if self.attack.on:
            parts.append(
                f"attack {self.attack.attack} by {self.attack.attackers} clients, scores of the honest ones"
            )
        return "; ".join(parts)


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


def setting_owners(method: str | type[Method[Any]]) -> dict[str, tuple[str, Any]]:
    """Every setting's group and type, the method's own last."""
    out: dict[str, tuple[str, Any]] = {}
    own = method_class(method) if isinstance(method, str) else method
    for group, cls in {**GROUPS, "method": own}.items():
        hints = get_type_hints(cls)
        for f in fields(cls):
            if f.name in out:
                raise BadConfig(
                    f"'{f.name}' is a setting of both {out[f.name][0]} and {own.label};"
                    " rename the method's field"
                )
            out[f.name] = (group, hints[f.name])
    return out


def coerced(name: str, value: Any, kind: Any) -> Any:
    """``value`` as the field's type, from Python, TOML or the text of a command line."""
    if get_origin(kind) is UnionType:
        options = get_args(kind)
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
