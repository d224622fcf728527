from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedpub import (
    DENSE,
    ENTRIES,
    GRAPHS,
    NODES,
    FedPUB,
    effective,
    open_masks,
    penalties,
    random_graph,
    sharing,
    through_masks,
)
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import to_scipy
from fedepd.network.training import Gradient, Training, descend
from fedepd.types import ClientData, Graph, Reply, Tensors
from toy import (
    assert_near,
    assert_same,
    initial,
    make_client,
    make_server,
    run_rounds,
    toy_client,
    toy_clients,
)

PLAIN: dict[str, Any] = {"masks": False, "proximal": 0.0, "tau": 0.0}
LEAN = Backbone(hidden=4)


def answers(*embeddings: list[float], train: int = 1) -> dict[int, Reply]:
    return {k: Reply({"function": torch.tensor(e)}, 1, train) for k, e in enumerate(embeddings)}


@pytest.mark.parametrize(
    ("embeddings", "tau", "row"),
    [
        # exp(3) / (exp(3) + 1), exp(10) / (exp(10) + 1); opposite: exp(3) / (exp(3) + exp(-3))
        (([1.0, 0.0], [0.0, 1.0]), 3.0, [0.952574, 0.047426]),
        (([1.0, 0.0], [0.0, 1.0]), 10.0, [0.999955, 0.000045]),
        (([1.0, 0.0], [-1.0, 0.0]), 3.0, [0.997527, 0.002473]),
        # 0, 45 and 90 degrees: exp(10), exp(7.0711), exp(0) over their sum
        (([2.0, 0.0], [3.0, 3.0], [0.0, 1.0]), 10.0, [0.94922, 0.05074, 0.00004]),
        (([2.0, 0.0], [3.0, 3.0], [0.0, 1.0]), 0.0, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_who_shares(embeddings: tuple[list[float], ...], tau: float, row: list[float]) -> None:
    weights = sharing(answers(*embeddings), tau)
    assert weights[0].tolist() == pytest.approx(row, abs=5e-6)
    assert weights.sum(1).tolist() == pytest.approx([1.0] * len(embeddings))


def test_who_has_no_say() -> None:
    """A client without training nodes receives but is not heard. If nobody has any, all keep their own."""
    replies = answers([1.0, 0.0], [1.0, 0.0]) | {2: Reply({"function": torch.tensor([1.0, 0.0])}, 1, 0)}
    assert torch.equal(sharing(replies, 5.0), torch.tensor([[0.5, 0.5, 0.0]] * 3, dtype=torch.float64))
    assert torch.equal(
        sharing(answers([0.0, 0.0], [1.0, 0.0], train=0), 5.0), torch.eye(2, dtype=torch.float64)
    )


def test_one_client_without_masks_is_fedavg_bit_for_bit() -> None:
    """Its own average is its own model, times 1."""
    mine, _ = run_rounds(FedPUB(**PLAIN), [toy_client()], model=LEAN)
    theirs, _ = run_rounds(FedAvg(), [toy_client()], model=LEAN)
    assert_same(FedPUB().message(mine[-1].tensors, 0), theirs[-1].tensors)


def test_equal_weights_and_sizes_are_fedavg() -> None:
    """tau = 0: every row is 1 / K. Clients of equal size weigh 1 / K in FedAvg."""
    clients = [toy_client(k) for k in range(3)]
    mine, exchange = run_rounds(FedPUB(**PLAIN), clients, model=LEAN)
    theirs, other = run_rounds(FedAvg(), clients, model=LEAN)
    for k in range(3):
        assert_near(FedPUB().message(mine[-1].tensors, k), theirs[-1].tensors)
        assert_near(exchange.participants[k].state, other.participants[k].state)


def test_without_masks_a_first_round_is_fedavgs_bit_for_bit() -> None:
    """In round 1 there is no received average to stay near to."""
    method, data = FedPUB(masks=False), toy_client()
    start = initial(method, make_server([data], LEAN, Training()))
    mine, _ = method.client_step(make_client(method, data, LEAN), start, {})
    theirs, _ = FedAvg().client_step(make_client(FedAvg(), data, LEAN), start, {})
    assert_same(model_part(mine.tensors), theirs.tensors)


def test_open_masks_change_no_bit_of_the_network() -> None:
    start = LEAN.init(make_server([toy_client()], LEAN, Training()).info, torch.Generator().manual_seed(0))
    assert_same(effective({**start, **open_masks(start)}, 1e-3), start)
    assert open_masks(start).keys() == {"mask.encoder.weight", "mask.classifier.weight"}


def test_small_entries_are_cut_in_evaluation_alone() -> None:
    weight, mask = torch.full((1, 3), 2.0), torch.tensor([[0.0005, -0.0005, 0.5]])
    tensors = {"encoder.weight": weight, "mask.encoder.weight": mask}
    assert effective(tensors, 1e-3)["encoder.weight"].tolist() == [[0.0, 0.0, 1.0]]
    torch.testing.assert_close(effective(tensors)["encoder.weight"], torch.tensor([[0.001, -0.001, 1.0]]))


def test_one_step_of_the_masks_penalty() -> None:
    """SGD, rate .1, no gradient of the loss, λ1 = .01: M = (1, -2) moves by .1 · .01 to 0."""
    params = {"mask.w": torch.tensor([1.0, -2.0])}
    how = Training(optimizer="sgd", lr=0.1, weight_decay=0.0)
    moved, _, _ = descend(params, ["mask.w"], Gradient(lambda p: penalties(p, {}, 0.01, 1.0)), 1, how, {})
    torch.testing.assert_close(moved["mask.w"], torch.tensor([0.999, -1.999]))


def test_nothing_pulls_at_the_received_model_itself() -> None:
    same = {"encoder.weight": torch.ones(2, 2)}
    assert penalties(same, same, 0.0, 1.0) == (0.0, {})


def test_gradients_are_autograds() -> None:
    """L = CE(W∘M) + λ1 |M| + λ2 |W - W̄|, and decay W in the gradient of W alone."""
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(7, 4, generator=draws), torch.randint(3, (7,), generator=draws)
    names = {"classifier.weight": (4, 3), "classifier.bias": (3,), "mask.classifier.weight": (4, 3)}
    params = {name: torch.randn(shape, generator=draws).requires_grad_() for name, shape in names.items()}
    received = {name: torch.randn(names[name], generator=draws) for name in list(names)[:2]}

    def cross_entropy(net: Tensors) -> torch.Tensor:
        return F.cross_entropy(x @ net["classifier.weight"] + net["classifier.bias"], y)

    loss = cross_entropy(effective(params)) + 0.02 * params["mask.classifier.weight"].abs().sum()
    loss = loss + 0.3 * sum((params[name] - old).norm() for name, old in received.items())
    penalty = sum(0.05 / 2 * params[name].square().sum() for name in received)
    wanted = torch.autograd.grad(loss + penalty, list(params.values()))
    fixed = {name: value.detach() for name, value in params.items()}
    leaves = {name: value.detach().requires_grad_() for name, value in effective(fixed).items()}
    plain = cross_entropy(leaves)
    by_effective = dict(zip(leaves, torch.autograd.grad(plain, list(leaves.values())), strict=True))
    cost, added = penalties(fixed, received, 0.02, 0.3)
    assert float(plain.detach()) + cost == pytest.approx(float(loss.detach()), rel=1e-5)
    found = through_masks(fixed, by_effective, added, decay=0.05)
    for name, value in zip(params, wanted, strict=True):
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_masks_stay_at_home_and_move() -> None:
    rounds, exchange = run_rounds(FedPUB(), toy_clients(), model=LEAN)
    assert not any(name.startswith("mask") for name in [*rounds[-1].bytes_up, *rounds[-1].bytes_down])
    for participant in exchange.participants.values():
        for mask in with_prefix(participant.state, "mask.").values():
            assert 0 < float((mask - 1).abs().max()) < 0.5


def test_without_training_nodes_masks_stay_open() -> None:
    _, exchange = run_rounds(FedPUB(), [toy_client(0), toy_client(1, train=False)], model=LEAN)
    masks = with_prefix(exchange.participants[1].state, "mask.")
    assert masks
    assert all(bool((mask == 1).all()) for mask in masks.values())


@pytest.mark.parametrize("columns", [6, DENSE + 1])
def test_the_random_graph(columns: int) -> None:
    """Five parts without edges between them; about 4950 · .1 edges each; features of variance 1.

    Of 1,001 columns 256 are not 0, scaled by sqrt(1001 / 256).
    """
    graph = Graph.make(torch.ones(3, columns), torch.tensor([[0], [1]]), torch.tensor([0, 1, 1]))
    first, second, third = torch.eye(3, dtype=torch.bool)
    data = ClientData(0, graph, first, second, third, torch.arange(3))
    found = random_graph(make_client(FedPUB(), data, Backbone("mlp", hidden=2)))
    operator = to_scipy(found.operator.matrix).tocoo()
    assert operator.shape == (GRAPHS * NODES,) * 2
    assert bool((operator.row // NODES == operator.col // NODES).all())
    edges = (operator.nnz - GRAPHS * NODES) / 2
    assert 4950 * 0.1 * GRAPHS - 250 < edges < 4950 * 0.1 * GRAPHS + 250
    x = found.features if isinstance(found.features, torch.Tensor) else found.features.matrix.to_dense()
    assert x.shape == (GRAPHS * NODES, columns)
    assert float(x.square().mean()) == pytest.approx(1.0, abs=0.1)
    assert int((x != 0).sum(1).max()) == min(columns, ENTRIES if columns > DENSE else columns)


def test_all_clients_of_a_run_have_the_same_random_graph() -> None:
    first, second = (make_client(FedPUB(), data, LEAN) for data in toy_clients(2))
    assert random_graph(first) is random_graph(second)
    other = make_client(FedPUB(), toy_client(), LEAN, seed=1)
    assert not torch.equal(random_graph(first).features, random_graph(other).features)  # type: ignore[arg-type]


def test_a_new_client_gets_the_common_average() -> None:
    """Half of two clients take part: who has no average of its own yet is sent FedAvg's mean."""
    training = Training(participation=0.5)
    rounds, _ = run_rounds(FedPUB(), toy_clients(2), rounds=1, model=LEAN, training=training)
    present = rounds[0].clients[0]
    sent = [FedPUB().message(rounds[0].tensors, k) for k in (present, 1 - present)]
    assert_same(*sent)


@pytest.mark.parametrize("preset", FedPUB.presets)
def test_awkward_federations(preset: str) -> None:
    kinds: list[dict[str, Any]] = [{"train": False}, {"edges": False}, {"missing_class": True}]
    clients = [toy_client(k, sparse=True, **kind) for k, kind in enumerate(kinds)]
    rounds, _ = run_rounds(FedPUB(**FedPUB.presets[preset]), clients, model=LEAN)
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())
    assert not any(r.refused for r in rounds)


@pytest.mark.parametrize("wrong", [{"tau": -1.0}, {"sparsity": -1.0}, {"proximal": float("inf")}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        FedPUB(**wrong)
