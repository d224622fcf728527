"""The stage after the last round, in whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.longtail import tiers
from fedepd.metrics import scores
from fedepd.rounds.adapt import CANDIDATES, adapted_logits
from fedepd.runs import adaptation, folder
from fedepd.runs.adaptation import in_words
from fedepd.runs.asking import ask
from fedepd.runs.experiment import Experiment
from fedepd.runs.resume import rebuild
from fedepd.runs.selection import below
from fedepd.types import Graph

POOR: dict[str, Any] = {"rounds": 2, "epochs": 1, "clients": 4, "hidden": 8, "adapt": True}
POOR |= {"train_share": 0.4, "val_share": 0.4}
"""So little training that adaptation is sure to help."""
GUARDED = {**POOR, "guard": True, "min_count": 2}  # two of four classes are closed


def small(nodes: int = 240) -> Graph:
    return synthetic(
        nodes=nodes,
        edges=900,
        classes=4,
        imbalance=8.0,
        smallest=None,
        features=12,
        communities=8,
        name="small",
    )


def without_time(summary: dict[str, Any]) -> dict[str, Any]:
    left = {name: value for name, value in summary.items() if not name.endswith("seconds")}
    left["adapted"] = {name: value for name, value in summary["adapted"].items() if name != "seconds"}
    return {name: value for name, value in left.items() if name != "peak_rss_mb"}


def test_the_setting_is_off_and_changes_no_older_identity() -> None:
    assert not Experiment.make("fedavg").protocol.adapt
    identity = Experiment.make("fedavg").config_hash("x")
    assert Experiment.make("fedavg", adapt=False).config_hash("x") == identity
    assert Experiment.make("fedavg", adapt=True).config_hash("x") != identity


def test_an_adapted_run_is_the_same_run_with_one_more_model() -> None:
    plain = fedepd.run(small(), "fedavg", **{**POOR, "adapt": False})
    found = fedepd.run(small(), "fedavg", **POOR)
    assert found.summary["weights_sha256"] == plain.summary["weights_sha256"]
    assert {name: found.metrics[name] for name in plain.metrics} == plain.metrics
    about = found.summary["adapted"]
    assert about["used"]
    assert about["gain"] > about["interval"]
    assert about["clients"] == about["asked"] == [0, 1, 2, 3]
    assert about["nodes"] == found.confusions["global_val"].sum()
    assert found.summary["best_rounds"]["adapted"] == found.summary["best_rounds"]["global"]
    assert found.metrics["adapted"].keys() == {"pooled"}
    assert found.metrics["adapted"]["pooled"]["macro_f1"] > found.metrics["global"]["pooled"]["macro_f1"]
    for split in ("val", "test"):  # the same nodes, classified otherwise
        matrices = found.confusions[f"adapted_{split}"], found.confusions[f"global_{split}"]
        assert np.array_equal(*(matrix.sum((0, 2)) for matrix in matrices))
    before, after = (
        found.confusions[name].sum(0) for name in ("global_val", "adapted_val")
    )  # the gain that was found is the gain of the models that are used
    cut = tiers(np.array([1, 1, 1, 1]))
    scored = [scores(matrix, cut)["macro_f1"] for matrix in (before, after)]
    assert scored[1] - scored[0] == pytest.approx(about["gain"], abs=1e-12)


def test_within_the_interval_the_global_model_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trained model gains a little or nothing. So nothing more is asked, and the scores are the same."""
    asked: list[str] = []

    def noted(*given: Any) -> Any:
        asked.append(given[2])
        return ask(*given)

    monkeypatch.setattr(adaptation, "ask", noted)
    found = fedepd.run(small(), "fedavg", rounds=60, clients=4, hidden=8, evaluate_every=20, adapt=True)
    about = found.summary["adapted"]
    assert not about["used"]
    assert about["gain"] <= about["interval"]
    assert asked == ["adaptation"]
    assert found.adapted == {}
    assert found.metrics["adapted"]["pooled"] == found.metrics["global"]["pooled"]
    assert np.array_equal(found.confusions["adapted_test"][0], found.confusions["global_test"].sum(0))


