"""FedAvg as a user would write it: torch_geometric's GCNConv, dense features, a Python loop over clients.

A round does what OpenFGL does: copy the weights, train three epochs, average by nodes, evaluate each client's
model. The benchmark compares our methods with this loop. Nothing else uses it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.types import ClientData, TaskInfo


def reference_rounds(clients: Sequence[ClientData], info: TaskInfo, rounds: int) -> list[dict[str, float]]:
    """The CPU seconds of each round, by part: train, aggregate, evaluate."""
    from torch_geometric.nn import GCNConv

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GCNConv(info.num_features, 64)
            self.second = GCNConv(64, info.num_classes)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.second(F.dropout(F.relu(self.first(x, edge_index)), 0.5, self.training), edge_index)

    datas = [(c.graph.to_pyg(), c.train_mask, c.val_mask, c.test_mask) for c in clients]
    server = Net()
    nets = [Net() for _ in datas]
    optimisers = [torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4) for net in nets]
    total = sum(data.num_nodes for data, *_ in datas)
    out = []
    for _ in range(rounds):
        start = time.process_time()
        for net, optimiser, (data, train, _, _) in zip(nets, optimisers, datas, strict=True):
            with torch.no_grad():
                for own, new in zip(net.parameters(), server.parameters(), strict=True):
                    own.copy_(new)
            net.train()
            for _ in range(3):
                optimiser.zero_grad()
                loss = F.cross_entropy(net(data.x, data.edge_index)[train], data.y[train])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        trained = time.process_time()
        with torch.no_grad():
            for many in zip(server.parameters(), *(net.parameters() for net in nets), strict=True):
                many[0].copy_(
                    sum(p * (data.num_nodes / total) for p, (data, *_) in zip(many[1:], datas, strict=True))
                )
        averaged = time.process_time()
        for net, (data, _, val, test) in zip(nets, datas, strict=True):
            net.eval()
            with torch.no_grad():
                predicted = net(data.x, data.edge_index).argmax(1)
            for mask in (val, test):
                (predicted[mask] == data.y[mask]).float().mean()
        done = time.process_time()
        out.append({"train": trained - start, "aggregate": averaged - trained, "evaluate": done - averaged})
    return out
