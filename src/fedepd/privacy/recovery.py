"""How many nodes a dishonest coordinator could rebuild from one answer, or from one sum of answers.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from fedepd.errors import FedEPDError
from fedepd.network.contract import dense_rows
from fedepd.network.training import Gradient, Training, descend
from fedepd.privacy.figures import Figure, share
from fedepd.privacy.view import View
from fedepd.rng import seeded
from fedepd.rounds.guard import OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.sums import layout, reply_of
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
SCALES = {"adam": (1e-14,), "sgd": (1e-3,)}
"""The size of the weights that are sent.

With Adam, gradient and weight decay stay far below its epsilon, so that its step is linear in the gradient.
"""
SUMMED = {"adam": (1e-14, 1e-6, 1e-5), "sgd": (1e-3, 1.0)}
"""The same against sums, which are rounded at 2^-24: larger weights leave more to read."""
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


@dataclass(frozen=True, eq=False)
class Victim:
    """What is attacked at once: one client, or all clients behind a sum."""

    clients: Sequence[ClientData]
    participants: Sequence[Participant]
    answer: Callable[[Tensors], Tensors]
    """What the server gets back for a message."""
    summed: bool = False
    """Whether that is a sum, which is rounded."""

    @property
    def nodes(self) -> int:
        return sum(c.graph.num_nodes for c in self.clients)

    @property
    def train(self) -> int:
        return sum(int(c.train_mask.sum()) for c in self.clients)


def measure(participant: Participant, data: ClientData, message: Tensors) -> Recovery:
    """Attack ``participant`` and its ``data`` in round 1.

    ``message`` is what an honest server would send then.
    """
    answer = lambda crafted: participant.step(1, crafted).tensors  # noqa: E731
    _, nodes, rows = rebuilt(Victim([data], [participant], answer), message)
    return Recovery(int(nodes.sum()), int(rows.sum()), nodes.numel())


def rebuilt(victim: Victim, message: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """The best attack: nodes of the whole graph [m], and which of them were rebuilt, bool [m].

    The first bool is for a node's own features, the second for its input row of the first layer.
    """
    chosen = _sample(victim.nodes)
    names = torch.cat([c.global_ids for c in victim.clients])[chosen]
    own, rows = _truth(victim, chosen)
    none = torch.zeros(chosen.numel(), dtype=torch.bool)
    best, kept = (none, none), [p.state for p in victim.participants]
    if not message.keys() >= PARTS:
        return names, *best
    for training, trap, distance, scale in _variants(victim):
        crafted = {**message, **_crafted(message, rows, victim, training, trap, distance, scale)}
        try:
            for participant in victim.participants:
                participant.state = {}
            reply = victim.answer(crafted)
        except FedEPDError:
            continue
        finally:
            for participant, state in zip(victim.participants, kept, strict=True):
                participant.state = state
        if not reply.keys() >= PARTS:
            return names, *best
        guesses = _guesses(training, crafted, reply)
        found = _matched(guesses[:, -own.shape[1] :], own), _matched(guesses, rows)
        best = max(best, found, key=lambda each: (int(each[0].sum()), int(each[1].sum())))
    return names, *best


def _truth(victim: Victim, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen nodes' own features, and what the first layer reads of them."""
    own, rows, begin = [], [], 0
    for data, participant in zip(victim.clients, victim.participants, strict=True):
        model, x, end = participant.model, data.graph.x, begin + data.graph.num_nodes
        nodes = chosen[(chosen >= begin) & (chosen < end)] - begin
        own.append(dense_rows(x, nodes))
        rows.append(model.network.first_rows(model, model.inputs(data), x, nodes))
        begin = end
    return torch.cat(own), torch.cat(rows)


def _variants(victim: Victim) -> Iterator[tuple[Training, str, float, float]]:
    """The attacks to try.

    Each is the assumed training of the clients, the layout, how far a step goes, and the size of the weights.
    """
    participant = victim.participants[0]
    assumed = [participant.training]
    if getattr(participant.method, "optimizer_own", False):
        assumed = [
            replace(participant.training, optimizer=optimizer, lr=lr) for optimizer, lr in OWN_OPTIMIZERS
        ]
    # Bins separate nodes only if there are enough bins, and dropout mixes neighbouring bins.
    separable = participant.model.dropout == 0 and victim.nodes <= 8 * participant.model.hidden
    for training in assumed:
        for trap in ("bins", "traps") if separable else ("traps",):
            for distance in FAR if training.epochs <= 1 else NEARBY:
                for scale in (SUMMED if victim.summed else SCALES)[training.optimizer]:
                    yield training, trap, distance, scale


