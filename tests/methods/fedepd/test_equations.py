"""FedEPD's equations by hand. Checks 2, 5, 7 and 8 are those of docs/reading-the-paper.md.

Eq. 1-5 are in test_purify.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.methods.base import Client
from fedepd.methods.fedepd.method import PAPER, FedEPD, global_prototypes
from fedepd.methods.fedepd.structure import Prepared, class_homophily, walk_scores
from fedepd.network.backbones import Backbone
from fedepd.types import ClientData, Graph, Reply
from toy import make_client, toy_client

EPS = 1e-12


def as_in_the_paper(**settings: Any) -> FedEPD:
    """The paper's parts, with the default's sign.

    Elites, injection, homophily gate, margin in calibration alone and unconditional pruning.
    """
    return FedEPD(**{**PAPER, **settings})


def tiny(y: list[int], edges: list[tuple[int, int]], train: list[int], classes: int = 3) -> ClientData:
    """A client of a few nodes whose features are its labels' unit vectors plus a little.

    Labels outside ``train`` are hidden.
    """
    n = len(y)
    x = torch.eye(classes + 1)[torch.tensor(y)] + 0.1 * torch.arange(n)[:, None]
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    mask = torch.zeros(n, dtype=torch.bool)
    mask[train] = True
    graph = Graph.make(x, index, torch.tensor(y), classes)
    return ClientData(0, graph, mask, ~mask, torch.zeros(n, dtype=torch.bool), torch.arange(n)).hidden()


def with_counts(counts: list[int]) -> ClientData:
    """A client without edges that has so many training nodes of each class, and two hidden ones."""
    y = [c for c, count in enumerate(counts) for _ in range(count)]
    return tiny([*y, 0, 1], [], list(range(len(y))), len(counts))


def derived(method: FedEPD, data: ClientData) -> Prepared:
    """On the purified graph, where the method purifies."""
    return method.prepare(data, Backbone(hidden=2)).on(method.purify)


def prepared_client(
    method: FedEPD, data: ClientData, model: Backbone | None = None, **more: Any
) -> Client[Any]:
    client = make_client(method, data, model or Backbone(hidden=2, dropout=0.0), **more)
    return replace(client, prepared=client.prepared.on(method.purify))


# Check 2: injection, Eq. 10-12


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_injection_by_hand(backbone: Any) -> None:
    """Path 0-1-2-3, training nodes 0 (class 0), 1 (class 1) and 2 (class 2, which has no prototype).

    Degrees with self-loops 2, 3, 3, 2, so Â_00 = 1/2, Â_01 = 1/√6, Â_10 = 1/√6, Â_11 = Â_12 = 1/3.
    h' = h_low (1-γ) + γ p + h_high = h + γ (p - h_low).
    Rows 2 and 3 stay.
    """
    method = as_in_the_paper(gamma=0.3, purify=False)
    client = prepared_client(
        method, tiny([0, 1, 2, 0], [(0, 1), (1, 2), (2, 3)], [0, 1, 2]), Backbone(backbone, hidden=2)
    )
    h = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    p = torch.tensor([[10.0, 20.0], [30.0, 40.0], [99.0, 99.0]])
    injected = method._inject(
        client, h, {"prototype.mean": p, "prototype.count": torch.tensor([2.0, 1.0, 0.0])}
    )
    low0 = h[0] / 2 + h[1] / math.sqrt(6)
    low1 = h[0] / math.sqrt(6) + h[1] / 3 + h[2] / 3
    torch.testing.assert_close(injected[0], h[0] + 0.3 * (p[0] - low0))
    torch.testing.assert_close(injected[1], h[1] + 0.3 * (p[1] - low1))
    torch.testing.assert_close(injected[0], 0.7 * low0 + 0.3 * p[0] + (h[0] - low0))
    assert torch.equal(injected[2:], h[2:])
    assert h[0].tolist() == [1.0, 2.0]


def test_injection_uses_the_purified_graph() -> None:
    """Where every edge of node 0 is pruned, Â is the identity there: h_low = h and h' = (1-γ) h + γ p."""
    method = as_in_the_paper(gamma=0.25)
    data = tiny([0, 0, 1], [(0, 1), (1, 2)], [0, 1, 2], classes=2)
    client = prepared_client(
        method, replace(data, graph=replace(data.graph, x=torch.tensor([[1.0, 0], [1.0, 0], [0, 1.0]])))
    )
    kept = method.training_edges(client.data, method.prepare(client.data, client.model), {})
    assert kept.tolist() == [[0], [1]]  # the path graph of check 4
    h = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    p = torch.tensor([[0.0, 0.0], [8.0, 16.0]])
    injected = method._inject(client, h, {"prototype.mean": p, "prototype.count": torch.ones(2)})
    torch.testing.assert_close(injected[2], 0.75 * h[2] + 0.25 * p[1])


