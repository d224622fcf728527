"""A network with hidden layers of its own width, by hand and against the parts that it is made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import cross_entropy
from fedepd.network.backbones import BACKBONES, Backbone
from fedepd.network.own_width import COMMON, OwnWidth
from fedepd.rng import fast_numpy
from fedepd.testing.toy import OneLine
from fedepd.types import ClientData, Graph, TaskInfo, Tensors
from toy import CLASSES, FEATURES, make_client, toy_client

INFO = TaskInfo(FEATURES, CLASSES, 1)
NETWORKS = [Backbone(name, 8) for name in BACKBONES.built_in]
NETWORKS += [
    Backbone("gcn", 8, head="linear", layers=3),
    Backbone("gat", 8, layers=3),
    Backbone(OneLine(), 8),
]
every_network = pytest.mark.parametrize(
    "model", NETWORKS, ids=lambda m: f"{m.backbone if isinstance(m.backbone, str) else 'own'}-{m.layers}"
)


def two_nodes() -> ClientData:
    """Features (1, 0) and (0, 1), no edge, so that P is the identity; both train."""
    nobody, both = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
    graph = Graph.make(torch.eye(2), torch.empty(2, 0, dtype=torch.int64), torch.tensor([0, 1]))
    return ClientData(0, graph, both, nobody, nobody, torch.arange(2))


PARAMS: Tensors = {
    "encoder.weight": torch.tensor([[1.0, -1.0, 0.0], [0.0, 2.0, 1.0]]),
    "encoder.bias": torch.tensor([0.0, 0.0, 0.5]),
    f"{COMMON}.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]),
    f"{COMMON}.bias": torch.tensor([-2.5, 1.0]),
    "classifier.weight": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    "classifier.bias": torch.tensor([0.0, -1.0]),
}


def test_by_hand() -> None:
    """H' = relu(W + b): (1, 0, .5) and (0, 2, 1.5).

    H' U + c: (1 + 1 - 2.5, -.5 + 1) and (3 - 2.5, 2 - 1.5 + 1), so H = (0, .5) and (.5, 1.5).
    Logits: (0, 2 · .5 - 1) and (.5, 3 - 1).
    """
    model = OwnWidth.of(Backbone(hidden=2, dropout=0.0), 3)
    inputs = model.inputs(two_nodes())
    assert model.shapes(TaskInfo(2, 2, 1)) == {name: tuple(value.shape) for name, value in PARAMS.items()}
    assert model.encode(PARAMS, inputs).tolist() == [[0.0, 0.5], [0.5, 1.5]]
    assert model.predict(PARAMS, inputs).tolist() == [[0.0, 0.0], [0.5, 2.0]]
    assert model.training_rows(PARAMS, inputs)[0].tolist() == [[0.0, 0.5], [0.5, 1.5]]


def test_the_gradient_by_hand() -> None:
    """Of the sum of all logits. Each classifier row gets the sum of H over the nodes: .5 and 2.

    By H it is the sum of a row of the classifier, (1, 2). Unit 0 of node 0 is at 0 and passes nothing on. So
    the common bias has 1 (node 1) and 2 + 2; its weights have these sums by unit of H': unit 0 only node 0:
    (0, 2); unit 1 only node 1, twice: (2, 4); unit 2: 1.5 · 1, (.5 + 1.5) · 2.
    """
    model = OwnWidth.of(Backbone(hidden=2, dropout=0.0), 3)
    _, grads = model.gradient(
        PARAMS, model.inputs(two_nodes()), fast_numpy(0, "test"), lambda z: (float(z.sum()), torch.ones(2, 2))
    )
    assert grads.keys() == PARAMS.keys()
    assert grads["classifier.weight"].tolist() == [[0.5, 0.5], [2.0, 2.0]]
    assert grads[f"{COMMON}.bias"].tolist() == [1.0, 4.0]
    assert grads[f"{COMMON}.weight"].tolist() == [[0.0, 2.0], [2.0, 4.0], [1.5, 4.0]]


@every_network
@pytest.mark.parametrize("own", [4, 12])
@pytest.mark.parametrize("sparse", [False, True])
def test_it_is_the_own_encoder_a_layer_and_the_common_rest(model: Backbone, own: int, sparse: bool) -> None:
    """The parts, taken from two networks of the two widths, do what the whole does."""
    whole, data = OwnWidth.of(model, own), toy_client(sparse=sparse)
    params, inputs = whole.initial(INFO, 3), whole.inputs(data)
    narrow = Backbone(model.backbone, own, dropout=model.dropout, head=model.head, layers=model.layers)
    h = F.relu(narrow.encode(params, inputs) @ params[f"{COMMON}.weight"] + params[f"{COMMON}.bias"])
    assert h.shape == (data.graph.num_nodes, 8)
    torch.testing.assert_close(whole.encode(params, inputs), h, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.predict(params, inputs), model.logits(params, h, inputs))
    assert whole.widest == max(own, 8)
    assert model.widest == 8
    assert params["classifier.weight"].shape == (model.width, CLASSES)


@every_network
def test_every_parameter_is_trained(model: Backbone) -> None:
    whole, data = OwnWidth.of(model, 4), toy_client()
    client = make_client(FedAvg(), data, whole)
    _, grads = cross_entropy(client, client.prepared).of(whole.initial(INFO, 3))
    assert grads.keys() == whole.shapes(INFO).keys()
    assert all(bool(value.any()) for name, value in grads.items() if name.endswith("weight"))


def test_both_hidden_layers_have_dropout() -> None:
    """All weights are 1. A unit of H is twice the sum of 3 units, of which each is 2 or 0, or it is dropped.

    So it is 0, 4, 8 or 12, and 0 with the chance 1/2 + 1/2 · (1/2)^3 = .5625: .0025 is the standard deviation
    of 40,000 of them.
    """
    model, n = OwnWidth.of(Backbone(hidden=1, dropout=0.5), 3), 40_000
    nobody = torch.zeros(n, dtype=torch.bool)
    y, none = torch.zeros(n, dtype=torch.int64), torch.empty(2, 0, dtype=torch.int64)
    graph = Graph.make(torch.ones(n, 1), none, y, 2, part=True)
    inputs = model.inputs(ClientData(0, graph, nobody, nobody, nobody, torch.arange(n)))
    params = {name: torch.ones(shape) for name, shape in model.shapes(TaskInfo(1, 2, 1)).items()}
    params |= {name: torch.zeros_like(value) for name, value in params.items() if name.endswith("bias")}
    dropped = model.encode(params, inputs, fast_numpy(0, "dropout"))
    assert set(dropped.reshape(-1).tolist()) == {0.0, 4.0, 8.0, 12.0}
    assert float((dropped == 0).float().mean()) == pytest.approx(0.5625, abs=0.01)
    assert torch.equal(dropped, model.encode(params, inputs, fast_numpy(0, "dropout")))
