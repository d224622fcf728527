"""FedEPD as a whole: FedAvg when its parts are off, its stages, its predictions, its settings.

Checks 1 and 6 are those of docs/reading-the-paper.md. The equations are in test_equations.py and
test_purify.py.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods import make_method
from fedepd.methods.base import Client
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.method import PAPER, FedEPD
from fedepd.methods.fedepd.purify import purified_edges
from fedepd.methods.fedepd.structure import Graphs, Prepared
from fedepd.methods.fedepd.vote import counted_votes
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import ClientData, Reply, Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

OFF: dict[str, Any] = {"purify": False, "consensus": False, "recalibrate": False}


def messages(method: FedEPD, data: ClientData, seed: int = 0) -> Tensors:
    """The server's first tensors, with a prototype for each class."""
    tensors = initial(method, make_server([data], Backbone(hidden=8), Training(), seed))
    if method.uses_prototypes:
        classes, hidden = tensors["prototype.mean"].shape
        tensors = {
            **tensors,
            "prototype.mean": torch.rand(classes, hidden, generator=torch.Generator().manual_seed(seed)),
        }
        tensors["prototype.count"] = torch.ones(classes)
    return tensors


def on_graph(method: FedEPD, client: Client[Graphs], tensors: Tensors) -> Prepared:
    return client.prepared.on(method.prunes(tensors))


# Check 1: without its three parts it is FedAvg


@pytest.mark.parametrize(
    "training", [Training(), Training(participation=0.5), Training(optimizer="sgd", weighting="train")]
)
def test_everything_off_is_fedavg_bit_for_bit(training: Training) -> None:
    clients = toy_clients()
    (ours, ours_at), (theirs, theirs_at) = (
        run_rounds(m, clients, rounds=4, training=training) for m in (FedEPD(**OFF), FedAvg())
    )
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a.tensors, b.tensors)
        assert (a.loss, a.bytes_up, a.bytes_down) == (b.loss, b.bytes_up, b.bytes_down)
    for k in ours_at.participants:
        assert_same(ours_at.participants[k].state, theirs_at.participants[k].state)


def test_no_pruning_and_no_calibration_steps_is_fedavg_bit_for_bit() -> None:
    clients = toy_clients()
    ours, _ = run_rounds(FedEPD(mu=0.0, purify=False, calibration_epochs=0), clients, rounds=4)
    theirs, _ = run_rounds(FedAvg(), clients, rounds=4)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)


def test_each_part_alone_changes_the_result() -> None:
    """Without margin, so that it is calibration that tells; consensus is held against calibration alone."""
    clients = toy_clients()

    def weights(*parts: str) -> Tensor:
        method = FedEPD(**{**OFF, **dict.fromkeys(parts, True)}, prune="always", mu=0.0)
        return run_rounds(method, clients, rounds=2)[0][-1].tensors["classifier.weight"]

    plain, calibrated = weights(), weights("recalibrate")
    assert not torch.equal(weights("purify"), plain)
    assert not torch.equal(calibrated, plain)
    assert not torch.equal(weights("recalibrate", "consensus"), calibrated)


def test_without_recalibration_consensus_changes_nothing_and_sends_nothing() -> None:
    """Injection lives inside calibration (docs/reading-the-paper.md, ablation)."""
    clients = toy_clients()
    (a, _), (b, _) = (
        run_rounds(FedEPD(recalibrate=False, consensus=on), clients, rounds=2) for on in (True, False)
    )
    assert_same(a[-1].tensors, b[-1].tensors)
    assert a[-1].bytes_up == b[-1].bytes_up


# Prototypes, Eq. 7


def test_prototypes_are_sums_over_elites_of_the_encoder_asked_for_in_evaluation_mode() -> None:
    """Prototypes of the received encoder, or of the local one after its steps.

    For rehearsal they are taken where the classifier reads (docs/reading-the-paper.md, prototype encoder).
    """
    data = toy_client()
    for setting, use in itertools.product(("local", "received"), ("rehearsal", "injection")):
        method = FedEPD(rho=0.5, prototype_encoder=setting, consensus_by=use)  # type: ignore[arg-type]
        client = make_client(method, data, round=2)
        message = messages(method, data)
        reply, _ = method.client_step(client, message, {})
        encoder = reply.tensors if setting == "local" else message
        prepared = on_graph(method, client, message)
        h = client.model.encode(encoder, prepared.inputs)
        h = client.model.smooth(encoder, h, prepared.inputs) if use == "rehearsal" else h
        for c in range(3):
            chosen = prepared.elites[prepared.elite_classes == c]
            torch.testing.assert_close(reply.tensors["prototype.sum"][c], h[chosen].sum(0))
            assert reply.tensors["prototype.count"][c] == chosen.shape[0] > 0


def test_the_default_asks_for_the_averaged_encoder_and_the_paper_for_the_local_one() -> None:
    encoders = {name: FedEPD(**settings).prototype_encoder for name, settings in FedEPD.presets.items()}
    assert {name for name, encoder in encoders.items() if encoder == "local"} == {"printed", "corrected"}


