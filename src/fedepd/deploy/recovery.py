"""How many nodes a dishonest coordinator could rebuild from one answer, measured by attacking this site's own
data.

The coordinator chooses the model that it sends. A hidden unit that fires for one node alone has that node's
row as its gradient, times a number that the gradient of its bias gives away: the change of the weights over
the change of the bias is the row (Boenisch et al., "When the Curious Abandon Honesty", arXiv 2112.02918; Fowl
et al., "Robbing the Fed", arXiv 2110.13057). Two layouts are tried. "bins": all units look along one random
direction, their biases are the steps of a normal curve, and two neighbouring units differ by the nodes
between two steps. "traps": each unit has a direction of its own and a bias that about one node passes, so
dropout cannot mix what two units hold. The step at the client is the method's own code.

Choice: the attacker knows mean and spread of the features, the settings and the code, but no node. It chooses
the scale of its weights freely: small weights do what a large learning rate does, and make Adam linear
(gradients far below its epsilon).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from fedepd.errors import FedEPDError
from fedepd.network.contract import dense_rows
from fedepd.network.training import Gradient, Training, descend
from fedepd.rng import seeded
from fedepd.rounds.participant import Participant
from fedepd.types import ClientData, Tensors

NEAR = 1e-2
"""A row counts as rebuilt when the error is at most this share of its length."""
MOST_NODES = 2000
"""Rows compared with what was rebuilt: on a larger graph a sample, so that a preview takes seconds."""
PARTS = {"encoder.weight", "encoder.bias"}
FAR, NEARBY = (1e3,), (1.0, 1e-2, 1e-4)
"""How far a step moves the weights, against their size: far is exact for one epoch, nearby keeps the traps."""
ADAM_EPSILON = 1e-8
OWN_OPTIMIZERS: tuple[tuple[Literal["adam", "sgd"], float], ...] = (("sgd", 0.1), ("adam", 1e-3))
"""What methods with ``optimizer_own`` train by, whatever the run says."""


@dataclass(frozen=True)
class Recovery:
    """What the best of the attacks rebuilt from one answer."""

    nodes: int
    """Nodes whose own features were rebuilt."""
    rows: int
    """Nodes whose row of the first layer was rebuilt: with gcn a mean over the neighbourhood."""
    of: int
    """Nodes that were looked for."""

    @property
    def share(self) -> float:
        return self.nodes / self.of if self.of else 0.0

    def sentence(self) -> str:
        rows = f", and the neighbourhood means of {self.rows}" if self.rows > self.nodes else ""
        return (
            f"a coordinator that chose the model it sends could rebuild the features of {self.nodes} of {self.of} nodes"
            f" ({100 * self.share:.0f} %){rows} from one answer; every round is another answer"
        )


def measure(participant: Participant, data: ClientData, message: Tensors) -> Recovery:
    """Attack ``participant`` over ``data`` in round 1; ``message`` is what an honest server would send then."""
    nodes = _sample(data.graph.num_nodes)
    model, x = participant.model, data.graph.x
    own, rows = dense_rows(x, nodes), model.network.first_rows(model, model.inputs(data), x, nodes)
    best, kept = Recovery(0, 0, nodes.numel()), participant.state
    if not message.keys() >= PARTS:
        return best
    for training, layout, distance in _variants(participant, data):
        crafted = {**message, **_crafted(message, rows, data, training, layout, distance)}
        try:
            participant.state = {}
            reply = participant.step(1, crafted).tensors
        except FedEPDError:
            continue
        finally:
            participant.state = kept
        if not reply.keys() >= PARTS:
            return best
        guesses = _guesses(training, crafted, reply)
        found = Recovery(_matched(guesses[:, -own.shape[1] :], own), _matched(guesses, rows), best.of)
        best = max(best, found, key=lambda each: (each.nodes, each.rows))
    return best


def _variants(participant: Participant, data: ClientData) -> Iterator[tuple[Training, str, float]]:
    """How the client is taken to train, the layout, and how far a step is to go."""
    assumed = [participant.training]
    if getattr(participant.method, "optimizer_own", False):
        assumed = [
            replace(participant.training, optimizer=optimizer, lr=lr) for optimizer, lr in OWN_OPTIMIZERS
        ]
    # Bins part nodes only where there are enough of them, and dropout mixes neighbouring bins.
    parted = participant.model.dropout == 0 and data.graph.num_nodes <= 8 * participant.model.hidden
    for training in assumed:
        for layout in ("bins", "traps") if parted else ("traps",):
            for distance in FAR if training.epochs <= 1 else NEARBY:
                yield training, layout, distance


def _sample(nodes: int) -> Tensor:
    every = (
        torch.randperm(nodes, generator=seeded(0, "recovery")) if nodes > MOST_NODES else torch.arange(nodes)
    )
    return every[:MOST_NODES].sort().values


def _crafted(
    message: Tensors,
    rows: Tensor,
    data: ClientData,
    training: Training,
    layout: str,
    distance: float,
) -> Tensors:
    """What the coordinator sends instead: traps in the first layer, and behind it one weight for all units."""
    draws, train = seeded(0, "recovery", layout), int(data.train_mask.sum())
    width, hidden = message["encoder.weight"].shape
    own = data.graph.num_features
    weight = torch.zeros(width, hidden)
    weight[-own:] = torch.randn(
        own, 1 if layout == "bins" else hidden, generator=draws
    )  # sage: a node's own features alone
    reach = rows @ weight  # [m, hidden]
    if layout == "bins":
        levels = [NormalDist().inv_cdf((unit + 0.5) / hidden) for unit in range(hidden)]
    else:
        levels = [NormalDist().inv_cdf(1 - 1 / max(2, data.graph.num_nodes))] * hidden
    bias = -(reach.mean(0) + reach.std(0) * torch.tensor(levels))
    adam = training.optimizer == "adam"
    # With Adam gradient and weight decay stay far below its epsilon: then its step is linear in the gradient.
    scale = 1e-14 if adam else 1e-3
    strength = distance * scale * max(1, train) / (training.lr / (ADAM_EPSILON if adam else 1.0))
    out = {
        name: torch.zeros_like(value)
        for name, value in message.items()
        if name.startswith(("encoder.", "classifier."))
    }
    out["encoder.weight"], out["encoder.bias"] = scale * weight, scale * bias
    for name in out.keys() - PARTS:
        # Later layers pass everything on: their units are the mean of those before, and always positive.
        if name.startswith("encoder.") and name.endswith((".weight", ".bias")):
            out[name] += 1 / hidden if name.endswith(".weight") else 1.0
    out["classifier.weight"] += strength * torch.randn(out["classifier.weight"].shape[1], generator=draws)
    return out


def _guesses(training: Training, sent: Tensors, back: Tensors) -> Tensor:
    """Rows by the ratio of what weights and biases moved by, of each unit and of two neighbours' difference."""
    # What the optimiser alone does to the weights (decay, over all epochs) is known, and taken off.
    names = sorted(PARTS)
    still = Gradient(lambda _: (0.0, {}))
    alone, _, _ = descend({name: sent[name] for name in names}, names, still, training.epochs, training, {})
    moved = {name: alone[name].double() - back[name].double() for name in names}
    weight, bias = moved["encoder.weight"].t(), moved["encoder.bias"]  # [hidden, width], [hidden]
    weight, bias = torch.cat([weight, weight.diff(dim=0)]), torch.cat([bias, bias.diff()])
    usable = bias.isfinite() & (bias != 0) & weight.isfinite().all(1)
    return (weight[usable] / bias[usable, None]).float()


def _matched(guesses: Tensor, rows: Tensor) -> int:
    """How many of the rows [m, k] one of the guesses [g, k] meets."""
    length = rows.norm(dim=1)
    fit = guesses[(guesses.norm(dim=1) <= 2 * length.max()) & (guesses.norm(dim=1) > 0)]
    if not len(fit):
        return 0
    squared = length[None] ** 2 + (fit.norm(dim=1) ** 2)[:, None] - 2 * fit @ rows.t()  # [g, m]
    return int(((squared < (NEAR * length[None]) ** 2).any(0) & (length > 0)).sum())
