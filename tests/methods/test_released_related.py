"""Systems of the related work against numbers that their authors' released programs gave.

As in test_released.py: nothing of the programs is here, and a deviation is stated with its size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedepd.methods import fedpub, fedtad
from fedepd.methods.adafgl import TOWER, AdaFGL, mixed
from fedepd.methods.base import Client
from fedepd.methods.fedpub import FedPUB, penalties, sharing
from fedepd.methods.fedsage import greedy
from fedepd.methods.fedtad import FedTAD, generated, likeness, node_weights, reliance
from fedepd.methods.parts.corrected import View, compared, homophily, partners_of, propagated, view_of
from fedepd.methods.parts.mended import chosen_slots, mended_inputs
from fedepd.methods.parts.reliability import reliability
from fedepd.methods.parts.sketch import Sketch
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout
from fedepd.network.sparse import Sparse, normalised
from fedepd.network.training import Training, by_autograd
from fedepd.rng import seeded_numpy
from fedepd.types import Tensors
from released import client_data, near, numbers, tensors, wave
from toy import make_client, make_server

ADAFGL = AdaFGL(**AdaFGL.presets["released"])


def adafgl() -> tuple[dict[str, Any], Client[Any], View]:
    found = numbers("adafgl")
    data = client_data(numbers("openfgl")["clients"][1])
    client = make_client(ADAFGL, data, Backbone(hidden=3, dropout=0.0))
    soft = torch.tensor(found["logits"]).softmax(1)
    partners = partners_of(compared(soft, ADAFGL.form))
    return found, client, view_of(soft, partners, client.prepared.adjacency, ADAFGL.alpha, seeded_numpy(0))


def towers(found: dict[str, Any]) -> Tensors:
    """Theirs by our names. Our first layer is one matrix: own, then homophilous and smooth of each power."""
    theirs = {name: torch.tensor(value) for name, value in found["towers"].items()}
    wide = zip(theirs["homophilous"].chunk(4), theirs["smooth"].chunk(4), strict=True)
    ours = {
        "first.weight": torch.cat([theirs["own"], *(part for pair in wide for part in pair)], 1),
        "first.bias": torch.cat([theirs[f"{name}.b"] for name in ("homophilous", "own", "smooth")]),
    }
    for name, value in theirs.items():
        if ".second" in name or ".last" in name:
            ours[name.replace(".b", ".bias") if name.endswith(".b") else f"{name}.weight"] = value
    slopes = ("homophilous", "own", "smooth", "own.second", "smooth.second", "message.second", "message")
    ours |= {f"{name}.slope": torch.tensor([0.25]) for name in slopes}
    return {TOWER + name: value for name, value in ours.items()}


class InOrder:
    """Shuffles as the released program did."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def permutation(self, count: int) -> Any:
        return np.array(self.order)


