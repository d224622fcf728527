from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.parts.translated import Read, Views, read
from fedepd.methods.steps import model_part, with_prefix
from fedepd.methods.tailgnn import Judge, TailGNN, some_of_each_row
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import adjacency
from fedepd.network.training import Training
from fedepd.types import Reply, TaskInfo, Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

MODEL = Backbone(hidden=8)


def started(method: TailGNN, model: Backbone = MODEL) -> Tensors:
    return initial(method, make_server([toy_client()], model, Training()))


@pytest.mark.parametrize("sparse", [False, True])
def test_without_tail_nodes_and_terms_it_is_fedavg(sparse: bool) -> None:
    """k = -1: not even an isolated node is a tail node, and nothing can be forged."""
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(TailGNN(k=-1, eta=0.0, mu=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)
    first = started(TailGNN())
    assert_same(with_prefix(ours[-1].tensors, "judge."), with_prefix(first, "judge."))


def test_where_all_nodes_have_many_neighbours_it_predicts_as_its_backbone() -> None:
    """Whatever the translations are. The toy client's nodes have 1 neighbour and more."""
    data, method = toy_client(nodes=12), TailGNN(k=0)
    client = make_client(method, data, MODEL)
    tensors = {
        name: value + 3 if name.startswith("translate") else value for name, value in started(method).items()
    }
    assert int(np.diff(client.prepared.adj.indptr).min()) >= 1
    assert torch.equal(
        method.predict(client, tensors), MODEL.predict(model_part(tensors), client.prepared.inputs)
    )
    assert not torch.equal(
        TailGNN(k=30).predict(make_client(TailGNN(k=30), data, MODEL), tensors),
        method.predict(client, tensors),
    )


def test_forged_nodes_keep_one_to_k_of_their_neighbours() -> None:
    data, method = toy_client(nodes=40), TailGNN(k=2)
    client = make_client(method, data, MODEL)
    view, again = method.forged(client), method.forged(client)
    later = method.forged(replace(client, round=2))
    assert view is not None
    assert again is not None
    assert later is not None
    degrees = np.diff(client.prepared.adj.indptr)
    train = data.train_mask.numpy()
    assert view.nodes.tolist() == np.nonzero(train & (degrees > 2))[0].tolist()
    near, real = view.near.matrix.to_dense() > 0, torch.from_numpy(client.prepared.adj.toarray() > 0)
    assert set(near.sum(1).tolist()) == {1, 2}
    assert not bool((near & ~real[view.nodes]).any())
    assert torch.equal(view.near.matrix.to_dense(), again.near.matrix.to_dense())
    assert not torch.equal(view.near.matrix.to_dense(), later.near.matrix.to_dense())


def test_what_a_row_keeps_is_drawn_evenly() -> None:
    """One of a row's four entries, 4,000 times: 1,000 each, with a deviation of √(4000 · 3/16) = 27."""
    adj = adjacency(torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]), 5)[np.zeros(4000, dtype=int)]
    kept = some_of_each_row(adj, np.ones(4000, dtype=int), np.random.default_rng(0))
    times = np.asarray(kept.sum(0)).reshape(-1)
    assert times[0] == 0
    assert np.abs(times[1:] - 1000).max() < 5 * 27
    whole = some_of_each_row(adj, np.full(4000, 9), np.random.default_rng(0))
    assert (whole != adj).nnz == 0


def loss_of(method: TailGNN, real: Any, fake: Any, lengths: float = 0.0) -> float:
    """The loss of two head nodes with these logits, at a judge that knows nothing and does not learn."""
    client = make_client(TailGNN(k=1), toy_client(), Backbone(hidden=2, dropout=0.0), Training(lr=1e-9))
    labels = torch.tensor([0, 1])
    inputs = replace(client.prepared.inputs, labels=labels)
    client = replace(client, prepared=replace(client.prepared, inputs=inputs, places=torch.arange(2)))
    judge = {
        "judge.hidden.weight": torch.zeros(2, 2),
        "judge.hidden.bias": torch.ones(2),
        "judge.out.weight": torch.zeros(2, 1),
    }
    params = {"classifier.weight": torch.eye(2), "classifier.bias": torch.zeros(2)}
    found = Read(torch.tensor(real), torch.tensor(fake), torch.tensor(lengths))
    client = replace(client, info=TaskInfo(6, 2, 1))
    return float(method._loss(client, params, found, Judge(client, judge, {})))


