"""One run, from a graph to its numbers and its folder."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.clients.clients_dir import joined
from fedepd.clients.partition import PartitionConfig, partition, partition_sha256
from fedepd.clients.split import make_clients, test_without_local_train
from fedepd.datasets import graph_sha256
from fedepd.errors import BadConfig
from fedepd.files import append_line, as_line, write_bytes, write_json
from fedepd.folders import claim_folder, held
from fedepd.longtail import imbalance_ratio, tiers
from fedepd.methods import Server
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.rounds.attack import Attacked, poisoned
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round, cohort_size, train
from fedepd.rounds.participant import Participant
from fedepd.runs import checkpoint
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import environment, weights_sha256, write_arrays, write_tensors
from fedepd.runs.selection import Confusions, Progress, offences
from fedepd.runs.source import Data, Source
from fedepd.types import ClientData, Graph, Partition, TaskInfo, Tensors


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run found.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=2, clients=3)
        >>> sorted(result.metrics["global"]["pooled"])
        ['acc', 'bacc', 'head_acc', 'macro_f1', 'medium_acc', 'tail_acc']
        >>> [line["round"] for line in result.rounds]
        [1, 2]
    """

    summary: dict[str, Any]
    """All scores, the selected round, the protocol in words, bytes, seconds and hashes: what summary.json holds."""
    rounds: list[dict[str, Any]]
    """One entry per round, as in rounds.jsonl: losses, bytes, seconds, and scores where the round was evaluated."""
    confusions: Confusions
    """Confusion matrices by name, such as "global_test": int64 [K, C, C] over clients, true and predicted classes."""
    tensors: Tensors
    """The server's tensors at the selected round."""
    folder: Path | None = None
    """The run folder, where there is one."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Test scores by model ("global", "personal"), then by average ("pooled", "client_mean")."""
        out: dict[str, Any] = self.summary["metrics"]
        return out


def run(
    data: Graph | Sequence[ClientData] | str | Path,
    method: str = "fedepd",
    *,
    preset: str = "default",
    out: str | Path | None = None,
    workers: int = 1,
    data_dir: str | Path | None = None,
    on_round: Callable[[Round], None] | None = None,
    checkpoint_every: int = 1,
    **settings: Any,
) -> RunResult:
    """Train a method on a graph that is cut into clients, and evaluate it.

    Args:
        data: A graph, a dataset's name, an npz file, or clients from ``read_clients``.
        method: A name among ``fedepd.METHODS``.
        preset: A named set of the method's values, such as "printed" of "fedepd".
        out: A new folder for everything behind the numbers. Without it nothing is written.
        workers: Threads that share the clients. Their number changes no bit.
        data_dir: The folder with the datasets' files, if it is not ``$FEDEPD_DATA``.
        on_round: Called with each finished round.
        checkpoint_every: After so many rounds the folder gets what ``fedepd.resume`` needs; 0: never.
        **settings: The flat names that ``fedepd run METHOD --help`` explains, such as ``rounds`` or ``seed``.

    Returns:
        The scores, every round, the confusion matrices and the weights of the selected round.

    Raises:
        UnknownName: The method, preset, dataset or a setting does not exist.
        BadConfig: A setting cannot be used, or ``out`` is not a new folder.
        BadData: The graph or its file cannot be used.
        ClientFailed: A client's step broke.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=2, clients=3, out="runs/first")
        >>> 0 < result.metrics["global"]["pooled"]["bacc"] < 1
        True
        >>> (result.folder / "summary.json").exists()
        True
    """
    experiment = Experiment.make(method, preset, **settings)
    source = None
    if isinstance(data, (str, Path)):
        source = Source.make(data, data_dir)
        data = source.load(experiment)
    return execute(
        experiment, data, Path(out) if out is not None else None, workers, on_round, checkpoint_every, source
    )


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

    @property
    def participants(self) -> list[Participant]:
        return list(self.exchange.participants.values())

    def start(self) -> Progress:
        method, server = self.experiment.method, self.server
        tensors = method.server_init(server, server.model.initial(server.info, server.seed))
        first = method.complete_from(server.last_round)
        cut, capped = tiers(class_sizes(self.graph).numpy()), self.experiment.defence.cap_weights
        return Progress(tensors, self.experiment.protocol.select, cut, first, capped)

    def personal_models(self) -> Tensors:
        """Every client's own model, as "client3.encoder.weight"; moments stay out."""
        models = {p.client_id: p.state for p in self.participants}
        return {
            f"client{k}.{name}": value
            for k, state in models.items()
            for name, value in state.items()
            if ".moments." not in name
        }