def test_a_class_nobody_has_never_gets_a_prototype() -> None:
    rounds, _ = run_rounds(FedEPD(), toy_clients(missing_class=True), rounds=3)
    assert rounds[-1].tensors["prototype.count"][2] == 0
    assert bool((rounds[-1].tensors["prototype.count"][:2] > 0).all())


# Predictions


@pytest.mark.parametrize("sign", ["minus", "plus"])
def test_the_margin_moves_no_prediction(sign: Any) -> None:
    """It is in losses alone, so that a graph without training labels is classified in the same way."""
    method = FedEPD(sign=sign)
    data = toy_client(one_node_class=True)
    client, message = make_client(method, data), messages(method, data)
    raw = client.model.predict(message, on_graph(method, client, message).inputs)
    assert float(on_graph(method, client, message).margin.own.max()) > 0.1
    assert torch.equal(method.predict(client, message), raw)


def test_the_minus_sign_helps_rare_classes_and_the_plus_sign_hurts_them() -> None:
    """Stationarity makes z ∓ Δ the log posterior (docs/reading-the-paper.md, margin sign).

    So at inference the rare class is raised by minus and lowered by plus.
    """
    shares = {}
    for sign in ("minus", "plus"):
        method = FedEPD(sign=sign, mu=3.0, gate="constant", consensus=False, calibration_epochs=20)
        client = make_client(method, toy_client(one_node_class=True), round=2, training=Training(lr=0.1))
        reply, _ = method.client_step(client, messages(method, client.data), {})
        shares[sign] = float(method.predict(client, reply.tensors).softmax(1)[:, 2].mean())
    assert shares["minus"] > 2 * shares["plus"]


@pytest.mark.parametrize("margin_in", ["both", "calibration"])
def test_the_margin_is_in_the_base_loss_where_it_is_asked_for(margin_in: Any) -> None:
    """One SGD step of rate 1 without decay and dropout.

    What changed is minus the gradient of CE(z - Δ), or of CE(z).
    """
    data, model = toy_client(one_node_class=True), Backbone(hidden=8, dropout=0.0)
    training = Training(optimizer="sgd", lr=1.0, weight_decay=0.0, epochs=1)
    method = FedEPD(margin_in=margin_in, calibration_epochs=0, common_counts=0.0)
    client, message = make_client(method, data, model, training), messages(method, data)
    reply, _ = method.client_step(client, message, {})
    prepared = on_graph(method, client, message)
    params = {name: value.clone().requires_grad_() for name, value in model_part(message).items()}
    logits = model.logits(params, model.encode(params, prepared.inputs), prepared.inputs, train_only=True)
    loss = F.cross_entropy(logits - prepared.margin.own * (margin_in == "both"), prepared.inputs.labels)
    assert float(prepared.margin.own.max()) > 0.1
    for (name, value), gradient in zip(
        params.items(), torch.autograd.grad(loss, list(params.values())), strict=True
    ):
        torch.testing.assert_close(reply.tensors[name], value.detach() - gradient)


# Algorithm 2: stages. Check 6


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("head", ["gcn", "linear"])
def test_the_encoder_is_bit_identical_before_and_after_calibration(optimizer: Any, head: Any) -> None:
    data, model, training = toy_client(), Backbone(hidden=8, head=head), Training(optimizer=optimizer)
    results = {}
    for steps in (0, 3):
        method = FedEPD(calibration_epochs=steps)
        tensors = initial(method, make_server([data], model, training))
        tensors = {**tensors, "prototype.mean": torch.ones(3, 8), "prototype.count": torch.ones(3)}
        reply, results[steps] = method.client_step(
            make_client(method, data, model, training, round=2), tensors, {}
        )
        assert_same(model_part(reply.tensors), model_part(results[steps]))
    assert_same(with_prefix(results[0], "encoder."), with_prefix(results[3], "encoder."))
    assert not torch.equal(results[0]["classifier.weight"], results[3]["classifier.weight"])
    assert not any("encoder" in name for name in with_prefix(results[3], "calibration."))


@pytest.mark.parametrize("consensus", [True, False])
def test_round_one_does_not_calibrate(consensus: bool) -> None:
    data = toy_client()
    method = FedEPD(consensus=consensus)
    plain = FedEPD(consensus=consensus, calibration_epochs=0)
    for number, same in ((1, True), (2, False)):
        replies = [
            m.client_step(make_client(m, data, round=number), messages(m, data), {})[0].tensors
            for m in (method, plain)
        ]
        assert torch.equal(replies[0]["classifier.weight"], replies[1]["classifier.weight"]) == same


