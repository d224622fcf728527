"""A backbone of your own: a class that says what its layers are.

Run it with 'python examples/own_backbone.py'.

The network is close to APPNP (Gasteiger et al., ICLR 2019): a dense layer, whose rows then walk over the
edges
and often come back to where they began. A node thus reads its wider neighbourhood and does not forget itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

import fedepd
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout, Inputs, Network, Shapes, times
from fedepd.network.sparse import spmm
from fedepd.testing import check_backbone
from fedepd.types import Tensors


@final
@dataclass(frozen=True)
class Walk(Network):
    """H = ReLU(X W + b); S = H after so many steps of S <- (1 - restart) P S + restart H."""

    steps: int = 4
    restart: float = 0.2

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden), "encoder.bias": (model.hidden,)}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        h = times(inputs.features, params["encoder.weight"]) + params["encoder.bias"]
        return dropout(torch.relu(h))

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        s = h
        for _ in range(self.steps):
            s = (1 - self.restart) * spmm(inputs.operator, s) + self.restart * h
        return s[inputs.train] if train_only else s


if __name__ == "__main__":
    check_backbone(Walk)
    graph = fedepd.load("synthetic")
    for name, backbone in {"gcn": "gcn", "Walk": Walk(steps=4)}.items():
        result = fedepd.run(graph, "fedavg", backbone=backbone, clients=5, rounds=20)
        score = result.metrics["global"]["pooled"]["bacc"]
        print(f"FedAvg with {name}: balanced accuracy {100 * score:.1f} %")
