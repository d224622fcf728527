"""What a federation agrees on before its first round.

It is sent to every site as JSON and checked on arrival.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedepd.clients.client_file import read_file
from fedepd.clients.imputing import check_filled
from fedepd.clients.scaling import with_features
from fedepd.deploy.agreement import Agreement, agreement_of, check_agrees, check_label_names, schema_sha256
from fedepd.errors import BadConfig, BadData, BadMessage, FedEPDError, UnknownName
from fedepd.files import parse_json
from fedepd.methods import Server
from fedepd.methods.contract import check_weighs
from fedepd.rounds.admission import MOST_NODES
from fedepd.rounds.guard import FEWEST
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.participant import Participant
from fedepd.rounds.point import goals_of, names_of, rules_of
from fedepd.rounds.question import Setting
from fedepd.rounds.statistics import NOT_IN_THE_BUDGET
from fedepd.runs.asking import adapts
from fedepd.runs.drive import check_budget
from fedepd.runs.experiment import Experiment
from fedepd.runs.pruning import check_not_pruned
from fedepd.shown import shown
from fedepd.types import ClientData, TaskInfo

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""The names of sites and runs.

They become folder names and parts of host names, so no other character is allowed.
"""
DEFENDED = {"robust": "clip", "cap_weights": True}
"""Settings that are on in a federation unless its coordinator says otherwise. Other people run the sites.

They look at single answers. So they are off where the server sees sums only.
"""
MAX_TASK = 4 * 2**20
"""Largest size in bytes of a task as JSON. Most of it are the names of classes."""
MAX_FEATURES, MAX_CLASSES, MAX_SITES, MAX_DEADLINE = 10**7, 10**5, 1000, 30 * 86400.0
MAX_SETTINGS, MAX_SETTING = 500, 1000
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FederationTask:
    run: str
    """The name of the run at the server and of its state at the sites. A resumed run keeps it."""
    method: str
    preset: str
    settings: dict[str, Any]
    """Settings as a flat table, as ``fedepd run`` takes them."""
    num_features: int
    num_classes: int
    sites: tuple[str, ...]
    """The names of the sites. A site's position in this list is its client number."""
    min_sites: int = 1
    deadline: float = 600.0
    """Seconds a site has for one step or one evaluation."""
    max_nodes: int = 10_000_000
    """A site that declares more nodes is refused."""
    label_names: tuple[str, ...] = ()
    """The federation's class names, in order; empty if it did not agree on names."""
    schema_sha256: str = ""
    """Hash of the agreed feature schema; empty if there is none."""
    scaled: tuple[int, ...] = ()
    """Positions of the columns that the sites scale together before the first round, ascending."""
    counted: tuple[int, ...] = ()
    """Positions of the categories whose rows the sites count together before the first round, ascending."""
    weighted: bool = False
    """Whether the edges of every site have weights."""

    def __post_init__(self) -> None:
        check_name("run", self.run)
        _check_sites(self.sites)
        _whole("min_sites", self.min_sites, 1, len(self.sites))
        _whole("num_features", self.num_features, 1, MAX_FEATURES)
        _whole("num_classes", self.num_classes, 2, MAX_CLASSES)
        _whole("max_nodes", self.max_nodes, 1, MOST_NODES)
        if (
            isinstance(self.deadline, bool)
            or not isinstance(self.deadline, (int, float))
            or not 0 < self.deadline <= MAX_DEADLINE
        ):
            raise BadConfig(
                f"deadline is {shown(self.deadline)}; "
                f"give a number of seconds above 0, at most {MAX_DEADLINE:g}"
            )
        _check_settings(self.settings)
        for what in ("method", "preset"):
            if not _is_text(getattr(self, what)):
                raise BadConfig(f"{what} is {shown(getattr(self, what))}; give a name")
        self._check_agreement()
        experiment = self.experiment()
        self._check_positions(experiment)
        self._check_aim(experiment)
        self._check_weighted(experiment)
        if experiment.attack.on:
            raise BadConfig(
                f"attack is '{experiment.attack.attack}', but attacks are only for simulations; "
                f"remove the setting, or see 'fedepd attack --help'"
            )
        if experiment.split.vault:
            raise BadConfig(
                f"vault is {experiment.split.vault:g}, but no site of a federation knows the whole graph; "
                "leave vault out, or set nodes aside with 'fedepd data split --vault' before"
            )
        check_not_pruned(experiment, "a site's graph stays as it is")
        experiment.check_clean("that is for simulations, and a site's data stay as they are")
        if experiment.method.merges_clients:
            raise BadConfig(
                f"method '{self.method}' needs the whole graph in one place and cannot be federated; "
                f"choose another"
            )
        if experiment.protocol.scope != "federated" or not experiment.protocol.edges:
            raise BadConfig(
                "scope and edges are only for simulations that a federation is compared with; leave them out"
            )
        experiment.check_scope()
        size = cohort_size(len(self.sites), experiment.training)
        experiment.privacy.check(experiment.method, experiment.defence, size)
        experiment.defence.check(experiment.method.label, experiment.method.averages, size)
        check_budget(experiment, self.server())

    def _check_agreement(self) -> None:
        if not isinstance(self.label_names, tuple):
            raise BadConfig("the class names of the task are not a list; submit with the same fedepd version")
        check_label_names(self.label_names, "the task")
        if self.label_names and len(self.label_names) != self.num_classes:
            raise BadConfig(
                f"the task names {len(self.label_names)} classes but has {self.num_classes}; name each once"
            )
        if not isinstance(self.schema_sha256, str) or (
            self.schema_sha256 and not SHA256.fullmatch(self.schema_sha256)
        ):
            raise BadConfig(
                f"the task's schema_sha256 is '{shown(self.schema_sha256)}'; "
                f"give 64 hexadecimal digits or nothing"
            )

    def _check_positions(self, experiment: Experiment) -> None:
        for what in ("scaled", "counted"):
            value = getattr(self, what)
            whole = isinstance(value, tuple) and all(type(each) is int for each in value)
            if (
                not whole
                or list(value) != sorted(set(value))
                or (value and not 0 <= value[0] <= value[-1] < self.num_features)
            ):
                raise BadConfig(
                    f"the task's {what} columns are {shown(value, 100)}; "
                    f"give positions from 0 to {self.num_features - 1}, ascending"
                )
        if both := set(self.scaled) & set(self.counted):
            raise BadConfig(
                f"column {min(both)} is both scaled and counted; a column of categories has no mean"
            )
        if self.measured and experiment.privacy.noisy:
            raise BadConfig(NOT_IN_THE_BUDGET)

    def _check_aim(self, experiment: Experiment) -> None:
        goals = goals_of(experiment.protocol.aim)
        if not goals:
            return
        if not experiment.method.has_global:
            raise BadConfig(
                f"aim is given, but {experiment.method.label} has no model for all sites, so it has no "
                "common operating point; leave aim out, or choose another method"
            )
        if experiment.privacy.noisy:
            raise BadConfig(
                "aim is given with dp_epsilon, but counts of validation nodes are not in its budget; leave "
                "one of them out"
            )
        # Whichever class is the largest: the rules of named classes do not depend on it.
        rules_of(goals, names_of(self.label_names, self.num_classes), 0)

    def _check_weighted(self, experiment: Experiment) -> None:
        if not isinstance(self.weighted, bool):
            raise BadConfig(f"the task's weighted is {_told(self.weighted)}; give true or false")
        if self.weighted:
            whose, cure = "the edges of this federation", "agree on edges without weights"
            check_weighs(experiment.method, whose, cure)
            experiment.model.check_weighs(whose, cure)

    @property
    def measured(self) -> bool:
        """Whether the sites measure statistics together before the first round."""
        return bool(self.scaled or self.counted)

    def experiment(self) -> Experiment:
        """The settings of the run: those given, and what is on in a federation unless it is switched off.

        That is the guard, and secure sums of three sites or more. Under noise nothing is sent by class, so
        that there is nothing to guard.
        """
        return self._experiment

    @cached_property
    def _experiment(self) -> Experiment:
        settings = {"secure": len(self.sites) >= FEWEST, **self.settings}
        privacy = Experiment.recorded(self.method, self.preset, {**settings, "guard": False}).privacy
        defended = {} if privacy.secure else DEFENDED
        settings = {**defended, "guard": not privacy.noisy, **settings, "clients": len(self.sites)}
        return Experiment.recorded(self.method, self.preset, settings)

    def sites_sha256(self) -> str:
        """Used in place of a simulated run's graph hash: in a federation, nobody knows the whole graph."""
        agreed: list[Any] = [self.run, self.sites, self.num_features, self.num_classes]
        agreed += [self.scaled, self.counted] if self.measured else []
        agreed += ["weighted"] if self.weighted else []
        return hashlib.sha256(json.dumps(agreed).encode()).hexdigest()

    def identity(self) -> str:
        """The hash that marks saved state as this run's.

        State with another identity belongs to another run.
        """
        return self._identity

    @cached_property
    def _identity(self) -> str:
        return self.experiment().config_hash(self.sites_sha256())

    def info(self) -> TaskInfo:
        return TaskInfo(
            self.num_features, self.num_classes, len(self.sites), self.experiment().training.weighting
        )

    def server(self) -> Server:
        e = self.experiment()
        return Server(self.info(), e.model, e.training, e.protocol.seed, 0, e.protocol.rounds)

    def setting(self) -> Setting:
        """What questions beside the rounds depend on."""
        e = self.experiment()
        measured = self.scaled, self.counted
        return Setting(e.method, self.server(), e.privacy, *measured, adapts(e), e.protocol.aim)

    def participant(self, data: ClientData) -> Participant:
        e = self.experiment()
        return Participant(
            e.method,
            data,
            self.info(),
            e.model,
            e.training,
            e.protocol.seed,
            e.protocol.rounds,
            e.privacy,
            shows_test=False,
            features=e.protocol.features,
            counted=self.counted,
            aim=e.protocol.aim,
            label_names=self.label_names,
        )

    def client_id(self, site: str) -> int:
        if site not in self.sites:
            raise UnknownName("site", site, self.sites)
        return self.sites.index(site)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: object) -> FederationTask:
        """Read a task that arrived. Anything else is refused in one sentence."""
        if not isinstance(text, str) or len(text) > MAX_TASK:
            raise BadMessage(
                f"the task is not a text of at most {MAX_TASK:,} characters; "
                f"install the same fedepd version everywhere"
            )
        try:
            content = parse_json(text, "the task")
            if not isinstance(content, dict) or sorted(content) != sorted(f.name for f in fields(cls)):
                raise BadMessage(
                    "the task does not hold exactly the expected fields; "
                    "install the same fedepd version everywhere"
                )
            lists = ("sites", "label_names", "scaled", "counted")
            for what in lists:
                if not isinstance(content[what], list):
                    raise BadMessage(
                        f"the task's {what} are not a list; install the same fedepd version everywhere"
                    )
            return cls(**{**content, **{what: tuple(content[what]) for what in lists}})
        except (BadMessage, BadConfig):
            raise
        except (FedEPDError, ValueError, TypeError, ArithmeticError) as cause:
            # Otherwise a damaged task would end a worker with a traceback instead of a sentence.
            raise BadMessage(
                f"the task cannot be read ({shown(cause, 300)}); install the same fedepd version everywhere"
            ) from cause