# Eq. 6 and the elites


def test_the_walk_by_hand() -> None:
    """Path 0-1-2 and the isolated node 3; class 0 restarts from 0, class 1 from 3; α = 1/2, two steps.

    A D^-1 passes all of node 0's mass to 1 and half of node 1's to each end.
    Class 0: (1,0,0) → ½(1,0,0) + ½(0,1,0) = (½,½,0) → ½(1,0,0) + ½(¼,½,¼) = (5/8, 1/4, 1/8).
    Class 1: node 3 passes nothing on and keeps α r = ½.
    """
    data = tiny([0, 0, 0, 1], [(0, 1), (1, 2)], [0, 3])
    scores = walk_scores(data, torch.tensor([0, 1]), teleport=0.5, steps=2)
    assert scores.t().tolist() == [[0.625, 0.25, 0.125, 0.0], [0.0, 0.0, 0.0, 0.5]]
    assert walk_scores(data, torch.tensor([0]), teleport=0.5, steps=0).t().tolist() == [[1.0, 0.0, 0.0, 0.0]]


@given(seed=st.integers(0, 10_000), steps=st.integers(0, 12), teleport=st.floats(0.05, 1.0))
@settings(max_examples=15)
def test_the_walk_equals_dense_numpy(seed: int, steps: int, teleport: float) -> None:
    data = toy_client(seed=seed, nodes=10).hidden()
    a = np.zeros((10, 10))
    a[tuple(data.graph.edge_index.numpy())] = 1
    a += a.T
    degrees = a.sum(0)
    transition = a @ np.diag(np.where(degrees > 0, 1 / np.maximum(degrees, 1), 0))
    restart = (data.graph.y == 1).numpy() / int((data.graph.y == 1).sum())
    pi = restart
    for _ in range(steps):
        pi = teleport * restart + (1 - teleport) * transition @ pi
    np.testing.assert_allclose(walk_scores(data, torch.tensor([1]), teleport, steps)[:, 0], pi, atol=1e-6)


def elites(method: FedEPD, data: ClientData) -> list[tuple[int, int]]:
    prepared = derived(method, data)
    return list(zip(prepared.elites.tolist(), prepared.elite_classes.tolist(), strict=True))


def test_elites_are_the_best_placed_training_nodes_of_their_class() -> None:
    """Class 0 trains on the hub 2, its leaves 3 and 4 and the isolated node 1.

    ρ = 1/2 gives ⌊½ · 4⌋ = 2: the hub, and of the two equal leaves the one with the smaller number.
    Class 1 has one training node, hence max(1, ⌊½⌋) = 1.
    Class 2 has none and no elite.
    """
    data = tiny([1, 0, 0, 0, 0, 0, 2], [(2, 3), (2, 4), (2, 5), (0, 6)], [0, 1, 2, 3, 4])
    assert elites(as_in_the_paper(rho=0.5), data) == [(2, 0), (3, 0), (0, 1)]


def test_elites_among_all_nodes_may_be_unlabelled() -> None:
    """The unlabelled hub 0 between two training leaves has the highest score.

    By default it is no candidate.
    """
    data = tiny([0, 0, 0, 1], [(0, 1), (0, 2)], [1, 2, 3])
    assert elites(as_in_the_paper(rho=0.5), data) == [(1, 0), (3, 1)]
    assert elites(as_in_the_paper(rho=0.5, elites="any"), data) == [(0, 0), (3, 1)]


def test_isolated_candidates_tie_and_the_smallest_numbers_win() -> None:
    assert elites(as_in_the_paper(rho=0.5), with_counts([4, 2, 0])) == [(0, 0), (1, 0), (4, 1)]


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (10, 1), (19, 1), (20, 2), (30, 3)])
def test_the_number_of_elites_is_a_tenth_rounded_down_at_least_one(count: int, expected: int) -> None:
    assert [c for _, c in elites(as_in_the_paper(), with_counts([count, 1]))] == [0] * expected + [1]