@pytest.mark.parametrize(
    "more", [{}, {"guard": True, "min_count": 2}, {"secure": True}, {"guard": True, "secure": True}], ids=str
)
def test_threads_guard_and_sums(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedepd.rounds.in_process.THREADED_FROM", 0)
    one, two = (fedepd.run(small(), "fedepd", workers=workers, **{**POOR, **more}) for workers in (1, 3))
    assert one.summary["adapted"]["used"]
    assert without_time(one.summary) == without_time(two.summary)
    assert one.adapted.keys() == two.adapted.keys()
    assert all(torch.equal(value, two.adapted[name]) for name, value in one.adapted.items())


def test_a_run_that_was_interrupted_before_the_stage_ended_ends_as_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, whole = small(), fedepd.run(small(), "fedepd", out=tmp_path / "whole", **GUARDED)
    for times in (1, 2):  # at the first question and at the second
        out, real, count = tmp_path / str(times), ask, iter(range(1, 9))

        def interrupt(*given: Any, real: Any = real, count: Any = count, last: int = times) -> Any:
            if next(count) == last:
                raise KeyboardInterrupt
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(adaptation, "ask", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fedepd.run(graph, "fedepd", out=out, **GUARDED)
        assert not folder.is_finished(out)
        resumed = fedepd.resume(out, graph)
        assert without_time(resumed.summary) == without_time(whole.summary)
        content = [(place / folder.ADAPTED).read_bytes() for place in (out, tmp_path / "whole")]
        assert content[0] == content[1]


def test_the_saved_models_predict_what_was_scored(tmp_path: Path) -> None:
    graph = small()
    result = fedepd.run(graph, "fedepd", out=tmp_path / "run", **POOR)
    simulation = rebuild(tmp_path / "run", graph)
    message = folder.read_weights(tmp_path / "run", folder.MODEL)
    saved = folder.read_weights(tmp_path / "run", folder.ADAPTED)
    total = np.zeros_like(result.confusions["adapted_test"][0])
    for p in simulation.participants:
        p.prepare()
        kept = below(saved, f"client{p.client_id}.")
        predicted = adapted_logits(p.method, p._client(0), message, kept).argmax(1)
        total += p.counted("adapted", predicted)["adapted_test"].numpy()
    assert np.array_equal(total, result.confusions["adapted_test"][0])


def test_a_method_without_a_model_for_all_is_run_as_it_is_and_says_so() -> None:
    found = fedepd.run(small(), "fedproto", **POOR)
    assert "adapted" not in found.summary
    assert found.summary["warnings"][-1] == (
        "FedProto has no model for all clients, so there is nothing to adapt; "
        "the clients' own models are scored"
    )
    assert found.summary["protocol"].endswith("no model for all clients to adapt")


def test_noise_and_adaptation_exclude_each_other() -> None:
    with pytest.raises(BadConfig, match="adapt is on with dp_epsilon"):
        fedepd.run(small(), "fedavg", dp_epsilon=8.0, secure=True, select="last", **POOR)


def test_attackers_have_no_say() -> None:
    found = fedepd.run(small(), "fedavg", attack="honest", attackers=1, **POOR)
    (attacker,) = found.summary["attackers"]
    assert found.summary["adapted"]["asked"] == [k for k in range(4) if k != attacker]


@pytest.mark.parametrize(
    ("select", "metric"), [("val_acc", "acc"), ("val_macro_f1", "macro_f1"), ("last", "macro_f1")]
)
def test_the_score_that_selects_also_decides(select: str, metric: str) -> None:
    assert fedepd.run(small(), "fedavg", select=select, **POOR).summary["adapted"]["metric"] == metric


def test_the_adapted_models_are_written_with_their_scores(tmp_path: Path) -> None:
    """That every method with a model for all can be adapted is in ``tests/golden``, by its bits."""
    found = fedepd.run(small(), "fedavg", out=tmp_path / "run", **POOR)
    assert found.summary["adapted"]["used"]
    written = json.loads((tmp_path / "run" / folder.SUMMARY).read_text())
    assert written["metrics"]["adapted"]["pooled"]["acc"] == found.metrics["adapted"]["pooled"]["acc"]
    saved = folder.read_weights(tmp_path / "run", folder.ADAPTED)
    assert saved.keys() == found.adapted.keys()
    assert all(torch.equal(value, found.adapted[name]) for name, value in saved.items())


ABOUT = {"steps": 160, "weight": 0.5, "metric": "macro_f1", "gain": 0.037, "interval": 0.01, "nodes": 2748}
ABOUT |= {"used": True, "clients": list(range(10)), "asked": list(range(10)), "own": 0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "adapted at 10 clients: 160 steps, half of the mixture; "
            "validation macro-F1 +3.7 points (± 1.0) on 2748 nodes",
        ),
        (
            {"own": 2, "weight": 1.0, "metric": "acc"},
            "adapted at 10 clients, 2 of which chose otherwise: 160 steps, the adapted model alone; "
            "validation accuracy +3.7 points (± 1.0) on 2748 nodes",
        ),
        (
            {"used": False, "gain": 0.005},
            "kept the global model, because the best adaptation (160 steps, half of the mixture) may be "
            "chance: validation macro-F1 +0.5 points (± 1.0) on 2748 nodes",
        ),
        (
            {"used": False, "gain": -0.02},
            "kept the global model, because the best adaptation (160 steps, half of the mixture) does not "
            "help: validation macro-F1 -2.0 points (± 1.0) on 2748 nodes",
        ),
        (
            {"used": False, "nodes": 0},
            "kept the global model, because no validation node could be counted",
        ),
    ],
    ids=str,
)
def test_the_decision_in_words(changes: dict[str, Any], said: str) -> None:
    assert in_words({**ABOUT, **changes}) == said
    assert len(CANDIDATES) == 11
