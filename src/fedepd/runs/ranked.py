"""How well the selected model of a simulated run ranks test nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedepd.rounds.ranking import mean_average_precision, ranked_classes, ranked_together
from fedepd.runs.drive import notices
from fedepd.runs.folder import Json
from fedepd.runs.selection import Progress, of_each_client
from fedepd.runs.simulation import Simulation
from fedepd.types import Tensors

Rows = list[tuple[NDArray[np.float64], NDArray[np.int64]]]


def ranked(simulation: Simulation, progress: Progress) -> Json | None:
    """What ``RANKING`` holds, or None where it cannot be told.

    Choice: guard, secure sums and noise are promises about what leaves a client, and scores of single nodes
    are none of it. So a run with one of them has no ranking.

    Choice: nodes are ranked by the softmax of their logits. Temperatures are found at an export only.
    """
    privacy = simulation.experiment.privacy
    if privacy.guard or privacy.secure or privacy.noisy:
        return None
    kind = "global" if simulation.experiment.method.has_global else "personal"
    if kind not in progress.best:
        return None
    rows = selected_rows(simulation, progress, kind)
    if rows is None:
        return None
    own = [(softmax(logits, axis=1), y) for logits, y in rows]
    p, y = (np.concatenate(part) for part in zip(*own, strict=True))
    others = [c for c in range(p.shape[1]) if c not in progress.tiers.head[:1]]
    return {
        "model": kind,
        "nodes": len(y),
        "classes": ranked_classes(p, y),
        "tiers": {tier: ranked_together(p, y, members) for tier, members in vars(progress.tiers).items()},
        "clients": [mean_average_precision(*each) for each in own],
        "client_alerts": [ranked_together(*each, others) for each in own],
    }


def selected_rows(simulation: Simulation, progress: Progress, kind: str, split: str = "test") -> Rows | None:
    """Logits [n, C] and classes [n] of each client's test or validation nodes, by the selected model.

    None if it does not predict as was measured: a method without a model for all may need a message of its
    selected round that nobody has kept.
    """
    best, out = progress.best[kind], []
    try:
        tested = simulation.exchange.tested(best.round, _tensors(simulation, progress, kind), split)
    except KeyError:
        return None
    measured = best.confusions[f"{kind}_{split}"]
    for client, counts in zip(simulation.exchange.participants, measured, strict=True):
        matrix, logits, y = tested[client]
        if not np.array_equal(matrix.numpy(), counts):
            return None
        out.append((logits.numpy().astype(np.float64), y.numpy()))
    return out


def _tensors(simulation: Simulation, progress: Progress, kind: str) -> dict[int, Tensors]:
    """The selected model of each client."""
    method, best = simulation.experiment.method, progress.best[kind]
    clients, more = simulation.exchange.participants, notices(progress)
    if kind == "global":
        return {k: {**method.message(best.tensors, k), **more} for k in clients}
    own = of_each_client(best.tensors, "client", ".")
    return {k: {**method.message(progress.tensors, k), **more, **own.get(str(k), {})} for k in clients}
