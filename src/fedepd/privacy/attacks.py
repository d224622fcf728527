"""The attacks of an audit by name: what each measures, in words, and what its attacker has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fedepd.errors import UnknownName
from fedepd.privacy.classes import class_figures
from fedepd.privacy.figures import Figure
from fedepd.privacy.links import audit_links
from fedepd.privacy.membership import audit_membership
from fedepd.privacy.recovery import recovery_figures
from fedepd.privacy.reidentify import reidentify_figures
from fedepd.privacy.rows import row_figures
from fedepd.privacy.shadows import Trainers
from fedepd.privacy.view import View
from fedepd.runs.experiment import Experiment
from fedepd.runs.source import Data

Step = Callable[[int], None]
"""Told how many units of work are done."""


@dataclass(frozen=True, eq=False)
class Target:
    """One setting of a run, for an attack to look at."""

    view: View
    experiment: Experiment
    """With the setting's privacy, and all rounds of the run."""
    data: Data
    shadows: int
    step: Step
    workers: int | Trainers | None = None
    """Who trains the shadows; None: as many processes as there are cores."""


@dataclass(frozen=True)
class Attack:
    """A part of the audit."""

    label: str
    """What a page calls it."""
    run: Callable[[Target], list[Figure]]
    titles: Mapping[str, str]
    """What each of its figures measures, by the figure's name."""
    knows: str
    """What the attacker has."""
    units: Callable[[int], int] = lambda shadows: 1
    """How much work one setting is, from the number of shadows."""
    common: bool = False
    """Whether it attacks the model that is common to all clients."""


def _membership(target: Target) -> list[Figure]:
    def done(*_: int) -> None:
        target.step(1)

    return audit_membership(target.experiment, target.data, target.shadows, target.workers, done)


def _stepped(run: Callable[[View], list[Figure]]) -> Callable[[Target], list[Figure]]:
    def attack(target: Target) -> list[Figure]:
        found = run(target.view)
        target.step(1)
        return found

    return attack


def _links(target: Target) -> list[Figure]:
    found = audit_links(target.experiment, target.data)
    target.step(1)
    return found


ATTACKS: dict[str, Attack] = {
    "rows": Attack(
        "Class rows",
        _stepped(row_figures),
        {"rows.single": "Rows of one node", "rows.few": "Rows of fewer than min_count nodes"},
        "Class rows (prototypes, gradients) as the server gets them, and of how many nodes each one is.",
    ),
    "reidentified": Attack(
        "Re-identification",
        _stepped(reidentify_figures),
        {
            "reidentified.rank1": "One-node row: node named first",
            "reidentified.top5": "One-node row: node in the first five",
            "reidentified.rank1_no_edges": "One-node row, no edges: named first",
            "reidentified.top5_no_edges": "One-node row, no edges: in the first five",
            "pairs.resolved": "Two-node row: both named",
            "members.rank1": "Any row: nearest of its class is in it",
            "members.auc": "Any row: its nodes among its class (AUC)",
            "columns.rank1": "Classifier column: only node named first",
            "model.rank1": "Model alone: only node named first",
        },
        "Messages and replies, the features of all nodes of a client, and their edges unless it says so. It "
        "ranks these nodes by how well they explain a row, a change of a classifier's column, or by the "
        "model's own score for a class of which the client has one training node. For any row it is also "
        "told the classes, and ranks the nodes of the row's class.",
    ),
    "classes": Attack(
        "Classes of clients",
        _stepped(class_figures),
        {
            "classes.shown": "Client's classes: sent in clear",
            "classes.accuracy": "Client's classes: by sign of bias update",
            "classes.auc": "Client's classes: by bias update (AUC)",
        },
        "Counts, rows and declared sizes as they are sent, and the first update of the classifier's bias.",
    ),
    "recovery": Attack(
        "Crafted model",
        _stepped(recovery_figures),
        {"recovery.nodes": "Features rebuilt by a crafted model"},
        "A server that sends a crafted model under the run's settings and reads what comes back.",
    ),
    "membership": Attack(
        "Membership",
        _membership,
        {
            "membership.auc": "Training nodes by the model (AUC)",
            "membership.tpr": "Training nodes found at 1 % false alarms",
        },
        "The model of all clients, the nodes with features, edges and classes, and shadow models (LiRA).",
        lambda shadows: shadows + 1,
        True,
    ),
    "links": Attack(
        "Links",
        _links,
        {
            "links.auc": "Edges by probabilities (AUC)",
            "links.auc_within": "Edges within a client (AUC)",
        },
        "The probabilities that the model gives, and nothing else.",
        common=True,
    ),
}
"""The attacks by name, in the order in which they are shown."""


def titles() -> dict[str, str]:
    """What each figure measures, by its name."""
    return {name: title for attack in ATTACKS.values() for name, title in attack.titles.items()}


def chosen(skip: Collection[str]) -> dict[str, Attack]:
    """The attacks without those to skip."""
    for name in skip:
        if name not in ATTACKS:
            raise UnknownName("attack", name, ATTACKS)
    return {name: attack for name, attack in ATTACKS.items() if name not in skip}
