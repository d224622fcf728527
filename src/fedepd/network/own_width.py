"""A network whose hidden layers have a width of their own, before one layer of the common width.

So clients with different widths can exchange rows of one width.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone, checked_shapes
from fedepd.network.contract import (
    Error,
    ErrorOfBoth,
    Inputs,
    Shapes,
    both_through_autograd,
    through_autograd,
)
from fedepd.network.products import affine
from fedepd.types import TaskInfo, Tensors

COMMON = "encoder.common"


@dataclass(frozen=True)
class OwnWidth(Backbone):
    """H = relu(H' U + c), where H' [n, own] is the hidden layer of the same network with the width ``own``.

    All else is the network with the common width.
    """

    own: int = 64

    @classmethod
    def of(cls, model: Backbone, own: int) -> OwnWidth:
        """The network ``model`` with hidden layers of the width ``own``; its ``hidden`` stays the common
        one."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(Backbone)}, own=own)

    @cached_property
    def inner(self) -> Backbone:
        """What computes H'."""
        settings = {field.name: getattr(self, field.name) for field in fields(Backbone)}
        return Backbone(**{**settings, "hidden": self.own})

    @property
    def widest(self) -> int:
        return max(self.own, self.hidden)

    def shapes(self, info: TaskInfo) -> Shapes:
        classifier = {name: shape for name, shape in super().shapes(info).items() if name[0] == "c"}
        network = self.network
        smoothing = {
            name: shape
            for name, shape in network.shapes(self, info.num_features).items()
            if network.smoothing and name.startswith(network.smoothing)
        }
        own = {**network.shapes(self.inner, info.num_features), **smoothing}
        common = {f"{COMMON}.weight": (self.own, self.hidden), f"{COMMON}.bias": (self.hidden,)}
        return {**checked_shapes(network, own), **common, **classifier}

    def encode(self, params: Tensors, inputs: Inputs, generator: np.random.Generator | None = None) -> Tensor:
        """H [n, hidden]; with a ``generator`` both layers have dropout, as all hidden layers have."""
        own = self.inner.encode(params, inputs, generator)
        h = torch.relu(affine(own, params[f"{COMMON}.weight"], params[f"{COMMON}.bias"]))
        mask = self._dropout(generator).mask(inputs.operator.shape[0], inputs.nodes)
        return h if mask is None else h * mask

    def gradient(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: Error
    ) -> tuple[float, Tensors]:
        """By autograd."""

        def logits(leaves: Tensors) -> Tensor:
            return self.logits(leaves, self.encode(leaves, inputs, generator), inputs, train_only=True)

        return through_autograd(params, logits, error)

    def gradient_of_both(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: ErrorOfBoth
    ) -> tuple[float, Tensors]:
        """By autograd."""

        def outs(leaves: Tensors) -> tuple[Tensor, Tensor]:
            logits = self.logits(leaves, self.encode(leaves, inputs, generator), inputs, train_only=True)
            return logits, self.encode(leaves, inputs)[inputs.train]

        return both_through_autograd(params, outs, error)
