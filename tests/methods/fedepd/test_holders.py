"""The classifier's mean over the clients that hold a class: by hand, by its limits, and by sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd import run
from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.holders import average_by_holders, by_holders, column_weights
from fedepd.methods.fedepd.method import FedEPD
from fedepd.methods.steps import average
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.defence import Defence
from fedepd.rounds.guard import Privacy
from fedepd.rounds.sums import class_rows, layout, reply_of, summed, vector_of
from fedepd.runs.experiment import Experiment
from fedepd.types import Reply, TaskInfo, Tensors, same_fields
from toy import assert_same, make_server, run_rounds, toy_clients

INFO = TaskInfo(3, 2, 2, "nodes")
OLD: Tensors = {
    "encoder.weight": torch.zeros(1, 1),
    "classifier.weight": torch.tensor([[7.0, 7.0]]),
    "classifier.bias": torch.tensor([7.0, 7.0]),
}
KNOWN: Tensors = {"prototype.count": torch.tensor([5.0, 5.0])}


def reply(nodes: int, counts: tuple[int, int], value: float) -> Reply:
    """All parameters of the client have one value, but the second column has ten times that."""
    tensors = {
        "encoder.weight": torch.tensor([[value]]),
        "classifier.weight": torch.tensor([[value, 10 * value]]),
        "classifier.bias": torch.tensor([value, 10 * value]),
        "prototype.count": torch.tensor(counts, dtype=torch.float32),
    }
    return Reply(tensors, nodes, max(sum(counts), 1))


REPLIES = {0: reply(32, (4, 0), 1.0), 1: reply(48, (1, 5), 2.0)}
"""Both train on an eighth of their nodes."""


def averaged(share: float, replies: dict[int, Reply], known: Tensors = KNOWN) -> Tensors:
    return average_by_holders(INFO, by_holders(same_fields(OLD), known), OLD, replies, share)


def test_half_of_a_column_is_the_mean_of_its_holders() -> None:
    """FedAvg weighs the clients 32 : 48, holders 4 : 1 in class 0 and 0 : 5 in class 1.

    Class 0: half of 0.4 and 0.6, half of 0.8 and 0.2, so 0.6 * 1 + 0.4 * 2 = 1.4.
    Class 1: half of 0.4 and 0.6, half of 0 and 1, so 0.2 * 10 + 0.8 * 20 = 18.
    The encoder: 0.4 * 1 + 0.6 * 2 = 1.6.
    """
    new = averaged(0.5, REPLIES)
    torch.testing.assert_close(new["classifier.weight"], torch.tensor([[1.4, 18.0]]))
    torch.testing.assert_close(new["classifier.bias"], torch.tensor([1.4, 18.0]))
    torch.testing.assert_close(new["encoder.weight"], torch.tensor([[1.6]]))
    # The weights themselves: s_k (1/2 + 1/2 (n_kc / n_k) / (N_c / N)), with N_c / N = 1/2 for both classes.
    weights = torch.stack([column_weights(INFO, (2.0, 2.0), 0.5, each) for each in REPLIES.values()])
    torch.testing.assert_close(weights, torch.tensor([[48.0, 16.0], [32.0, 64.0]], dtype=torch.float64))


def test_all_of_it_is_the_holders_mean_alone() -> None:
    new = averaged(1.0, REPLIES)
    torch.testing.assert_close(new["classifier.bias"], torch.tensor([0.8 * 1 + 0.2 * 2, 20.0]))


def test_a_class_that_nobody_holds_has_fedavgs_mean_or_stays() -> None:
    """Class 1 has no training node anywhere. With a share of 1 nobody has a say in it."""
    replies = {0: reply(30, (3, 0), 1.0), 1: reply(10, (1, 0), 2.0)}
    known = {**KNOWN, "prototype.count": torch.tensor([4.0, 0.0])}
    torch.testing.assert_close(averaged(0.5, replies, known)["classifier.bias"][1], torch.tensor(12.5))
    assert float(averaged(1.0, replies, known)["classifier.bias"][1]) == 7.0


def test_who_counts_no_class_has_no_say_in_the_classifier() -> None:
    new = averaged(0.5, {0: reply(30, (4, 1), 1.0), 1: reply(1000, (0, 0), 2.0)})
    torch.testing.assert_close(new["classifier.bias"], torch.tensor([1.0, 10.0]))
    assert float(averaged(0.5, {1: reply(1000, (0, 0), 2.0)})["classifier.bias"][0]) == 7.0


def test_before_any_count_it_is_fedavg() -> None:
    known = {"prototype.count": torch.zeros(2)}
    assert_same(averaged(0.5, REPLIES, known), average(INFO, OLD, REPLIES))


def test_sums_hold_numerators_and_denominators_of_each_class() -> None:
    method = FedEPD(holders=0.5, purify=False)
    known = {**OLD, **KNOWN, "prototype.mean": torch.zeros(2, 1)}
    fields = method.reply_fields(make_server(toy_clients(), Backbone(), Training()), known)
    full = {
        k: Reply({**r.tensors, "prototype.sum": torch.zeros(2, 1)}, r.num_nodes, r.num_train)
        for k, r in REPLIES.items()
    }
    parts = layout(method, INFO, fields)
    total = summed([vector_of(method, INFO, fields, r, 2) for r in full.values()])
    everyone = reply_of(fields, parts, total, 1)
    torch.testing.assert_close(everyone.tensors["classifier.bias"], torch.tensor([1.4, 18.0]))
    new = average_by_holders(INFO, fields, OLD, {0: everyone}, 0.5)
    torch.testing.assert_close(new["classifier.weight"], torch.tensor([[1.4, 18.0]]))
    # If a client drops out, what tells of classes is not used, and the classifier stays as it is.
    cut = total.copy()
    cut[cut.size - class_rows(parts) :] = 0
    new = average_by_holders(INFO, fields, OLD, {0: reply_of(fields, parts, cut, 1)}, 0.5)
    torch.testing.assert_close(new["classifier.bias"], OLD["classifier.bias"])
    torch.testing.assert_close(new["encoder.weight"], torch.tensor([[1.6]]))


def test_a_share_of_zero_is_what_was_before_bit_for_bit() -> None:
    clients = toy_clients()
    (ours, _), (before, _) = (run_rounds(m, clients, rounds=3) for m in (FedEPD(holders=0.0), FedEPD()))
    assert_same(ours[-1].tensors, before[-1].tensors)
    some, _ = run_rounds(FedEPD(holders=0.5), clients, rounds=3)
    assert not torch.equal(some[-1].tensors["classifier.bias"], before[-1].tensors["classifier.bias"])
    assert (some[-1].bytes_up, some[-1].bytes_down) == (before[-1].bytes_up, before[-1].bytes_down)


def test_a_run_has_the_identity_that_it_had_before_there_was_the_setting() -> None:
    """The golden values hold the identities of runs from before."""
    ours = Experiment.make("fedepd")
    settings = ours.resolved()
    assert settings["method"]["holders"] == 0.0
    assert ours.config_hash("graph") == Experiment.make("fedepd", holders=0.0).config_hash("graph")
    assert ours.config_hash("graph") != Experiment.make("fedepd", holders=0.5).config_hash("graph")
    assert FedAvg.added == frozenset()


@pytest.mark.parametrize("robust", ["clip", "median", "trimmed", "multi-krum"])
def test_robust_rules_work_with_it(robust: str) -> None:
    """After median and trimmed mean all replies are the same, so the weights do not matter."""
    settings: dict[str, Any] = {"rounds": 3, "clients": 6, "robust": robust, "tolerate": 1}
    half, none = (run("synthetic", "fedepd", **settings, holders=h).tensors for h in (0.5, 0.0))
    assert bool(torch.isfinite(half["classifier.weight"]).all())
    near = torch.allclose(half["classifier.weight"], none["classifier.weight"], atol=1e-6)
    assert near == (robust in ("median", "trimmed"))


def test_the_guard_and_secure_sums_work_with_it() -> None:
    settings: dict[str, Any] = {"rounds": 4, "clients": 4, "holders": 0.5}
    plain, sums, guard, both = (
        run("synthetic", "fedepd", **settings, guard=guard, secure=secure).metrics["global"]["pooled"]
        for guard in (False, True)
        for secure in (False, True)
    )
    assert plain["bacc"] == pytest.approx(sums["bacc"], abs=0.01)
    assert guard["bacc"] > 0.1
    assert both["bacc"] > 0.1
    Privacy(secure=True).check(FedEPD(holders=0.5), Defence(), 3)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_bad_shares_are_refused(share: float) -> None:
    with pytest.raises(BadConfig, match="holders is"):
        FedEPD(holders=share)
