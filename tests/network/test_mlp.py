"""mlp against torch_geometric's MLP."""

from __future__ import annotations

import pytest
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.types import ClientData, Tensors
from network.reference import assert_equal_with_gradients, called, clients, start
from toy import CLASSES, FEATURES


@clients
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_dense_layers(data: ClientData, layers: int) -> None:
    mlp = pytest.importorskip("torch_geometric.nn").MLP
    model = Backbone("mlp", 8, layers=layers)
    names = ["encoder", "encoder.second", "encoder.third"][: layers - 1]

    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        own = {}
        for number, name in enumerate([*names, "classifier"]):
            own[f"lins.{number}.weight"], own[f"lins.{number}.bias"] = (
                p[f"{name}.weight"].t(),
                p[f"{name}.bias"],
            )
        return called(mlp([FEATURES, *[8] * (layers - 1), CLASSES], norm=None), own, x)

    assert_equal_with_gradients(model, data, start(model), theirs)
