"""scikit-learn's classifiers as methods, against scikit-learn itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.methods.rows import BASELINES, REDUCED, STRENGTHS, Boosting, Logistic, narrowed
from fedepd.network.sparse import csr_tensor
from fedepd.types import Graph
from toy import make_client, toy_client

GRAPH = synthetic(nodes=240, edges=900, classes=4, imbalance=6.0, smallest=None, features=8, communities=6)


def predicted(method: Any, data: Any, round: int = 1) -> torch.Tensor:
    client = make_client(method, data, round=round)
    _, state = method.client_step(client, {}, {})
    logits: torch.Tensor = method.predict(client, state)
    return logits


def wide(nodes: int, columns: int) -> Graph:
    """A graph whose features are two words of a large vocabulary per node; the first names the class."""
    y = np.arange(nodes) % 3
    where = np.arange(nodes)
    rng = np.random.default_rng(0)
    columns_of = np.concatenate([y * 5, rng.integers(20, columns, nodes)])
    x = sp.csr_matrix((np.ones(2 * nodes), (np.tile(where, 2), columns_of)), shape=(nodes, columns))
    ring = np.stack([where, np.roll(where, 1)])
    return Graph.make(csr_tensor(x), torch.tensor(ring), torch.tensor(y))


@pytest.mark.parametrize("round", [1, 3, 5])
def test_a_round_is_scikit_learns_regression_with_one_strength(round: int) -> None:
    data = toy_client(nodes=60)
    train = data.train_mask.numpy()
    scale = StandardScaler().fit(data.graph.x.numpy()[train])
    x, y = scale.transform(data.graph.x.numpy()), data.graph.y.numpy()
    theirs = LogisticRegression(C=STRENGTHS[round - 1], class_weight="balanced", max_iter=300)
    theirs.fit(x[train], y[train])
    ours = predicted(Logistic(), data, round).softmax(1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(x), atol=1e-5)


def test_more_trees_fit_the_training_rows_better() -> None:
    data = toy_client(nodes=200)
    y, train = data.graph.y, data.train_mask
    loss = [
        float(torch.nn.functional.cross_entropy(predicted(Boosting(), data, round)[train], y[train]))
        for round in (1, 4)
    ]
    assert loss[1] < loss[0]


def test_one_fit_has_all_candidates() -> None:
    data = toy_client(nodes=120)
    client = make_client(Boosting(), data)
    _, state = Boosting().client_step(client, {}, {})
    for round in (2, 3, 4):
        _, state = Boosting().client_step(replace(client, round=round), {}, state)
        assert torch.equal(state["logits"], predicted(Boosting(), data, round))


@pytest.mark.parametrize("method", [Logistic(), Boosting()])
def test_clients_with_one_class_or_no_training_node_are_answered(method: Any) -> None:
    data = toy_client()
    only = replace(data, train_mask=data.train_mask & (data.graph.y == 1))
    assert set(predicted(method, only).argmax(1).tolist()) == {1}
    nobody = replace(data, train_mask=torch.zeros_like(data.train_mask))
    assert predicted(method, nobody).shape == (24, 3)


def test_sparse_features_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks for a dense copy of 20,000 columns. Boosting reads 64 components of them."""
    graph = wide(300, 20_000)
    monkeypatch.setattr(sp.csr_matrix, "todense", pytest.fail)
    monkeypatch.setattr(sp.csr_matrix, "toarray", pytest.fail)
    data = replace(
        toy_client(), graph=graph, train_mask=torch.arange(300) < 200, val_mask=torch.arange(300) == 200,
        test_mask=torch.arange(300) > 200, global_ids=torch.arange(300),
    )  # fmt: skip
    right = {}
    for name, cls in BASELINES.items():
        said = predicted(cls(), data, round=3).argmax(1)
        right[name] = float((said == graph.y)[data.test_mask].float().mean())
    assert min(right.values()) > 0.9  # the first word names the class
    assert narrowed(make_client(Boosting(), data)).shape == (300, REDUCED)


def test_they_are_not_federated_and_keep_no_model() -> None:
    with pytest.raises(BadConfig, match="Logistic regression is not federated; give scope alone"):
        fedepd.run(GRAPH, "logistic", rounds=1)
    settings: dict[str, Any] = {"clients": 3, "rounds": 5, "evaluate_every": 1}
    pooled = fedepd.run(GRAPH, "logistic", scope="pooled", **settings)
    alone = fedepd.run(GRAPH, "logistic", scope="alone", **settings)
    assert len(pooled.confusions["personal_test"]) == 1
    assert len(alone.confusions["personal_test"]) == 3
    assert pooled.confusions["personal_test"].sum() == alone.confusions["personal_test"].sum()
    assert "setting selected by best pooled validation macro-F1, 5 tried" in pooled.summary["protocol"]
    other = toy_client(nodes=30)
    client = make_client(Logistic(), other)
    with pytest.raises(BadConfig, match="keeps what it says of its own nodes"):
        Logistic().predict(client, {"logits": torch.zeros(7, 3)})


def test_the_same_seed_gives_the_same_bits() -> None:
    settings: dict[str, Any] = {"clients": 3, "rounds": 4, "evaluate_every": 1, "scope": "alone"}
    one, other = (fedepd.run(GRAPH, "boosting", **settings).tensors for _ in range(2))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_without_scikit_learn_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(BadConfig, match=r"not installed; run pip install 'fedepd\[baselines\]'"):
        fedepd.run(GRAPH, "logistic", scope="alone", rounds=1)
