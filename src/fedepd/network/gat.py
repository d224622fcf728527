"""``gat``: graph attention, of several heads in the encoder and of one before the classifier.

Veličković et al., "Graph Attention Networks", ICLR 2018, arXiv 1710.10903.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network.attention import Edges, attend, edge_softmax
from fedepd.network.contract import Dropout, Inputs, Network, Shapes, convolves_first, layer_names, times
from fedepd.network.sparse import to_scipy
from fedepd.options import option
from fedepd.types import Tensors, widened

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone
    from fedepd.network.masked import Lens

LAST = "encoder.last"


@final
@dataclass(frozen=True)
class GAT(Network):
    """relu(A X W + b), with an attention A for each group of columns; S = A' H."""

    depths: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    heads: ClassVar[tuple[str, ...]] = ("gcn", "linear")
    smoothing: ClassVar[str] = LAST
    weighs_edges: ClassVar[bool] = True

    attentions: int = option(
        4, "heads of attention in each layer of the encoder; each has its share of the columns"
    )
    slope: float = option(0.2, "slope of the leaky ReLU on attention scores below 0")

    # Choice: ReLU as in every other network here, where the paper has ELU. What a crafted model could rebuild
    # of a site's features is measured by units that are switched off (fedepd.privacy.recovery), and ELU has
    # none.
    # Choice: the attention before the classifier reads H itself, by vectors u of its own. The published layer
    # reads H W by vectors a, which is the same for u = W a. S then depends on the encoder alone, so that the
    # classifier is linear and can be trained on a fixed S, as several methods do.

    def check(self, model: Backbone) -> None:
        if self.attentions < 1 or model.hidden % self.attentions:
            raise BadConfig(
                f"hidden is {model.hidden}; the backbone gat splits it among {self.attentions} heads of "
                f"attention, so give a multiple of {self.attentions}"
            )

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        shapes: Shapes = {}
        rows, pair = num_features, (self.attentions, model.hidden // self.attentions)
        for name in layer_names(model):
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, model.hidden), (model.hidden,)
            if convolves_first(model):
                shapes[f"{name}.source"], shapes[f"{name}.target"] = pair, pair
            rows = model.hidden
        if model.head == "gcn":
            shapes[f"{LAST}.source"], shapes[f"{LAST}.target"] = (1, model.hidden), (1, model.hidden)
        return shapes

    def extra(self, model: Backbone, adj: sp.csr_matrix, train: Tensor) -> Edges:
        return Edges.of(adj, train)

    def seen_through(self, model: Backbone, extra: Edges, lens: Lens) -> Edges:
        """The attentions are those of all messages; a mask then scales what an edge carries."""
        edges = Edges.of(lens.adjacency, lens.none)
        if extra.log_weight is not None:
            edges = replace(edges, log_weight=lens.values_at(edges.target, edges.source, extra.weighted()))
        return replace(edges, mask=lens.masks(edges.target.numpy(), edges.source.numpy()))

    def first_rows(self, model: Backbone, inputs: Inputs, x: Tensor, nodes: Tensor) -> Tensor:
        """Where all edges of a node have the same attention: the mean over the node and its neighbours."""
        if not convolves_first(model):
            return super().first_rows(model, inputs, x, nodes)
        edges: Edges = inputs.extra
        equal = edge_softmax(torch.zeros(edges.target.shape[0]), edges)
        near = to_scipy(edges.every.filled(equal).matrix)[nodes.numpy()]
        rows = near @ (to_scipy(x) if x.layout == torch.sparse_csr else widened(x).numpy())
        return torch.from_numpy(rows.toarray() if sp.issparse(rows) else rows)

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        h: Tensor | None = None
        for name in layer_names(model):
            weight = params[f"{name}.weight"]
            values = times(inputs.features, weight) if h is None else h @ weight
            if convolves_first(model):
                values = self._attended(params, name, values, inputs.extra)
            h = dropout(torch.relu(values + params[f"{name}.bias"]))
        assert h is not None
        return h

    def _attended(self, params: Tensors, name: str, values: Tensor, edges: Edges) -> Tensor:
        """Each head's columns, summed over the neighbours by its attention: [n, hidden]."""
        source, target = params[f"{name}.source"], params[f"{name}.target"]
        groups = [group.contiguous() for group in values.chunk(self.attentions, dim=1)]
        return torch.cat(
            [
                attend(self._alpha(group, source[head], target[head], edges), group, edges.every)
                for head, group in enumerate(groups)
            ],
            dim=1,
        )

    def _alpha(self, values: Tensor, source: Tensor, target: Tensor, edges: Edges) -> Tensor:
        """The attention of each edge, [m]; those of a node's edges sum to 1."""
        at_source, at_target = values @ source, values @ target
        scores = at_target.index_select(0, edges.target) + at_source.index_select(0, edges.source)
        scores = F.leaky_relu(scores, self.slope)
        # Choice: the attention of an edge is in proportion to its weight, as in a weighted mean.
        alpha = edge_softmax(scores if edges.log_weight is None else scores + edges.log_weight, edges)
        return alpha if edges.mask is None else alpha * edges.mask

    def _last(self, params: Tensors, h: Tensor, edges: Edges) -> Tensor:
        return self._alpha(h, params[f"{LAST}.source"][0], params[f"{LAST}.target"][0], edges)

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        if model.head == "linear":
            return super().smooth(model, params, h, inputs, train_only)
        edges: Edges = inputs.extra
        return attend(self._last(params, h, edges), h, edges.train if train_only else edges.every)

    def logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        """A' (H W) instead of (A' H) W where there are fewer classes than hidden units."""
        weight = params["classifier.weight"]
        if model.head == "linear" or weight.shape[1] >= model.hidden:
            return super().logits(model, params, h, inputs, train_only)
        edges: Edges = inputs.extra
        rows = edges.train if train_only else edges.every
        return attend(self._last(params, h, edges), h @ weight, rows) + params["classifier.bias"]
