"""What holds for every dataset, partition and backbone of another package."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedepd.clients.partition import PartitionConfig, partition, plugin_partition
from fedepd.clients.split import SplitConfig, make_clients
from fedepd.datasets import graph_sha256, plugin_dataset
from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Training
from fedepd.rng import fast_numpy, seeded_numpy
from fedepd.testing.checks import Check, require, require_same, run_all
from fedepd.testing.toy import run_rounds, toy_client, toy_clients
from fedepd.testing.watch import copies
from fedepd.types import Graph, TaskInfo, Tensors


def check_dataset(function: Callable[..., Graph], data_dir: str | Path | None = None) -> None:
    """Whether ``function`` gives the same sound graph twice, and a run can use it.

    Args:
        function: what the entry point of the group ``fedepd.datasets`` names.
        data_dir: the data folder it is given; default: an empty one.

    Raises:
        CheckFailed: names the check, what is wrong, and what to do.
    """
    if data_dir is None:
        with tempfile.TemporaryDirectory() as empty:
            return check_dataset(function, empty)
    dataset = plugin_dataset("under-test", function)

    def same_twice() -> None:
        first, second = dataset.read(Path(data_dir)), dataset.read(Path(data_dir))
        require(graph_sha256(first) == graph_sha256(second), "a second call gave another graph")

    def can_be_used() -> None:
        graph = dataset.read(Path(data_dir))
        clients = make_clients(graph, partition(graph, PartitionConfig(clients=2), 0), SplitConfig(), 0)
        for held_out in ("train_mask", "val_mask", "test_mask"):
            require(
                any(bool(getattr(c, held_out).any()) for c in clients), f"no node is left for the {held_out}"
            )

    def is_described() -> None:
        require(function.__doc__, "the function has no docstring")

    run_all(
        [
            Check(
                "it gives the same graph twice",
                same_twice,
                "return Graph.make(...), and draw from a fixed seed",
            ),
            Check("a run can use it", can_be_used, "label more nodes of each class"),
            Check("it is described", is_described, "write one line about the graph for 'fedepd data list'"),
        ]
    )
    return None


def check_partition(function: Callable[[Graph, int, int], Any]) -> None:
    """Whether ``function`` gives each node of small graphs a client, the same one for the same seed.

    Args:
        function: what the entry point of the group ``fedepd.partitions`` names, of (graph, clients, seed).

    Raises:
        CheckFailed: names the check, what is wrong, and what to do.
    """
    rule = plugin_partition("under-test", function)

    def owners(graph: Graph, clients: int, seed: int) -> Any:
        return rule(graph, PartitionConfig(clients=clients), seeded_numpy(seed, "partition", "under-test"))

    def gives_owners(clients: int, edges: bool) -> None:
        graph = toy_client(nodes=40, edges=edges).graph
        before = copies(graph)
        first = owners(graph, clients, 0)
        require_same(before, copies(graph))
        require(np.array_equal(first, owners(graph, clients, 0)), "a second call with the same seed differs")

    cure = "return int64 [number of nodes] in 0..clients-1, decided by graph, clients and seed alone"
    run_all(
        Check(
            f"{clients} clients, {'with' if edges else 'without'} edges",
            partial(gives_owners, clients, edges),
            cure,
        )
        for clients in (1, 2, 5)
        for edges in (True, False)
    )


def check_backbone(model: Any) -> None:
    """Whether a network can be trained by FedAvg: names, shapes, the gradient of its loss, learning.

    Args:
        model: a ``fedepd.network.backbones.Backbone``, or a network that one can be made with.

    Raises:
        CheckFailed: names the check, what is wrong, and what to do.
    """
    model = model if hasattr(model, "initial") else Backbone(model, hidden=8)
    data = toy_client(nodes=30).hidden()
    info = TaskInfo(data.graph.num_features, data.graph.num_classes, 3)

    def has_parameters() -> None:
        params: Tensors = model.initial(info, 0)
        require_same(params, model.initial(info, 0))
        for name, value in params.items():
            require(
                name.startswith(("encoder.", "classifier.")),
                f"'{name}' is neither encoder.* nor classifier.*",
            )
            require(
                value.dtype == torch.float32 and bool(value.isfinite().all()),
                f"'{name}' is not finite float32",
            )

    def predicts() -> None:
        logits = model.predict(model.initial(info, 0), model.inputs(data))
        require(logits.shape == (30, info.num_classes), f"the logits have the shape {list(logits.shape)}")
        require(bool(logits.isfinite().all()), "the logits are not finite")

    def learns() -> None:
        rounds, _ = run_rounds(FedAvg(), toy_clients(), rounds=10, model=model, training=Training(lr=0.05))
        require(rounds[-1].loss < rounds[0].loss, f"the loss went from {rounds[0].loss} to {rounds[-1].loss}")

    run_all(
        [
            Check(
                "its parameters have names",
                has_parameters,
                "name them encoder.* and classifier.*, from the generator",
            ),
            Check("it predicts", predicts, "return a row of logits for every node, without dropout"),
            Check(
                "its gradient is that of its loss",
                lambda: _gradient(model, info, data),
                "correct the gradient",
            ),
            Check("it learns", learns, "look at the sign of the gradient"),
        ]
    )


def _gradient(model: Any, info: TaskInfo, data: Any) -> None:
    """Along a random direction, against the difference of two losses under the same dropout."""
    inputs, params = model.inputs(data), model.initial(info, 0)
    before = copies(params)

    def loss_at(values: Tensors) -> tuple[float, Tensors]:
        def error(logits: torch.Tensor) -> tuple[float, torch.Tensor]:
            return cross_entropy_(logits, inputs.labels, None), logits

        loss: tuple[float, Tensors] = model.gradient(values, inputs, fast_numpy(0, "dropout"), error)
        return loss

    grads = loss_at(params)[1]
    require_same(before, copies(params))
    require(grads.keys() <= params.keys(), f"{sorted(grads.keys() - params.keys())} are no parameters")
    step, size = 1e-3, sum(float((grad**2).sum()) for grad in grads.values()) ** 0.5
    ends = [
        loss_at(
            {**params, **{name: params[name] + sign * step * grad / size for name, grad in grads.items()}}
        )[0]
        for sign in (1, -1)
    ]
    slope = (ends[0] - ends[1]) / (2 * step)
    require(
        abs(slope - size) < 0.05 * size, f"the loss grows by {slope:.4f} where the gradient says {size:.4f}"
    )
