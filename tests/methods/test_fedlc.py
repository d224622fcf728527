from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedlc import FedLC, printed_loss
from fedepd.methods.steps import class_counts
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import assert_same, make_client, relabelled, run_rounds, toy_client, toy_clients


@pytest.mark.parametrize("absent", ["floor1", "clamp"])
@pytest.mark.parametrize("sparse", [False, True])
def test_without_intensity_it_is_fedavg(absent: Any, sparse: bool) -> None:
    """tau = 0: every margin is 0, so losses and gradients are FedAvg's bit for bit."""
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(FedLC(tau=0.0, absent=absent), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(ours[-1].tensors, theirs[-1].tensors)


@pytest.mark.parametrize("tau", [1.0, 7.0])
def test_with_equal_counts_it_is_fedavg(tau: float) -> None:
    """Softmax does not see a shift that all classes share.

    24 nodes, 15 of them training nodes: 5 of each class.
    """
    data = toy_client()
    y = data.graph.y.clone()
    y[data.train_mask] = torch.arange(15) % 3
    data = relabelled(data, y)
    assert class_counts(data).tolist() == [5, 5, 5]
    ours, _ = run_rounds(FedLC(tau=tau), [data])
    theirs, _ = run_rounds(FedAvg(), [data])
    for name, value in theirs[-1].tensors.items():
        torch.testing.assert_close(ours[-1].tensors[name], value, rtol=1e-3, atol=1e-4)


def test_margins_and_loss_by_hand() -> None:
    """Counts (16, 1): 16^(-1/4) = .5, 1^(-1/4) = 1.

    z = (0, 0), y = 1: log(1 + e^{1 - .5}) = 0.9741; as printed, log e^{1 - .5} = .5.
    """
    margin = FedLC(tau=1.0).margins(torch.tensor([16, 1]))
    assert margin.tolist() == [0.5, 1.0]
    z, y = torch.zeros(1, 2), torch.tensor([1])
    assert float(F.cross_entropy(z - margin, y)) == pytest.approx(math.log(1 + math.exp(0.5)), abs=1e-6)
    assert float(F.cross_entropy(z - margin, y)) == pytest.approx(0.9741, abs=1e-4)
    assert float(printed_loss(z - margin, y)) == pytest.approx(0.5, abs=1e-6)


def test_the_client_trains_on_the_calibrated_loss() -> None:
    """One step from given weights, dropout off.

    The reported loss is the mean of -a_y + log Σ e^a with a = z - tau N^(-1/4).
    """
    data = toy_client(one_node_class=True)
    method, model = FedLC(tau=2.0), Backbone(hidden=8, dropout=0.0)
    client = make_client(method, data, model, Training(epochs=1))
    params = model.init(client.info, torch.Generator().manual_seed(1))
    reply, _ = method.client_step(client, params, {})
    z = model.predict(params, client.prepared.inputs)[data.train_mask].to(torch.float64)
    a = z - 2.0 * class_counts(data).to(torch.float64).pow(-0.25)
    y = data.graph.y[data.train_mask]
    expected = (a.logsumexp(1) - a[torch.arange(len(y)), y]).mean()
    assert reply.scalars["loss"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize(("absent", "expected"), [("floor1", 3.0), ("clamp", 300.0), ("mask", math.inf)])
def test_margin_of_an_absent_class(absent: Any, expected: float) -> None:
    """tau = 3: max(1, 0)^(-1/4) = 1; (1e-8)^(-1/4) = 100; masked is infinite."""
    assert float(FedLC(tau=3.0, absent=absent).margins(torch.tensor([4, 0]))[1]) == pytest.approx(
        expected, rel=1e-5
    )


def test_a_clamped_absent_class_leaves_the_softmax() -> None:
    """e^{-100} = 4e-44 beside terms of order 1.

    The loss with the class differs by less than 1e-30 from the loss without it.
    """
    method = FedLC(absent="clamp")
    z, y = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        torch.tensor([0, 1, 0, 1, 0]),
    )
    margin = method.margins(torch.tensor([9, 2, 0])).to(torch.float64)
    with_class = F.cross_entropy(z - margin, y)
    without = F.cross_entropy((z - margin)[:, :2], y)
    assert abs(float(with_class - without)) < 1e-30


@given(
    st.lists(st.integers(0, 500), min_size=2, max_size=8), st.floats(0, 5, width=32, allow_subnormal=False)
)
def test_rarer_classes_have_larger_margins(counts: list[int], tau: float) -> None:
    margin = FedLC(tau=tau).margins(torch.tensor(counts)).tolist()
    assert all(0 <= m <= tau * (1 + 1e-6) for m in margin)
    assert all(
        margin[a] >= margin[b]
        for a in range(len(counts))
        for b in range(len(counts))
        if counts[a] < counts[b]
    )


@given(st.integers(0, 2**31 - 1))
def test_the_printed_loss_has_no_lower_bound(seed: int) -> None:
    """Where the true class leads by g, the printed loss falls for ever.

    It is at most log(C - 1) - s g after scaling by s.
    """
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    y = z.argmax(1)
    top = z.topk(2, dim=1).values
    gap = float((top[:, 0] - top[:, 1]).mean())
    for s in (10.0, 100.0):
        assert float(printed_loss(s * z, y)) <= math.log(3) - s * gap + 1e-2


@pytest.mark.parametrize("preset", FedLC.presets)
def test_presets_run(preset: str) -> None:
    rounds, _ = run_rounds(FedLC(**FedLC.presets[preset]), [toy_client(0, missing_class=True), toy_client(1)])
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "awkward", [{"train": False}, {"edges": False}, {"missing_class": True}, {"one_node_class": True}]
)
@pytest.mark.parametrize("absent", ["floor1", "mask"])
def test_awkward_clients(awkward: dict[str, Any], sparse: bool, absent: Any) -> None:
    clients = [
        toy_client(0, sparse=sparse, **awkward),
        toy_client(1, sparse=sparse),
        toy_client(2, sparse=sparse, missing_class=True),
    ]
    rounds, _ = run_rounds(FedLC(absent=absent), clients, training=Training(participation=0.67))
    assert not rounds[-1].refused
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


@pytest.mark.parametrize(
    "model", [Backbone(dropout=0.0, backbone="sage"), Backbone(dropout=0.0, head="linear")]
)
def test_it_learns_with_every_backbone(model: Backbone) -> None:
    """Without the toy's random edges, which hide the classes."""
    rounds, _ = run_rounds(FedLC(), toy_clients(edges=False), rounds=12, model=model)
    assert rounds[-1].loss < 0.5 * rounds[0].loss


def test_margins_are_local_and_never_sent() -> None:
    rounds, _ = run_rounds(FedLC(), toy_clients(), rounds=1)
    sent = {name: 3 * value.nbytes for name, value in rounds[-1].tensors.items()}
    assert rounds[-1].bytes_up == sent == rounds[-1].bytes_down
    assert set(sent) == {"encoder.weight", "encoder.bias", "classifier.weight", "classifier.bias"}


def test_hidden_labels_play_no_part() -> None:
    data = toy_client()
    other = relabelled(data, torch.where(data.train_mask, data.graph.y, (data.graph.y + 1) % 3))
    clients = [replace(data, client_id=0)]
    assert_same(run_rounds(FedLC(), clients)[0][-1].tensors, run_rounds(FedLC(), [other])[0][-1].tensors)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadConfig, match="tau is -1"):
        FedLC(tau=-1)
    with pytest.raises(BadConfig, match="floor1 or clamp"):
        FedLC(form="paper", absent="mask")
