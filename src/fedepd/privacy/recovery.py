"""How many nodes a dishonest coordinator could rebuild from one answer, measured on this site's own data.

The coordinator chooses the model that it sends. Suppose a hidden unit is active for one node only. The
gradient of its weights is then that node's row times a number, and the gradient of its bias is the same
number. So the change of the weights divided by the change of the bias is the row (Boenisch et al., "When the
Curious Abandon Honesty", arXiv 2112.02918; Fowl et al., "Robbing the Fed", arXiv 2110.13057).

Two layouts are tried. With "bins", all units look along one random direction and their biases are quantiles
of a normal distribution, so two neighbouring units differ by the nodes between two quantiles. With "traps",
each unit has its own direction and a bias that about one node passes, so dropout cannot mix what two units
hold. The client's step is the method's own code.

Choice: the attacker knows the features' mean and spread, the settings and the code, but no node. It chooses
the scale of its weights freely. Small weights have the effect of a large learning rate. They also keep
gradients far below Adam's epsilon, where Adam is linear.
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
"""The number of rows that are compared. A larger graph is sampled, so that a preview takes seconds."""
PARTS = {"encoder.weight", "encoder.bias"}
FAR, NEARBY = (1e3,), (1.0, 1e-2, 1e-4)
"""How far a step moves the weights, relative to their size.

A far step is exact for one epoch. A near step leaves the traps in place for the next epoch.
"""
ADAM_EPSILON = 1e-8
OWN_OPTIMIZERS: tuple[tuple[Literal["adam", "sgd"], float], ...] = (("sgd", 0.1), ("adam", 1e-3))
"""The optimisers and rates that methods with ``optimizer_own`` use, whatever the run's settings are."""


@dataclass(frozen=True)
class Recovery:
    """What the best attack rebuilt from one answer."""

    nodes: int
    """Number of nodes whose own features were rebuilt."""
    rows: int
    """Number of nodes whose input row of the first layer was rebuilt.

    With gcn, it is a neighbourhood mean.
    """
    of: int
    """Number of nodes that were searched for."""

    @property
    def share(self) -> float:
        return self.nodes / self.of if self.of else 0.0

    def sentence(self) -> str:
        rows = f" and the neighbourhood means of {self.rows}" if self.rows > self.nodes else ""
        return (
            f"from one answer, a coordinator that sends a crafted model could rebuild the features of "
            f"{self.nodes} of {self.of} nodes ({100 * self.share:.0f} %){rows}; every round is another answer"
        )


def measure(participant: Participant, data: ClientData, message: Tensors) -> Recovery:
    """Attack ``participant`` and its ``data`` in round 1.

    ``message`` is what an honest server would send then.
    """
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
    """The attacks to try: the assumed training of the client, the layout, and how far a step goes."""
    assumed = [participant.training]
    if getattr(participant.method, "optimizer_own", False):
        assumed = [
            replace(participant.training, optimizer=optimizer, lr=lr) for optimizer, lr in OWN_OPTIMIZERS
        ]
    # Bins separate nodes only if there are enough bins, and dropout mixes neighbouring bins.
    separable = participant.model.dropout == 0 and data.graph.num_nodes <= 8 * participant.model.hidden
    for training in assumed:
        for layout in ("bins", "traps") if separable else ("traps",):
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
    """The message that the coordinator sends instead: traps in the first layer, equal weights behind it."""
    draws, train = seeded(0, "recovery", layout), int(data.train_mask.sum())
    width, hidden = message["encoder.weight"].shape
    own = data.graph.num_features
    weight = torch.zeros(width, hidden)
    # With sage, only the weights of a node's own features are set.
    weight[-own:] = torch.randn(own, 1 if layout == "bins" else hidden, generator=draws)
    reach = rows @ weight  # [m, hidden]
    if layout == "bins":
        levels = [NormalDist().inv_cdf((unit + 0.5) / hidden) for unit in range(hidden)]
    else:
        levels = [NormalDist().inv_cdf(1 - 1 / max(2, data.graph.num_nodes))] * hidden
    bias = -(reach.mean(0) + reach.std(0) * torch.tensor(levels))
    adam = training.optimizer == "adam"
    # With Adam, gradient and weight decay stay far below its epsilon, so its step is linear in the gradient.
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
    """Guessed rows: weight change over bias change, for each unit and for each pair of neighbours."""
    # The attacker knows what the optimiser alone does to the weights (decay over all epochs) and subtracts
    # it.
    names = sorted(PARTS)
    still = Gradient(lambda _: (0.0, {}))
    alone, _, _ = descend({name: sent[name] for name in names}, names, still, training.epochs, training, {})
    moved = {name: alone[name].double() - back[name].double() for name in names}
    weight, bias = moved["encoder.weight"].t(), moved["encoder.bias"]  # [hidden, width], [hidden]
    weight, bias = torch.cat([weight, weight.diff(dim=0)]), torch.cat([bias, bias.diff()])
    usable = bias.isfinite() & (bias != 0) & weight.isfinite().all(1)
    return (weight[usable] / bias[usable, None]).float()


def _matched(guesses: Tensor, rows: Tensor) -> int:
    """How many of the rows [m, k] are close to one of the guesses [g, k]."""
    length = rows.norm(dim=1)
    fit = guesses[(guesses.norm(dim=1) <= 2 * length.max()) & (guesses.norm(dim=1) > 0)]
    if not len(fit):
        return 0
    squared = length[None] ** 2 + (fit.norm(dim=1) ** 2)[:, None] - 2 * fit @ rows.t()  # [g, m]
    return int(((squared < (NEAR * length[None]) ** 2).any(0) & (length > 0)).sum())
