from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedtgp import FedTGP, adaptive_margin, initial_maker, made, separation
from fedepd.methods.isolated import Isolated
from fedepd.methods.steps import with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Reply, Tensors
from toy import assert_same, initial, make_server, run_rounds, toy_client, toy_clients

NARROW = Backbone(hidden=2)
ROWS, CLASSES = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 9.0]]), torch.tensor([0, 1, 2])


def test_without_the_penalty_it_is_isolated_training() -> None:
    _, mine = run_rounds(FedTGP(lam=0.0), toy_clients())
    _, alone = run_rounds(Isolated(), toy_clients())
    for k in range(3):
        assert_same(mine.participants[k].state, alone.participants[k].state)


def test_the_margin_by_hand() -> None:
    """Distances: 0-1 is 5, 0-2 is 9, 1-2 is √(9 + 25) = 5.83. The next classes are 5, 5 and 5.83 away; the
    largest is the margin. A second row of class 2 at (0, 7) makes its mean (0, 8): 1-2 is 5."""
    assert adaptive_margin(ROWS, CLASSES, 100.0) == pytest.approx(math.sqrt(34))
    assert adaptive_margin(ROWS, CLASSES, 2.0) == 2.0
    more, classes = torch.cat([ROWS, torch.tensor([[0.0, 7.0]])]), torch.tensor([0, 1, 2, 2])
    assert adaptive_margin(more, classes, 100.0) == pytest.approx(5.0)
    assert adaptive_margin(ROWS[:1], CLASSES[:1], 100.0) == 100.0


def test_the_servers_loss_by_hand() -> None:
    """A row of class 0 on its prototype, the other 5 away: -log(e^0 / (e^0 + e^-5)).

    With a margin of 5 both are 5 away: log 2. With 7 it is log(1 + e^2).
    """
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    for margin, expected in ((0, math.log(1 + math.exp(-5))), (5, math.log(2)), (7, math.log(1 + math.e**2))):
        found = separation(prototypes, ROWS[:1], CLASSES[:1], margin)
        assert float(found) == pytest.approx(expected, abs=1e-6)


def test_a_row_on_its_prototype_has_a_finite_gradient() -> None:
    prototypes = ROWS.clone().requires_grad_()
    (grad,) = torch.autograd.grad(separation(prototypes, ROWS, CLASSES, 1.0), prototypes)
    assert bool(grad.isfinite().all())


def replies(rows: list[Tensors]) -> dict[int, Reply]:
    return {k: Reply(each, 9, int(each["prototype.count"].sum())) for k, each in enumerate(rows)}


def counted(*counts: float) -> Tensors:
    return {"prototype.count": torch.tensor(counts)}


def test_training_at_the_server_separates_classes_and_keeps_what_nobody_has() -> None:
    server = make_server(toy_clients(), Backbone(hidden=8), Training())
    held, unit = initial(FedTGP(), server), torch.eye(8)
    nobody = torch.zeros(3, 8)
    both = {"prototype.mean": torch.stack([unit[0], unit[1], nobody[2]])}
    one = {"prototype.mean": torch.stack([1.2 * unit[0], nobody[1], nobody[2]])}
    told = replies([both | counted(4, 2, 0), one | counted(3, 0, 0)])
    rows, classes = torch.stack([unit[0], unit[1], 1.2 * unit[0]]), torch.tensor([0, 1, 0])
    before = float(separation(made(held), rows, classes, 1.4))
    after = FedTGP(server_lr=0.2, server_epochs=300).server_step(server, held, told)
    assert float(separation(after["prototype.mean"], rows, classes, 1.4)) < 0.5 * before
    assert after["prototype.count"].tolist() == [7.0, 2.0, 0.0]
    assert torch.cdist(rows, after["prototype.mean"])[:, :2].argmin(1).tolist() == [0, 1, 0]
    nothing = FedTGP().server_step(server, after, replies([{"prototype.mean": nobody} | counted(0, 0, 0)]))
    assert_same(nothing, after)


def test_the_maker_stays_at_the_server_and_depends_on_the_seed() -> None:
    server = make_server(toy_clients(), NARROW, Training())
    held = initial(FedTGP(), server)
    assert FedTGP().message(held, 0).keys() == {"prototype.mean", "prototype.count"}
    other = initial_maker(make_server(toy_clients(), NARROW, Training(), seed=1))
    assert not torch.equal(other["maker.rows"], held["maker.rows"])
    assert float(held["maker.first.weight"].abs().max()) <= 2**-0.5
    assert len(with_prefix(held, "maker.")) == 5


@pytest.mark.parametrize("predict_by", ["logits", "prototypes"])
def test_both_ways_to_predict(predict_by: Any) -> None:
    """By prototypes: the nearest of all known classes, also of one that the client lacks."""
    clients = [toy_client(0, missing_class=True), toy_client(1)]
    rounds, exchange = run_rounds(FedTGP(predict_by=predict_by), clients)
    site, model = exchange.participants[0], Backbone(hidden=8)
    logits, client = site.predictions(3, rounds[-1].tensors)["personal"], site._client(3)
    hidden = model.encode(site.state, client.prepared.inputs)
    if predict_by == "prototypes":
        expected = torch.cdist(hidden, rounds[-1].tensors["prototype.mean"]).argmin(1)
    else:
        expected = model.predict(site.state, client.prepared.inputs).argmax(1)
    assert torch.equal(logits.argmax(1), expected)


@pytest.mark.parametrize(
    "settings", [{"lam": -1.0}, {"margin": float("nan")}, {"server_epochs": -1}, {"server_lr": 0.0}]
)
def test_bad_settings_are_refused(settings: Any) -> None:
    with pytest.raises(BadConfig, match=f"{next(iter(settings))} is"):
        FedTGP(**settings)
