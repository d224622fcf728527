"""The contract of a network: the names and shapes of its parameters, and its forward pass in torch.

A network computes H, one row of ``hidden`` numbers per node, and S, the rows that the classifier reads. The
classifier is the same for all: Z = S W + b. Autograd gives the gradient, unless the network brings its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network import kernels
from fedepd.network.products import affine
from fedepd.network.sparse import Chosen, Sparse, factor_of, normalised, spmm, to_scipy
from fedepd.options import check_derived, class_name, field_types, is_plain
from fedepd.shown import shown
from fedepd.types import Tensors, widened

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone
    from fedepd.network.masked import Lens

Error = Callable[[Tensor], tuple[float, Tensor]]
"""A loss of logits and its gradient by them, for which it may overwrite them."""
ErrorOfBoth = Callable[[Tensor, Tensor], tuple[float, Tensor, Tensor]]
"""The same for a loss of logits and of rows of H without dropout, with both gradients."""
Shapes = dict[str, tuple[int, ...]]
"""The shape of each parameter, by its name."""
RESERVED = ("name", "class")
"""What a run folder calls something else beside a backbone's own settings."""
ORDINALS = ("", ".second", ".third", ".fourth")
"""What the layers of an encoder are called: "encoder.weight", "encoder.second.weight", and so on."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the network reads of one client, prepared once."""

    operator: Sparse
    """P [n, n]: the convolution (Eq. 10; sage: the neighbours' mean)."""
    features: Sparse | Tensor
    """X; as CSR where it is sparse. A dense X may be replaced by the product that the first layer needs."""
    train: Tensor
    """int64 [t]: the training nodes, ascending."""
    train_rows: Sparse | Chosen
    """P[train] [t, n]: the last layer of a training step computes no other row."""
    labels: Tensor
    """int64 [t]: the training nodes' classes."""
    extra: Any = None
    """What the network's own ``extra`` made of the graph."""
    near: Inputs | None = None
    """What a training step reads, where that is less: some rows of H, by ``nodes``."""
    nodes: Tensor | None = None
    """int64 [m]: the nodes whose rows these are. None: all."""

    @property
    def of_training(self) -> Inputs:
        """What is enough for the rows of training nodes: they are at ``train`` among its rows."""
        return self.near or self


