"""A large client computes the rows that training needs. It must be the same network as on all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.network import near
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout, Inputs
from fedepd.network.kernels import cross_entropy_
from fedepd.network.near import Blocks, Reach, smoothed
from fedepd.network.sparse import Sparse, adjacency, normalised
from fedepd.rng import fast_numpy
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import execute
from fedepd.types import ClientData, Graph, TaskInfo, Tensors

FEATURES, CLASSES = 24, 4  # of 8 columns a multiple: then the kernels compute the weight's gradient, too


@pytest.fixture(scope="module")
def data() -> ClientData:
    """600 nodes with 1,200 edges, of which 12 train. Its numbers are those of float16."""
    graph = synthetic(
        nodes=600, edges=1200, classes=CLASSES, imbalance=5.0, smallest=None, features=FEATURES, communities=6
    )
    graph = replace(graph, x=graph.x.to(torch.float16).to(torch.float32))
    train = torch.zeros(600, dtype=torch.bool)
    train[torch.arange(7, 600, 50)] = True
    none = torch.zeros_like(train)
    return ClientData(0, graph, train, none, none, torch.arange(600)).hidden()


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "LARGE", 1)
    monkeypatch.setattr(near, "ROWS", 128)  # 600 rows are no multiple of it


def one_step(model: Backbone, inputs: Inputs) -> tuple[float, Tensors]:
    params = model.initial(TaskInfo(FEATURES, CLASSES, 1), 0)
    return model.gradient(
        params, inputs, fast_numpy(0, "dropout"), lambda z: (cross_entropy_(z, inputs.labels), z)
    )


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.parametrize("hidden", [64, 12])
@pytest.mark.parametrize("dropout", [0.5, 0.3, 0.0])
def test_a_step_on_few_rows_is_the_step_on_all(
    data: ClientData, monkeypatch: pytest.MonkeyPatch, backbone: str, hidden: int, dropout: float
) -> None:
    model = Backbone(backbone=backbone, hidden=hidden, dropout=dropout)
    whole = model.inputs(data)
    assert whole.near is None
    monkeypatch.setattr(near, "LARGE", data.graph.x.numel())
    few = model.inputs(data)
    assert few.near is not None
    assert few.near.nodes is not None
    assert len(few.near.nodes) < 300
    one, other = one_step(model, whole), one_step(model, few)
    assert other[0] == pytest.approx(one[0], rel=1e-6)
    assert one[1].keys() == other[1].keys()
    for name, value in one[1].items():
        torch.testing.assert_close(other[1][name], value, rtol=1e-5, atol=1e-7)
    params = model.initial(TaskInfo(FEATURES, CLASSES, 1), 0)
    torch.testing.assert_close(model.predict(params, few), model.predict(params, whole), rtol=1e-5, atol=2e-6)
    one_rows, other_rows = model.training_rows(params, whole), model.training_rows(params, few)
    torch.testing.assert_close(other_rows, one_rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.usefixtures("small_is_large")
def test_float16_has_the_bits_of_the_same_numbers_in_float32(data: ClientData, backbone: str) -> None:
    model = Backbone(backbone=backbone)
    wide = model.inputs(data)
    narrow = model.inputs(replace(data, graph=replace(data.graph, x=data.graph.x.to(torch.float16))))
    assert isinstance(narrow.features, Blocks)
    assert narrow.features.matrix.dtype == torch.float16
    one, other = one_step(model, wide), one_step(model, narrow)
    assert one[0] == other[0]
    assert all(torch.equal(value, other[1][name]) for name, value in one[1].items())
    params = model.initial(TaskInfo(FEATURES, CLASSES, 1), 0)
    assert torch.equal(model.predict(params, wide), model.predict(params, narrow))


def test_what_training_reaches() -> None:
    # The path 0-1-2-3-4-5-6: P has a self-loop at each node, so node 1 reaches 0, 1 and 2.
    edges = torch.stack([torch.arange(6), torch.arange(1, 7)])
    operator = Sparse.of(normalised(adjacency(edges, 7)), symmetric=True)
    found = Reach.of(operator, torch.tensor([1]))
    assert found is not None
    assert found.nodes.tolist() == [0, 1, 2]
    assert found.train.tolist() == [1]
    assert torch.equal(found.train_rows.matrix.to_dense(), operator.matrix.to_dense()[1:2, :3])
    # Nodes 1 and 3 reach five of seven nodes, which are more than half; four training nodes are, too.
    assert Reach.of(operator, torch.tensor([1, 3])) is None
    assert Reach.of(operator, torch.tensor([0, 1, 2, 3])) is None
    assert Reach.of(operator, torch.empty(0, dtype=torch.int64)) is not None


def test_blocks_are_the_products_with_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "ROWS", 4)
    draws = torch.Generator().manual_seed(0)
    # Small whole numbers: their sums are exact in any order.
    x = torch.randint(-9, 9, (10, 5), generator=draws).float()
    weight, grad = (torch.randint(-9, 9, (n, 3), generator=draws).float() for n in (5, 10))
    for form in (x, x.to(torch.float16)):
        blocks = Blocks(form, None)
        assert torch.equal(blocks.times(weight), x @ weight)
        assert torch.equal(blocks.transposed_times(grad), x.t() @ grad)
        operator = Sparse.of(adjacency(torch.tensor([[0, 1, 5], [1, 2, 9]]), 10))
        monkeypatch.setattr(near, "COLUMNS", 2)  # five columns are no multiple of it
        assert torch.equal(smoothed(operator, form), operator.times(x))


def test_a_mask_of_some_rows_is_that_of_all() -> None:
    nodes = torch.tensor([0, 3, 8])
    for share, width in ((0.5, 16), (0.5, 3), (0.2, 16), (0.0, 16)):
        one, other = (Dropout(share, width, np.random.default_rng(1)) for _ in range(2))
        for _ in range(2):  # the next draws are the same, too
            all_rows, some = one.mask(9), other.mask(9, nodes)
            if all_rows is None or some is None:
                assert all_rows is some
            else:
                assert torch.equal(all_rows[nodes], some)


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [({}, True), ({"layers": 3}, False), ({"head": "linear"}, False), ({"backbone": "sgc"}, False)],
)
@pytest.mark.usefixtures("small_is_large")
def test_two_convolutions_alone_have_few_rows(
    data: ClientData, settings: dict[str, Any], blocks: bool
) -> None:
    assert isinstance(Backbone(**settings).inputs(data).features, Blocks) == blocks


@pytest.mark.parametrize("settings", [{}, {"layers": 3}, {"head": "linear", "backbone": "sage"}])
def test_a_huge_x_is_never_smoothed_whole(
    data: ClientData, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(near, "LARGE", 1)
    monkeypatch.setattr(near, "MOST", 0.0)
    whole = Backbone(**settings).inputs(data)
    monkeypatch.setattr(near, "HELD", 1)
    model = Backbone(**settings)
    held = model.inputs(data)
    assert isinstance(whole.features, torch.Tensor)
    assert isinstance(held.features, Blocks)
    assert held.near is None
    one, other = one_step(model, whole), one_step(model, held)
    for name, value in one[1].items():
        torch.testing.assert_close(other[1][name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("small_is_large")
def test_what_the_first_layer_reads_of_a_node(data: ClientData, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = torch.tensor([5, 2, 400])
    for backbone in ("gcn", "sage"):
        model = Backbone(backbone=backbone)
        few = model.inputs(data)
        found = model.network.first_rows(model, few, data.graph.x, nodes)
        with monkeypatch.context() as patch:
            patch.setattr(near, "LARGE", near.HELD)
            wanted = model.inputs(data).features
        assert isinstance(wanted, torch.Tensor)
        assert torch.equal(found, wanted[nodes])


@pytest.mark.parametrize(
    "method",
    [
        "fedavg",
        "fedepd",
        "fedproto",
        "fedproto 8-6",
        "fedlf",
        "lws",
        "creff",
        "moon",
        "graphfedmig",
        "fedspray",
    ],
)
def test_a_run_is_the_same_to_six_digits(
    data: ClientData, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Also of methods that train on more of H: theirs is computed as P (X W)."""
    graph: Graph = synthetic(
        nodes=600, edges=900, classes=CLASSES, imbalance=5.0, smallest=None, features=FEATURES, communities=6
    )
    settings: dict[str, Any] = {"rounds": 2, "clients": 2, "hidden": 8, "train_share": 0.05, "val_share": 0.3}
    name, _, widths = method.partition(" ")
    settings |= {"widths": widths} if widths else {}
    experiment = Experiment.make(name, optimizer="sgd", **settings)
    whole = execute(experiment, graph).tensors
    monkeypatch.setattr(near, "LARGE", 1)
    found = execute(experiment, graph).tensors
    assert whole.keys() == found.keys()
    for name, value in whole.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