def test_the_loss_by_hand() -> None:
    """Logits of 0 cost log 2, those of (log 3, 0) for class 0 log 4/3, and for class 1 log 4.

    Real nodes right and wrong: (log 4/3 + log 4) / 2 = .8370; forged: log 2 = .6931; their mean .7650. A
    judge that says ½ has the cross-entropy log 2. So eta = .5 adds .3466 or, unbounded, takes it away.
    """
    real, fake = [[math.log(3), 0.0], [math.log(3), 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    plain = ((math.log(4 / 3) + math.log(4)) / 2 + math.log(2)) / 2
    assert loss_of(TailGNN(eta=0.0, mu=0.0), real, fake) == pytest.approx(plain, abs=1e-6)
    assert loss_of(TailGNN(eta=0.0, mu=0.1), real, fake, 5.0) == pytest.approx(plain + 0.5, abs=1e-6)
    for adversary, sign in (("bounded", 1), ("unbounded", -1)):
        method: Any = TailGNN(eta=0.5, mu=0.0, adversary=adversary)  # type: ignore[arg-type]
        assert loss_of(method, real, fake) == pytest.approx(plain + sign * math.log(2) / 2, abs=1e-6)


def test_the_judge_learns_to_tell_them_apart() -> None:
    client = make_client(TailGNN(), toy_client(), Backbone(hidden=8, dropout=0.0), Training(lr=0.05))
    judge = Judge(client, with_prefix(started(TailGNN()), "judge."), {})
    real, fake = torch.tensor([[3.0, 0.0, 0.0]] * 4), torch.tensor([[0.0, 0.0, 3.0]] * 4)
    for _ in range(40):
        judge.train(real, fake)
    assert float(judge.of(judge.params, real).min()) > 1
    assert float(judge.of(judge.params, fake).max()) < -1
    assert int(judge.moments["step"]) == 80  # two steps at a time


def test_a_client_without_head_nodes_has_no_say_about_the_judge() -> None:
    """It has no edges. Its judge goes back as it came, and the server takes the other's alone."""
    method, data = TailGNN(k=1), [toy_client(0, edges=False), toy_client(1)]
    message = started(method)
    replies = {}
    for k, each in enumerate(data):
        replies[k], state = method.client_step(make_client(method, each, MODEL), message, {})
        assert ("judging.step" in state) == (k == 1)
    assert replies[0].tensors["judged"].tolist() == [0.0]
    assert replies[1].tensors["judged"].tolist() == [24.0]  # all its nodes
    assert_same(with_prefix(replies[0].tensors, "judge."), with_prefix(message, "judge."))
    assert not torch.equal(replies[0].tensors["translate1.offset"], message["translate1.offset"])
    server = make_server(data, MODEL, Training())
    after = method.server_step(server, message, replies)
    assert_same(with_prefix(after, "judge."), with_prefix(replies[1].tensors, "judge."))
    nobody = method.server_step(server, message, {0: replies[0]})
    assert_same(with_prefix(nobody, "judge."), with_prefix(message, "judge."))


def test_the_judge_is_weighed_as_the_server_weighs_it() -> None:
    method = TailGNN()
    server = make_server([toy_client()], MODEL, Training())
    message = started(method)
    said = Reply({**message, "judged": torch.tensor([0.0])}, 24, 15)
    found = method.weights(server.info, method.reply_fields(server, message), said)
    assert found["judge.out.weight"].tolist() == [0.0]
    assert found["encoder.weight"].tolist() == [24.0]
    assert "judged" not in found


def test_tail_nodes_are_trained_in_tail_mode() -> None:
    """One SGD step on the loss that is written out here, with neither judge nor forged nodes."""
    method, data = TailGNN(k=30), toy_client()  # all nodes are tail nodes
    model = Backbone(hidden=8, dropout=0.0)
    how = Training(epochs=1, optimizer="sgd", lr=0.5, weight_decay=0.0)
    client, message = make_client(method, data, model, how), started(method, model)
    reply, _ = method.client_step(client, message, {})
    offset = message["translate2.offset"].clone().requires_grad_()
    prepared = client.prepared
    found = read(
        model,
        {**message, "translate2.offset": offset},
        prepared.inputs,
        prepared.features,
        Views(prepared.whole, prepared.whole),
    )
    logits = model.classify(message, found.rows)[data.train_mask]
    (grad,) = torch.autograd.grad(F.cross_entropy(logits, data.graph.y[data.train_mask]), offset)
    torch.testing.assert_close(reply.tensors["translate2.offset"], offset.detach() - 0.5 * grad)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"k": -2}, "k is -2; give -1 or more"),
        ({"eta": -0.1}, "eta is -0.1; give a finite number, 0 or more"),
        ({"mu": float("inf")}, "mu is inf; give a finite number"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        TailGNN(**settings)
