"""FedEPD's margin of a class, Δ of Eq. 15: it grows with the class's rarity, and is never negative.

Choice: the paper counts a client's own training nodes. ``common_counts`` takes a share of the margin from the
counts of all clients instead, by default all of it. They come with the prototypes, so no byte more is sent. A
class that is rare in the whole federation then has its margin also at a client that lacks it, or happens to
hold much of it. By validation this gains accuracy, balanced accuracy and macro-F1
(docs/tables/what-we-changed.md). `printed` and `corrected` keep the client's own counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedepd.methods.fedepd.purify import EPSILON


@dataclass(frozen=True, eq=False)
class Margin:
    """A client's margin, before and after it knows the counts of all clients."""

    own: Tensor
    """float32 [C]: by its own counts."""
    factor: Tensor
    """mu times the gate, float64 [C]."""

    @classmethod
    def of(cls, mu: float, gate: Tensor, counts: Tensor, absent: str) -> Self:
        """``absent``: the method's setting, which says what the margin of a class without a node is."""
        margin = mu * gate * rarity(counts)  # Eq. 15
        if absent in ("exclude", "zero"):
            margin = torch.where(counts == 0, 0.0, margin)
        return cls(margin.to(torch.float32), mu * gate)

    def at(self, share: float, counts: Tensor | None) -> Tensor:
        """The margin in which a ``share`` is by the ``counts`` of all clients, float32 [C].

        While nobody's counts are known, it is the client's own.
        Choice: so it is for a class that no count is known of. Nobody has it, or the guard keeps it at home.
        """
        if share == 0 or counts is None or not bool(counts.any()):
            return self.own
        own = self.own.to(torch.float64)
        common = torch.where(counts == 0, own, self.factor * rarity(counts))
        return ((1 - share) * own + share * common).to(torch.float32)


def rarity(counts: Tensor) -> Tensor:
    """The logarithm of how many times the largest class is as large, float64 [C]."""
    effective = counts.to(torch.float64)
    return torch.log((effective.max() + EPSILON) / (effective + EPSILON))
