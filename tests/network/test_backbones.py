from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedepd.errors import BadConfig, UnknownName
from fedepd.network.backbones import BACKBONES, Backbone, described
from fedepd.network.contract import Dropout, Inputs, Network, Shapes
from fedepd.network.convolution import GCN
from fedepd.network.gat import GAT
from fedepd.rng import seeded
from fedepd.testing.toy import OneLine
from fedepd.types import ClientData, TaskInfo, Tensors
from toy import CLASSES, FEATURES, assert_same, toy_client

INFO = TaskInfo(FEATURES, CLASSES, 1)
every_network = pytest.mark.parametrize(
    ("backbone", "head", "hidden", "layers", "sparse"),
    [
        (b, h, size, layers, s)
        for b in ("gcn", "sage")
        for h in ("gcn", "linear")
        for size, layers in ((2, 2), (8, 1), (8, 2), (8, 3))
        for s in (False, True)
    ],
)
"""gcn and sage, written out densely below. Hidden 2 < C = 3 < 8: both orders of the last product."""
CASES = [
    Backbone(name, 8, head=head, layers=layers)  # type: ignore[arg-type]
    for name, cls in BACKBONES.items()
    for head, layers in sorted({("gcn", cls.depths[0]), ("gcn", 2), (cls.heads[-1], 3)})
]
"""The fewest layers, the usual two, three with a linear head where there is one."""
every_case = pytest.mark.parametrize("model", CASES, ids=lambda m: f"{m.backbone}-{m.head}-{m.layers}")
both_features = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


ORDER = ("encoder", "encoder.second", "encoder.third")


def made(model: Backbone, seed: int = 0) -> Tensors:
    """Initial weights with biases that are not zero, so that a forgotten bias shows."""
    params = model.init(INFO, seeded(seed, "init"))
    return {
        name: value + 0.1 * torch.arange(value.shape[-1]) if "bias" in name else value
        for name, value in params.items()
    }


def dense_operator(data: ClientData, backbone: str | Network) -> Tensor:
    n = data.graph.num_nodes
    a = torch.zeros(n, n)
    a[tuple(data.graph.edge_index)] = 1
    a = a + a.t()
    if backbone == "sage":
        return a / a.sum(1, keepdim=True).clamp(min=1)
    a = a + torch.eye(n)
    return a / (a.sum(1)[:, None] * a.sum(0)[None, :]).sqrt()  # Eq. 10


def plain_logits(model: Backbone, params: Tensors, data: ClientData, masks: list[Tensor | None]) -> Tensor:
    """The network written out with dense matrices: [n, C]."""
    operator = dense_operator(data, str(model.backbone))

    def spread(h: Tensor) -> Tensor:
        return operator @ h if model.backbone == "gcn" else torch.cat([operator @ h, h], dim=1)

    h = data.graph.x.to_dense()
    names = sorted({name.rsplit(".", 1)[0] for name in params} - {"classifier"}, key=list(ORDER).index)
    for name, mask in zip(names, masks, strict=False):
        read = h if (model.head, model.layers) == ("gcn", 1) else spread(h)
        h = torch.relu(read @ params[f"{name}.weight"] + params[f"{name}.bias"])
        h = h if mask is None else h * mask
    s = spread(h) if model.head == "gcn" else h
    return s @ params["classifier.weight"] + params["classifier.bias"]


@pytest.mark.parametrize("hidden", [2, 8])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("edges", [True, False])
def test_gcn_equals_two_gcn_convolutions_of_torch_geometric(hidden: int, sparse: bool, edges: bool) -> None:
    conv = pytest.importorskip("torch_geometric.nn").GCNConv
    data, model = toy_client(sparse=sparse, edges=edges), Backbone(hidden=hidden)
    params = made(model)
    first, second = conv(FEATURES, hidden), conv(hidden, CLASSES)
    for layer, name in ((first, "encoder"), (second, "classifier")):
        layer.lin.weight.data, layer.bias.data = (
            params[f"{name}.weight"].t().clone(),
            params[f"{name}.bias"].clone(),
        )
    edge_index = data.graph.to_pyg().edge_index
    with torch.no_grad():
        expected = second(torch.relu(first(data.graph.x.to_dense(), edge_index)), edge_index)
    torch.testing.assert_close(model.predict(params, model.inputs(data)), expected, rtol=1e-5, atol=1e-5)


