"""Clients whose own layers have different widths, and who exchange prototypes of one width."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.alone import Alone
from fedepd.methods.base import Method
from fedepd.methods.fedproto import FedProto
from fedepd.methods.fedtgp import FedTGP
from fedepd.methods.isolated import Isolated
from fedepd.methods.parts.widths import check_widths, own_network, own_widths
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.own_width import COMMON, OwnWidth
from fedepd.network.training import Training
from fedepd.types import TaskInfo
from toy import CLASSES, FEATURES, assert_same, initial, make_server, run_rounds, toy_clients

MODEL = Backbone(hidden=8)
BOTH = pytest.mark.parametrize("method", [FedProto, FedTGP])


def test_the_setting() -> None:
    assert own_widths("equal") == ()
    assert own_widths("16-32-64") == (16, 32, 64)
    assert own_widths("4") == (4,)


@BOTH
@pytest.mark.parametrize(
    "widths", ["", "0", "16-", "16,32", "-16", "1e3", "٣", "16\n", "123456", "-".join(["8"] * 101)]
)
def test_what_is_no_list_of_widths_is_refused(method: Any, widths: str) -> None:
    with pytest.raises(BadConfig, match=r"^widths is '[^\n]*'; give whole numbers"):
        method(widths=widths)


def test_widths_are_dealt_in_turn() -> None:
    """Client 3 of 2 widths has the second one; its own model decides, wherever it is used."""
    found = [own_network("4-12", MODEL, k, {}) for k in range(4)]
    assert [each.widest for each in found] == [8, 12, 8, 12]
    assert found == [OwnWidth.of(MODEL, 4), OwnWidth.of(MODEL, 12)] * 2
    model = found[1].initial(TaskInfo(FEATURES, CLASSES, 4), 0)
    assert own_network("4-12", MODEL, 0, model) == found[1]
    assert own_network("equal", MODEL, 3, {}) is MODEL
    for other in (torch.zeros(5, 8), torch.zeros(4), torch.tensor(4.0)):
        with pytest.raises(BadConfig, match="which does not fit widths = 4-12"):
            own_network("4-12", MODEL, 0, {f"{COMMON}.weight": other})


@BOTH
def test_widths_that_the_network_cannot_have_are_refused_before_round_1(method: Any) -> None:
    """gat splits a layer among 4 heads."""
    server = make_server(toy_clients(), Backbone("gat", 8), Training())
    with pytest.raises(BadConfig, match="widths holds 6, which does not fit: hidden is 6; the backbone gat"):
        initial(method(widths="4-6"), server)
    check_widths("4-8", server.model)


@BOTH
def test_without_the_penalty_each_client_trains_its_own_network_alone(method: Any) -> None:
    """Bit for bit, whoever else there is."""
    _, mine = run_rounds(method(lam=0.0, widths="4-12"), toy_clients(), model=MODEL)
    for k, width in ((0, 4), (1, 12), (2, 4)):
        _, alone = run_rounds(Isolated(), [toy_clients()[k]], model=OwnWidth.of(MODEL, width))
        assert_same(mine.participants[k].state, alone.participants[k].state)


def test_with_the_common_width_for_all_prototypes_are_means_of_the_common_layer() -> None:
    """One round of FedProto: the server's prototype of a class is the mean over its owners of what their own
    networks make of their training nodes, in evaluation mode."""
    rounds, exchange = run_rounds(FedProto(widths="4-12"), toy_clients(), rounds=1, model=MODEL)
    sums, owners = torch.zeros(CLASSES, 8), torch.zeros(CLASSES)
    for k, site in exchange.participants.items():
        network = OwnWidth.of(MODEL, (4, 12)[k % 2])
        data, params = site._hidden, model_part(site.state)
        assert params.keys() == network.shapes(site.info).keys()
        hidden = network.encode(params, network.inputs(data))
        for c in range(CLASSES):
            mine = hidden[data.train_mask & (data.graph.y == c)]
            sums[c], owners[c] = sums[c] + mine.mean(0), owners[c] + 1
    torch.testing.assert_close(rounds[0].tensors["prototype.mean"], sums / owners[:, None])


@BOTH
@pytest.mark.parametrize("predict_by", ["logits", "prototypes"])
def test_what_crosses_is_as_wide_as_ever(method: Any, predict_by: Any) -> None:
    """4 (C·h + C) = 4 (3·8 + 3) = 108 bytes each way per client, three clients."""
    rounds, exchange = run_rounds(method(widths="4-12-8", predict_by=predict_by), toy_clients(), model=MODEL)
    for each in rounds:
        assert sum(each.bytes_up.values()) == sum(each.bytes_down.values()) == 3 * 108
    widths = [exchange.participants[k].state["encoder.weight"].shape[1] for k in range(3)]
    assert widths == [4, 12, 8]
    said = [site.predictions(3, rounds[-1].tensors)["personal"] for site in exchange.participants.values()]
    assert all(each.shape[1] == CLASSES for each in said)


def test_clients_of_one_width_start_alike_and_others_do_not() -> None:
    info = TaskInfo(FEATURES, CLASSES, 4)
    starts = [own_network("4-12", MODEL, k, {}).initial(info, 0) for k in range(4)]
    assert_same(starts[0], starts[2])
    assert_same(starts[1], starts[3])
    assert not torch.equal(starts[0]["classifier.weight"], starts[1]["classifier.weight"])


@BOTH
def test_the_penalty_draws_the_common_layer(method: Any) -> None:
    """Without dropout, a heavy penalty leaves clients of two widths nearer to each other than none does."""

    def apart(lam: float) -> float:
        dry = Backbone(hidden=8, dropout=0.0)
        rounds, exchange = run_rounds(method(lam=lam, widths="4-12"), toy_clients(2), rounds=15, model=dry)
        del rounds
        rows = []
        for k, site in exchange.participants.items():
            network, data = OwnWidth.of(dry, (4, 12)[k % 2]), site._hidden
            hidden = network.encode(model_part(site.state), network.inputs(data))
            rows.append(hidden[data.train_mask & (data.graph.y == 0)].mean(0))
        return float((rows[0] - rows[1]).norm())

    assert apart(30.0) < 0.5 * apart(0.0)


@BOTH
@pytest.mark.parametrize("scope", ["alone", "pooled"])
def test_alone_the_networks_stay_as_wide(method: Any, scope: str) -> None:
    inner: Method[Any] = method(widths="4-12")
    clients = toy_clients(2) if scope == "alone" else toy_clients(1)
    _, exchange = run_rounds(Alone(inner, pooled=scope == "pooled"), clients, rounds=1, model=MODEL)
    for k, site in exchange.participants.items():
        network = site.method.network_of(MODEL, 0, site.state)  # whoever asks: the model decides
        assert network == OwnWidth.of(MODEL, (4, 12)[k])