def build(experiment: Experiment, data: Graph | Sequence[ClientData], workers: int = 1) -> Simulation:
    experiment.model.check_chosen()
    seed, rounds, training = experiment.protocol.seed, experiment.protocol.rounds, experiment.training
    graph = with_features(data if isinstance(data, Graph) else joined(data), experiment.protocol.features)
    if isinstance(data, Graph):
        experiment = replace(experiment, partition=experiment.partition.resolved(graph))
        part = partition(graph, experiment.partition, seed)
        clients = make_clients(graph, part, experiment.split, seed)
    else:
        experiment = replace(
            experiment, partition=replace(experiment.partition, partition="owner").resolved(graph)
        )
        part = partition(graph, experiment.partition, seed)
        clients = [replace(c, graph=with_features(c.graph, experiment.protocol.features)) for c in data]
    unseen = test_without_local_train(clients)
    if experiment.method.merges_clients:
        clients = [merged(graph, clients)]
    attack = experiment.attack
    attackers = attack.drawn([c.client_id for c in clients], seed)
    clients = poisoned(clients, attackers, attack)
    info = TaskInfo(graph.num_features, graph.num_classes, len(clients), training.weighting)
    participants = [
        Participant(experiment.method, c, info, experiment.model, training, seed, rounds) for c in clients
    ]
    experiment.defence.check(
        experiment.method.label, experiment.method.averages, cohort_size(len(clients), training)
    )
    server = Server(info, experiment.model, training, seed, 0, rounds)
    exchange = InProcess(participants, workers)
    if attack.on:
        tensors = experiment.method.server_init(server, server.model.initial(info, seed))
        # Of all stages: a method with two sends something else in its last rounds.
        stages = [
            experiment.method.reply_fields(replace(server, round=number), tensors) for number in (rounds, 1)
        ]
        fields = {**stages[0], **stages[1]}
        attack.check(experiment.method.label, fields)
        exchange = Attacked(participants, workers, attackers, attack, fields)
    config = describe_run(experiment, graph)
    return Simulation(experiment, graph, part, clients, server, exchange, config, unseen)


def execute(
    experiment: Experiment,
    data: Data,
    out: Path | None = None,
    workers: int = 1,
    on_round: Callable[[Round], None] | None = None,
    checkpoint_every: int = 1,
    source: Source | None = None,
) -> RunResult:
    """A new run. ``source`` says in the folder where ``data`` came from."""
    for name, value, least in (("workers", workers, 1), ("checkpoint_every", checkpoint_every, 0)):
        if value < least:
            raise BadConfig(f"{name} is {value}; give at least {least}")
    started = time.perf_counter(), time.process_time()
    notes = []
    if experiment.model.backbone == "auto":
        from fedepd.runs.pilot import with_chosen_backbone

        experiment, why = with_chosen_backbone(experiment, data)
        notes = [why]
    simulation = build(experiment, data, workers)
    if out is None:
        return complete(simulation, None, on_round, 0, started, notes)
    claim_folder(out, simulation.config["config_hash"])
    with held(out):
        write_json(
            out / "config.json", {**simulation.config, "source": source and asdict(source), "notes": notes}
        )
        return complete(simulation, out, on_round, checkpoint_every, started, notes)


