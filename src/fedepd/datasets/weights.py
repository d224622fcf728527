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


def weighed(
    ends: Ends, edges: Tensor, roles: Roles, planned: bool = False
) -> tuple[Tensor, Tensor | None, list[str]]:
    """The edges with their weights, by the roles ``edge_weight`` and ``edge_weight_as``.

    Choice: the rows of an edge are summed before the logarithm, so that one payment counts as much as the
    same amount in two.

    Args:
        ends: The ends of all rows.
        edges: What ``joined`` made of them, [2, e].
        roles: Which column has the weights.
        planned: Whether the plan of a federation says so, and no option can be given instead.

    Returns:
        The edges whose weight is above 0, their weights float32 (None where all count alike), and notes.

    Raises:
        BadData: A number is missing, below 0 or too large. The message names its line.
    """
    if roles.edge_weight is None:
        return edges, None, []
    rows = np.flatnonzero((ends.nodes >= 0).all(0) & (ends.nodes[0] != ends.nodes[1]))
    values = _weights(ends, roles, rows, planned)
    total = summed_weights(torch.from_numpy(ends.nodes[:, rows]), torch.from_numpy(values), edges, ends.count)
    some = total >= LEAST_WEIGHT
    weight = (torch.log1p(total) if roles.edge_weight_as == "log1p" else total)[some]
    if weight.numel() and float(weight.max()) > MOST_WEIGHT:
        raise BadData(
            f"{ends.table.name}: the sum of '{shown(roles.edge_weight)}' is {float(weight.max()):.3g} for an "
            f"edge, more than {MOST_WEIGHT:g}; give the column in a larger unit"
        )
    return edges[:, some], weight.to(torch.float32), _weighing_notes(roles, total, some, planned)


def _weighing_notes(roles: Roles, total: Tensor, some: Tensor, planned: bool) -> list[str]:
    name, by_log = shown(roles.edge_weight or ""), roles.edge_weight_as == "log1p"
    how, other = ("log(1 + {})", "none") if by_log else ("{}", "log1p")
    otherwise = f"; --edge-weight-as {other} takes {'the sum itself' if by_log else 'its logarithm'}"
    otherwise = ", as planned" if planned else otherwise
    notes = [f"an edge counts by {how.format(name)}, summed over its rows{otherwise}"]
    if dropped := int((~some).sum()):
        notes.append(
            f"{dropped:,} edges have a '{name}' of 0 in sum and were dropped; {int(some.sum()):,} remain"
        )
    return notes


def _weights(ends: Ends, roles: Roles, rows: NDArray[np.int64], planned: bool) -> NDArray[np.float64]:
    """The numbers of the column of weights, of the rows that are edges."""
    name, table = roles.edge_weight or "", ends.table
    lacking = "add it, because the plan weighs edges by it" if planned else "correct --edge-weight"
    column, where = table.column(name, lacking), f"column '{shown(name)}'"
    if name in ends.columns:
        said = "of weights" if planned else "in --edge-weight"
        raise BadData(f"{where} {said} is an end of the edges of {table.name}; name another column")
    words = UNKNOWN | frozenset(roles.missing)
    numbers = column.numbers_but(words)
    if isinstance(numbers, int):
        row, text = column.odd(words)[0]
        cure = "add --decimal , if its comma is the decimal point" if "," in text else "correct it"
        cure = "correct it" if planned else f"{cure}, or name another column with --edge-weight"
        raise BadData(
            f"{table.place(row)}: {where} holds the text '{shown(' '.join(text.split()), 40)}', but weights "
            f"of edges are numbers; {cure}"
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