class Dropout:
    """Dropout in one pass: nothing in evaluation, a fresh mask at each call in training."""

    def __init__(self, share: float, width: int, generator: np.random.Generator | None) -> None:
        self.share, self.width = share, width
        self._generator = generator if share > 0 else None

    def __call__(self, h: Tensor) -> Tensor:
        """``h`` [rows, width] after dropout."""
        mask = self.mask(h.shape[0])
        return h if mask is None else h * mask

    @property
    def scale(self) -> float:
        """What a kept unit is multiplied by."""
        return 1.0 if self._generator is None else 1 / (1 - self.share)

    def mask(self, rows: int, nodes: Tensor | None = None) -> Tensor | None:
        """0 where dropped, 1 / (1 - share) where kept: [rows, width]; None where nothing is dropped.

        With ``nodes`` [m], only their rows of it.
        """
        drawn = self.drawn(rows, nodes)
        count = rows if nodes is None else len(nodes)
        return kernels.unpacked(drawn, count, self.width) if isinstance(drawn, bytes) else drawn

    def drawn(self, rows: int, nodes: Tensor | None = None) -> bytes | Tensor | None:
        """The same mask; where half of the units are dropped, as one random bit per unit, or some more."""
        drawn = self._drawn(rows)
        if nodes is None or drawn is None:
            return drawn
        if isinstance(drawn, Tensor) or self.width % 8:
            mask = drawn if isinstance(drawn, Tensor) else kernels.unpacked(drawn, rows, self.width)
            return mask[nodes]
        octets = np.frombuffer(drawn, np.uint8)[: rows * self.width // 8].reshape(rows, -1)
        chosen: bytes = octets[nodes.numpy()].tobytes()
        return chosen

    def _drawn(self, rows: int) -> bytes | Tensor | None:
        if self._generator is None:
            return None
        if self.share == 0.5:
            words = self._generator.bit_generator.random_raw((rows * self.width + 63) // 64)
            return words.astype("<u8", copy=False).tobytes()
        kept = self._generator.random((rows, self.width), dtype=np.float32) >= self.share
        return torch.from_numpy(kept.astype(np.float32)).div_(1 - self.share)


class Network(ABC):
    """A network behind :class:`~fedepd.network.backbones.Backbone`, whose settings come as ``model``.

    A subclass is a frozen dataclass. Its fields, all with defaults, are settings of its own. It must give
    ``shapes`` and ``encode``; the rest has defaults. A network computes the same for the same inputs, draws
    random numbers through ``dropout`` alone, and writes into nothing that it was given.
    """

    depths: ClassVar[tuple[int, ...]] = (2,)
    """The values of ``layers`` that the network knows."""
    heads: ClassVar[tuple[str, ...]] = ("gcn",)
    """The values of ``head`` that the network knows. "gcn" is the network's own last layer."""
    convolution: ClassVar[Literal["gcn", "sage"] | None] = None
    """The last layer, if it is S = P H (gcn) or S = [P H | H] (sage); None: S is made in another way."""
    smoothing: ClassVar[str] = ""
    """Begins the names of the parameters that ``smooth`` reads; empty where it reads none."""
    weighs_edges: ClassVar[bool] = False
    """Whether all that the network makes of an adjacency matrix uses its entries. Otherwise a graph whose
    edges have weights is refused."""

    @abstractmethod
    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        """The encoder's parameters; all names begin with "encoder.".

        A vector starts at 0, a matrix with Glorot's random numbers.
        """

    @abstractmethod
    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        """H [n, hidden]. ``dropout(h)`` drops units of a hidden layer in training and none in evaluation."""

    def check(self, model: Backbone) -> None:  # noqa: B027 (most networks refuse nothing)
        """Raise :class:`~fedepd.errors.BadConfig` for settings that do not fit the network."""

    def width(self, model: Backbone) -> int:
        """Columns of S."""
        return model.hidden

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        """S, what the classifier reads: [n, width], or [t, width] for the training nodes. Here: H itself.

        It may read the encoder's parameters and never the classifier's: those can be trained on a fixed S.
        """
        return h[inputs.train] if train_only else h

    def operator(self, adj: sp.csr_matrix) -> Sparse:
        """P of an adjacency matrix [n, n] without self-loops; its entries are 1, or weights of edges.

        Here: Eq. 10.
        """
        return Sparse.of(normalised(adj, dtype=np.float32), symmetric=True)

    def features(self, model: Backbone, x: Tensor, operator: Sparse) -> Sparse | Tensor:
        """What the first layer reads of X [n, d], prepared once."""
        return factor_of(x)

    def extra(self, model: Backbone, adj: sp.csr_matrix, train: Tensor) -> Any:
        """Whatever else the network reads of the graph, prepared once: ``inputs.extra``."""
        return None

    def reach(self, model: Backbone) -> int:
        """How many steps away a node may be that changes another node's logits. Here: one per layer."""
        return model.layers

    def large(
        self, model: Backbone, x: Tensor, operator: Sparse, train: Tensor, labels: Tensor
    ) -> Inputs | None:
        """What the network reads of a client for which ``features`` would take too much. Here: None."""
        return None

    def seen_through(self, model: Backbone, extra: Any, lens: Lens) -> Any:
        """``extra`` for the part of the graph that an explanation looks at, weighted by its masks."""
        if extra is not None:
            raise BadConfig(
                f"the backbone {class_name(type(self))} cannot be explained, because it has no seen_through; "
                "use another backbone, or add it (fedepd.network.contract)"
            )

    def first_rows(self, model: Backbone, inputs: Inputs, x: Tensor, nodes: Tensor) -> Tensor:
        """What "encoder.weight" is multiplied with, for the chosen nodes: dense [m, rows of the weight]."""
        return dense_rows(x, nodes) if isinstance(inputs.features, Sparse) else inputs.features[nodes]

    def logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        """``classify(smooth(h))``, or the same in a cheaper order of products: [n, C] or [t, C]."""
        return classify(params, self.smooth(model, params, h, inputs, train_only))

    def gradient(
        self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout, error: Error
    ) -> tuple[float, Tensors]:
        """The loss of a training step and its gradient by every parameter. Here: by autograd."""

        def logits(leaves: Tensors) -> Tensor:
            h = self.encode(model, leaves, inputs, dropout)
            return self.logits(model, leaves, h, inputs, train_only=True)

        return through_autograd(params, logits, error)

    def gradient_of_both(
        self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout, error: ErrorOfBoth
    ) -> tuple[float, Tensors]:
        """The same for a loss that also reads H of the training nodes without dropout. Here: by autograd."""

        def outs(leaves: Tensors) -> tuple[Tensor, Tensor]:
            h = self.encode(model, leaves, inputs, dropout)
            clean = self.encode(model, leaves, inputs, Dropout(0.0, dropout.width, None))
            return self.logits(model, leaves, h, inputs, train_only=True), clean[inputs.train]

        return both_through_autograd(params, outs, error)


def through_autograd(
    params: Tensors, logits_of: Callable[[Tensors], Tensor], error: Error
) -> tuple[float, Tensors]:
    """The loss of a training step and its gradient by every parameter that the logits depend on."""
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    logits = logits_of(leaves)
    loss, grad = error(logits.detach().clone())
    return loss, _gradients((logits,), leaves, (grad,))


def both_through_autograd(
    params: Tensors, outs_of: Callable[[Tensors], tuple[Tensor, Tensor]], error: ErrorOfBoth
) -> tuple[float, Tensors]:
    """The same for a loss of logits and of rows of H without dropout."""
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    outs = outs_of(leaves)
    loss, *grads = error(outs[0].detach().clone(), outs[1].detach().clone())
    return loss, _gradients(outs, leaves, grads)


def _gradients(outs: Sequence[Tensor], leaves: Tensors, grads: Sequence[Tensor]) -> Tensors:
    found = torch.autograd.grad(outs, list(leaves.values()), grads, allow_unused=True)
    return {name: value for name, value in zip(leaves, found, strict=True) if value is not None}


def check_network_class(cls: object) -> type[Network]:
    """What a network needs to be run by name.

    It is a frozen dataclass whose fields all have a default and a plain type.
    """
    cls = check_derived(cls, Network, "fedepd.network.contract.Network")
    who = f"backbone {class_name(cls)}"
    kinds = field_types(cls, who, RESERVED)
    for f in fields(cls):
        if f.default is MISSING:
            raise BadConfig(f"field '{f.name}' of {who} has no default; write {f.name}: ... = DEFAULT")
        if kinds[f.name] is not str and not is_plain(kinds[f.name]):
            raise BadConfig(
                f"field '{f.name}' of {who} has the type {shown(kinds[f.name])}; use bool, int, float, str,"
                " Literal[...], or a number or None"
            )
    return cls


def layer_names(model: Backbone) -> list[str]:
    """The encoder's layers, in order: all of ``layers``, or all but the last where that one classifies.

    Choice: layers counts convolutions. With head gcn the last of them classifies, so that one layer leaves
    none for the encoder. It is then a dense layer: H = X itself would have another width than every method
    expects, and prototypes of H would send features in clear.
    """
    count = model.layers if model.head == "linear" else max(1, model.layers - 1)
    return [f"encoder{ordinal}" for ordinal in ORDINALS[:count]]


def convolves_first(model: Backbone) -> bool:
    """Whether the encoder's first layer is a convolution; otherwise it is a dense layer, and the only one."""
    return model.head == "linear" or model.layers > 1


def classify(params: Tensors, s: Tensor) -> Tensor:
    """Z = S W + b: [rows, C]."""
    return affine(s, params["classifier.weight"], params["classifier.bias"])


def times(matrix: Sparse | Tensor, weight: Tensor) -> Tensor:
    """``matrix @ weight`` with a gradient for ``weight``, whether the matrix is sparse or dense."""
    return spmm(matrix, weight) if isinstance(matrix, Sparse) else matrix @ weight


def dense_rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of a dense or sparse X, as a dense matrix."""
    if x.layout != torch.sparse_csr:
        return widened(x[nodes])
    return torch.from_numpy(to_scipy(x)[nodes.numpy()].toarray())


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns))."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