def test_elites_are_chosen_on_the_original_graph() -> None:
    """Pruned or not, the same nodes (the text after Eq. 6)."""
    data = toy_client(nodes=30).hidden()
    assert method_edges(as_in_the_paper(), data) < data.graph.num_edges
    assert elites(as_in_the_paper(rho=0.4), data) == elites(as_in_the_paper(rho=0.4, purify=False), data)


def method_edges(method: FedEPD, data: ClientData) -> int:
    return method.prepare(data, Backbone(hidden=2)).edges(method.purify).shape[1]


# Eq. 7-8: prototypes. Check 8


def reply_of(sums: list[list[float]], counts: list[float]) -> Reply:
    return Reply({"prototype.sum": torch.tensor(sums), "prototype.count": torch.tensor(counts)}, 1, 1)


def test_global_prototype_by_hand() -> None:
    """(u, m) = ((2, 0), 1) and ((0, 4), 3): (2, 4) / 4 = (0.5, 1)."""
    before = {"prototype.mean": torch.zeros(1, 2), "prototype.count": torch.zeros(1)}
    after = global_prototypes(before, {0: reply_of([[2, 0]], [1]), 1: reply_of([[0, 4]], [3])})
    assert after["prototype.mean"].tolist() == [[0.5, 1.0]]
    assert after["prototype.count"].tolist() == [4.0]


def test_a_class_without_holders_keeps_its_last_prototype() -> None:
    """Class 0 is sent by one client; the holders of class 1 are absent this round.

    Nobody ever had class 2.
    """
    before = {
        "prototype.mean": torch.tensor([[9.0, 9.0], [5.0, 6.0], [0.0, 0.0]]),
        "prototype.count": torch.tensor([7.0, 2.0, 0.0]),
    }
    after = global_prototypes(before, {3: reply_of([[2, 4], [0, 0], [0, 0]], [2, 0, 0])})
    assert after["prototype.mean"].tolist() == [[1.0, 2.0], [5.0, 6.0], [0.0, 0.0]]
    assert after["prototype.count"].tolist() == [2.0, 2.0, 0.0]
    assert before["prototype.mean"][0].tolist() == [9.0, 9.0]


# Eq. 13-14: the homophily gate


def test_homophily_by_hand() -> None:
    """Edges 0-1, 0-2, 0-4, 3-5; training nodes 0, 1 (class 0) and 2, 3, 6 (class 1).

    Nodes 4 and 5 are unlabelled; 6 has no edge.

    h_0: labelled neighbours 1 (same) and 2: 1/2; the unlabelled 4 counts nowhere.
    h_1 = 1. h_2 = 0. h_3 has only an unlabelled neighbour: 1/2. h_6 is the isolated value.
    q = (3/4, (0 + 1/2 + h_6) / 3); class 2 has no training node: 1/2.
    """
    data = tiny([0, 0, 1, 1, 0, 1, 1], [(0, 1), (0, 2), (0, 4), (3, 5)], [0, 1, 2, 3, 6])
    for isolated in (0.5, 0.0):
        q = class_homophily(data, data.graph.edge_index, isolated)
        torch.testing.assert_close(q, torch.tensor([0.75, (0.5 + isolated) / 3, 0.5], dtype=torch.float64))


def test_the_gate_reads_kept_edges_only() -> None:
    data = tiny([0, 0, 1], [(0, 1), (0, 2)], [0, 1, 2])
    kept = torch.tensor([[0], [1]])
    assert class_homophily(data, kept, 0.0).tolist() == pytest.approx([1.0, 0.0, 0.5])


# Eq. 15-16: margins. Checks 5 and 7


@pytest.mark.parametrize(
    ("absent", "third"),
    [("exclude", 0.0), ("zero", 0.0), ("eps", math.log((4 + EPS) / EPS))],
)
def test_margins_by_hand(absent: Any, third: float) -> None:
    """Counts (4, 2, 0), gate 1/2, μ = 2: Δ = 2 · ½ · log(4 / N) = (0, log 2, by ``absent``)."""
    method = as_in_the_paper(mu=2.0, gate="constant", absent=absent)
    margin = derived(method, with_counts([4, 2, 0])).margin.own
    torch.testing.assert_close(margin, torch.tensor([0.0, math.log(2), third]))


