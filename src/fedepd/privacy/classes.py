"""What the server saw -> which classes a client has training nodes of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedepd.privacy.figures import Figure, share
from fedepd.privacy.rows import ROWS
from fedepd.privacy.view import View
from fedepd.privacy.within import auc_within
from fedepd.rounds.pooled import EVERYONE
from fedepd.types import CLASSIFIER

TOLD = ("count", "presence")
"""The kinds of fields that say which classes a client has."""


def class_figures(view: View) -> list[Figure]:
    """All figures of this module.

    ``classes.shown``: the share of a client's classes that a count, a row or a declared size names.
    ``classes.accuracy``: of all pairs of client and class, those that the sign of the first update of the
    classifier's bias gets right. ``classes.auc``: whether the size of that update tells, inside a class, the
    clients that have it from the others.
    """
    held = torch.stack([view.held(c.client_id) > 0 for c in view.simulation.clients])  # [K, C]
    named, scores = shown_classes(view), bias_scores(view)
    out = []
    for tier, classes in view.tiers.items():
        chosen = torch.tensor([label in classes for label in range(held.shape[1])])
        mine = held[:, chosen]
        out.append(share("classes.shown", tier, int((named & held)[:, chosen].sum()), int(mine.sum())))
    for tier, classes in view.tiers.items():
        labels = sorted(classes) if scores is not None else []
        mine = held[:, labels]
        guessed = torch.empty_like(mine) if scores is None else scores[:, labels] > 0
        right, pairs = int((guessed == mine).sum()), mine.numel()
        out.append(share("classes.accuracy", tier, right, pairs, majority(mine)))
    for tier, classes in view.tiers.items():
        groups = []
        for label in sorted(classes) if scores is not None else []:
            assert scores is not None
            column, own = scores[:, label].numpy().astype(np.float64), held[:, label].numpy()
            groups.append((column[own], column[~own]))
        out.append(auc_within("classes.auc", tier, groups))
    return out


def majority(held: Tensor) -> float | None:
    """How often one is right who knows how many clients have each class, and no more: bool [K, C]."""
    if held.numel() == 0:
        return None
    rate = held.double().mean(0)
    return float(torch.maximum(rate, 1 - rate).mean())


def shown_classes(view: View) -> Tensor:
    """Which classes of each client the server is told outright, bool [K, C]. A sum tells of no client."""
    clients, classes = view.simulation.clients, view.simulation.graph.num_classes
    out = torch.zeros(len(clients), classes, dtype=torch.bool)
    for place, data in enumerate(clients):
        if data.client_id in view.declared:
            out[place] |= view.declared[data.client_id].train > 0
        for seen in view.rounds:
            reply = seen.replies.get(data.client_id)
            for name, field in seen.fields.items() if reply else ():
                assert reply is not None
                told = field.of if field.kind in ROWS else name if field.kind in TOLD else None
                if told is not None:
                    out[place] |= reply.tensors[told] > 0
    return out


def bias_scores(view: View) -> Tensor | None:
    """How much the first update of each client raised each class's bias, float32 [K, C]; None without a bias.

    Under sums the only update there is stands for every client. Under the guard alone, a client hides a class
    of which it has few nodes by sending back what it got. Where others moved the class, that gives it away,
    so it counts as the strongest sign.
    """
    rows = []
    for data in view.simulation.clients:
        update = first_update(view, data.client_id)
        update = first_update(view, EVERYONE) if update is None else update
        if update is None:
            return None
        rows.append(update)
    scores = torch.stack(rows)
    trained = (scores != 0).any(1, keepdim=True)
    still = (scores == 0) & (scores != 0).any(0, keepdim=True) & trained
    return scores.masked_fill(still, float(scores.abs().max()) + 1)


def first_update(view: View, source: int) -> Tensor | None:
    """What the first reply of a source did to the bias, [C]."""
    name = CLASSIFIER[1]
    for seen in view.rounds:
        sent: Mapping[str, Tensor] = seen.messages.get(source, {})
        if source in seen.replies and name in sent and name in seen.replies[source].tensors:
            return seen.replies[source].tensors[name] - sent[name]
    return None
