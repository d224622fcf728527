"""The checks of datasets, partitions and backbones find what is wrong."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.network.backbones import BACKBONES, Backbone
from fedepd.network.contract import Dropout, Inputs, Network, Shapes, times
from fedepd.testing import CheckFailed, check_backbone, check_dataset, check_partition
from fedepd.types import Graph, Tensors


def ring(seed: int = 0) -> Graph:
    """Ring: sixty nodes in a circle."""
    n = torch.arange(60)
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(seed))
    return Graph.make(x, torch.stack([n, (n + 1) % 60]), n % 2)


def test_a_sound_dataset_passes(tmp_path: Path) -> None:
    def in_folder(folder: Path) -> Graph:
        """Ring, from a folder."""
        assert folder == tmp_path
        return ring()

    check_dataset(ring)
    check_dataset(in_folder, tmp_path)


def test_a_dataset_that_changes_is_named() -> None:
    seeds = itertools.count()

    def other() -> Graph:
        """Another one every time."""
        return ring(next(seeds))

    with pytest.raises(CheckFailed, match="it gives the same graph twice: a second call gave another graph"):
        check_dataset(other)


def test_a_dataset_without_labels_to_spare_or_a_word_is_named() -> None:
    def few() -> Graph:
        """Two labelled nodes."""
        y = torch.full((60,), -1)
        y[:2] = torch.tensor([0, 1])
        return Graph.make(ring().x, ring().edge_index, y)

    with pytest.raises(CheckFailed, match="a run can use it: no node is left for the"):
        check_dataset(few)
    with pytest.raises(CheckFailed, match="it is described: the function has no docstring"):
        check_dataset(lambda: ring())


def by_number(graph: Graph, clients: int, seed: int) -> Any:
    return np.arange(graph.num_nodes) % clients


def unrepeatable(graph: Graph, clients: int, seed: int) -> Any:
    return np.random.default_rng().integers(clients, size=graph.num_nodes)


def writing(graph: Graph, clients: int, seed: int) -> Any:
    graph.y.zero_()
    return by_number(graph, clients, seed)


def beyond(graph: Graph, clients: int, seed: int) -> Any:
    return by_number(graph, clients + 1, seed)


def test_partitions() -> None:
    check_partition(by_number)
    with pytest.raises(CheckFailed, match="2 clients, with edges: a second call with the same seed differs"):
        check_partition(unrepeatable)
    with pytest.raises(CheckFailed, match="/y differs"):
        check_partition(writing)
    with pytest.raises(CheckFailed, match=r"gave clients 0 to 1; number them 0\.\.0"):
        check_partition(beyond)


@pytest.mark.parametrize(
    ("backbone", "head"),
    [(name, head) for name, cls in BACKBONES.built_in.items() for head in cls.heads],
)
def test_our_backbones_pass(backbone: str, head: Any) -> None:
    check_backbone(Backbone(backbone, hidden=8, head=head))


@dataclass(frozen=True)
class Dense(Network):
    """One layer that reads no edges, as somebody writes it: ``@`` fits dense features alone."""

    scale: float = 1.0

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden)}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> torch.Tensor:
        return dropout(torch.relu(self.scale * self.product(inputs, params["encoder.weight"])))

    def product(self, inputs: Inputs, weight: torch.Tensor) -> torch.Tensor:
        return inputs.features @ weight  # type: ignore[operator]


@dataclass(frozen=True)
class Sound(Dense):
    def product(self, inputs: Inputs, weight: torch.Tensor) -> torch.Tensor:
        return times(inputs.features, weight)


@dataclass(frozen=True)
class Noisy(Sound):
    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> torch.Tensor:
        return super().encode(model, params, inputs, dropout) + torch.rand(1)


@dataclass(frozen=True)
class Writes(Sound):
    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> torch.Tensor:
        inputs.features.abs_()  # type: ignore[union-attr]
        return super().encode(model, params, inputs, dropout)


@dataclass
class Unfrozen(Network):
    shapes = Sound.shapes
    encode = Sound.encode


def test_a_backbone_of_ones_own_is_an_object_or_a_class() -> None:
    check_backbone(Sound)
    check_backbone(Sound(scale=2.0))


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Dense, r"it predicts \[sparse\]: TypeError"),
        (Noisy, r"it predicts \[dense\]: a second call gives other logits"),
        (Writes, r"it predicts \[dense\]: /1/features differs"),
        (Unfrozen, "its class can be a backbone: .*is not a frozen dataclass; write @dataclass"),
        (Network, "its class can be a backbone: .*does not define encode, shapes"),
    ],
)
def test_a_backbone_that_breaks_the_contract_is_named(cls: Any, reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        check_backbone(cls)


class Wrong:
    """A network of ours with one function replaced."""

    def __init__(self, **parts: Any) -> None:
        self._parts, self._network = parts, Backbone(hidden=8)

    def __getattr__(self, name: str) -> Any:
        return self._parts.get(name) or getattr(self._network, name)


def doubled(*arguments: Any) -> tuple[float, Tensors]:
    loss, grads = Backbone(hidden=8).gradient(*arguments)
    return loss, {name: 2 * grad for name, grad in grads.items()}


def with_odd_name(info: Any, seed: int, *stream: Any) -> Tensors:
    return {**Backbone(hidden=8).initial(info, seed), "scale": torch.ones(1)}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"gradient": doubled}, r"its gradient is that of its loss \[dense\]: the loss grows by"),
        ({"initial": with_odd_name}, "its parameters have names: 'scale' is neither encoder"),
        (
            {"predict": lambda params, inputs: torch.zeros(3)},
            r"it predicts \[dense\]: the logits have the shape \[3\], not \[30, 3\]",
        ),
    ],
)
def test_a_wrong_backbone_is_named(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        check_backbone(Wrong(**parts))  # type: ignore[arg-type]