def test_adafgls_corrected_graph_and_confidence() -> None:
    """Who is linked, three steps of smoothing, ten of label propagation, and what they get right: 4 of 5."""
    found, client, view = adafgl()
    near(view.linked, found["linked"])
    powers = [client.data.graph.x]
    for _ in range(3):
        powers.append(view.operator.times(powers[-1]))
    near(torch.cat(powers, 1), found["smoothed"])
    train, labels = client.prepared.inputs.train, client.prepared.inputs.labels
    operator = Sparse.of(normalised(client.prepared.adjacency), symmetric=True)
    known = torch.tensor(found["order"][: len(train) // 2])
    start = torch.full((13, 3), 1 / 3)
    start[train[known]] = F.one_hot(labels[known], 3).float()
    near(propagated(operator, start, train[known], ADAFGL.kappa), found["propagated"])
    order: Any = InOrder(found["order"])
    assert homophily(operator, train, labels, 3, ADAFGL.kappa, order) == pytest.approx(found["confidence"])
    assert found["confidence"] == 0.8


def test_adafgls_towers_loss_and_prediction() -> None:
    """Preset ``released``: all four heads, both losses with their gradients, and either branch's prediction.

    Their towers share one slope each and the messages have a first layer of their own, so their gradients
    there are sums, or parts, of ours.
    """
    found, client, view = adafgl()
    params = towers(found)
    out = ADAFGL.outputs(client, params, view, Dropout(0.0, 3, None))
    for name in ("homophilous", "own", "smooth", "message"):
        near(getattr(out, name), found[name])
    loss, grads = by_autograd(ADAFGL._loss(client, view), sorted(params)).of(params)
    assert loss == pytest.approx(found["loss_homophilous"] + found["loss_heterophilous"], rel=1e-5)
    theirs = {name: torch.tensor(value) for name, value in found["gradient"].items()}
    for part in ("smooth", "smooth.b"):
        theirs[part] += theirs[part.replace("smooth", "message")]
    wanted = towers({"towers": {name: value.tolist() for name, value in theirs.items()}})
    for name, value in wanted.items():
        if not name.endswith(".slope"):
            near(grads[name], value)
    slopes = {name: float(value) for name, value in grads.items() if name.endswith(".slope")}
    of_message = slopes.pop(f"{TOWER}message.second.slope") + slopes.pop(f"{TOWER}message.slope")
    assert slopes.pop(f"{TOWER}homophilous.slope") == pytest.approx(
        found["slopes"]["homophilous"][0], rel=1e-4
    )
    assert of_message + sum(slopes.values()) == pytest.approx(
        found["slopes"]["hete"][0] + found["slopes"]["message"][0], rel=1e-4
    )
    for trust, branch in ((1.0, "homophilous"), (0.0, "heterophilous")):
        near(mixed(out, compared(view.soft, ADAFGL.form), trust), found[f"output_{branch}"])


def test_adafgls_messages_where_ours_are_mended() -> None:
    """A node hears itself with weight 1 in both forms. What unlike nodes say moves Z_m by up to .44."""
    found, client, view = adafgl()
    meant = AdaFGL(alpha=ADAFGL.alpha).outputs(client, towers(found), view, Dropout(0.0, 3, None)).message
    gap = meant - torch.tensor(found["message"])
    assert float(gap.abs().max()) == pytest.approx(0.4425, abs=1e-4)


def generator_of(found: dict[str, Any]) -> Tensors:
    widths = (fedtad.NOISE + 3, *fedtad.WIDTHS, 4)
    made = {f"{fedtad.GENERATOR}class": torch.tensor(found["class"])}
    for place, (rows, columns) in enumerate(pairwise(widths), start=1):
        made[f"{fedtad.GENERATOR}layer{place}.weight"] = wave((rows, columns), 0.3, 1000 * place)
        made[f"{fedtad.GENERATOR}layer{place}.bias"] = wave((columns,), 0.1, place)
    return made


def test_fedtads_reliability_is_its_authors() -> None:
    """φ of two clients, and their shares in each class. They were fed the same return probabilities."""
    found = numbers("fedtad")
    phi = torch.stack([reliability(client_data(each)) for each in numbers("openfgl")["clients"][:2]])
    near(phi, found["reliability"])
    near(reliance(phi), found["shares"])


def test_fedtads_server_is_its_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two server epochs on hidden rows: the generator's loss and gradient, its rows, and the student.

    Pseudo labels and noise are theirs, and they had no weight decay.
    """
    found, method, model = numbers("fedtad"), FedTAD(), Backbone(hidden=4, dropout=0.0)
    labels, shares = torch.tensor(found["labels"]), torch.tensor(found["shares"])
    teachers = [tensors(each) for each in found["teachers"]]
    held = {**generator_of(found), **tensors(found["student"])}
    near(generated(held, torch.tensor(found["epochs"][0]["noise"]), labels), found["rows"])
    monkeypatch.setattr(fedtad, "dealt", lambda classes: labels)
    for theirs in found["epochs"]:
        noise = torch.tensor(theirs["noise"])
        near(likeness(noise, generated(held, noise, labels)), theirs["likeness"])
        maker, weights = with_prefix(held, fedtad.GENERATOR), node_weights(shares, labels)
        loss_of = method._generator_loss(model, model_part(held), teachers, weights, noise, labels)
        loss, grads = by_autograd(loss_of, sorted(maker)).of(maker)
        assert loss == pytest.approx(theirs["generator loss"], rel=1e-5)
        near(grads[f"{fedtad.GENERATOR}class"], theirs["class gradient"])
        near(grads[f"{fedtad.GENERATOR}layer4.bias"], theirs["bias gradient"])
        monkeypatch.setattr(torch, "randn", lambda *_, drawn=noise, **__: drawn)
        held = method._epoch(model, held, teachers, shares, torch.Generator())
        near(generated(held, noise, labels), theirs["rows after"])
        near(held["classifier.weight"], theirs["student weight"])
        near(held["classifier.bias"], theirs["student bias"])


def test_fed_pub_is_its_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preset ``released``, two rounds of three clients: what models do, who shares, averages and masks.

    Two entries of every client's masks begin below the threshold, so that evaluation cuts them. The network
    is two of their masked convolutions, and their masks had no weight decay, as ours have none.
    """
    found, graphs = numbers("fedpub"), numbers("openfgl")
    method, model = FedPUB(**FedPUB.presets["released"]), Backbone(hidden=5, dropout=0.0)
    data, training = (
        [client_data(each, k) for k, each in enumerate(graphs["clients"])],
        Training(weight_decay=0),
    )
    monkeypatch.setattr(fedpub, "random_graph", lambda client: model.inputs(data[2]))
    states = [tensors(each) for each in found["masks"]]
    server, held = make_server(data, model, training), tensors(graphs["start"])
    for number, theirs in enumerate(found["rounds"], start=1):
        replies = {}
        for k, each in enumerate(data):
            client = make_client(method, each, model, training, round=number)
            replies[k], states[k] = method.client_step(client, method.message(held, k), states[k])
            near(replies[k].tensors["function"], theirs["function"][k])
        near(sharing(replies, method.tau), theirs["shares"])
        held = method.server_step(server, held, replies)
        for k in range(3):
            for name, value in theirs["averages"][k].items():
                near(method.message(held, k)[name], value)
    for state, last in zip(states, found["trained masks"], strict=True):
        for name, value in last.items():
            near(state[name], value)


def test_fed_pubs_penalties_are_its_authors() -> None:
    """Their values with the paper's weights, .0341 in the example. Theirs have no gradient; ours do."""
    found = numbers("fedpub")["penalised"]
    cost, grads = penalties(tensors(found["at"]), tensors(found["received"]), 1e-3, 1e-3)
    assert cost == pytest.approx(found["loss"] - found["cross-entropy"], abs=1e-6)
    assert cost == pytest.approx(0.0341, abs=1e-4)
    assert all(bool(each.any()) for each in grads.values())


def test_fedsages_losses_but_for_one_comparison() -> None:
    """Every slot that has something to find, and the loss of the numbers of lost neighbours.

    The authors compare the distance of one neighbour with d times the smallest so far. So the first slot of
    node 3 costs .938 where its nearest neighbour is .394 away. Their mean is over all 15 slots, ours over the
    7 that have something to find.
    """
    found = numbers("fedsage")
    slots, features = torch.tensor(found["slots"]), torch.tensor(found["features"])
    costs = {}
    for node, (lost, predicted) in enumerate(zip(found["true"], found["predicted"], strict=True)):
        for slot in range(min(3, int(predicted)) if lost else 0):
            costs[node, slot] = float(greedy(slots[node, slot][None], features[node, :lost][None]))
    theirs = {place: found["losses"][place[0]][place[1]] for place in costs}
    wrong = [place for place in costs if costs[place] != pytest.approx(theirs[place], rel=1e-5)]
    assert (len(costs), wrong) == (7, [(3, 0)])
    assert [theirs[3, 0], costs[3, 0]] == pytest.approx([0.938, 0.394], abs=1e-3)
    assert found["loss"] == pytest.approx(sum(theirs.values()) / 15, rel=1e-5)
    number = F.smooth_l1_loss(torch.tensor(found["predicted"]), torch.tensor(found["true"]).float())
    assert float(number) == pytest.approx(found["number loss"], rel=1e-5)


def test_fedsages_mended_graph_is_its_authors() -> None:
    """Who gets how many neighbours, with which rows, and the operator.

    Theirs is D^-1 (A + I) and ours D^-1/2 (A + I) D^-1/2: an entry of ours is the geometric mean of two of
    theirs. The numbers are whole, because they cut what ours rounds.
    """
    found, model = numbers("fedsage"), Backbone(hidden=3)
    data = client_data(numbers("openfgl")["clients"][0])
    parents, places = chosen_slots(torch.tensor(found["degrees"]), 3)
    assert [[v, 10 + 3 * v + p] for v, p in zip(parents.tolist(), places.tolist(), strict=True)] == found[
        "new edges"
    ]
    rows = torch.tensor(found["generated"])[parents, places]
    near(rows, found["mended"])
    mended = mended_inputs(model, data, Sketch.of(4, 0), parents, rows)
    theirs = torch.tensor(found["operator"])
    near(mended.operator.matrix.to_dense(), (theirs * theirs.t()).sqrt())