@every_network
@pytest.mark.parametrize("edges", [True, False])
def test_predictions_equal_the_dense_formula(
    backbone: Any, head: Any, hidden: int, layers: int, sparse: bool, edges: bool
) -> None:
    model, data = Backbone(backbone, hidden, head=head, layers=layers), toy_client(sparse=sparse, edges=edges)
    params = made(model)
    predicted = model.predict(params, model.inputs(data))
    torch.testing.assert_close(predicted, plain_logits(model, params, data, [None] * 3), rtol=1e-5, atol=1e-5)
    assert torch.equal(predicted, model.predict(params, model.inputs(data)))
    assert not predicted.requires_grad


@every_network
@pytest.mark.parametrize("train_only", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.3])
def test_gradients_equal_plain_autograd(
    backbone: Any, head: Any, hidden: int, layers: int, sparse: bool, train_only: bool, dropout: float
) -> None:
    model, data = Backbone(backbone, hidden, dropout, head, layers), toy_client(sparse=sparse)
    inputs, start = model.inputs(data), made(model)
    draws = np.random.default_rng(5)
    masks = [model.dropout_mask(data.graph.num_nodes, draws) for _ in range(3)]
    weights = torch.randn(data.graph.num_nodes, CLASSES, generator=torch.Generator().manual_seed(1))
    rows = inputs.train if train_only else torch.arange(data.graph.num_nodes)

    ours = {name: value.clone().requires_grad_() for name, value in start.items()}
    logits = model.logits(ours, model.encode(ours, inputs, np.random.default_rng(5)), inputs, train_only)
    theirs = {name: value.clone().requires_grad_() for name, value in start.items()}
    expected = plain_logits(model, theirs, data, masks)[rows]

    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(
        torch.autograd.grad((logits * weights[rows]).sum(), list(ours.values())),
        torch.autograd.grad((expected * weights[rows]).sum(), list(theirs.values())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@every_network
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.3])
def test_a_whole_step_without_autograd_has_its_gradients(
    backbone: Any, head: Any, hidden: int, layers: int, sparse: bool, dropout: float
) -> None:
    """The loss is Σ w z² over the training nodes' logits.

    Its error 2 w z is no constant, so that wrong logits show too.
    """
    model, data = Backbone(backbone, hidden, dropout, head, layers), toy_client(sparse=sparse)
    inputs, params = model.inputs(data), made(model)
    draws = np.random.default_rng(5)
    masks = [model.dropout_mask(data.graph.num_nodes, draws) for _ in range(3)]
    weights = torch.randn(inputs.train.shape[0], CLASSES, generator=torch.Generator().manual_seed(1))

    loss, grads = model.gradient(
        params,
        inputs,
        np.random.default_rng(5),
        lambda z: (float((weights * z * z).sum()), z.mul_(2 * weights)),
    )
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    expected = (weights * plain_logits(model, leaves, data, masks)[inputs.train].square()).sum()

    assert loss == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-5)
    assert grads.keys() == params.keys()
    for name, grad in zip(leaves, torch.autograd.grad(expected, list(leaves.values())), strict=True):
        torch.testing.assert_close(grads[name], grad, rtol=1e-5, atol=1e-5)


@every_network
def test_the_three_functions_compose_to_the_logits(
    backbone: Any, head: Any, hidden: int, layers: int, sparse: bool
) -> None:
    """``logits`` may take the products in another order; training rows are rows of the whole."""
    model, data = Backbone(backbone, hidden, head=head, layers=layers), toy_client(sparse=sparse)
    inputs, params = model.inputs(data), made(model)
    h = model.encode(params, inputs)
    assert h.shape == (data.graph.num_nodes, hidden)
    whole = model.smooth(params, h, inputs)
    assert whole.shape[1] == model.width == params["classifier.weight"].shape[0]
    torch.testing.assert_close(model.smooth(params, h, inputs, train_only=True), whole[inputs.train])
    for train_only, s in ((False, whole), (True, whole[inputs.train])):
        torch.testing.assert_close(model.logits(params, h, inputs, train_only), model.classify(params, s))


def test_other_edges_take_the_place_of_the_graphs() -> None:
    model, data = Backbone(hidden=4), toy_client()
    params = made(model)
    without = toy_client(edges=False)
    replaced = model.inputs(data, torch.empty(2, 0, dtype=torch.int64))
    assert torch.equal(model.predict(params, replaced), model.predict(params, model.inputs(without)))


