"""Each finding on a graph made to have it, and none on one that has nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedepd.clients.doctor import check, feature_names
from fedepd.datasets.synthetic import synthetic
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.network.sparse import csr_tensor
from fedepd.types import HIDDEN, Graph
from hostile_names import PAYLOADS, cases, check_lines


def healthy(nodes: int = 120) -> Graph:
    """Three classes of equal size around a ring of their own, noise as features."""
    rng = np.random.default_rng(0)
    y = torch.arange(nodes) % 3
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 3) % nodes])
    return Graph.make(torch.from_numpy(rng.standard_normal((nodes, 4))).float(), ring, y, 3)


def found(graph: Graph) -> list[str]:
    return [f"{finding.level}: {finding.what}" for finding in check(graph).findings]


def test_nothing_to_find() -> None:
    checkup = check(healthy())
    assert checkup.findings == ()
    assert checkup.exit_code == 0
    assert checkup.facts["homophily"] == 1.0
    assert checkup.facts["imbalance ratio"] == 1.0


def test_homophily_per_tier_counts_edges_from_the_tiers_side() -> None:
    """Sizes 4, 2, 1 are head, medium and tail.

    Edges: 0-1 inside the head, 0-4 head to medium, 4-5 inside medium, 5-6 medium to tail.

    Ends in the head: 0 and 1 of the first, 0 of the second: 2 of 3 in same-class edges.
    Medium: 4, 4, 5, 5: 2 of 4.
    Tail: 0 of 1.
    """
    y = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    facts = check(Graph.make(torch.randn(7, 2), torch.tensor([[0, 0, 4, 5], [1, 4, 5, 6]]), y)).facts
    assert facts["homophily"] == 0.5
    assert facts["homophily of the head"] == pytest.approx(2 / 3)
    assert facts["homophily of the medium"] == 0.5
    assert facts["homophily of the tail"] == 0.0


def test_homophily_beyond_chance_is_told_from_that_of_a_large_class() -> None:
    """90 of 100 nodes are of one class, so 80 % of the edges join like nodes, and no edge means anything.

    Every node is joined with each of the next 9 and node i is of class 1 where i ends in 0. Of 10 successive
    nodes one is of class 1. A node of class 0 has among its 9 next nodes one of class 1, a node of class 1
    has none: 900 edges, 90 from 1 to 0, 810 from class 0, of which 90 go to class 1. So 720 of 900 are alike.
    By chance they would be 0.9^2 + 0.1^2 = 0.82. (0.8 - 0.82) / (1 - 0.82) = -1 / 9.
    """
    at = torch.arange(100)
    ends = torch.cat([torch.stack([at, (at + step) % 100]) for step in range(1, 10)], 1)
    facts = check(Graph.make(torch.randn(100, 2), ends, (at % 10 == 0).long())).facts
    assert facts["homophily"] == pytest.approx(0.8)
    assert facts["homophily beyond chance"] == pytest.approx(-1 / 9)
    assert 0 <= facts["a neighbour's class tells"] < 0.04
    nobody = Graph.make(torch.randn(4, 2), torch.tensor([[0], [1]]), torch.tensor([0, -1, 1, 1]))
    assert "homophily beyond chance" not in check(nobody).facts


def with_column(graph: Graph, column: torch.Tensor) -> Graph:
    return replace(graph, x=torch.cat([graph.x, column.reshape(-1, 1).float()], dim=1))


def as_sparse(graph: Graph) -> Graph:
    return replace(graph, x=csr_tensor(sp.csr_matrix(graph.x.numpy())))


def leaky_words(graph: Graph) -> Graph:
    """Bags of words: random ones, and one that marks class 2."""
    words = torch.from_numpy(
        (np.random.default_rng(1).random((graph.num_nodes, 12)) < 0.4).astype(np.float32)
    )
    return as_sparse(with_column(replace(graph, x=words), graph.y == 2))


BASE = healthy()
CASES: dict[str, tuple[Callable[[], Graph], str, int]] = {
    "a class of two": (
        lambda: replace(BASE, num_classes=4, y=torch.cat([torch.tensor([3, 3]), BASE.y[2:]])),
        "fewer than 3 nodes: 3",
        1,
    ),
    "a class of none": (
        lambda: replace(BASE, num_classes=4, label_names=("a", "b", "c", "none")),
        "without nodes: none",
        1,
    ),
    "unlabelled": (
        lambda: replace(BASE, y=torch.where(torch.arange(120) < 30, HIDDEN, BASE.y)),
        "30 nodes (25.0 %) without a label",
        0,
    ),
    "imbalance": (
        lambda: replace(BASE, y=(torch.arange(120) < 10).long(), num_classes=2),
        "11 times as large as the smallest",
        0,
    ),
    "nothing to train": (
        lambda: Graph.make(torch.randn(2, 2), torch.tensor([[0], [1]]), torch.tensor([0, 1])),
        "no class has two",
        2,
    ),
    "isolated": (lambda: replace(BASE, edge_index=BASE.edge_index[:, :60]), "have no edge", 1),
    "heterophily": (lambda: replace(BASE, y=torch.arange(120) // 3 % 2, num_classes=2), "0% of the edges", 0),
    "constant column": (lambda: with_column(BASE, torch.full((120,), 7)), "1 constant columns: feature 4", 1),
    "constant sparse column": (
        lambda: as_sparse(with_column(BASE, torch.zeros(120))),
        "1 constant columns: feature 4",
        1,
    ),
    "large values": (lambda: with_column(BASE, torch.randn(120) * 1e5), "beyond 1000: feature 4", 1),
    "label as a column": (lambda: with_column(BASE, BASE.y), "determine the label or a class: feature 4", 1),
    "label in a noisy column": (
        lambda: with_column(BASE, BASE.y + 0.1 * torch.rand(120)),
        "determine the label",
        1,
    ),
    "mark of one class, scaled": (
        lambda: with_column(BASE, (BASE.y == 2) * 2 - 0.6),
        "determine the label or a class: feature 4",
        1,
    ),
    "word of one class": (lambda: leaky_words(BASE), "determine the label or a class: feature 12", 1),
    "twins": (
        lambda: replace(BASE, x=BASE.x[torch.arange(120) // 2]),
        "test nodes have exactly the features of a training node",
        1,
    ),
    "sparse twins": (
        lambda: as_sparse(replace(BASE, x=BASE.x[torch.arange(120) // 2])),
        "120 nodes (100.0 %) have exactly the features of another node",
        1,
    ),
    "one owner": (
        lambda: replace(BASE, owner=torch.zeros(120, dtype=torch.int64), owner_names=("bank",)),
        "a single owner: bank",
        1,
    ),
    "small owner": (
        lambda: replace(BASE, owner=(torch.arange(120) < 9).long()),
        "fewer than 10 labelled nodes: 1",
        1,
    ),
    "cut edges": (
        lambda: replace(BASE, owner=torch.arange(120) // 3 % 2),
        "120 edges (100.0 %) join nodes of two owners",
        1,
    ),
    "owners of one class": (lambda: replace(BASE, owner=BASE.y), "3 owners with one class: 0, 1, 2", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_findings(case: str) -> None:
    make, words, code = CASES[case]
    checkup = check(make())
    assert any(words in finding.what for finding in checkup.findings), found(make())
    assert checkup.exit_code == code
    for finding in checkup.findings:
        assert finding.meaning
        assert finding.cure


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_a_large_class_alone_is_no_leak(share: float) -> None:
    """A column that is high for everyone marks a class of 95 % with an F1 of 0.97 and says nothing."""
    y = (torch.arange(120) >= int(share * 120)).long()
    column = torch.ones(120)
    column[7] = 0
    graph = with_column(replace(BASE, y=y, num_classes=2), column)
    assert not any("determine" in what for what in found(graph))


def test_the_demonstration_graph_has_no_leak() -> None:
    assert not any("determine" in what for what in found(synthetic()))


def test_columns_are_called_by_their_names() -> None:
    schema = FeatureSchema((FeatureRule("age"), FeatureRule("kind", categories=("a", "b", "c"))))
    named = replace(BASE, schema=schema.to_json())
    assert feature_names(named) == ["age", "kind=a", "kind=b", "kind=c"]
    assert feature_names(with_column(named, BASE.y))[4] == "feature 4"  # a schema of another width is no help


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_poisoned_classes_owners_and_columns_are_shown_short(text: str) -> None:
    """Findings of all three kinds: a class without nodes, an owner of few nodes, a constant column."""
    graph = with_column(healthy(), torch.ones(120))
    owner = (torch.arange(120) > 3).long()
    schema = FeatureSchema(tuple(FeatureRule(f"{text}{number}") for number in range(5)))
    names = (text, f"{text}1", f"{text}2", f"{text}3")
    graph = replace(
        graph,
        num_classes=4,
        label_names=names,
        owner=owner,
        owner_names=(text, f"{text}1"),
        schema=schema.to_json(),
    )
    said = [
        part for finding in check(graph).findings for part in (finding.what, finding.meaning, finding.cure)
    ]
    assert any("without nodes" in part for part in said)
    assert any("owners with fewer" in part for part in said)
    assert any("constant columns" in part for part in said)
    for part in said:
        check_lines(part)
        assert "\n" not in part
        assert len(part) < 200
