"""Reasons by PyG's GNNExplainer instead of integrated gradients (Ying et al., NeurIPS 2019, 1903.03894).

It searches masks from 0 to 1 of features and edges that keep the class likely and are small. A mask is an
importance. Importances do not add up to anything.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd import memory
from fedepd.errors import BadConfig
from fedepd.model.explain import Explainer, Floats, Integrated
from fedepd.model.model import Model
from fedepd.network.backbones import Backbone
from fedepd.network.contract import convolves_first, layer_names
from fedepd.network.masked import Lens, Surroundings
from fedepd.network.sparse import to_scipy
from fedepd.rng import torch_seeded
from fedepd.types import Graph, Tensors

BACKBONES = ("gcn", "sage")
STEPS = 200
"""Steps of the search, as in PyG's own example."""
SAME = 1e-5
"""Logits of PyG's layers may differ by this share of the largest of ours, or this much if that is more."""
MASKS = (("attributes", "object"), ("attributes", None), (None, "object"))
"""Of features and of edges. A mask without any gradient makes PyG's loss not a number, so it is left out."""


class InPyG(torch.nn.Module):
    """A gcn or sage on the surroundings of one node, its messages passed by PyG.

    Choice: features are given as differences from the usual ones, so that what GNNExplainer masks becomes
    usual and not 0, as on the path of the gradients.
    """

    def __init__(self, model: Backbone, params: Tensors, part: sp.coo_matrix, usual: Tensor) -> None:
        """``part``: the operator's rows and columns of these nodes."""
        from torch_geometric.nn import SimpleConv

        super().__init__()
        self.model, self.params, self.usual = model, params, usual
        self.passed = SimpleConv(aggr="sum")
        beside = part.row != part.col
        ends = np.stack([part.col[beside], part.row[beside]]).astype(np.int64)
        self.edges = torch.from_numpy(ends)  # [2, m]: from, to
        self.weight = torch.from_numpy(part.data[beside].astype(np.float32))  # [m]
        self.own = torch.from_numpy(part.diagonal().astype(np.float32))[:, None]  # [s, 1]: never masked

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits [s, C] of nodes with the differences ``x``."""
        h = x + self.usual
        for name in layer_names(self.model):
            rows = self._spread(h, edges) if convolves_first(self.model) else h
            h = torch.relu(rows @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"])
        rows = h if self.model.head == "linear" else self._spread(h, edges)
        return rows @ self.params["classifier.weight"] + self.params["classifier.bias"]

    def _spread(self, h: Tensor, edges: Tensor) -> Tensor:
        smoothed = self.passed(h, edges, self.weight) + self.own * h
        return torch.cat([smoothed, h], dim=1) if self.model.backbone == "sage" else smoothed


class MaskExplainer(Explainer):
    """A model before one graph, explained by GNNExplainer.

    Raises:
        BadConfig: PyG is not installed, or the model has another backbone than gcn and sage.
    """

    by: ClassVar[str] = "gnnexplainer"

    def __init__(self, model: Model, graph: Graph) -> None:
        backbone = model.experiment.model.backbone
        if backbone not in BACKBONES:
            raise BadConfig(
                f"GNNExplainer explains the backbones {' and '.join(BACKBONES)}, and the model's is "
                f"{backbone}; explain it by gradients"
            )
        try:
            import torch_geometric.explain  # noqa: F401
        except ImportError:
            raise BadConfig(
                "GNNExplainer is PyG's, which is not installed; run: pip install 'fedepd[pyg]'"
            ) from None
        super().__init__(model, graph)

    def _found(self, around: Surroundings, x: Tensor, place: int, label: int) -> Integrated:
        s, e = len(around.nodes), around.edges.shape[1]
        width = max(x.shape[1], 2 * self._eyes.hidden)
        memory.check(4 * memory.COPIES * (s + 2 * e) * width, f"the {s:,} nodes around a node")
        ends = self._ends(around, x, place, label)
        lens = Lens(around, x, torch.ones(e))
        part = sp.coo_matrix(to_scipy(self._operator.matrix)[around.nodes][:, around.nodes])
        network = InPyG(self._eyes, self._eyes.params, part, self.usual)
        self._check(network, lens)
        with torch_seeded(self.model.experiment.protocol.seed, "gnnexplainer", self.ids[place], label):
            features, directed = _masks(network, x - self.usual, label)
        edges = np.zeros(e)
        if e:
            a, b = network.edges.numpy()
            number = lens.numbers[a.copy(), b.copy()]  # copies: scipy sets their flags
            np.maximum.at(edges, np.asarray(number).reshape(-1) - 1, directed)
        return Integrated(features, edges, *ends, 0.0, STEPS)

    def _check(self, network: InPyG, lens: Lens) -> None:
        with torch.no_grad():
            ours, theirs = self._logits(lens), network(lens.x - self.usual, network.edges)
        if not float((ours - theirs).abs().max()) <= SAME * max(1.0, float(ours.abs().max())):
            raise BadConfig(
                f"PyG's layers with the weights of this model of {self.model.experiment.method.label} give "
                "other logits than the model, so GNNExplainer would explain something else; explain it by "
                "gradients"
            )

    def _by_node(self, around: Surroundings, edges: Floats) -> Floats:
        ends, hops, out = around.edges, around.hops, np.zeros(len(around.hops))
        for a, b in ((0, 1), (1, 0)):
            np.maximum.at(out, ends[a], np.where(hops[ends[a]] >= hops[ends[b]], edges, 0.0))
        return out

    def _of_neighbour(self, features: Floats, by_edges: float) -> float:
        return float(by_edges)

    def _by_column(self, own: Floats) -> list[float]:
        largest: list[float] = np.maximum.reduceat(own, [int(each.at[0]) for each in self.columns]).tolist()
        return largest


def _masks(network: InPyG, x: Tensor, label: int) -> tuple[Floats, Floats]:
    """Importances of features [s, d] and of directed edges [m]; 0 of what does not matter."""
    from torch_geometric.explain import Explainer as Searching
    from torch_geometric.explain import GNNExplainer

    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    target = torch.full((x.shape[0],), label)
    for nodes, edges in MASKS if network.edges.numel() else MASKS[1:2]:
        algorithm = GNNExplainer(epochs=STEPS)
        search = Searching(network, algorithm, "phenomenon", config, nodes, edges)
        found = search(x, network.edges, target=target, index=0)
        features, directed = _found(found, "node_mask", x), _found(found, "edge_mask", network.weight)
        if np.isfinite(features).all() and np.isfinite(directed).all():
            return features, directed
    return np.zeros(tuple(x.shape)), np.zeros(network.weight.shape[0])


def _found(explanation: Any, name: str, like: Tensor) -> Floats:
    mask = explanation.get(name)
    return np.zeros(tuple(like.shape)) if mask is None else mask.detach().double().numpy()