def test_inputs_name_the_training_nodes() -> None:
    data = toy_client().hidden()
    inputs = Backbone().inputs(data)
    assert inputs.train.tolist() == [i for i in range(24) if i % 5 < 3]
    assert torch.equal(inputs.labels, data.graph.y[inputs.train])
    assert int(inputs.labels.min()) >= 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_a_client_without_training_nodes_has_empty_rows(sparse: bool, backbone: Any) -> None:
    model, data = Backbone(backbone, hidden=4), toy_client(sparse=sparse, train=False)
    inputs, params = model.inputs(data), made(Backbone(backbone, hidden=4))
    assert model.logits(params, model.encode(params, inputs), inputs, train_only=True).shape == (0, CLASSES)


@pytest.mark.parametrize(("dropout", "scale"), [(0.5, 2.0), (0.3, 1 / 0.7)])
@pytest.mark.parametrize("hidden", [64, 3])
def test_dropout_masks(dropout: float, scale: float, hidden: int) -> None:
    """Every entry is 0 or 1 / (1 - p), and of n entries p n ± 4 √(p (1 - p) n) are 0."""
    model = Backbone(hidden=hidden, dropout=dropout)
    mask = model.dropout_mask(1001, np.random.default_rng(0))
    assert mask is not None
    assert mask.shape == (1001, hidden)
    assert mask.dtype == torch.float32
    torch.testing.assert_close(torch.unique(mask), torch.tensor([0.0, scale]), rtol=1e-6, atol=0)
    n = mask.numel()
    assert abs(int((mask == 0).sum()) - dropout * n) < 4 * (dropout * (1 - dropout) * n) ** 0.5
    per_unit = (mask == 0).float().mean(0)
    assert float((per_unit - dropout).abs().max()) < 5 * (dropout * (1 - dropout) / 1001) ** 0.5


@pytest.mark.parametrize("dropout", [0.5, 0.3])
def test_the_same_generator_gives_the_same_mask_and_goes_on(dropout: float) -> None:
    model = Backbone(hidden=8, dropout=dropout)
    (a, b), (c, d) = (
        [model.dropout_mask(20, g) for _ in range(2)]
        for g in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert a is not None
    assert b is not None
    assert_same({"first": a, "second": b}, {"first": c, "second": d})  # type: ignore[dict-item]
    assert not torch.equal(a, b)


def test_no_dropout_is_no_mask_and_draws_nothing() -> None:
    draws, untouched = np.random.default_rng(0), np.random.default_rng(0)
    assert Backbone(dropout=0.0).dropout_mask(10, draws) is None
    assert draws.random() == untouched.random()


def test_initial_weights() -> None:
    """Glorot: uniform in ±√(6 / (rows + columns)); biases zero; the same generator gives the same weights."""
    model = Backbone(hidden=50)
    params = model.init(INFO, seeded(0, "init"))
    assert list(params) == ["encoder.weight", "encoder.bias", "classifier.weight", "classifier.bias"]
    bound = (6 / (FEATURES + 50)) ** 0.5
    assert 0.95 * bound < float(params["encoder.weight"].abs().max()) <= bound
    assert not params["encoder.bias"].any()
    assert_same(params, model.init(INFO, seeded(0, "init")))
    assert not torch.equal(params["encoder.weight"], model.init(INFO, seeded(1, "init"))["encoder.weight"])


@pytest.mark.parametrize(("backbone", "head", "shapes"), [
    ("gcn", "gcn", {"encoder": (6, 4), "classifier": (4, 3)}),
    ("gcn", "linear", {"encoder": (6, 4), "encoder.second": (4, 4), "classifier": (4, 3)}),
    ("sage", "gcn", {"encoder": (12, 4), "classifier": (8, 3)}),
    ("sage", "linear", {"encoder": (12, 4), "encoder.second": (8, 4), "classifier": (4, 3)}),
])  # fmt: skip
def test_parameter_shapes(backbone: Any, head: Any, shapes: dict[str, tuple[int, int]]) -> None:
    params = Backbone(backbone, 4, head=head).init(INFO, seeded(0))
    assert {
        name.removesuffix(".weight"): tuple(value.shape) for name, value in params.items() if "weight" in name
    } == shapes


@pytest.mark.parametrize(
    "setting", [{"hidden": 0}, {"dropout": 1.0}, {"dropout": -0.1}, {"dropout": float("nan")}], ids=str
)
def test_values_out_of_range_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(setting))):
        Backbone(**setting)


# Whatever the network computes