def test_the_gate_scales_the_margin() -> None:
    """Counts (2, 1); the one node of class 1 has one labelled neighbour, of class 0.

    So q_1 = 0 and the margin vanishes; constant: ½ log 2.
    """
    data = tiny([0, 0, 1], [(1, 2)], [0, 1, 2], classes=2)
    margins = {
        gate: derived(as_in_the_paper(gate=gate, purify=False), data).margin.own
        for gate in ("labelled", "constant")
    }
    torch.testing.assert_close(margins["labelled"], torch.zeros(2))
    torch.testing.assert_close(margins["constant"], torch.tensor([0.0, 0.5 * math.log(2)]))


@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=6), mu=st.floats(0, 3), printed=st.booleans())
@settings(max_examples=30)
def test_margins_are_never_negative_and_zero_for_the_largest_class(
    counts: list[int], mu: float, printed: bool
) -> None:
    for absent in ("exclude", "zero", "eps"):
        method = as_in_the_paper(mu=mu, absent=absent, isolated_gate=0.0 if printed else 0.5)
        margin = derived(method, with_counts(counts)).margin.own
        assert bool((margin >= 0).all())
        assert margin[int(np.argmax(counts))] == 0


@pytest.mark.parametrize("absent", ["exclude", "zero", "eps"])
def test_balanced_classes_have_no_margin(absent: Any) -> None:
    margin = derived(as_in_the_paper(absent=absent), with_counts([3, 0, 3])).margin.own
    assert margin[[0, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("sign", ["minus", "plus"])
@pytest.mark.parametrize("absent", ["exclude", "zero", "eps"])
def test_the_calibration_loss_by_hand(sign: Any, absent: Any) -> None:
    """A classifier with zero weights and biases z = (1, 2, 3).

    Counts (4, 2, 0), gate ½, μ = 2, so Δ = (0, log 2, by ``absent``).
    Eq. 16: (4 · CE_0 + 2 · CE_1) / 6 of z - Δ or z + Δ.
    With "exclude" the third class is no term of the softmax.
    """
    method = as_in_the_paper(mu=2.0, gate="constant", absent=absent, sign=sign)
    client = prepared_client(method, with_counts([4, 2, 0]))
    params = {"classifier.weight": torch.zeros(2, 3), "classifier.bias": torch.tensor([1.0, 2.0, 3.0])}
    third = {"exclude": 0.0, "zero": 0.0, "eps": math.log((4 + EPS) / EPS)}[absent]
    direction = {"minus": -1, "plus": 1}[sign]
    z = np.array([1.0, 2.0, 3.0]) + direction * np.array([0.0, math.log(2), third])
    terms = z[:2] if absent == "exclude" else z
    expected = np.log(np.exp(terms).sum()) - (4 * z[0] + 2 * z[1]) / 6
    assert method._calibration_loss(client, torch.zeros(6, 2), {}).of(params)[0] == pytest.approx(
        expected, rel=1e-5
    )


def test_rehearsal_by_hand() -> None:
    """The same classifier, with the identity for weights.

    Prototypes are (2, 0) of class 0 and (0, 1) of class 2, and none of class 1.
    Rehearsal adds the mean of CE_0 of z = (1 + 2, 2, 3) and CE_2 of z = (1, 2 + 1, 3).
    Classes 0 and 2 are the known ones.
    With rehearsal_prior 1, log count is taken off: log 3 of class 0, nothing of the others.
    Their counts are 1 or were never seen.
    """
    params = {
        "classifier.weight": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        "classifier.bias": torch.tensor([1.0, 2.0, 3.0]),
    }
    message = {
        "prototype.mean": torch.tensor([[2.0, 0.0], [9.0, 9.0], [0.0, 1.0]]),
        "prototype.count": torch.tensor([3.0, 0.0, 1.0]),
    }
    client = prepared_client(FedEPD(), with_counts([4, 2, 0]))

    def total(**settings: Any) -> float:
        return FedEPD(**settings)._calibration_loss(client, torch.zeros(6, 2), message).of(params)[0]

    for prior, off in ((0.0, 0.0), (1.0, math.log(3))):
        log_sums = sum(math.log(sum(map(math.exp, z))) for z in ((3 - off, 2, 3), (1 - off, 3, 3)))
        expected = (log_sums - (3 - off) - 3) / 2
        difference = total(rehearsal_prior=prior) - total(consensus=False)
        assert difference == pytest.approx(expected, rel=1e-5)
