"""What the attacker computes is what the client computed, where it has the same model and edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedepd.privacy.guesses import (
    best_fit,
    embeddings,
    likeness,
    models,
    network_of,
    no_edges,
    trained_on,
    whole_graph,
)
from fedepd.privacy.rows import Row, rows_of
from fedepd.privacy.view import watch
from fedepd.rounds.guard import Privacy
from fedepd.rounds.pooled import EVERYONE
from fedepd.runs.simulation import Simulation
from toy import assert_same

Four = Callable[..., Simulation]


@pytest.mark.parametrize("prune", ["always", "by_vote"])
def test_one_guess_is_the_clients_own_row(four: Four, prune: str) -> None:
    """The only training node of class 2 at client 0 is node 3: its row is what FedEPD sends."""
    view = watch(four(prune=prune), Privacy(), 3)
    seen = view.rounds[-1]
    row = seen.replies[0].tensors["prototype.sum"][2].double()
    guesses = [e[3] for e in embeddings(view, seen, 0, True) if e.shape[1] == row.shape[0]]
    assert min(float((guess - row).norm()) for guess in guesses) < 1e-5 * float(row.norm())


def test_models_at_hand(four: Four) -> None:
    """FedAvg's server has the model it sent and the one that came back. FedProto's has the initial one."""
    view = watch(four("fedavg"), Privacy(), 2)
    sent, back = models(view, view.rounds[-1], 1)
    assert torch.equal(sent["encoder.bias"], view.rounds[-1].messages[1]["encoder.bias"])
    assert not torch.equal(sent["encoder.bias"], back["encoder.bias"])
    view = watch(four("fedproto"), Privacy(), 2)
    (start,) = models(view, view.rounds[-1], 1)
    server = view.simulation.server
    assert_same(start, server.model.initial(server.info, server.seed))


def test_where_networks_differ_the_guess_is_the_clients_own(four: Four) -> None:
    """Before its first step client 1 has its initial weights, of 12 units; client 0 has 4."""
    view = watch(four("fedproto", widths="4-12"), Privacy(), 1)
    server, seen = view.simulation.server, view.rounds[0]
    (start,) = models(view, seen, 1)
    for client, width in ((0, 4), (1, 12)):
        network, params = network_of(view, client, start)
        assert params["encoder.weight"].shape[1] == width
        assert_same(params, network.initial(server.info, server.seed))
    data = view.simulation.clients[1]
    rows = network.encode(params, network.inputs(data.hidden())).double()
    assert any(torch.equal(guess, rows) for guess in embeddings(view, seen, 1, True))
    view = watch(four("fedavg"), Privacy(), 1)
    (sent, _) = models(view, view.rounds[0], 1)
    assert network_of(view, 1, sent) == (view.simulation.server.model, sent)


def test_edges_known_pruned_and_unknown(four: Four) -> None:
    view = watch(four(prune="always"), Privacy(), 1)
    data = view.simulation.clients[1]
    assert no_edges(data).shape == (2, 0)
    kept = trained_on(view, data, view.rounds[0].messages[1])
    assert 0 < kept.shape[1] < whole_graph(data).shape[1]


def test_behind_a_sum_all_nodes_are_candidates(four: Four) -> None:
    view = watch(four(), Privacy(guard=True, secure=True), 1)
    assert {len(e) for e in embeddings(view, view.rounds[0], EVERYONE, False)} == {100}


def test_likeness() -> None:
    """Cosines with (1, 0): 1 for (2, 0), 0.6 for (3, 4), 0 for no row; the same row counts one more."""
    candidates = torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert likeness(torch.tensor([1.0, 0.0]), candidates).tolist() == pytest.approx([1, 0.6, 0, 2])
    # A gradient of one node: what the loss does to each logit, times the node's row (3, 4).
    gradient = torch.outer(torch.tensor([-0.5, 0.2, 0.3]), torch.tensor([3.0, 4.0]))
    assert likeness(gradient, candidates).tolist() == pytest.approx([0.6, 1, 0, 0.6])


def test_the_embedding_that_explains_the_rows_is_kept() -> None:
    right = torch.eye(3, dtype=torch.float64)
    rows = [Row(0, 0, 1, "a", torch.tensor([1.0, 0, 0])), Row(0, 1, 1, "a", torch.tensor([0, 1.0, 0]))]
    odd = Row(0, 0, 1, "b", torch.tensor([1.0, 1.0]))
    wrong = torch.ones(3, 3, dtype=torch.float64)

    def fit(row: Row, candidates: torch.Tensor) -> float:
        return float(likeness(row.value, candidates).max())

    found = best_fit([*rows, odd], [wrong, right], fit)
    assert found is not None
    assert found[0] == "a"
    assert found[1] is right
    assert best_fit([odd], [wrong, right], fit) is None


def test_rows_and_candidates_have_the_same_order(four: Four) -> None:
    view = watch(four(), Privacy(), 1)
    (only,) = [row for row in rows_of(view, view.rounds[0]) if row.nodes == 1]
    assert (only.source, only.label) == (0, 2)