@every_case
@both_features
def test_bits_depend_on_nothing_but_the_inputs(model: Backbone, sparse: bool) -> None:
    """Neither on who was asked before, nor on dropout in evaluation."""
    clients = [toy_client(k, sparse=sparse) for k in range(2)]
    params = made(model)
    first = [model.predict(params, model.inputs(data)) for data in clients]
    again = [model.predict(params, model.inputs(data)) for data in reversed(clients)]
    assert all(torch.equal(a, b) for a, b in zip(first, reversed(again), strict=True))
    without = replace(model, dropout=0.0)
    assert torch.equal(first[0], without.predict(params, without.inputs(clients[0])))


@every_case
@both_features
def test_a_step_has_the_gradient_of_autograd(model: Backbone, sparse: bool) -> None:
    """With the same dropout: of Σ w z² over the training nodes' logits, whose error is 2 w z."""
    data, params = toy_client(sparse=sparse), made(model)
    inputs = model.inputs(data)
    weights = torch.randn(inputs.train.shape[0], CLASSES, generator=torch.Generator().manual_seed(1))
    loss, grads = model.gradient(
        params,
        inputs,
        np.random.default_rng(5),
        lambda z: (float((weights * z * z).sum()), z.mul_(2 * weights)),
    )
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    h = model.encode(leaves, inputs, np.random.default_rng(5))
    expected = (
        weights * model.classify(leaves, model.smooth(leaves, h, inputs))[inputs.train].square()
    ).sum()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-4)
    assert grads.keys() == params.keys()
    for name, grad in zip(leaves, torch.autograd.grad(expected, list(leaves.values())), strict=True):
        torch.testing.assert_close(grads[name], grad, rtol=1e-4, atol=1e-5)
        assert bool(grad.any()), name


@every_case
def test_sparse_features_are_dense_features_with_zeros_left_out(model: Backbone) -> None:
    data, params = toy_client(sparse=True), made(model)
    dense = replace(data, graph=replace(data.graph, x=data.graph.x.to_dense()))
    torch.testing.assert_close(
        model.predict(params, model.inputs(data)), model.predict(params, model.inputs(dense))
    )


@every_case
@both_features
def test_what_the_classifier_reads(model: Backbone, sparse: bool) -> None:
    """H has the hidden width; S has the stated one; the training nodes' rows are rows of the whole."""
    data, params = toy_client(sparse=sparse), made(model)
    inputs = model.inputs(data)
    h = model.encode(params, inputs)
    assert h.shape == (data.graph.num_nodes, model.hidden)
    s = model.smooth(params, h, inputs)
    assert s.shape[1] == model.width == params["classifier.weight"].shape[0]
    torch.testing.assert_close(model.smooth(params, h, inputs, train_only=True), s[inputs.train])
    for train_only, rows in ((False, s), (True, s[inputs.train])):
        torch.testing.assert_close(
            model.logits(params, h, inputs, train_only), model.classify(params, rows), rtol=1e-5, atol=1e-5
        )


@every_case
@both_features
def test_clients_without_edges_or_training_nodes_and_lonely_nodes(model: Backbone, sparse: bool) -> None:
    params = made(model)
    for data in (toy_client(sparse=sparse, edges=False), toy_client(sparse=sparse, train=False)):
        inputs = model.inputs(data)
        assert bool(model.predict(params, inputs).isfinite().all())
        rows = model.logits(params, model.encode(params, inputs), inputs, train_only=True)
        assert rows.shape == (int(data.train_mask.sum()), CLASSES)
    data = toy_client(sparse=sparse)
    inputs = model.inputs(data, data.graph.edge_index[:, :2])  # nearly all nodes alone
    _, grads = model.gradient(params, inputs, np.random.default_rng(0), lambda z: (0.0, z))
    assert all(bool(grad.isfinite().all()) for grad in grads.values())


@every_case
def test_first_rows_are_what_the_first_weight_meets(model: Backbone) -> None:
    """Dense features are kept as the weight meets them; sparse ones must give the same rows."""
    data = toy_client(sparse=True)
    dense = replace(data, graph=replace(data.graph, x=data.graph.x.to_dense()))
    nodes = torch.tensor([0, 3, 7])
    rows = [
        model.network.first_rows(model, model.inputs(each), each.graph.x, nodes) for each in (data, dense)
    ]
    assert rows[0].shape == (3, model.shapes(INFO)["encoder.weight"][0])
    torch.testing.assert_close(*rows)


# Names and objects