def test_prototypes_reach_the_classifier_through_calibration() -> None:
    data, method = toy_client(), FedEPD()
    replies = [
        method.client_step(make_client(method, data, round=2), messages(method, data), {})[0].tensors
        for _ in range(2)
    ]
    moved = {**messages(method, data), "prototype.mean": torch.full((3, 8), 5.0)}
    other = method.client_step(make_client(method, data, round=2), moved, {})[0].tensors
    assert_same(replies[0], replies[1])
    assert torch.equal(replies[0]["encoder.weight"], other["encoder.weight"])
    assert not torch.equal(replies[0]["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("calibration", [0, 1, 5])
def test_both_stages_take_their_steps_and_the_base_loss_is_reported(calibration: int) -> None:
    data, method = toy_client(), FedEPD(calibration_epochs=calibration)
    reply, state = method.client_step(make_client(method, data, round=2), messages(method, data), {})
    assert state["fit.moments.step"] == 3
    assert state.get("calibration.moments.step", torch.tensor(0.0)) == calibration
    assert reply.scalars["loss"] > 0


# Settings


def test_the_printed_preset() -> None:
    printed = make_method("fedepd", "printed")
    assert isinstance(printed, FedEPD)
    assert (printed.sign, printed.absent, printed.isolated_gate) == ("plus", "eps", 0.0)
    assert (printed.rho, printed.teleport, printed.walk_steps, printed.calibration_epochs) == (
        0.1,
        0.15,
        10,
        3,
    )
    assert (printed.consensus_by, printed.prune, printed.gate, printed.margin_in) == (
        "injection",
        "always",
        "labelled",
        "calibration",
    )
    assert replace(printed, sign="minus", absent="exclude", isolated_gate=0.5) == make_method(
        "fedepd", "corrected"
    )


@pytest.mark.parametrize(
    ("votes", "pruned"), [([0.0, 0.0], False), ([5.0, 5.0], False), ([4.0, 5.0], False), ([6.0, 5.0], True)]
)
def test_pruning_by_vote(votes: list[float], pruned: bool) -> None:
    """The vote decides which graph is trained and predicted on; a tie prunes nothing."""
    data, method = toy_client(nodes=30), FedEPD()
    client, message = (
        make_client(method, data),
        {**messages(method, data), "pruning.votes": torch.tensor(votes)},
    )
    chosen = method.training_edges(data, client.prepared, message)
    assert torch.equal(chosen, purified_edges(data.graph) if pruned else data.graph.edge_index)
    expected = client.model.predict(message, client.model.inputs(data, chosen))
    assert torch.equal(method.predict(client, message), expected)


def test_votes_are_sent_until_there_are_some_and_counted_once() -> None:
    rounds, exchange = run_rounds(FedEPD(), toy_clients(), rounds=2)
    votes = [p._prepared.votes() for p in exchange.participants.values()]
    assert rounds[0].bytes_up["pruning.votes"] == 8 * len(votes)
    assert "pruning.votes" not in rounds[1].bytes_up
    for each in rounds:
        assert torch.equal(each.tensors["pruning.votes"], torch.stack(votes).sum(0))


def test_no_client_has_more_votes_than_training_nodes() -> None:
    replies = {
        0: Reply({"pruning.votes": torch.tensor([1e6, -3.0])}, 9, 7),
        1: Reply({"pruning.votes": torch.tensor([1.0, 2.0])}, 9, 5),
    }
    assert counted_votes(torch.zeros(2), replies).tolist() == [8.0, 2.0]
    assert counted_votes(torch.tensor([3.0, 0.0]), replies).tolist() == [3.0, 0.0]


def test_rehearsal_reads_no_hidden_label() -> None:
    with pytest.raises(BadConfig, match="elites"):
        FedEPD(elites="any")
    assert FedEPD(**{**PAPER, "elites": "any"}).elites == "any"


def test_moments_that_are_not_kept_across_rounds_are_kept_between_the_steps_of_one() -> None:
    """From an empty state, one round is the same whether moments are dropped at its end or not.

    The second round is not.
    """
    both = [
        run_rounds(FedEPD(), toy_clients(2), 2, training=Training(keep_moments=keep))
        for keep in (True, False)
    ]
    assert_same(both[0][0][0].tensors, both[1][0][0].tensors)
    assert not torch.equal(*(rounds[1].tensors["encoder.weight"] for rounds, _ in both))
    assert not [name for p in both[1][1].participants.values() for name in p.state if ".moments." in name]


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 0.0}, {"gamma": 1.0}, {"gamma": -0.5}, {"gamma": math.nan}, {"rho": 0.0}, {"rho": 1.5},
        {"mu": -0.1}, {"mu": math.nan}, {"mu": math.inf}, {"teleport": 0.0}, {"teleport": 1.1},
        {"walk_steps": -1}, {"calibration_epochs": -1}, {"isolated_gate": -0.1}, {"isolated_gate": 1.5},
        {"rehearsal_prior": -0.1}, {"rehearsal_prior": 2.0},
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(setting))):
        FedEPD(**setting)


@pytest.mark.parametrize(
    "setting",
    [{"rho": 1.0}, {"mu": 0.0}, {"teleport": 1.0}, {"walk_steps": 0}, {"isolated_gate": 1.0}],
    ids=str,
)
def test_limits_that_are_allowed(setting: dict[str, Any]) -> None:
    """On the paper's parts, which use them all."""
    rounds, _ = run_rounds(FedEPD(**{**PAPER, **setting}), toy_clients(), rounds=2)
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())