def complete(
    simulation: Simulation,
    out: Path | None,
    on_round: Callable[[Round], None] | None,
    checkpoint_every: int,
    started: tuple[float, float],
    notes: Sequence[str] = (),
) -> RunResult:
    """All rounds that are not in the folder's checkpoints yet, and the results. ``started``: on the wall and on the CPU clock."""
    torch.set_num_threads(1)
    experiment, exchange, progress = simulation.experiment, simulation.exchange, simulation.start()
    try:
        exchange.prepare()
        if out is not None:
            write_setting(simulation, progress.tensors, out)
            spent, found = checkpoint.restore(
                out,
                simulation.config["config_hash"],
                progress,
                simulation.participants,
                experiment.protocol.rounds,
            )
            notes = [*notes, *found]
            started = started[0] - spent[0], started[1] - spent[1]
            write_bytes(out / "rounds.jsonl", "".join(map(as_line, progress.lines)).encode())
            saver = checkpoint.Saver(out, checkpoint_every, simulation.config["config_hash"])
        ids, every, first = (
            [c.client_id for c in simulation.clients],
            experiment.protocol.evaluate_every,
            len(progress.lines) + 1,
        )
        known = offences(progress.lines)
        for each in train(
            experiment.method,
            simulation.server,
            progress.tensors,
            ids,
            exchange,
            every,
            first,
            known,
            experiment.defence,
        ):
            line = progress.add(each, simulation.personal_models)
            if out is not None:
                append_line(out / "rounds.jsonl", line)
                saver.after_round(progress, simulation.participants, elapsed(started))
            if on_round is not None:
                on_round(each)
    finally:
        exchange.close()
    summary = summarise(simulation, progress, started, notes)
    if out is not None:
        write_results(simulation, progress, summary, out)
        checkpoint.remove(out)
    return RunResult(
        summary, progress.lines, progress.confusions(), progress.best[summary["headline"]].tensors, out
    )


def elapsed(started: tuple[float, float]) -> tuple[float, float]:
    """Seconds since, on the wall and on the CPU clock."""
    return time.perf_counter() - started[0], time.process_time() - started[1]


def describe_run(experiment: Experiment, graph: Graph) -> dict[str, Any]:
    """What config.json holds: the resolved settings and what they were applied to."""
    sha256 = graph_sha256(graph)
    return {
        "config_hash": experiment.config_hash(sha256),
        "method": experiment.method_name,
        "method_label": experiment.method.label,
        "preset": experiment.preset,
        "has_global": experiment.method.has_global,
        "seed": experiment.protocol.seed,
        "rounds": experiment.protocol.rounds,
        "dataset": {
            "name": graph.name,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "imbalance_ratio": imbalance_ratio(class_sizes(graph).numpy()),
            "proxy_features": graph.proxy_features,
            "sha256": sha256,
            "label_names": graph.label_names,
            "owner_names": owner_names(graph, experiment.partition),
        },
        "experiment": experiment.resolved(),
        "protocol": experiment.sentence(),
    }


def owner_names(graph: Graph, config: PartitionConfig) -> list[str]:
    """What the clients are called, where the data says so."""
    if config.partition != "owner" or graph.owner is None or not graph.owner_names:
        return []
    return [graph.owner_names[int(k)] for k in torch.unique(graph.owner)]


def summarise(
    simulation: Simulation, progress: Progress, started: tuple[float, float], notes: Sequence[str] = ()
) -> dict[str, Any]:
    config = simulation.config
    seconds, cpu_seconds = elapsed(started)
    headline = "global" if config["has_global"] else "personal"
    cut = progress.tiers
    return {
        **{
            name: config[name]
            for name in ("method", "method_label", "preset", "seed", "rounds", "config_hash", "protocol")
        },
        "dataset": config["dataset"]["name"],
        "proxy_features": config["dataset"]["proxy_features"],
        "headline": headline,
        "best_round": progress.best[headline].round,
        "best_rounds": {kind: best.round for kind, best in progress.best.items()},
        "metrics": progress.metrics(),
        "tiers": {"head": cut.head, "medium": cut.medium, "tail": cut.tail},
        "test_without_local_train": simulation.unseen,
        "bytes_up": sum(sum(line["bytes_up"].values()) for line in progress.lines),
        "bytes_down": sum(sum(line["bytes_down"].values()) for line in progress.lines),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "weights_sha256": weights_sha256(progress.tensors),
        "partition_sha256": partition_sha256(simulation.partition),
        **(
            {"attackers": list(simulation.exchange.attackers)}
            if isinstance(simulation.exchange, Attacked)
            else {}
        ),
        "warnings": [*warnings_of(simulation.clients), *notes],
    }


