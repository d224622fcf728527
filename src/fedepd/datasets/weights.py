"""How much edges count: a column of a table of edges as weights."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.edges import Ends
from fedepd.datasets.roles import UNKNOWN, Roles
from fedepd.errors import BadData
from fedepd.shown import shown
from fedepd.types import LEAST_WEIGHT, MOST_WEIGHT, summed_weights


def weighed(ends: Ends, edges: Tensor, roles: Roles) -> tuple[Tensor, Tensor | None, list[str]]:
    """The edges with their weights, by the roles ``edge_weight`` and ``edge_weight_as``.

    Choice: the rows of an edge are summed before the logarithm, so that one payment counts as much as the
    same amount in two.

    Args:
        ends: The ends of all rows.
        edges: What ``joined`` made of them, [2, e].
        roles: Which column has the weights.

    Returns:
        The edges whose weight is above 0, their weights float32 (None where all count alike), and notes.

    Raises:
        BadData: A number is missing, below 0 or too large. The message names its line.
    """
    if roles.edge_weight is None:
        return edges, None, []
    rows = np.flatnonzero((ends.nodes >= 0).all(0) & (ends.nodes[0] != ends.nodes[1]))
    values = _weights(ends, roles, rows)
    total = summed_weights(torch.from_numpy(ends.nodes[:, rows]), torch.from_numpy(values), edges, ends.count)
    some = total >= LEAST_WEIGHT
    weight = (torch.log1p(total) if roles.edge_weight_as == "log1p" else total)[some]
    if weight.numel() and float(weight.max()) > MOST_WEIGHT:
        raise BadData(
            f"{ends.table.name}: the sum of '{shown(roles.edge_weight)}' is {float(weight.max()):.3g} for an "
            f"edge, more than {MOST_WEIGHT:g}; give the column in a larger unit"
        )
    return edges[:, some], weight.to(torch.float32), _weighing_notes(roles, total, some)


def _weighing_notes(roles: Roles, total: Tensor, some: Tensor) -> list[str]:
    name, by_log = shown(roles.edge_weight or ""), roles.edge_weight_as == "log1p"
    how, other = ("log(1 + {})", "none") if by_log else ("{}", "log1p")
    notes = [
        f"an edge counts by {how.format(name)}, summed over its rows; --edge-weight-as {other} takes "
        f"{'the sum itself' if by_log else 'its logarithm'}"
    ]
    if dropped := int((~some).sum()):
        notes.append(
            f"{dropped:,} edges have a '{name}' of 0 in sum and were dropped; {int(some.sum()):,} remain"
        )
    return notes


def _weights(ends: Ends, roles: Roles, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers of the column of weights, of the rows that are edges."""
    name, table = roles.edge_weight or "", ends.table
    column, where = table.column(name, "correct --edge-weight"), f"column '{shown(name)}'"
    if name in ends.columns:
        raise BadData(f"{where} in --edge-weight is an end of the edges of {table.name}; name another column")
    words = UNKNOWN | frozenset(roles.missing)
    numbers = column.numbers_but(words)
    if isinstance(numbers, int):
        row, text = column.odd(words)[0]
        cure = "add --decimal , if its comma is the decimal point" if "," in text else "correct it"
        raise BadData(
            f"{table.place(row)}: {where} holds the text '{shown(' '.join(text.split()), 40)}', but weights "
            f"of edges are numbers; {cure}, or name another column with --edge-weight"
        )
    values = numbers[rows]
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        value, more = values[bad[0]], f" ({bad.size:,} such rows)" if bad.size > 1 else ""
        missing = np.isnan(value)
        what = "has no value" if missing else f"is {value:g}"
        raise BadData(
            f"{table.place(int(rows[bad[0]]))}: {where} {what}{more}, "
            f"but the weight of an edge is a finite number, 0 or more; "
            f"{'fill it in' if missing else 'correct it'} or drop the row"
        )
    return values
