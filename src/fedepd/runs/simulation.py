"""A simulated run before its first round: the graph, its clients, the server, and who carries messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.clients.client_file import NONE, TEST, TRAIN, VAL
from fedepd.clients.clients_dir import joined, split_clients
from fedepd.clients.corruption import trained_on, with_wrong_labels
from fedepd.clients.imputing import filled, fills_of, open_rules
from fedepd.clients.partition import PartitionConfig, partition
from fedepd.clients.scaling import with_features
from fedepd.clients.split import make_clients
from fedepd.clients.vault import known_labels
from fedepd.datasets import graph_sha256
from fedepd.datasets.facts import class_sizes
from fedepd.errors import BadConfig
from fedepd.longtail import tiers
from fedepd.methods import Server
from fedepd.rounds.attack import Attacked, poisoned
from fedepd.rounds.evaluate import client_class, unseen_share
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.participant import Participant
from fedepd.rounds.statistics import measured_together
from fedepd.runs import auto
from fedepd.runs.drive import Course, begin, check_budget, first_fields
from fedepd.runs.experiment import Experiment
from fedepd.runs.pruning import pruned
from fedepd.runs.record import describe, describe_data
from fedepd.runs.selection import Progress
from fedepd.runs.source import Data
from fedepd.runs.spending import Spending
from fedepd.shown import listed, shown
from fedepd.types import ClientData, Graph, Partition, TaskInfo, Tensors

NAMED = 100
"""Most clients that a warning names."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """Everything an experiment builds from a graph before its first round."""

    experiment: Experiment
    graph: Graph
    partition: Partition
    clients: list[ClientData]
    server: Server
    exchange: InProcess
    config: dict[str, Any]
    unseen: float
    """The share of test nodes whose class has no training node at their client."""
    statistics: dict[str, Any] | None = None
    """What the clients measured together, where their files left columns to be scaled."""
    initial: Tensors | None = None
    """The initial weights, if they are not random."""
    note: str = ""
    """Why the backbone was chosen, where a rule has."""

    @property
    def participants(self) -> list[Participant]:
        return list(self.exchange.participants.values())

    def course(self, folder: Path | None = None) -> Course:
        """``folder``: the run's, which counts the sums of a noisy run."""
        course = Course(self.experiment, self.server, [c.client_id for c in self.clients], self.exchange)
        budget = self.experiment.privacy.budget(self.server.last_round)
        if budget is None:
            return course
        spending = Spending(budget, folder)
        self.exchange.released(spending.made)
        return replace(course, spending=spending)

    def start(self) -> Progress:
        return begin(self.experiment, self.server, tiers(class_sizes(self.graph).numpy()), self.initial)

    def facts(self, tensors: Tensors) -> list[dict[str, Any]]:
        """What each client holds, with the server's tensors."""
        return self.exchange.facts(tensors)

    def cut(self) -> dict[str, Tensor]:
        """Who owns which node, and its part in the split: 0 train, 1 validation, 2 test, 3 none."""
        split = torch.full((self.graph.num_nodes,), NONE, dtype=torch.uint8)
        for c in self.clients:
            for code, mask in ((TRAIN, c.train_mask), (VAL, c.val_mask), (TEST, c.test_mask)):
                split[c.global_ids[mask]] = code
        return {
            "owner": self.partition.owner,
            "split": split,
            "client_class": client_class(self.graph, self.partition),
            "class_sizes": class_sizes(self.graph),
        }

    def personal_models(self) -> Tensors:
        """Every client's own model, as "client3.encoder.weight"; moments stay out."""
        return _of_clients(self.exchange.kept("own"))

    def adapted_models(self) -> Tensors:
        """The same for what every client keeps of its adapted model. Empty where none was adapted."""
        return _of_clients(self.exchange.kept("adapted"))


def _of_clients(states: Mapping[int, Tensors]) -> Tensors:
    return {
        f"client{k}.{name}": value
        for k, state in states.items()
        for name, value in state.items()
        if ".moments." not in name
    }