def write_setting(simulation: Simulation, tensors: Tensors, out: Path) -> None:
    """What is known before the first round, beside config.json."""
    if not (
        out / "env.json"
    ).exists():  # else: resumed, and the command that began the run is the one to repeat
        write_json(out / "env.json", environment())
    write_clients(simulation, tensors, out)
    graph, part = simulation.graph, simulation.partition
    split = torch.full((graph.num_nodes,), 3, dtype=torch.uint8)
    for c in simulation.clients:
        for code, mask in enumerate((c.train_mask, c.val_mask, c.test_mask)):
            split[c.global_ids[mask]] = code
    labelled = graph.y >= 0
    pairs = part.owner[labelled] * graph.num_classes + graph.y[labelled]
    client_class = torch.bincount(pairs, minlength=part.num_clients * graph.num_classes).reshape(
        -1, graph.num_classes
    )
    arrays = {
        "owner": part.owner,
        "split": split,
        "client_class": client_class,
        "class_sizes": class_sizes(graph),
    }
    write_arrays(out / "partition.npz", arrays)


def write_clients(simulation: Simulation, tensors: Tensors, out: Path) -> None:
    write_json(out / "clients.json", [p.facts(tensors) for p in simulation.participants])


def write_results(simulation: Simulation, progress: Progress, summary: dict[str, Any], out: Path) -> None:
    """What is known after the last round; the summary last, so that a folder with one is complete."""
    write_clients(simulation, progress.tensors, out)
    write_arrays(out / "confusion.npz", progress.confusions())
    write_tensors(out / "final.safetensors", progress.tensors)
    write_tensors(out / "model.safetensors", progress.best[summary["headline"]].tensors)
    write_json(out / "summary.json", summary)


def warnings_of(clients: Sequence[ClientData]) -> list[str]:
    """What works, but a user should know."""
    edgeless = [c.client_id for c in clients if c.graph.num_edges == 0]
    untrained = [c.client_id for c in clients if not bool(c.train_mask.any())]
    out = []
    if edgeless:
        out.append(
            f"no edges at client {', '.join(map(str, edgeless))}: it trains as a plain network on its nodes' own features"
        )
    if untrained:
        out.append(
            f"no training nodes at client {', '.join(map(str, untrained))}: it is evaluated but has no say in the average"
        )
    return out


def with_features(graph: Graph, features: str) -> Graph:
    """Features as published, or each row divided by its sum of absolute values (a zero row stays zero)."""
    if features == "raw":
        return graph
    if not graph.is_sparse:
        return replace(graph, x=graph.x / graph.x.abs().sum(1, keepdim=True).clamp(min=1e-12))
    rows = to_scipy(graph.x)
    total = np.asarray(abs(rows).sum(1)).reshape(-1)
    return replace(graph, x=csr_tensor(sp.csr_matrix(sp.diags(1.0 / np.maximum(total, 1e-12)) @ rows)))


def merged(graph: Graph, clients: Sequence[ClientData]) -> ClientData:
    """One client that holds the whole graph, edges between clients included, with the clients' own splits."""
    masks = [torch.zeros(graph.num_nodes, dtype=torch.bool) for _ in range(3)]
    for c in clients:
        for mask, own in zip(masks, (c.train_mask, c.val_mask, c.test_mask), strict=True):
            mask[c.global_ids[own]] = True
    train_mask, val_mask, test_mask = masks
    return ClientData(0, graph, train_mask, val_mask, test_mask, torch.arange(graph.num_nodes))


def class_sizes(graph: Graph) -> Tensor:
    """Labelled nodes of each class, int64 [C]."""
    return torch.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes)
