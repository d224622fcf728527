"""The shared network as three functions: ``encode`` -> H, ``smooth`` -> S, ``classify`` -> Z = S W + b.

Parameters are named tensors, "encoder.*" and "classifier.*": to freeze, average or send one half is a name
prefix. Which network computes H and S is a name in ``BACKBONES``, or an object of the contract's class. Other
packages add names by an entry point of the group ``fedepd.backbones``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedepd.errors import BadConfig, UnknownName
from fedepd.network.contract import (
    Dropout,
    Error,
    ErrorOfBoth,
    Inputs,
    Network,
    Shapes,
    check_network_class,
    classify,
    glorot,
)
from fedepd.network.convolution import GCN, SAGE
from fedepd.network.gat import GAT
from fedepd.network.h2gcn import H2GCN
from fedepd.network.mlp import MLP
from fedepd.network.sgc import SGC
from fedepd.network.sparse import Sparse, weighted_adjacency
from fedepd.options import ladder, option
from fedepd.plugins import Registry
from fedepd.rng import seeded
from fedepd.shown import shown
from fedepd.types import ClientData, TaskInfo, Tensors, widened

_OURS: dict[str, type[Network]] = {
    "gcn": GCN,
    "sage": SAGE,
    "gat": GAT,
    "sgc": SGC,
    "mlp": MLP,
    "h2gcn": H2GCN,
}
BACKBONES: Registry[type[Network]] = Registry(
    "fedepd.backbones", "backbone", _OURS, lambda name, found: check_network_class(found)
)
"""Every network by the name that code, TOML, command line and run folders share."""
AUTO = "auto"
MOST_LAYERS = 4


def backbone_names() -> list[str]:
    """What the setting ``backbone`` may be called. Nothing of a plug-in is imported for it."""
    return [*BACKBONES.names(), AUTO]


@dataclass(frozen=True)
class Backbone:
    """A graph network of a few layers."""

    backbone: str | Network = option(
        "gcn",
        "gcn: the paper's convolution; sage: a node's own features kept apart from its neighbours' mean; "
        "gat: attention; sgc: no activations; mlp: no edges; h2gcn: own row, neighbours and theirs apart; "
        "auto: a rule by the classes of neighbouring training nodes chooses gcn, sage or mlp",
        backbone_names,
    )
    hidden: int = option(64, "width of the hidden layer")
    dropout: float = option(
        0.5, "dropout on the hidden layer in training", search=ladder(0.0, 0.25, 0.5, 0.75, above=0.9)
    )
    head: Literal["gcn", "linear"] = option(
        "gcn", "gcn: the last convolution classifies; linear: a linear layer on all convolutions"
    )
    layers: int = option(2, "convolutions, 1 to 4")

    # Choice: the paper's "two-layer GCN" does not say where the classifier begins. OpenFGL's GCN, its test
    # bed, has no separate linear layer, so the second convolution is the classifier by default. Injected rows
    # then reach their neighbours' logits too (docs/reading-the-paper.md, encoder and classifier).
    # Choice: dropout 0.5 is OpenFGL's default; the paper names none.

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise BadConfig(f"hidden is {self.hidden}; the hidden layer needs at least 1 unit")
        if not 0 <= self.dropout < 1:
            raise BadConfig(f"dropout is {self.dropout}; it must lie in [0, 1)")
        if not 1 <= self.layers <= MOST_LAYERS:
            raise BadConfig(f"layers is {self.layers}; give 1 to {MOST_LAYERS}")
        if isinstance(self.backbone, Network):
            object.__setattr__(self, "backbone", named(self.backbone))
        elif self.backbone != AUTO and self.backbone not in BACKBONES:
            raise UnknownName("value of backbone", shown(self.backbone), [*BACKBONES, AUTO])
        if self.backbone != AUTO:
            self._check_network(self.network)

    def _check_network(self, network: Network) -> None:
        name = network_name(network)
        if self.layers not in network.depths:
            known = " or ".join(map(str, network.depths))
            raise BadConfig(f"layers is {self.layers}; with the backbone {name} give {known}")
        if self.head not in network.heads:
            raise BadConfig(
                f"head is {self.head}; the backbone {name} has its own last layer, so leave head at "
                f"{network.heads[0]}"
            )
        network.check(self)

    def check_chosen(self) -> None:
        """``auto`` is no network: it must have become one before anything is built."""
        if self.backbone == AUTO:
            raise BadConfig(
                "backbone auto is chosen by 'fedepd run', 'fedepd compare' and fedepd.run alone; "
                "give gcn or sage here"
            )

    @cached_property
    def network(self) -> Network:
        """What computes H and S."""
        self.check_chosen()
        return self.backbone if isinstance(self.backbone, Network) else BACKBONES[self.backbone]()

    @property
    def width(self) -> int:
        """Columns of S, what the classifier reads."""
        return self.network.width(self)

    @property
    def widest(self) -> int:
        """The width of the widest hidden layer."""
        return self.hidden

    @property
    def convolution(self) -> Literal["gcn", "sage"] | None:
        """How S is made of H: P H (gcn), [P H | H] (sage), or in another way, such as S = H (None)."""
        return self.network.convolution if self.head == "gcn" else None

    def shapes(self, info: TaskInfo) -> Shapes:
        """Every parameter of the network, the classifier's last."""
        encoder = checked_shapes(self.network, self.network.shapes(self, info.num_features))
        classes = info.num_classes
        return {**encoder, "classifier.weight": (self.width, classes), "classifier.bias": (classes,)}

    def init(self, info: TaskInfo, generator: torch.Generator) -> Tensors:
        """Glorot weights, zero biases."""
        return {
            name: glorot(*shape, generator) if len(shape) == 2 else torch.zeros(shape)
            for name, shape in self.shapes(info).items()
        }

    def initial(self, info: TaskInfo, seed: int, *stream: int | str) -> Tensors:
        """The initial weights of a run's seed, or of a stream of their own."""
        return self.init(info, seeded(seed, "init", *stream))

    def check_weighs(self, whose: str, cure: str) -> None:
        """Refuse a backbone that does not use the weights of edges. ``whose`` names these edges."""
        if not self.network.weighs_edges:
            raise BadConfig(
                f"{whose} have weights, and the backbone {network_name(self.network)} does not use them; "
                f"give another backbone, or {cure}"
            )

    def inputs(
        self, data: ClientData, edge_index: Tensor | None = None, operator: Sparse | None = None
    ) -> Inputs:
        """The client's graph made ready. ``edge_index`` replaces its edges, ``operator`` replaces P."""
        graph, network = data.graph, self.network
        if graph.edge_weight is not None:
            whose = f"the edges of graph '{shown(graph.name)}'"
            self.check_weighs(whose, "import the graph without --edge-weight")
        adj = weighted_adjacency(graph, edge_index)
        operator = network.operator(adj) if operator is None else operator
        train = data.train_mask.nonzero().reshape(-1)
        large = network.large(self, graph.x, operator, train, graph.y[train])
        if large is not None:
            return large
        return Inputs(
            operator=operator,
            features=network.features(self, widened(graph.x), operator),
            train=train,
            train_rows=operator.rows_in_place(train),
            labels=graph.y[train],
            extra=network.extra(self, adj, train),
        )

    def dropout_mask(self, rows: int, generator: np.random.Generator) -> Tensor | None:
        """0 where dropped, 1 / (1 - dropout) where kept: [rows, hidden]; None without dropout."""
        return self._dropout(generator).mask(rows)

    def _dropout(self, generator: np.random.Generator | None) -> Dropout:
        return Dropout(self.dropout, self.hidden, generator)

    def encode(self, params: Tensors, inputs: Inputs, generator: np.random.Generator | None = None) -> Tensor:
        """H [n, hidden]; with a ``generator`` after dropout, as in training."""
        return self.network.encode(self, params, inputs, self._dropout(generator))

    def smooth(self, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False) -> Tensor:
        """S, what the classifier reads: [n, width], or [t, width] for the training nodes alone."""
        return self.network.smooth(self, params, h, inputs, train_only)

    def training_rows(self, params: Tensors, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """What the classifier reads of the training nodes in evaluation mode, [t, width], and their classes
        [t].
        """
        inputs = inputs.of_training
        with torch.no_grad():
            return self.smooth(params, self.encode(params, inputs), inputs, train_only=True), inputs.labels

    @staticmethod
    def classify(params: Tensors, s: Tensor) -> Tensor:
        """Z = S W + b: [rows, C]."""
        return classify(params, s)

    def logits(self, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False) -> Tensor:
        """``classify(smooth(h))`` with the cheaper order of products: [n, C] or [t, C]."""
        return self.network.logits(self, params, h, inputs, train_only)

    def gradient(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: Error
    ) -> tuple[float, Tensors]:
        """The loss of a training step and its gradient by the parameters.

        ``error`` computes the loss from the training nodes' logits.
        """
        return self.network.gradient(self, params, inputs, self._dropout(generator), error)

    def gradient_of_both(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: ErrorOfBoth
    ) -> tuple[float, Tensors]:
        """The same for a loss that also reads the training nodes' H without dropout, [t, hidden]."""
        return self.network.gradient_of_both(self, params, inputs, self._dropout(generator), error)

    def predict(self, params: Tensors, inputs: Inputs) -> Tensor:
        """Logits of every node, evaluation mode: [n, C]."""
        with torch.no_grad():
            return self.logits(params, self.encode(params, inputs), inputs)


def named(network: Network) -> str | Network:
    """The registered name of a network whose own settings are at their defaults; otherwise the network."""
    if "__dataclass_fields__" not in vars(type(network)):
        raise BadConfig(
            f"the backbone {network_name(network)} is no dataclass, "
            "so no run folder would hold its settings; write @dataclass(frozen=True) above its class"
        )
    for f in fields(network):  # type: ignore[arg-type]
        value = getattr(network, f.name)
        if not isinstance(value, str | int | float | None):
            raise BadConfig(
                f"'{f.name}' of the backbone {network_name(network)} is {shown(value)}; "
                "its settings go into the run folder, so give a number, a text, true or false"
            )
    default = all(getattr(network, f.name) == f.default for f in fields(network))  # type: ignore[arg-type]
    return registered(network) if default and registered(network) else network


def registered(network: Network) -> str:
    """The name of its class in ``BACKBONES``; empty where it has none."""
    return BACKBONES.name_of(type(network)) or ""


def network_name(network: Network) -> str:
    return registered(network) or type(network).__name__


def described(backbone: str | Network) -> str | dict[str, Any]:
    """As a run folder holds it: a registered name, or the name (else the class) and its own settings."""
    if isinstance(backbone, str):
        return backbone
    key = "name" if registered(backbone) else "class"
    own = {f.name: getattr(backbone, f.name) for f in fields(backbone)}  # type: ignore[arg-type]
    return {key: network_name(backbone), **own}


def checked_shapes(network: Network, shapes: Shapes) -> Shapes:
    """Refuse parameters that are not the encoder's, or neither vector nor matrix."""
    for name, shape in shapes.items():
        sizes = isinstance(shape, tuple) and all(type(size) is int and size > 0 for size in shape)
        if not name.startswith("encoder.") or not sizes or len(shape) not in (1, 2):
            raise BadConfig(
                f"the backbone {network_name(network)} has a parameter '{shown(name)}' of shape "
                f"{shown(shape)}; name it 'encoder.NAME' and make it a vector or a matrix"
            )
    return dict(shapes)