def test_a_networks_own_settings_are_described() -> None:
    assert Backbone(GCN()).backbone == Backbone(GAT(4)).backbone.replace("gat", "gcn") == "gcn"  # type: ignore[union-attr]
    assert described(Backbone(GAT(attentions=2), hidden=8).backbone) == {
        "name": "gat",
        "attentions": 2,
        "slope": 0.2,
    }


@dataclass(frozen=True)
class Mine(Network):
    """Somebody's own: tanh(X W), as little as the contract asks for."""

    scale: float = 1.0
    names: str = "encoder.weight"

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {name: (num_features, model.hidden) for name in self.names.split()}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        assert isinstance(inputs.features, Tensor)
        return dropout(torch.tanh(self.scale * inputs.features @ params["encoder.weight"]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"backbone": "gnc"}, "unknown value of backbone 'gnc'"),
        ({"layers": 0}, "layers is 0; give 1 to 4"),
        ({"layers": 5}, "layers is 5; give 1 to 4"),
        ({"backbone": "mlp", "layers": 1}, "with the backbone mlp give 2 or 3 or 4"),
        ({"backbone": "mlp", "head": "linear"}, "leave head at gcn"),
        ({"backbone": "h2gcn", "head": "linear"}, "leave head at gcn"),
        ({"backbone": "gat", "hidden": 6}, "give a multiple of 4"),
        ({"backbone": GAT(attentions=0)}, "heads of attention"),
        ({"backbone": Mine(), "layers": 3}, "with the backbone Mine give 2"),
        ({"backbone": Mine(names=["encoder.a"])}, "'names' of the backbone Mine"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises((BadConfig, UnknownName), match=says):
        Backbone(**settings)


@pytest.mark.parametrize("name", ["weight", "classifier.weight"])
def test_parameters_must_be_the_encoders(name: str) -> None:
    with pytest.raises(BadConfig, match=f"'{name}' of shape"):
        Backbone(Mine(names=name)).shapes(INFO)


class Undecorated(GAT):  # type: ignore[misc]
    """Its settings would not be seen."""


def test_an_object_must_be_a_dataclass() -> None:
    with pytest.raises(BadConfig, match="Undecorated is no dataclass"):
        Backbone(Undecorated())


def weighed(data: ClientData, weight: Tensor) -> ClientData:
    return replace(data, graph=replace(data.graph, edge_weight=weight))


@every_case
@both_features
def test_weights_of_edges_count_by_their_ratios_alone(model: Backbone, sparse: bool) -> None:
    """All 1: the bits of no weights. 1024 times as much: the same. Others: other logits, unless no edge is
    read."""
    data, params = toy_client(sparse=sparse), made(model)
    e = data.graph.num_edges
    weight = torch.linspace(0.5, 8.0, e)
    plain, ones, some, more = (
        model.predict(params, model.inputs(each))
        for each in (data, *(weighed(data, w) for w in (torch.ones(e), weight, 1024 * weight)))
    )
    assert torch.equal(plain, ones)
    torch.testing.assert_close(some, more, rtol=1e-5, atol=1e-5)
    assert torch.allclose(plain, some, atol=1e-3) == (model.backbone == "mlp")


@every_case
def test_a_step_on_weighted_edges_has_the_gradient_of_autograd(model: Backbone) -> None:
    data = toy_client()
    inputs = model.inputs(weighed(data, torch.linspace(0.5, 8.0, data.graph.num_edges)))
    model = replace(model, dropout=0.0)
    leaves = {name: value.requires_grad_() for name, value in made(model).items()}
    z = model.logits(leaves, model.encode(leaves, inputs), inputs, train_only=True)
    torch.nn.functional.cross_entropy(z, inputs.labels).backward()  # type: ignore[no-untyped-call]

    def error(logits: Tensor) -> tuple[float, Tensor]:
        p = logits.softmax(1)
        p[torch.arange(len(p)), inputs.labels] -= 1
        return 0.0, p / len(p)

    params = {name: value.detach() for name, value in leaves.items()}
    _, grads = model.gradient(params, inputs, np.random.default_rng(0), error)
    for name, grad in grads.items():
        torch.testing.assert_close(grad, leaves[name].grad, rtol=1e-4, atol=1e-6)


def test_a_network_that_does_not_say_so_is_refused_weights() -> None:
    data = toy_client()
    weight = torch.ones(data.graph.num_edges)
    with pytest.raises(
        BadConfig, match=r"edges of graph 'toy' have weights, and the backbone OneLine does not"
    ):
        Backbone(OneLine()).inputs(weighed(data, weight))
