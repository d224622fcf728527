"""How a run asks its clients about the selected model."""

from __future__ import annotations

from math import prod
from typing import cast

import torch

from fedepd.rounds.guard import OPEN
from fedepd.rounds.loop import OFFENCES, sizes_in_bytes
from fedepd.rounds.pooled import Summed, Summing
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import QUESTIONS
from fedepd.runs.drive import Course, notices
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json
from fedepd.runs.selection import Progress, offences
from fedepd.types import Tensors


def adapts(experiment: Experiment) -> bool:
    """Whether the run has a stage of adaptation. A method without a model for all clients has none."""
    return experiment.protocol.adapt and experiment.method.has_global


def ask(course: Course, progress: Progress, question: str, entries: Tensors) -> tuple[Summed, Json]:
    """Ask all clients of the run about the selected model. Returns the sum, and who answered how much.

    Clients that were excluded are not asked.
    """
    experiment, server = course.experiment, course.server
    method, best = experiment.method, progress.best.get("global")
    tensors = best.tensors if best is not None else progress.tensors
    if progress.opened is not None:
        opened = torch.zeros(server.info.num_classes)
        opened[list(progress.opened)] = 1
        entries = {OPEN: opened, **entries}
    entries = {**notices(progress), **entries}
    offended = offences(progress.lines)
    members = [client for client in course.members() if offended.get(client, 0) < OFFENCES]
    messages = {client: {**method.message(tensors, client), **entries} for client in members}
    total, answered = cast(Summing, course.exchange).ask(question, messages)
    setting = Setting(method, server, experiment.privacy, aim=experiment.protocol.aim)
    numbers = QUESTIONS[question].layout(setting)
    about: Json = {
        "clients": list(answered),
        "bytes_up": 8 * sum(prod(shape) for _, shape in numbers) * len(answered),
        "bytes_down": sum(sum(sizes_in_bytes(message).values()) for message in messages.values()),
    }
    return (total, answered), about
