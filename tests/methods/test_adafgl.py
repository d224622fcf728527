from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.adafgl import ACTIVATIONS, CONFIDENCE, PARTNERS, TOWER, AdaFGL, Outputs, mixed, smoothed
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout
from fedepd.network.sparse import Sparse, adjacency, normalised
from toy import assert_same, make_client, run_rounds, toy_client, toy_clients

LEAN = Backbone(hidden=4)
EVALUATION = Dropout(0.0, 4, None)


def test_without_stage_two_it_is_fedavg_bit_for_bit() -> None:
    mine, exchange = run_rounds(AdaFGL(stage_two=0.0), toy_clients(), model=LEAN)
    theirs, other = run_rounds(FedAvg(), toy_clients(), model=LEAN)
    assert_same(mine[-1].tensors, theirs[-1].tensors)
    for k, participant in exchange.participants.items():
        assert_same(participant.state, other.participants[k].state)


def test_stage_two_sends_nothing_up_and_changes_nothing_at_the_server() -> None:
    """Four rounds: two of FedAvg, then two of training alone."""
    method = AdaFGL()
    rounds, exchange = run_rounds(method, toy_clients(), rounds=4, model=LEAN)
    theirs, _ = run_rounds(FedAvg(), toy_clients(), rounds=2, model=LEAN)
    assert [sum(r.bytes_up.values()) > 0 for r in rounds] == [True, True, False, False]
    for each in rounds[1:]:
        assert_same(each.tensors, theirs[-1].tensors)
    assert not any(model_part(p.state) for p in exchange.participants.values())


@pytest.mark.parametrize(("rounds", "first"), [(1, 1), (2, 2), (3, 3), (4, 3), (100, 51)])
def test_rounds_of_stage_one_are_not_selected(rounds: int, first: int) -> None:
    """Half of the rounds, rounded down, are of stage two. One round alone is FedAvg's."""
    assert AdaFGL().complete_from(rounds) == first


def test_powers_of_the_graph_without_wide_matrices() -> None:
    """[X | Ã X | Ã² X | Ã³ X] times [W_0; W_1; W_2; W_3], against the products one after the other."""
    draws = torch.Generator().manual_seed(0)
    adj = adjacency(torch.tensor([[0, 1, 2, 0], [1, 2, 3, 4]]), 5)
    operator, x = Sparse.of(normalised(adj), symmetric=True), torch.randn(5, 3, generator=draws)
    weights = [torch.randn(3, 2, generator=draws) for _ in range(4)]
    dense, power, expected = operator.matrix.to_dense(), x, torch.zeros(5, 2)
    for weight in weights:
        expected, power = expected + power @ weight, dense @ power
    found = smoothed(torch.cat([x @ weight for weight in weights], dim=1), operator, 3)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def trained(method: AdaFGL, rounds: int = 4, **kind: Any) -> tuple[Any, Any, Any]:
    """A client after the rounds, what the server sends it, and what it keeps."""
    found, exchange = run_rounds(method, [toy_client(**kind)], rounds=rounds, model=LEAN)
    client = make_client(method, toy_client(**kind), LEAN, round=rounds, last_round=rounds)
    return client, found[-1].tensors, exchange.participants[0].state


