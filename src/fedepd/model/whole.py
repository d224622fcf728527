"""A run's model on the whole graph, with the edges between clients that no client has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd.clients.vault import known_labels
from fedepd.errors import BadConfig
from fedepd.metrics import pooled
from fedepd.model.export import uncalibrated
from fedepd.model.of_client import tiers_of
from fedepd.report.runs import Run, read_run
from fedepd.rounds.evaluate import confusions, tested_nodes
from fedepd.runs.predict import logits_at
from fedepd.runs.pruning import check_not_pruned
from fedepd.runs.replay import kept_models
from fedepd.runs.resume import rebuild
from fedepd.runs.simulation import Simulation, merged
from fedepd.runs.source import Data
from fedepd.types import ClientData


@dataclass(frozen=True, eq=False)
class Whole:
    """What a run's model scores on the test nodes, with and without the edges between clients."""

    run: Run
    edges: int
    """Edges of the whole graph."""
    between: int
    """Those that join nodes of two clients."""
    touched: int
    """Test nodes at an end of such an edge."""
    nodes: int
    """Test nodes."""
    own: NDArray[np.int64]
    """Confusion matrix [C, C] of the test nodes on each client's own graph, as in the run."""
    whole: NDArray[np.int64]
    """The same on the whole graph."""

    def scores(self) -> dict[str, dict[str, float]]:
        """``metrics.METRICS`` of both, as fractions."""
        tiers = tiers_of(self.run)
        return {
            name: pooled(matrix[None], tiers) for name, matrix in (("own", self.own), ("whole", self.whole))
        }

    def as_json(self) -> dict[str, object]:
        """All of it, as the command prints it."""
        return {
            "method": self.run.summary["method"],
            "dataset": self.run.summary["dataset"],
            "seed": self.run.summary["seed"],
            "model": self.run.headline,
            "edges": self.edges,
            "edges_between_clients": self.between,
            "test_nodes": self.nodes,
            "test_nodes_with_such_edges": self.touched,
            "scores": self.scores(),
        }


def on_whole_graph(
    folder: str | Path, data: Data | str | Path | None = None, data_dir: str | Path | None = None
) -> Whole:
    """Score the headline model of a finished run on the whole graph.

    The graph and the split are the run's own. The model of all clients predicts once. Where every client has
    a model of its own, each predicts on the whole graph and is scored on its client's test nodes.

    Args:
        folder: The run folder.
        data: Where the run's data are now, if they were moved, or the graph that it was given.
        data_dir: Where the datasets are now, if they were moved.

    Returns:
        The scores with and without the edges between clients.

    Raises:
        BadConfig: There is no whole graph, the run uses no edges, or its models need what nobody has kept.
        BadData: The run folder is damaged or unfinished, or its data have changed.

    Examples:
        >>> import fedepd
        >>> from fedepd.model.whole import on_whole_graph
        >>> result = fedepd.run("synthetic", "fedavg", rounds=2, clients=3, out="runs/whole")
        >>> found = on_whole_graph("runs/whole")
        >>> found.own.sum() == found.whole.sum() == found.nodes
        True
    """
    run = read_run(folder)
    if "sites" in run.config:
        raise BadConfig(
            f"'{folder}' is the run of a federation, and no site has the whole graph; name another"
        )
    simulation = rebuild(Path(folder), data, data_dir)
    check_not_pruned(simulation.experiment, "the whole graph is not pruned")
    if not simulation.experiment.protocol.edges:
        raise BadConfig("the run uses no edges, so edges between clients change nothing; name another run")
    if simulation.experiment.attack.on:
        raise BadConfig("the run has dishonest clients, and scores are of the honest ones; name another run")
    clients = simulation.clients
    one = simulation.experiment.method.merges_clients
    data_of_all = clients[0] if one else merged(known_labels(simulation.graph, clients), clients)
    owner, graph = simulation.partition.owner, simulation.graph
    crossing = owner[graph.edge_index[0]] != owner[graph.edge_index[1]]
    touched = torch.zeros(graph.num_nodes, dtype=torch.bool)
    touched[graph.edge_index[:, crossing].reshape(-1)] = True
    tested = tested_nodes(data_of_all)
    return Whole(
        run,
        graph.num_edges,
        int(crossing.sum()),
        int((touched & tested).sum()),
        int(tested.sum()),
        run.confusions[f"{run.headline}_test"].sum(0),
        _tested(run, simulation, data_of_all),
    )


def _tested(run: Run, simulation: Simulation, whole: ClientData) -> NDArray[np.int64]:
    """The confusion matrix of all test nodes on the whole graph, [C, C]."""
    experiment, graph = simulation.experiment, simulation.graph
    if experiment.method.has_global or experiment.method.merges_clients:
        model = uncalibrated(run, experiment, simulation.server.info, graph.label_names, graph.schema)
        return confusions(model.logits(graph), whole)["test"].numpy()
    logits = torch.zeros(graph.num_nodes, graph.num_classes)
    hidden = whole.hidden()
    for number, tensors in kept_models(run.path, simulation).items():
        own = simulation.clients[number].global_ids
        try:
            logits[own] = logits_at(experiment, simulation.server.info, tensors, hidden)[own]
        except KeyError:
            raise BadConfig(
                f"a client's model of {experiment.method.label} needs what the server sent in its round, and "
                "nobody has kept that; name a run of another method"
            ) from None
    return confusions(logits, whole)["test"].numpy()