def build(
    experiment: Experiment, data: Data, workers: int = 1, choose: bool | None = None, shards: int = 1
) -> Simulation:
    """Everything before the first round.

    ``choose``: a backbone that is auto is chosen here; True if a person asked for that. None: it is refused.
    """
    if workers > 1 and shards > 1:
        raise BadConfig(f"workers is {workers} and shards is {shards}; give one of the two")
    if choose is None:
        experiment.model.check_chosen()
    experiment.check_scope()
    if experiment.protocol.aim:
        raise BadConfig(
            "aim is for federations, whose sites choose an operating point together; give 'fedepd export' "
            "--recall, --alerts or --cost instead"
        )
    seed, rounds, training = experiment.protocol.seed, experiment.protocol.rounds, experiment.training
    statistics = None
    if not isinstance(data, Graph):
        data, statistics = measured_together(data, experiment.privacy)
    data, identity = _without_gaps(experiment, data)
    features = experiment.protocol.features
    graph = with_features(data if isinstance(data, Graph) else joined(data), features, compact=True)
    if isinstance(data, Graph):
        experiment = replace(experiment, partition=experiment.partition.resolved(graph))
        part = partition(graph, experiment.partition, seed)
        clients = make_clients(graph, part, experiment.split, seed)
    else:
        by_owner = replace(experiment.partition, partition="owner").resolved(graph)
        experiment = replace(experiment, partition=by_owner)
        part = partition(graph, experiment.partition, seed)
        clients = [
            replace(c, graph=with_features(c.graph, features, compact=True))
            for c in split_clients(data, experiment.split, seed)
        ]
    unseen, note, worse = unseen_share(clients), "", experiment.protocol.corruption
    if auto.wanted(experiment):
        seen = [trained_on(with_wrong_labels(c, worse, seed), worse, seed) for c in clients]
        experiment, note = auto.with_chosen(experiment, seen, bool(choose))
    if experiment.method.merges_clients:
        clients = [merged(known_labels(graph, clients), clients)]
    if not experiment.protocol.edges:
        clients = [replace(c, graph=without_edges(c.graph)) for c in clients]
    attack = experiment.attack
    attackers = attack.drawn([c.client_id for c in clients], seed)
    clients = pruned(poisoned(clients, attackers, attack), experiment)
    clients = [with_wrong_labels(c, worse, seed) for c in clients]
    corrupted = [trained_on(c, worse, seed) for c in clients]
    info = TaskInfo(graph.num_features, graph.num_classes, len(clients), training.weighting)
    privacy = experiment.privacy
    in_a_round = cohort_size(len(clients), training)
    privacy.check(experiment.method, experiment.defence, in_a_round, experiment.attack.on)
    participants = [
        Participant(
            experiment.method,
            c,
            info,
            experiment.model,
            training,
            seed,
            rounds,
            privacy,
            trained=None if t is c else t,
        )
        for c, t in zip(clients, corrupted, strict=True)
    ]
    experiment.defence.check(
        experiment.method.label, experiment.method.averages, cohort_size(len(clients), training)
    )
    server = Server(info, experiment.model, training, seed, 0, rounds)
    check_budget(experiment, server)
    exchange = InProcess(participants, workers, shards=shards)
    if attack.on:
        fields, _ = first_fields(experiment, server)
        attack.check(experiment.method.label, fields)
        exchange = Attacked(participants, workers, attackers, attack, fields, shards)
    config = described(experiment, graph, identity or graph_sha256(graph))
    return Simulation(
        experiment, graph, part, clients, server, exchange, config, unseen, statistics, note=note
    )


def _without_gaps(experiment: Experiment, data: Data) -> tuple[Data, str]:
    """The data with values for missing numbers, by the training rows of this run, and the data's own hash.

    The hash is that of the data before, so that it does not depend on the split. It is empty where no number
    is missing.
    """
    first = data if isinstance(data, Graph) else data[0].graph
    if not open_rules(first):
        return data, ""
    if experiment.privacy.noisy:
        raise BadConfig(
            "dp_epsilon is given, but what fills gaps in the columns is not in its budget; "
            "fill them in the tables before, or leave dp_epsilon out"
        )
    seed, features = experiment.protocol.seed, experiment.protocol.features
    if isinstance(data, Graph):
        part = partition(data, experiment.partition.resolved(data), seed)
        fills = fills_of(make_clients(data, part, experiment.split, seed))
        return filled(data, fills), graph_sha256(with_features(data, features))
    fills = fills_of(split_clients(data, experiment.split, seed))
    identity = graph_sha256(with_features(joined(data), features))
    return [replace(each, graph=filled(each.graph, fills)) for each in data], identity


def described(experiment: Experiment, graph: Graph, sha256: str) -> dict[str, Any]:
    """The configuration of a run on a graph, as its run folder has it. The partition is resolved already."""
    dataset = describe_data(
        graph.name,
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        class_sizes(graph).tolist(),
        sha256,
        graph.proxy_features,
        graph.label_names,
    )
    dataset["owner_names"] = owner_names(graph, experiment.partition)
    if graph.edge_weight is not None:
        dataset["edge_weights"] = True
    sentence = experiment.sentence()
    if graph.time_name:
        words = "per client and class"
        sentence = sentence.replace(words, f"{words}, oldest first by {shown(graph.time_name)}", 1)
    return describe(experiment, dataset, sentence)


def owner_names(graph: Graph, config: PartitionConfig) -> list[str]:
    """What the clients are called, where the data says so."""
    if config.partition != "owner" or graph.owner is None or not graph.owner_names:
        return []
    return [graph.owner_names[int(k)] for k in torch.unique(graph.owner)]


def warnings_of(clients: Sequence[ClientData], edges: bool = True) -> list[str]:
    """What works, but a user should know. ``edges``: whether they are wanted."""
    edgeless = [c.client_id for c in clients if c.graph.num_edges == 0 and edges]
    untrained = [c.client_id for c in clients if not bool(c.train_mask.any())]
    out = []
    if edgeless:
        which = listed(edgeless, NAMED)
        out.append(f"no edges at client {which}: it trains as a plain network on its nodes' own features")
    if untrained:
        which = listed(untrained, NAMED)
        out.append(f"no training nodes at client {which}: it is evaluated but has no say in the average")
    return out


def without_edges(graph: Graph) -> Graph:
    return graph.with_edges(graph.edge_index[:, :0])


def merged(graph: Graph, clients: Sequence[ClientData]) -> ClientData:
    """One client that holds the whole graph, edges between clients included, with the clients' own splits."""
    masks = [torch.zeros(graph.num_nodes, dtype=torch.bool) for _ in range(3)]
    for c in clients:
        for mask, own in zip(masks, (c.train_mask, c.val_mask, c.test_mask), strict=True):
            mask[c.global_ids[own]] = True
    train_mask, val_mask, test_mask = masks
    return ClientData(0, graph, train_mask, val_mask, test_mask, torch.arange(graph.num_nodes))
