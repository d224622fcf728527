"""What a run asks its clients after the last round."""

from __future__ import annotations

import torch

from fedepd.errors import BadMessage
from fedepd.rounds.admission import MOST_NODES
from fedepd.rounds.calibrate import nodes_in, temperatures_from, tier_of_class
from fedepd.rounds.final import CLASS_TIERS, KINDS, SELECTED, THRESHOLDS, USUAL
from fedepd.rounds.point import NEVER, Chosen, choose_all, goals_of
from fedepd.rounds.questions import FINAL, POINT
from fedepd.runs.adaptation import adapt
from fedepd.runs.asking import adapts, ask
from fedepd.runs.drive import Course
from fedepd.runs.selection import Progress
from fedepd.types import Tensors


def conclude(course: Course, progress: Progress, held_out: int = MOST_NODES) -> None:
    """Adapt the selected model if the run wants it, send it to every client, and calibrate it by sums.

    What was found is kept in ``progress``. A question that has its answer there is not asked again.
    ``held_out``: how many validation nodes the clients have declared.
    """
    if adapts(course.experiment) and progress.adapted is None:
        adapt(course, progress)
    if course.experiment.protocol.aim and POINT not in progress.answers:
        choose_point(course, progress, held_out)
    if FINAL in progress.answers:
        return
    total, about = ask(course, progress, FINAL, {**_selected(course, progress), **_pointed(progress)})
    calibrated = course.experiment.method.has_global and not course.experiment.privacy.noisy
    found = {"temperatures": temperatures_from(total[0]), "validation_nodes": nodes_in(total[0])}
    progress.answers[FINAL] = {**about, **(found if calibrated else {})}


def choose_point(course: Course, progress: Progress, held_out: int) -> None:
    """Let the clients' counts choose the thresholds of the run's aim.

    Choice: counts that cannot be used cost the run its operating point, and not its model. The summary says
    why.
    """
    goals = goals_of(course.experiment.protocol.aim)
    usual = progress.tiers.head[0] if progress.tiers.head else 0
    entries = {**_selected(course, progress), USUAL: torch.tensor([usual])}
    (total, _), about = ask(course, progress, POINT, entries)
    try:
        chosen = choose_all(total, goals, held_out)
    except BadMessage as fault:
        chosen = [Chosen(NEVER, str(fault)) for _ in goals]
    progress.answers[POINT] = {
        **about,
        "aim": course.experiment.protocol.aim,
        "usual": usual,
        "thresholds": [each.threshold for each in chosen],
        "reasons": sorted({each.reason for each in chosen} - {""}),
        "counts": [[each.found, each.false_alarms, each.cases, each.nodes] for each in chosen],
    }


def _pointed(progress: Progress) -> Tensors:
    if POINT not in progress.answers:
        return {}
    known = progress.answers[POINT]
    thresholds = torch.tensor(known["thresholds"], dtype=torch.float64)
    return {THRESHOLDS: thresholds, USUAL: torch.tensor([known["usual"]])}


def _selected(course: Course, progress: Progress) -> Tensors:
    rounds = [progress.best[kind].round if kind in progress.best else 0 for kind in KINDS]
    tier = tier_of_class(progress.tiers, course.server.info.num_classes)
    return {SELECTED: torch.tensor(rounds), CLASS_TIERS: torch.from_numpy(tier)}