def _sample(nodes: int) -> Tensor:
    every = (
        torch.randperm(nodes, generator=seeded(0, "recovery")) if nodes > MOST_NODES else torch.arange(nodes)
    )
    return every[:MOST_NODES].sort().values


def _crafted(
    message: Tensors,
    rows: Tensor,
    victim: Victim,
    training: Training,
    trap: str,
    distance: float,
    scale: float,
) -> Tensors:
    """The message that the coordinator sends instead: traps in the first layer, equal weights behind it."""
    draws, train, nodes = seeded(0, "recovery", trap), victim.train, victim.nodes
    width, hidden = message["encoder.weight"].shape
    own = victim.clients[0].graph.num_features
    weight = torch.zeros(width, hidden)
    # With sage, only the weights of a node's own features are set.
    weight[-own:] = torch.randn(own, 1 if trap == "bins" else hidden, generator=draws)
    reach = rows @ weight  # [m, hidden]
    if trap == "bins":
        levels = [NormalDist().inv_cdf((unit + 0.5) / hidden) for unit in range(hidden)]
    else:
        levels = [NormalDist().inv_cdf(1 - 1 / max(2, nodes))] * hidden
    bias = -(reach.mean(0) + reach.std(0) * torch.tensor(levels))
    adam = training.optimizer == "adam"
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


def _matched(guesses: Tensor, rows: Tensor) -> Tensor:
    """Which of the rows [m, k] are close to one of the guesses [g, k], bool [m]."""
    length = rows.norm(dim=1)
    fit = guesses[(guesses.norm(dim=1) <= 2 * length.max()) & (guesses.norm(dim=1) > 0)]
    if not len(fit):
        return torch.zeros(len(rows), dtype=torch.bool)
    squared = length[None] ** 2 + (fit.norm(dim=1) ** 2)[:, None] - 2 * fit @ rows.t()  # [g, m]
    close: Tensor = (squared < (NEAR * length[None]) ** 2).any(0) & (length > 0)
    return close


def recovery_figures(view: View) -> list[Figure]:
    """``recovery.nodes``: nodes whose features a crafted first message brings back, over all clients.

    Unlike in the other attacks, the server is dishonest in what it sends. The settings are the run's own.
    Under sums it reads the sum of all answers in the same way.
    """
    simulation, first = view.simulation, view.rounds[0]
    exchange, method, server = simulation.exchange, simulation.experiment.method, simulation.server
    ids = [c.client_id for c in simulation.clients]

    def step(client: int, crafted: Tensors) -> Tensors:
        return exchange.participants[client].step(1, {**crafted, **opened}).tensors

    def sum_of_all(crafted: Tensors) -> Tensors:
        total, _ = exchange.sum_steps(1, {k: {**crafted, **opened} for k in ids})
        parts = layout(method, server.info, first.fields)
        return reply_of(first.fields, parts, total, 1).tensors

    opened: Tensors = {}
    if view.privacy.guard:
        opened = {OPEN: view.privacy.open_classes(view.declared.values()).to(torch.float32)}
    participants = [exchange.participants[k] for k in ids]
    victims = [Victim(simulation.clients, participants, sum_of_all, summed=True)]
    if not view.sums:
        victims = [
            Victim([c], [p], partial(step, c.client_id))
            for c, p in zip(simulation.clients, participants, strict=True)
        ]
    message = next(iter(first.messages.values()))
    found = [rebuilt(victim, message) for victim in victims]
    labels, hit = simulation.graph.y[torch.cat([f[0] for f in found])], torch.cat([f[1] for f in found])
    out = []
    for tier, classes in view.tiers.items():
        mine = torch.isin(labels, torch.tensor(sorted(classes))) if tier != "all" else labels == labels
        out.append(share("recovery.nodes", tier, int(hit[mine].sum()), int(mine.sum())))
    return out
