"""--backbone auto: the rule, what it may see, and that the run is the chosen backbone's own, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.datasets.facts import class_pairs
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.rounds.loop import Round
from fedepd.runs import auto
from fedepd.runs.experiment import Experiment
from fedepd.runs.resume import resume
from fedepd.runs.run import RunResult, run
from fedepd.runs.simulation import build
from fedepd.types import ClientData, Graph, TaskInfo

SETTINGS: dict[str, Any] = {"rounds": 3, "hidden": 8, "evaluate_every": 2, "clients": 3}
GRAPH = synthetic(nodes=300, edges=900, classes=4, features=8, imbalance=4.0, smallest=None, communities=6)


def shuffled() -> Graph:
    """The same graph with edges between any two nodes, so that a neighbour tells nothing."""
    ends = torch.randint(0, GRAPH.num_nodes, (2, 3000), generator=torch.Generator().manual_seed(0))
    return Graph.make(GRAPH.x, ends, GRAPH.y, owner=torch.arange(GRAPH.num_nodes) % 3, name="shuffled")


def said(result: RunResult) -> list[str]:
    return [warning for warning in result.summary["warnings"] if "was chosen" in warning]


@pytest.mark.parametrize(
    ("pairs", "chosen"),
    [
        ([[600, 60], [60, 600]], "gcn"),  # alike: adjusted homophily 0.82
        ([[60, 600], [600, 60]], "sage"),  # informative, but never alike
        ([[330, 330], [330, 330]], "mlp"),  # a neighbour tells nothing
        ([[9000, 480], [480, 40]], "mlp"),  # 95 % in one class: homophily 0.90, by chance alone
        ([[60, 6], [6, 60]], "gcn"),  # 66 edges are too few to choose by
        ([[0, 0], [0, 0]], "gcn"),
    ],
)
def test_the_rule(pairs: list[list[int]], chosen: str) -> None:
    assert auto.chosen(torch.tensor(pairs))[0] == chosen


def test_only_sums_of_training_labels_count() -> None:
    """Other labels may change as they like, and so may who holds an edge."""
    clients = build(Experiment.make("fedavg", **SETTINGS), GRAPH).clients
    pairs = auto.summed(clients)
    wrong = [
        replace(c, graph=replace(c.graph, y=torch.where(c.train_mask, c.graph.y, (c.graph.y + 1) % 4)))
        for c in clients
    ]
    assert torch.equal(auto.summed(wrong), pairs)
    assert torch.equal(pairs, auto.summed(clients[::-1]))
    assert int(pairs.sum()) == sum(int(class_pairs(c.hidden().graph).sum()) for c in clients)


def test_the_run_is_the_chosen_backbones_own() -> None:
    graph = shuffled()
    found = run(graph, "fedavg", **SETTINGS)
    (note,) = said(found)
    assert note.startswith("backbone mlp was chosen: a neighbour's class tells 0.")
    named = run(graph, "fedavg", backbone="mlp", **SETTINGS)
    assert found.summary["config_hash"] == named.summary["config_hash"]
    assert found.summary["weights_sha256"] == named.summary["weights_sha256"]
    assert said(named) == []


def test_the_usual_network_is_named_where_a_person_asked() -> None:
    assert said(run(GRAPH, "fedavg", **SETTINGS)) == []
    (note,) = said(run(GRAPH, "fedavg", backbone="auto", **SETTINGS))
    assert note.startswith("backbone gcn was chosen")


def test_other_settings_are_kept_to() -> None:
    """mlp has no head of its own kind and no single layer; then sage keeps a node apart."""
    found = run(shuffled(), "fedavg", head="linear", **SETTINGS)
    assert said(found)[0].startswith("backbone sage was chosen")
    assert "linear head" in found.summary["protocol"]
    bare = run(GRAPH, "fedavg", edges=False, **SETTINGS)
    assert said(bare)[0].startswith("backbone mlp was chosen: no edges are used")


def test_nothing_is_built_with_auto() -> None:
    """Not the simulation, nor the parts of it that a federation builds by itself."""
    experiment = Experiment.make("fedavg", backbone="auto")
    with pytest.raises(BadConfig, match="give gcn or sage"):
        build(experiment, GRAPH)
    with pytest.raises(BadConfig, match="give gcn or sage"):
        experiment.model.initial(TaskInfo(8, 4, 3), 0)
    nobody = torch.zeros(GRAPH.num_nodes, dtype=torch.bool)
    with pytest.raises(BadConfig, match="give gcn or sage"):
        experiment.model.inputs(ClientData(0, GRAPH, nobody, nobody, nobody, torch.arange(GRAPH.num_nodes)))


def test_under_a_privacy_budget_the_counts_are_not_looked_at() -> None:
    noisy = {**SETTINGS, "secure": True, "dp_epsilon": 8.0, "select": "last"}
    with pytest.raises(BadConfig, match="counts of training labels, which the budget of dp_epsilon"):
        run(shuffled(), "fedavg", backbone="auto", **noisy)
    found = run(shuffled(), "fedavg", **noisy)
    assert said(found) == []
    assert "gcn hidden" in found.summary["protocol"]


def test_a_resumed_run_still_says_who_chose(tmp_path: Path) -> None:
    def stop(each: Round) -> None:
        if each.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(shuffled(), "fedavg", out=tmp_path / "run", on_round=stop, **SETTINGS)
    assert said(resume(tmp_path / "run", shuffled()))
