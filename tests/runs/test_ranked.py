"""What a run measures of single nodes once, after its last round."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import average_precision_score

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadData
from fedepd.model.export import export
from fedepd.model.model import load_model
from fedepd.report.runs import read_run
from fedepd.rounds.evaluate import held_out
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run
from fedepd.types import Graph

QUICK: dict[str, Any] = {"rounds": 3, "hidden": 4, "clients": 2, "evaluate_every": 1}


def small() -> Graph:
    return synthetic(
        nodes=150, edges=450, classes=4, imbalance=6.0, smallest=None, features=8, communities=4, name="s"
    )


def test_average_precision_is_that_of_the_exported_model(tmp_path: Path) -> None:
    """Computed again by scikit-learn from the logits of the model folder, over the same test nodes."""
    folder = tmp_path / "run"
    summary = run(small(), "fedepd", out=folder, **QUICK).summary
    model = load_model(export(folder, tmp_path / "model", small()))
    rows = [held_out(model.logits(c.graph), c)["test"] for c in rebuild(folder, small()).clients]
    logits, y = (np.concatenate([part.numpy() for part in parts]) for parts in zip(*rows, strict=True))
    p = softmax(logits.astype(np.float64), axis=1)
    for c, own in enumerate(summary["by_class"]):
        assert own["average_precision"][0] == pytest.approx(average_precision_score(y == c, p[:, c]))
        assert own["nodes"] == int((y == c).sum())
    found = read_run(folder)
    assert found.ranking is not None
    assert found.ranking["nodes"] == len(y)
    tiers, others = summary["tiers"], [c for c in range(4) if c != summary["tiers"]["head"][0]]
    for tier, members in tiers.items():
        first = np.argsort(-p[:, members].sum(1), kind="stable")[:20]
        own = summary["by_tier"][tier]
        assert own["nodes"] == int(np.isin(y, members).sum())
        assert dict(map(tuple, own["at_alerts"])).get(20, 0) == int(np.isin(y[first], members).sum())
    for own, (own_logits, classes) in zip(summary["by_client"], rows, strict=True):
        scores = softmax(own_logits.numpy().astype(np.float64), axis=1)[:, others].sum(1)
        right = np.isin(classes.numpy(), others)[np.argsort(-scores, kind="stable")]
        assert own["cases"] == int(right.sum())
        assert [10, right[:10].sum()] in own["at_alerts"]
    assert [c["average_precision"] for c in found.summary["by_class"]] == [
        c["average_precision"] for c in found.ranking["classes"]
    ]


@pytest.mark.parametrize("method", ["fedproto", "isolated", "centralised"])
def test_personal_models_are_ranked_at_their_selected_round(method: str) -> None:
    summary = run(small(), method, **QUICK).summary
    assert summary["headline"] == "personal"
    assert "average_precision" in summary["by_class"][0]
    assert "average_precision" in summary["by_tier"]["tail"]


@pytest.mark.parametrize("privacy", [{"guard": True}, {"secure": True}])
def test_a_run_that_keeps_to_sums_has_no_ranking(privacy: dict[str, bool], tmp_path: Path) -> None:
    settings = {**QUICK, "clients": 3, **privacy}
    summary = run(small(), "fedavg", out=tmp_path / "run", **settings).summary
    assert not (tmp_path / "run" / "ranking.json").exists()
    assert "average_precision" not in summary["by_class"][0]
    assert len(summary["by_client"]) == (0 if "secure" in privacy else 3)
    read_run(tmp_path / "run")


DAMAGES: list[tuple[Callable[[Any], object], str]] = [
    (lambda r: r["classes"].pop(), "not about the test nodes"),
    (lambda r: r["classes"][0].update(average_precision=[0.5, 0.4, 0.6]), "differ in average precision"),
    (lambda r: r["classes"][0]["curve"].append([3, 4]), "finds more nodes"),
    (lambda r: r["classes"][0].update(average_precision=[0.5, 2, 0.6]), "average_precision"),
]


def test_a_ranking_of_other_nodes_is_refused(tmp_path: Path) -> None:
    run(small(), "fedavg", out=tmp_path / "run", **QUICK)
    path = tmp_path / "run" / "ranking.json"
    good = path.read_text()
    for change, words in DAMAGES:
        bad = json.loads(good)
        change(bad)
        path.write_text(json.dumps(bad))
        with pytest.raises(BadData, match=words):
            _ = read_run(tmp_path / "run").ranking


def test_a_run_that_says_one_class_says_so() -> None:
    """With a learning rate of next to nothing and features of zeros, every node is called the same."""
    graph = small()
    blind = replace(graph, x=torch.zeros_like(graph.x))
    summary = run(blind, "fedavg", **QUICK, lr=1e-9).summary
    assert "for every test node" in summary["one_class"]
    assert summary["warnings"] == []
    assert "one_class" not in run(graph, "fedepd", **{**QUICK, "rounds": 12, "hidden": 16}).summary
