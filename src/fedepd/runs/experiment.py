"""One experiment, completely: every setting that moves a number, under one flat set of names.

A name here is the name in Python, in TOML and on the command line. The run's identity is the hash of the
resolved settings and the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal, cast, get_type_hints

from fedepd.clients.corruption import Corruption
from fedepd.clients.partition import PartitionConfig
from fedepd.clients.split import SplitConfig
from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import METHODS, Method, make_method, method_class, name_of, preset_now
from fedepd.methods.alone import inner, scoped
from fedepd.methods.rows import RowMethod
from fedepd.network.backbones import Backbone, described, network_name
from fedepd.network.training import Training
from fedepd.options import idle_settings, option
from fedepd.rounds.attack import Attack
from fedepd.rounds.defence import Defence
from fedepd.rounds.guard import Privacy
from fedepd.rounds.point import goals_of
from fedepd.runs.settings import coerced, in_words, plain_object, removed, without_retired
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
    features: Literal["raw", "row_normalised", "binary", "float16"] = option(
        "raw",
        "features as published, each row divided by its sum of absolute values, 1 for every positive value, "
        "as torch_geometric reads bags of words, or rounded to float16, which takes half the memory",
    )
    adapt: bool = option(
        False,
        "after the last round, train the selected model on at each client, where validation says that it "
        "helps; for methods with a model for all clients",
    )
    start: str = option("", "a model folder whose weights the run begins with; empty: random weights")
    scope: Literal["federated", "alone", "pooled"] = option(
        "federated",
        "who trains together: all clients, nobody (the same method at each client alone), or one client that "
        "holds the whole graph",
    )
    edges: bool = option(True, "use the graph's edges; off: every node's own features alone")
    pruned: Literal["no", "always", "by_vote"] = option(
        "no",
        "a control: prune every client's graph as FedEPD does, always or if the clients vote for it; for "
        "other methods",
    )
    corrupt: str = option(
        "",
        "noise and gaps in what the clients train on, as features=0.3,edges-missing=0.2; also edges, labels, "
        "features-missing, labels-missing; scores are of clean graphs",
    )
    aim: str = option(
        "",
        "in a federation: what the operating point of all sites shall reach, such as 'recall takeover=0.8', "
        "'alerts takeover=50/4000' or 'cost takeover=1000:20'",
    )

    def __post_init__(self) -> None:
        goals_of(self.aim)
        object.__setattr__(self, "corrupt", self.corruption.text)  # one text, and one identity, for one thing
        if self.corrupt and self.pruned != "no":
            raise BadConfig(f"both corrupt and pruned = {self.pruned} are given; give one of them")
        if not self.edges and (self.corruption.edges or self.corruption.edges_missing):
            raise BadConfig("corrupt names edges, but the run uses none; leave them out of corrupt")
        if self.rounds < 1:
            raise BadConfig(f"rounds is {self.rounds}; give at least 1")
        if self.evaluate_every < 1:
            raise BadConfig(f"evaluate_every is {self.evaluate_every}; give at least 1")
        if self.seed < 0:
            raise BadConfig(f"seed is {self.seed}; give 0 or more")

    @property
    def corruption(self) -> Corruption:
        """``corrupt`` as numbers."""
        return Corruption.read(self.corrupt)


GROUPS: dict[str, type[Any]] = {
    "protocol": Protocol,
    "partition": PartitionConfig,
    "split": SplitConfig,
    "model": Backbone,
    "training": Training,
    "defence": Defence,
    "attack": Attack,
    "privacy": Privacy,
}
NOISE = ("privacy.dp_epsilon", "privacy.dp_delta", "privacy.dp_clip")
VAULT = ("split.vault", "split.score_on")
ADDED = (
    "protocol.adapt",
    "protocol.start",
    "protocol.scope",
    "protocol.edges",
    "protocol.pruned",
    "protocol.corrupt",
    "protocol.aim",
    "model.layers",
    *NOISE,
    *VAULT,
    "defence",
    "attack",
    "privacy",
)
"""Groups and single settings that came later.

