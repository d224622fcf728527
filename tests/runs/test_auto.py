"""--backbone auto: the choice follows validation, and the run is the chosen backbone's own, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.rounds.loop import Round
from fedepd.runs import pilot
from fedepd.runs.experiment import Experiment
from fedepd.runs.resume import resume
from fedepd.runs.run import run
from fedepd.runs.simulation import build
from fedepd.types import ClientData, TaskInfo

SETTINGS: dict[str, Any] = {"rounds": 10, "hidden": 8, "evaluate_every": 2, "clients": 3}
GRAPH = synthetic(nodes=300, edges=900, classes=4, features=8, imbalance=4.0, smallest=None, communities=6)


def test_the_run_is_the_chosen_backbones_own() -> None:
    auto = run(GRAPH, "fedavg", backbone="auto", **SETTINGS)
    (note,) = [warning for warning in auto.summary["warnings"] if "chosen by validation" in warning]
    assert "in pilots of 2 rounds" in note
    chosen = note.split()[1]
    assert (
        auto.summary["weights_sha256"]
        == run(GRAPH, "fedavg", backbone=chosen, **SETTINGS).summary["weights_sha256"]
    )


@pytest.mark.parametrize(
    ("gcn", "sage", "chosen"), [(0.5, 0.4, "gcn"), (0.4, 0.5, "sage"), (0.5, 0.5, "gcn")]
)
def test_the_better_pilot_wins(monkeypatch: pytest.MonkeyPatch, gcn: float, sage: float, chosen: str) -> None:
    monkeypatch.setattr(
        pilot,
        "pilot_score",
        lambda experiment, data, rounds: {"gcn": gcn, "sage": sage}[experiment.model.backbone],
    )
    experiment, why = pilot.with_chosen_backbone(Experiment.make("fedavg", backbone="auto"), GRAPH)
    assert experiment.model.backbone == chosen
    assert why.startswith(f"backbone {chosen} was chosen")


def test_without_validation_nodes_there_is_nothing_to_choose_by() -> None:
    with pytest.raises(BadConfig, match="needs validation nodes"):
        run(GRAPH, "fedavg", backbone="auto", val_share=0.0, **SETTINGS)


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


def test_a_resumed_run_still_says_who_chose(tmp_path: Path) -> None:
    def stop(each: Round) -> None:
        if each.number == 4 and (tmp_path / "run" / "config.json").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(GRAPH, "fedavg", backbone="auto", out=tmp_path / "run", on_round=stop, **SETTINGS)
    resumed = resume(tmp_path / "run", GRAPH)
    assert [note for note in resumed.summary["warnings"] if "chosen by validation" in note]
