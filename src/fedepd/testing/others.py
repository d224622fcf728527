"""What holds for every dataset, partition and backbone of another package."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
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
from fedepd.network.contract import Network, check_network_class
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Training
from fedepd.rng import fast_numpy, seeded_numpy
from fedepd.testing.checks import Check, require, require_same, run_all
from fedepd.testing.toy import run_rounds, toy_client, toy_clients
from fedepd.testing.watch import copies
from fedepd.types import ClientData, Graph, TaskInfo, Tensors


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


def check_backbone(backbone: str | Network | type[Network] | Backbone) -> None:
    """Whether a network keeps its contract, and FedAvg can train it.

    Dense and sparse features, and clients without edges or training nodes, are tried.

    Args:
        backbone: an object of the class, or the class, which is then made with its defaults; a name; or a
            ``Backbone`` with other settings, such as ``Backbone(MyNetwork(), layers=3)``.

    Raises:
        CheckFailed: names the check, what is wrong, and what to do.
    """
    network = type(backbone) if isinstance(backbone, Network) else backbone
    if isinstance(network, type):
        Check("its class can be a backbone", partial(check_network_class, network), "see docs/extend.md")()
    made = backbone() if isinstance(backbone, type) else backbone
    model = Backbone(made, hidden=8) if isinstance(made, str | Network) else made
    run_all(network_checks(model))


def network_checks(model: Any) -> Iterator[Check]:
    """What can be seen of a network that runs."""
    yield Check(
        "its parameters have names",
        partial(_has_parameters, model),
        "name them encoder.NAME; the classifier's are added",
    )
    cases: dict[str, dict[str, Any]] = {"dense": {}, "sparse": {"sparse": True}}
    for case, more in {**cases, "no edges": {"edges": False}, "no training nodes": {"train": False}}.items():
        data = toy_client(nodes=30, **more).hidden()
        yield Check(
            f"it predicts [{case}]",
            partial(_predicts, model, data),
            "return a row for every node, without dropout, and write into nothing",
        )
        if more.get("train", True):
            yield Check(
                f"its gradient is that of its loss [{case}]",
                partial(_gradient, model, data),
                "use torch's functions on the parameters, draw from 'dropout' alone, or correct the gradient",
            )
    yield Check("it learns", partial(_learns, model), "look at the sign of the gradient")


def _info(data: ClientData) -> TaskInfo:
    return TaskInfo(data.graph.num_features, data.graph.num_classes, 3)


def _has_parameters(model: Any) -> None:
    info = _info(toy_client())
    params: Tensors = model.initial(info, 0)
    require_same(params, model.initial(info, 0))
    for name, value in params.items():
        named = name.startswith(("encoder.", "classifier."))
        require(named, f"'{name}' is neither encoder.* nor classifier.*")
        finite = value.dtype == torch.float32 and bool(value.isfinite().all())
        require(finite, f"'{name}' is not finite float32")


def _predicts(model: Any, data: ClientData) -> None:
    info = _info(data)
    params, inputs = model.initial(info, 0), model.inputs(data)
    before = copies([params, inputs])
    logits = model.predict(params, inputs)
    require_same(before, copies([params, inputs]))
    wanted = (data.graph.num_nodes, info.num_classes)
    require(logits.shape == wanted, f"the logits have the shape {list(logits.shape)}, not {list(wanted)}")
    require(bool(logits.isfinite().all()), "the logits are not finite")
    require(torch.equal(logits, model.predict(params, inputs)), "a second call gives other logits")


def _learns(model: Any) -> None:
    rounds, _ = run_rounds(FedAvg(), toy_clients(), rounds=10, model=model, training=Training(lr=0.05))
    require(rounds[-1].loss < rounds[0].loss, f"the loss went from {rounds[0].loss} to {rounds[-1].loss}")


def _gradient(model: Any, data: ClientData) -> None:
    """Along the gradient itself, against the difference of two losses under the same dropout."""
    inputs, params = model.inputs(data), model.initial(_info(data), 0)
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
