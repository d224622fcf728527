"""What the server saw -> class rows: of how many nodes each one is.

A class row is the sum or mean of something over a client's training nodes of one class: a prototype, or a
gradient. Methods declare in ``reply_fields`` which of their fields are rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fedepd.privacy.figures import Figure, share
from fedepd.privacy.view import Seen, View
from fedepd.rounds.sums import spread

ROWS = ("sum", "mean", "rows")
"""The kinds of fields that hold class rows."""


@dataclass(frozen=True, eq=False)
class Row:
    """One class row on the wire."""

    source: int
    """The client that sent it, or ``EVERYONE``."""
    label: int
    """Its class."""
    nodes: int
    """How many nodes it is of."""
    field: str
    value: Tensor
    """[...]: the row, a sum or a mean."""


def rows_of(view: View, seen: Seen) -> Iterator[Row]:
    """The rows of one round.

    How many nodes a row is of is what the method sends beside it. A method that sends only which classes are
    there says nothing about it, so then it is the truth.
    """
    for source, reply in seen.replies.items():
        held = view.held(source)
        for name, field in seen.fields.items():
            if field.kind not in ROWS or field.of is None:
                continue
            named, value = reply.tensors[field.of], reply.tensors[name]
            if field.kind == "rows":
                value = spread(value, named, named.shape[0])
            counted = seen.fields[field.of].kind == "count"
            for label in named.nonzero().reshape(-1).tolist():
                nodes = round(float(named[label])) if counted else int(held[label])
                yield Row(source, label, nodes, name, value[label])


def row_figures(view: View) -> list[Figure]:
    """The shares of rows of one node (``rows.single``), and of fewer than ``min_count`` (``rows.few``).

    A row that is sent again in a later round counts once, with the fewest nodes that it ever was of.
    """
    fewest: dict[tuple[int, int], int] = {}
    for seen in view.rounds:
        for row in rows_of(view, seen):
            place = (row.source, row.label)
            fewest[place] = min(row.nodes, fewest.get(place, row.nodes))
    out = []
    for name, limit in (("rows.single", 2), ("rows.few", view.privacy.min_count)):
        for tier, classes in view.tiers.items():
            sizes = [nodes for (_, label), nodes in fewest.items() if label in classes]
            out.append(share(name, tier, sum(nodes < limit for nodes in sizes), len(sizes)))
    return out