At their defaults they are left out of a run's identity, so that older runs keep theirs.
"""


@dataclass(frozen=True)
class Experiment:
    """One experiment: every setting that moves a number.

    Examples:
        >>> import fedepd
        >>> experiment = fedepd.Experiment.make("fedavg", rounds=50, clients=5, lr=0.02)
        >>> experiment.protocol.rounds, experiment.partition.clients, experiment.training.lr
        (50, 5, 0.02)
    """

    method_name: str
    """The method's name in ``fedepd.METHODS``; "module:Class" where an object of another class was given."""
    preset: str
    """The preset that the method's values began with."""
    method: Method[Any]
    """The method with its own settings."""
    protocol: Protocol
    """Seed, rounds, evaluation and selection."""
    partition: PartitionConfig
    """How the graph is cut into clients."""
    split: SplitConfig
    """How a client's nodes are split into training, validation and test."""
    model: Backbone
    """The network."""
    training: Training
    """Optimiser, epochs, participation and the weights of the average."""
    defence: Defence = Defence()
    """How the server protects itself from dishonest clients."""
    attack: Attack = Attack()
    """Dishonest clients, to test the defence."""
    privacy: Privacy = Privacy()
    """What the server may learn about one client."""

    @classmethod
    def make(
        cls, method: str | Method[Any] = "fedepd", preset: str = "default", **settings: Any
    ) -> Experiment:
        """An experiment from flat settings.

        Args:
            method: A name among ``fedepd.METHODS``, or an object, which brings its own settings.
            preset: A named set of the method's values. An object has none.
            **settings: Names of the method's own fields or of any group's fields, with their values. Beside
                an object only those of the groups.

        Returns:
            The experiment, with the default of everything that was not given.

        Raises:
            UnknownName: The method, the preset or a setting does not exist.
            BadConfig: A value cannot be used, a setting changes nothing under the others, or the object is no
                method that can be run.
        """
        if isinstance(method, str):
            make_method(method, preset)  # refuses an old name of a preset, which files may still have
        made = cls.recorded(method, preset, settings)
        made.check_given(settings)
        return made

    @classmethod
    def recorded(
        cls, method: str | Method[Any], preset: str, settings: Mapping[str, Any], trained: bool = False
    ) -> Experiment:
        """An experiment from flat settings that a file holds. Idle settings are read, too.

        Args:
            method: A name among ``fedepd.METHODS``, or an object, which brings its own settings.
            preset: A named set of the method's values, by its name or an old one. An object has none.
            settings: Names and values. A removed setting must have the value that is left.
            trained: The model is only to predict, so settings removed from training may have any value.

        Returns:
            The experiment.

        Raises:
            UnknownName: The method, the preset or a setting does not exist.
            BadConfig: A value cannot be used.
        """
        chosen = None if isinstance(method, str) else plain_object(method, preset)
        own = method_class(method) if isinstance(method, str) else type(method)
        owners, settings = setting_owners(own), without_retired(own, settings, trained)
        preset = preset_now(own, preset)
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
        groups = {name: GROUPS[name](**of[name]) for name in GROUPS}
        chosen = make_method(str(method), preset, of["method"]) if chosen is None else chosen
        named = method if isinstance(method, str) else name_of(method)
        return cls(named, preset, scoped(chosen, groups["protocol"].scope), **groups)

    def check_given(self, names: Iterable[str]) -> None:
        """Refuse what a person should not give.

        That is a removed setting, or one that changes nothing under the others.

        Args:
            names: The settings that were given.

        Raises:
            BadConfig: One of them was removed, or is idle.
        """
        names = list(names)
        for name in names:
            if name in self.method.retired:
                raise BadConfig(removed(name, self.method.retired[name]))
        for complaint in self.idle(names).values():
            raise BadConfig(complaint)

    def idle(self, names: Iterable[str]) -> dict[str, str]:
        """Those of the named settings that differ from the preset and change nothing.

        Args:
            names: The settings to look at.

        Returns:
            A sentence about each, by the setting's name. It says which other setting is the reason.
        """
        usual = {name: group() for name, group in GROUPS.items()}
        # An object brings its own settings, so that none of them was given by name.
        known = self.method_name in METHODS
        usual["method"] = make_method(self.method_name, self.preset) if known else inner(self.method)
        stopped_by = {
            name: (group, stop)
            for group in usual
            for name, stop in idle_settings(getattr(self, group)).items()
        }
        found = {}
        for name in names:
            if name not in stopped_by:
                continue
            group, stop = stopped_by[name]
            part = inner(self.method) if group == "method" else getattr(self, group)
            if getattr(part, name) != getattr(usual[group], name):
                mine, reason = in_words(getattr(part, name)), in_words(getattr(part, stop))
                found[name] = (
                    f"{name} is {mine}, but with {stop} = {reason} it changes nothing; "
                    f"leave {name} out, or change {stop}"
                )
        return found

    def check_scope(self) -> None:
        """Refuse settings that have no meaning where clients do not train together.

        Raises:
            BadConfig: Guard, sums, defences, attacks, adaptation or a share of the clients beside ``scope``,
                or a method that is not federated without it.
        """
        scope, method = self.protocol.scope, self.method
        if scope == "federated":
            if isinstance(inner(method), RowMethod):
                raise BadConfig(f"{method.label} is not federated; give scope alone or scope pooled")
            return
        beside = [name for name in ("defence", "attack", "privacy") if getattr(self, name) != GROUPS[name]()]
        beside += ["adapt"] if self.protocol.adapt else []
        beside += ["participation"] if self.training.participation < 1 else []
        if beside:
            raise BadConfig(
                f"scope is {scope}, so nothing is sent, and settings of {' and '.join(beside)} have no "
                "meaning; leave them out"
            )

    def check_clean(self, what: str) -> None:
        """Refuse corrupted training data.

        Args:
            what: What would be wrong with them, as the middle of a sentence.

        Raises:
            BadConfig: The setting ``corrupt`` is given.
        """
        if self.protocol.corrupt:
            raise BadConfig(f"corrupt is '{self.protocol.corrupt}', but {what}; leave corrupt out")

    def resolved(self) -> dict[str, Any]:
        """Every setting with its value.

        Returns:
            Groups of settings by name, as JSON would hold them. Removed settings are there too, see
            ``Method.retired``.
        """
        groups = {name: asdict(getattr(self, name)) for name in GROUPS}
        groups["model"]["backbone"] = described(self.model.backbone)
        method = {**asdict(inner(self.method)), **self.method.retired}
        return {"method": {"name": self.method_name, "preset": self.preset, **method}, **groups}

    def config_hash(self, graph_sha256: str) -> str:
        """The identity of a run: its settings and its data.

        Args:
            graph_sha256: The hash of the graph, from ``fedepd.datasets.graph_sha256``.

        Returns:
            Twelve hexadecimal digits.
        """
        settings = self.resolved()
        del settings["method"]["preset"]  # a preset is a name for values that are there in full
        if self.method.revision > 1:
            settings["method"]["revision"] = self.method.revision
        for name in ADDED:
            group, _, setting = name.partition(".")
            mine, default = getattr(self, group), GROUPS[group]()
            if setting and getattr(mine, setting) == getattr(default, setting):
                del settings[group][setting]
            elif not setting and mine == default:
                del settings[group]
        for f in fields(self.method):
            if f.name in self.method.added and getattr(self.method, f.name) == f.default:
                del settings["method"][f.name]
        text = json.dumps([settings, graph_sha256], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def sentence(self) -> str:
        """The protocol in words, as it is printed with every number.

        Returns:
            One line without a full stop.
        """
        p, s, t, m = self.partition, self.split, self.training, self.model
        test = round(100 * (1 - s.train_share - s.val_share))
        select = {
            "val_macro_f1": "best pooled validation macro-F1",
            "val_acc": "best pooled validation accuracy",
            "last": "last round",
        }
        clients = f"{p.clients} clients ({p.partition})"
        if self.method.merges_clients:
            clients = "one client holds the whole graph"
        elif self.protocol.scope == "alone":
            clients += ", each alone"
        split = (
            f"split {s.split} {round(100 * s.train_share)}/{round(100 * s.val_share)}/{test} "
            "per client and class"
        )
        features = f"features {self.protocol.features.replace('_', ' ')}"
        if isinstance(inner(self.method), RowMethod):
            best = f"setting selected by {select[self.protocol.select]}, {self.protocol.rounds} tried"
            return "; ".join([clients, split, best, features])
        parts = [
            clients,
            split,
            network_sentence(m),
            f"{self.protocol.rounds} rounds of {t.epochs} epochs, {t.optimizer} lr {t.lr:g}, "
            f"weight decay {t.weight_decay:g}",
            f"{round(100 * t.participation)} % participation, "
            + ("all clients count alike" if self.privacy.noisy else f"weights by {t.weighting}"),
            f"round selected by {select[self.protocol.select]}, "
            f"evaluated every {rounds_in_words(self.protocol.evaluate_every)}",
            features,
        ]
        if self.protocol.start:
            parts.append(f"initial weights of a trained model ({self.protocol.start[:12]})")
        if not self.protocol.edges:
            parts.append("no edges")
        if s.vault:
            where = "in the vault" if s.score_on == "vault" else "outside the vault"
            parts.append(f"vault of {100 * s.vault:g} % of each class, scores of nodes {where}")
        if self.protocol.adapt:
            adapted = "adapted to each client's own training nodes after the last round"
            parts.append(adapted if self.method.has_global else "no model for all clients to adapt")
        if self.protocol.aim:
            parts.append(f"operating point from sums over the clients: {shown(self.protocol.aim)}")
        if self.protocol.pruned != "no":
            when = "where the clients vote for it" if self.protocol.pruned == "by_vote" else "always"
            parts.append(f"graphs pruned as FedEPD does, {when}")
        if self.protocol.corrupt:
            parts.append(f"training data corrupted ({self.protocol.corrupt}), scores of clean graphs")
        if self.defence.robust != "off":
            parts.append(f"robust rule {self.defence.robust}")
        if self.defence.cap_weights:
            parts.append("weights capped at half of all and 3 of the median size")
        if self.privacy.guard:
            parts.append(
                f"guard on: nothing is sent about classes with fewer than {self.privacy.min_count} training "
                f"nodes or {self.privacy.min_holders} holders"
            )
        if self.privacy.secure:
            parts.append("the server sees sums over the clients only")
        if budget := self.privacy.budget(self.protocol.rounds):
            parts.append(budget.sentence())
        if self.attack.on:
            parts.append(
                f"attack {self.attack.attack} by {self.attack.attackers} clients, scores of the honest ones"
            )
        return "; ".join(parts)


def rounds_in_words(step: int) -> str:
    """What follows "every": one round in ``step`` of them."""
    return "round" if step == 1 else f"{step} rounds"


def network_sentence(model: Backbone) -> str:
    """The network in words; the usual number of layers goes without saying."""
    name = model.backbone if isinstance(model.backbone, str) else network_name(model.backbone)
    layers = "" if model.layers == Backbone().layers else f", {model.layers} layers"
    return f"{name} hidden {model.hidden}, dropout {model.dropout:g}, {model.head} head{layers}"


def setting_owners(method: str | type[Method[Any]]) -> dict[str, tuple[str, Any]]:
    """Every setting's group and type, the method's own last."""
    out: dict[str, tuple[str, Any]] = {}
    own = method_class(method) if isinstance(method, str) else method
    for group, cls in {**GROUPS, "method": own}.items():
        hints = _hints(cast(Hashable, cls))
        for f in fields(cls):
            if f.name in out:
                raise BadConfig(
                    f"'{f.name}' is a setting of both {out[f.name][0]} and {own.label};"
                    " rename the method's field"
                )
            out[f.name] = (group, hints[f.name])
    return out


@lru_cache(maxsize=256)
def _hints(cls: Hashable) -> dict[str, Any]:
    """The types of a class's fields. To find them takes milliseconds, and a study has thousands of runs."""
    return get_type_hints(cls)