@pytest.mark.parametrize("sparse", [False, True])
def test_towers_by_the_definition(sparse: bool) -> None:
    """The same towers on X beside its smoothed powers, layer by layer."""
    method = AdaFGL(hops=2)
    client, message, state = trained(method, sparse=sparse)
    params, view = with_prefix(state, TOWER), method._view(client, message)
    out = method.outputs(client, params, view, EVALUATION)
    p = {name[len(TOWER) :]: value for name, value in params.items()}
    x, dense = client.data.graph.x, view.operator.matrix.to_dense()
    x = x.to_dense() if sparse else x
    powers = torch.cat([x, dense @ x, dense @ dense @ x], dim=1)
    blocks = p["first.weight"].chunk(7, dim=1)  # own, then homophilous and smooth of each power

    def prelu(rows: torch.Tensor, name: str) -> torch.Tensor:
        return torch.where(rows > 0, rows, p[f"{name}.slope"] * rows)

    def head(rows: torch.Tensor, name: str) -> torch.Tensor:
        return rows @ p[f"{name}.last.weight"] + p[f"{name}.last.bias"]

    bias = p["first.bias"].chunk(3)
    calm = prelu(powers @ torch.cat(blocks[1::2]) + bias[0], "homophilous")
    own = prelu(x @ blocks[0] + bias[1], "own")
    smooth = prelu(powers @ torch.cat(blocks[2::2]) + bias[2], "smooth")
    torch.testing.assert_close(out.homophilous, head(calm, "homophilous"), rtol=1e-4, atol=1e-5)
    for name, rows, found in (("own", own, out.own), ("smooth", smooth, out.smooth)):
        deep = prelu(rows @ p[f"{name}.second.weight"] + p[f"{name}.second.bias"], f"{name}.second")
        torch.testing.assert_close(found, head(deep, name), rtol=1e-4, atol=1e-5)
    assert {f"{TOWER}{name}.slope" for name in ACTIVATIONS} <= params.keys()


def test_how_branches_are_mixed() -> None:
    """Homophily 1: the mean of the homophilous branch and P̂ alone. 0: the mean of the three others."""
    draws = torch.Generator().manual_seed(0)
    logits = [torch.randn(5, 3, generator=draws) for _ in range(4)]
    out, soft = Outputs(*logits), torch.randn(5, 3, generator=draws).softmax(1)
    assert torch.equal(mixed(out, soft, 1.0), (logits[0].softmax(1) + soft) / 2)
    rest = sum(each.softmax(1) for each in logits[1:]) / 3
    torch.testing.assert_close(mixed(out, soft, 0.0), rest)
    torch.testing.assert_close(mixed(out, soft, 0.25).sum(1), torch.ones(5))
    assert [AdaFGL(mix="switch")._trust(c) for c in (0.89, 0.9)] == [0.0, 1.0]


def test_predictions_are_log_probabilities_and_need_no_label() -> None:
    """The state has what the labels said. A client that knows no label predicts the same."""
    client, message, state = trained(AdaFGL())
    assert 0 <= float(state[CONFIDENCE]) <= 1
    found = AdaFGL().predict(client, {**message, **state})
    torch.testing.assert_close(found.exp().sum(1), torch.ones(len(found)), rtol=1e-4, atol=1e-4)
    blind = make_client(AdaFGL(), toy_client(train=False), LEAN)
    assert torch.equal(AdaFGL().predict(blind, {**message, **state}), found)


def test_an_exported_model_predicts_the_same_without_the_clients_pairs() -> None:
    """They follow from the graph and the global model."""
    client, message, state = trained(AdaFGL())
    whole = {**message, **state}
    exported = AdaFGL().without_labels(whole, torch.zeros(3, dtype=torch.int64))
    assert whole.keys() - exported.keys() == {PARTNERS}
    assert whole[PARTNERS].shape[1] > 0
    assert torch.equal(AdaFGL().predict(client, exported), AdaFGL().predict(client, whole))


def test_a_client_without_training_nodes_keeps_the_global_model() -> None:
    rounds, exchange = run_rounds(AdaFGL(), [toy_client(0), toy_client(1, train=False)], rounds=4, model=LEAN)
    assert exchange.participants[1].state == {}
    client = make_client(AdaFGL(), toy_client(1, train=False), LEAN)
    found = AdaFGL().predict(client, rounds[-1].tensors)
    assert torch.equal(found, LEAN.predict(rounds[-1].tensors, client.prepared.inputs))


def test_it_learns_alone() -> None:
    """In stage two the loss falls, with both forms."""
    for preset in AdaFGL.presets.values():
        rounds, _ = run_rounds(
            AdaFGL(**{**preset, "steps": 5}), [toy_client(nodes=40)], rounds=10, model=Backbone(hidden=8)
        )
        losses = [r.loss for r in rounds[5:]]
        assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    "wrong", [{"stage_two": 1.0}, {"alpha": 2.0}, {"beta": -0.1}, {"kappa": 1.5}, {"steps": 0}, {"hops": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        AdaFGL(**wrong)