def _whole(what: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise BadConfig(f"{what} is {_told(value)}; give a whole number, {low}..{high}")


def _told(value: object) -> str:
    """A value for a sentence. Python refuses to write out a huge number, so its digits are left out."""
    if type(value) is int and value.bit_length() > 256:
        return "a number with too many digits"
    return shown(value)


def _check_sites(sites: object) -> None:
    if not isinstance(sites, tuple) or len(sites) > MAX_SITES:
        raise BadConfig(f"the sites are not a list of at most {MAX_SITES} names; name each once")
    for site in sites:
        check_name("site", site)
    if len(set(sites)) != len(sites) or not sites:
        raise BadConfig(f"the sites are {shown(', '.join(sites)) or 'none'}; name at least one, each once")


def _check_settings(settings: object) -> None:
    if not isinstance(settings, dict) or len(settings) > MAX_SETTINGS:
        raise BadConfig(f"the settings are not a table of at most {MAX_SETTINGS} entries; give NAME = VALUE")
    for name, value in settings.items():
        plain = all(_is_plain(each) for each in (value if isinstance(value, (list, tuple)) else [value]))
        if (
            not _is_text(name)
            or not plain
            or (isinstance(value, (list, tuple)) and len(value) > MAX_SETTINGS)
        ):
            raise BadConfig(
                f"setting '{shown(name)}' is {_told(value)}; give a number, a text, true or false"
            )


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() < 64
    return value is None or _is_text(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_SETTING and shown(value, MAX_SETTING) == value


def check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadConfig(
            f"{what} '{shown(name)}' is not a usable name; "
            f"use at most 63 lower-case letters, digits and hyphens, and no hyphen first"
        )


def site_data(task: FederationTask, site: str, path: str | Path) -> ClientData:
    """The site's data in the form that this task needs. Raises ``BadData`` if the file does not fit."""
    experiment = task.experiment()
    data = read_file(path).client(task.client_id(site), experiment.split, experiment.protocol.seed)
    # Where all agreed on classes and columns, a site without a training node is no mistake. ``join`` asks for
    # a plan before it lets one in.
    agreed = bool(task.label_names and task.schema_sha256)
    check_fit(data, path, task.num_features, task.num_classes, agreed)
    check_agrees(data.graph, path, Agreement(task.label_names, weighted=task.weighted))
    if task.schema_sha256 and schema_sha256(agreement_of(data.graph).schema) != task.schema_sha256:
        what = f"the columns of file '{shown(path, 300)}' differ from those of the federation"
        raise BadData(f"{what}; 'fedepd federation join --check' names the difference")
    check_columns(data, path, task.scaled)
    graph = replace(data.graph, num_classes=task.num_classes)
    # Features that are yet to be scaled are divided by their sum after that, by the participant.
    return replace(data, graph=graph if task.scaled else with_features(graph, experiment.protocol.features))


def check_columns(data: ClientData, path: str | Path, scaled: Sequence[int]) -> None:
    """Refuse a file that leaves other columns to be scaled than the federation scales."""
    own = () if data.unscaled is None else data.unscaled.columns
    if tuple(own) != tuple(scaled):
        raise BadData(
            f"file '{shown(path, 300)}' leaves {_columns(own)} to be scaled by all sites together, but the "
            f"federation scales {_columns(scaled)}; import the tables by the federation's plan"
        )


def _columns(positions: Sequence[int]) -> str:
    named = f"column {shown(', '.join(map(str, positions)), 100)}"
    return named if positions else "no column"


def check_fit(
    data: ClientData,
    path: str | Path,
    num_features: int | None,
    num_classes: int | None,
    may_only_evaluate: bool = False,
) -> None:
    """Refuse a file whose numbers of features or classes do not fit.

    A file without a training node is refused, too, unless the site ``may_only_evaluate``.
    """
    graph, file = data.graph, f"file '{shown(path, 300)}'"
    check_filled(graph, file, () if data.unscaled is None else data.unscaled.columns)
    if num_features is not None and graph.num_features != num_features:
        raise BadData(
            f"{file} has {graph.num_features} features, but the federation has {num_features}; "
            f"make the same features as the other sites"
        )
    if num_classes is not None and graph.num_classes > num_classes:
        raise BadData(
            f"{file} has {graph.num_classes} classes, but the federation has {num_classes}; "
            f"use the federation's class numbers"
        )
    if not may_only_evaluate and not bool(data.train_mask.any()):
        raise BadData(f"{file} has no training node; label some nodes or give it a 'split'")
