"""h2gcn against the same network of torch_geometric's parts, and its two rings by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedepd.errors import BadData
from fedepd.network.backbones import Backbone
from fedepd.network.h2gcn import H2GCN
from fedepd.network.sparse import adjacency
from fedepd.types import ClientData, Tensors
from network.reference import assert_equal_with_gradients, clients, start
from toy import toy_client


def rings(x: Tensor, edges: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Edges and normalised weights: of the graph, and of what TwoHop adds to it."""
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=edges, num_nodes=x.shape[0])
    both = pytest.importorskip("torch_geometric.transforms").TwoHop()(data).edge_index
    known = set(map(tuple, edges.t().tolist()))
    far = torch.tensor([pair for pair in both.t().tolist() if tuple(pair) not in known], dtype=torch.int64)
    norm = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
    return [norm(each, None, x.shape[0], False, False) for each in (edges, far.reshape(-1, 2).t())]


@clients
@pytest.mark.skipif(not torch._C.has_mkl, reason="TwoHop needs MKL")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch_geometric's own
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_against_torch_geometric(data: ClientData, layers: int) -> None:
    conv = pytest.importorskip("torch_geometric.nn").SimpleConv(aggr="sum")
    model = Backbone("h2gcn", 4, layers=layers)

    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        rounds = [torch.relu(x @ p["encoder.weight"] + p["encoder.bias"])]
        for _ in range(layers):
            rounds.append(torch.cat([conv(rounds[-1], *ring) for ring in rings(x, edges)], dim=1))
        return torch.cat(rounds, dim=1) @ p["classifier.weight"] + p["classifier.bias"]

    assert_equal_with_gradients(model, data, start(model), theirs)


def test_rings_by_hand() -> None:
    """0 - 1 - 2 - 3 and 4 alone. Near degrees 1 2 2 1 0; far pairs 0-2 and 1-3, all of degree 1."""
    adj = adjacency(torch.tensor([[0, 1, 2], [1, 2, 3]]), 5)
    found = H2GCN().extra(Backbone("h2gcn"), adj, torch.tensor([1, 4]))
    near, far = torch.zeros(5, 5), torch.zeros(5, 5)
    near[0, 1] = near[1, 0] = near[2, 3] = near[3, 2] = 2**-0.5
    near[1, 2] = near[2, 1] = 0.5
    far[0, 2] = far[2, 0] = far[1, 3] = far[3, 1] = 1.0
    for ring, expected in ((found.near, near), (found.far, far)):
        torch.testing.assert_close(ring.matrix.to_dense(), expected)
    torch.testing.assert_close(found.far_train.matrix.to_dense(), far[[1, 4]])


def test_two_steps_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "0.00001")
    with pytest.raises(BadData, match="two steps apart, which the backbone h2gcn needs, would need"):
        Backbone("h2gcn").inputs(toy_client())
