"""``--backbone auto``: a rule by how much a neighbour's class tells, from counts summed over clients.

Each client counts its edges between training nodes by the classes of their ends. Nothing but the sum of these
counts is looked at. docs/backbones.md derives the limits and measures the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedepd.datasets.facts import adjusted_homophily, class_pairs, label_informativeness
from fedepd.errors import BadConfig
from fedepd.methods.alone import inner
from fedepd.methods.rows import RowMethod
from fedepd.network.backbones import AUTO, BACKBONES, Backbone
from fedepd.runs.experiment import Experiment
from fedepd.types import ClientData

USUAL = "gcn"
"""The paper's network, where nothing speaks for another."""
FEWEST = 100
"""Edges between training nodes below which nothing can be told."""
INFORMATIVE = 0.04
"""A neighbour whose class tells less than this is not worth reading.

Choice: the geometric middle of the gap in what we measured: 0.015 on bank tables, 0.11 on roman_empire_proxy.
"""
HOMOPHILOUS = 0.3
"""From this adjusted homophily on, a node is mixed with its neighbours; below, it is kept apart from them.

Choice: the middle of the gap in what we measured: 0.08 at most where gcn fails, 0.58 at least where it leads.
"""


def wanted(experiment: Experiment) -> bool:
    """Whether a backbone is yet to be chosen."""
    return experiment.model.backbone == AUTO


def with_chosen(experiment: Experiment, clients: Sequence[ClientData], told: bool) -> tuple[Experiment, str]:
    """The experiment with a backbone, and a sentence that says which and why.

    Args:
        experiment: One whose backbone is auto.
        clients: All clients, with edges, before any of them is merged or poisoned.
        told: Whether a person asked for auto. What stands in its way is then refused, and passed over
            otherwise.

    Returns:
        The experiment, whose identity is that of the chosen backbone, and the sentence. It is empty where no
        rule acted, or the usual network was chosen unasked.

    Raises:
        BadConfig: The run has a privacy budget, which does not cover the counts.
    """
    if experiment.privacy.noisy and told:
        raise BadConfig(
            "backbone is auto, but it is chosen by counts of training labels, which the budget of dp_epsilon "
            "does not cover; give backbone gcn or sage"
        )
    if experiment.privacy.noisy or isinstance(inner(experiment.method), RowMethod):
        return with_backbone(experiment, USUAL), ""
    if not experiment.protocol.edges:
        name, why = "mlp", "no edges are used"
    else:
        name, why = chosen(summed(clients))
    if not fits(experiment.model, name):
        why += f", but {name} has no such layers or head"
        name = "sage" if name == "mlp" and fits(experiment.model, "sage") else USUAL
    note = f"backbone {name} was chosen: {why}; --backbone {USUAL} is the paper's"
    return with_backbone(experiment, name), note if told or name != USUAL else ""


def summed(clients: Sequence[ClientData]) -> Tensor:
    """Edges between training nodes by the classes of their ends, of all clients together: int64 [C, C]."""
    return torch.stack([class_pairs(c.hidden().graph) for c in clients]).sum(0)


def chosen(pairs: Tensor) -> tuple[str, str]:
    """The rule: a backbone and the reason, from the counts [C, C] of ``class_pairs``."""
    edges = int(pairs.sum()) // 2
    if edges < FEWEST:
        return USUAL, f"{edges} edges join two training nodes, which is too few to choose by"
    tells, alike = label_informativeness(pairs), adjusted_homophily(pairs)
    if tells < INFORMATIVE:
        return "mlp", f"a neighbour's class tells {tells:.1%} of a node's, so edges are not used"
    found = f"a neighbour's class tells {tells:.0%} of a node's, and edges join like classes"
    if alike < HOMOPHILOUS:
        return "sage", f"{found} little ({alike:.2f}), so a node is kept apart from its neighbours"
    return "gcn", f"{found} ({alike:.2f}), so a node is mixed with its neighbours"


def fits(model: Backbone, name: str) -> bool:
    """Whether the network knows these layers and this head."""
    network = BACKBONES[name]
    return model.layers in network.depths and model.head in network.heads


def with_backbone(experiment: Experiment, name: str) -> Experiment:
    return replace(experiment, model=replace(experiment.model, backbone=name))
