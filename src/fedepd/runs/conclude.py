"""What a run asks its clients after the last round."""

from __future__ import annotations

import torch

from fedepd.rounds.calibrate import nodes_in, temperatures_from, tier_of_class
from fedepd.rounds.final import CLASS_TIERS, KINDS, SELECTED
from fedepd.rounds.questions import FINAL
from fedepd.runs.adaptation import adapt
from fedepd.runs.asking import adapts, ask
from fedepd.runs.drive import Course
from fedepd.runs.selection import Progress
from fedepd.types import Tensors


def conclude(course: Course, progress: Progress) -> None:
    """Adapt the selected model if the run wants it, send it to every client, and calibrate it by sums.

    What was found is kept in ``progress``. A question that has its answer there is not asked again.
    """
    if adapts(course.experiment) and progress.adapted is None:
        adapt(course, progress)
    if FINAL in progress.answers:
        return
    total, about = ask(course, progress, FINAL, _selected(course, progress))
    calibrated = course.experiment.method.has_global and not course.experiment.privacy.noisy
    found = {"temperatures": temperatures_from(total[0]), "validation_nodes": nodes_in(total[0])}
    progress.answers[FINAL] = {**about, **(found if calibrated else {})}


def _selected(course: Course, progress: Progress) -> Tensors:
    rounds = [progress.best[kind].round if kind in progress.best else 0 for kind in KINDS]
    tier = tier_of_class(progress.tiers, course.server.info.num_classes)
    return {SELECTED: torch.tensor(rounds), CLASS_TIERS: torch.from_numpy(tier)}
