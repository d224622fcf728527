"""What a federation agrees on before its first round: sent to every site as JSON, checked where it arrives."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedepd.config import Experiment
from fedepd.datasets.client_file import read_client_file
from fedepd.errors import BadConfig, BadData, BadMessage, UnknownName
from fedepd.gate import MOST_NODES
from fedepd.loop import cohort_size
from fedepd.methods import Server
from fedepd.participant import Participant
from fedepd.runner import with_features
from fedepd.types import ClientData, TaskInfo

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Sites and runs: their names become host-like names and folder names, so nothing else may be in them."""
DEFENDED = {"robust": "clip", "cap_weights": True}
"""What is on in a federation unless its coordinator says otherwise: sites are not programs of our own."""


@dataclass(frozen=True)
class FederationTask:
    run: str
    """Names the run at the server and the state at the sites; a resumed run keeps it."""
    method: str
    preset: str
    settings: dict[str, Any]
    """Flat settings as of ``fedepd run``."""
    num_features: int
    num_classes: int
    sites: tuple[str, ...]
    """A site's place in this list is its client number."""
    min_sites: int = 1
    deadline: float = 600.0
    """Seconds a site has for one step or one evaluation."""
    max_nodes: int = 10_000_000
    """A site that says it has more nodes is not believed."""

    def __post_init__(self) -> None:
        check_name("run", self.run)
        for site in self.sites:
            check_name("site", site)
        if len(set(self.sites)) != len(self.sites) or not self.sites:
            raise BadConfig(f"the sites are {', '.join(self.sites) or 'none'}; name at least one, each once")
        if not 1 <= self.min_sites <= len(self.sites):
            raise BadConfig(f"min_sites is {self.min_sites} of {len(self.sites)} sites; give 1..{len(self.sites)}")
        if self.num_features < 1 or self.num_classes < 2:
            raise BadConfig(f"the task has {self.num_features} features and {self.num_classes} classes; give at least 1 and 2")
        if not self.deadline > 0:
            raise BadConfig(f"deadline is {self.deadline}; give a number of seconds above 0")
        if not 1 <= self.max_nodes <= MOST_NODES:
            raise BadConfig(f"max_nodes is {self.max_nodes}; give 1..{MOST_NODES}")
        experiment = self.experiment()
        if experiment.attack.on:
            raise BadConfig(f"attack is '{experiment.attack.attack}'; attacks are for simulations, see 'fedepd attack --help'")
        if experiment.method.merges_clients:
            raise BadConfig(f"method '{self.method}' needs the whole graph in one place and cannot be federated; choose another")
        size = cohort_size(len(self.sites), experiment.training)
        experiment.defence.check(experiment.method.label, experiment.method.averages, size)

    def experiment(self) -> Experiment:
        return Experiment.make(self.method, self.preset, **{**DEFENDED, **self.settings, "clients": len(self.sites)})

    def sites_sha256(self) -> str:
        """Stands where a simulated run has the hash of its graph, which nobody here can know."""
        return hashlib.sha256(json.dumps([self.run, self.sites, self.num_features, self.num_classes]).encode()).hexdigest()

    def identity(self) -> str:
        """What is saved under another identity belongs to another run."""
        return self.experiment().config_hash(self.sites_sha256())

    def info(self) -> TaskInfo:
        return TaskInfo(self.num_features, self.num_classes, len(self.sites), self.experiment().training.weighting)

    def server(self) -> Server:
        e = self.experiment()
        return Server(self.info(), e.model, e.training, e.protocol.seed, 0, e.protocol.rounds, e.defence)

    def participant(self, data: ClientData) -> Participant:
        e = self.experiment()
        return Participant(e.method, data, self.info(), e.model, e.training, e.protocol.seed, e.protocol.rounds)

    def client_id(self, site: str) -> int:
        if site not in self.sites:
            raise UnknownName("site", site, self.sites)
        return self.sites.index(site)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FederationTask:
        try:
            content = json.loads(text)
            if sorted(content) != sorted(f.name for f in fields(cls)):
                raise BadMessage("the task does not hold exactly the expected fields; install the same fedepd version everywhere")
            return cls(**{**content, "sites": tuple(content["sites"])})
        except (ValueError, TypeError) as cause:
            raise BadMessage(f"the task cannot be read ({cause}); install the same fedepd version everywhere") from cause


def check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadConfig(f"{what} '{name}' is not a usable name; use lower-case letters, digits and hyphens, at most 63")


def site_data(task: FederationTask, site: str, path: str | Path) -> ClientData:
    """The site's file as this task needs it, or one sentence that says why it does not fit."""
    experiment = task.experiment()
    data = read_client_file(path, task.client_id(site), experiment.split, experiment.protocol.seed)
    check_fit(data, path, task.num_features, task.num_classes)
    graph = replace(with_features(data.graph, experiment.protocol.features), num_classes=task.num_classes)
    return replace(data, graph=graph)


def check_fit(data: ClientData, path: str | Path, num_features: int | None, num_classes: int | None) -> None:
    graph = data.graph
    if num_features is not None and graph.num_features != num_features:
        raise BadData(f"file '{path}' has {graph.num_features} features, the federation {num_features}; bring them into the same form")
    if num_classes is not None and graph.num_classes > num_classes:
        raise BadData(f"file '{path}' has {graph.num_classes} classes, the federation {num_classes}; use the federation's class numbers")
    if not bool(data.train_mask.any()):
        raise BadData(f"file '{path}' has no training node; label some nodes or give it a 'split'")
