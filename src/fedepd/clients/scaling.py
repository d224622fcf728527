"""Columns of numbers that several owners scale together, from sums alone.

Every owner adds up its rows: how many there are, the sum of the numbers and the sum of their squares. All
three are exact whole numbers, so that the owners' sums together have the same bits in any order and grouping.
From them come one mean and one deviation for all, each rounded once.

Choice: over all rows of every owner, as ``fitting.fitted`` does, not over training rows alone. The scaling
then does not depend on the split.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isqrt
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.clients.client_file import ClientFile
from fedepd.clients.rounded import in_float16
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadData
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.types import ClientData, Graph, Unscaled, widened

FRACTION_BITS = 128
"""A number is summed as a whole multiple of 2^-128, the nearest one. So digits are lost below 1e-26 only."""
PART_BITS = 18
"""A float64 has 53 bits. In three parts of 18 bits the squares of 2^27 rows add up within an int64."""
BLOCK = 2**24
"""Rows that are added up at once."""

Owned = TypeVar("Owned", bound=ClientData | ClientFile)
Scaling = NDArray[np.float64]
"""Means and deviations of the scaled columns, [2, s]."""


class ColumnSums(NamedTuple):
    """What is summed of one column. It counts in steps of 2^-128, and of 2^-256 for squares."""

    rows: int
    total: int
    squares: int


NOTHING = ColumnSums(0, 0, 0)


def column_sums(values: NDArray[np.float64]) -> ColumnSums:
    """The exact sums of one column [n]. Its numbers are those that a client file may hold."""
    blocks = [_block_sums(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK)]
    return added(blocks)


def added(many: Iterable[ColumnSums]) -> ColumnSums:
    rows = [tuple(each) for each in many]
    return ColumnSums(*(sum(part) for part in zip(*rows, strict=True))) if rows else NOTHING


def _block_sums(values: NDArray[np.float64]) -> ColumnSums:
    steps = np.rint(np.ldexp(values, FRACTION_BITS))  # whole numbers, exact: a power of two was multiplied
    fraction, exponent = np.frexp(steps)
    order = np.argsort(exponent, kind="stable")
    exponent = exponent[order]
    digits = np.ldexp(fraction[order], 53).astype(np.int64)  # steps = digits * 2^(exponent - 53)
    starts = np.flatnonzero(np.diff(exponent, prepend=exponent[0] - 1)) if len(exponent) else order
    sign, digits = np.sign(digits), np.abs(digits)
    low = 2**PART_BITS - 1
    c, b, a = digits & low, digits >> PART_BITS & low, digits >> 2 * PART_BITS

    def sums(part: NDArray[np.int64]) -> list[int]:
        found: list[int] = np.add.reduceat(part, starts).tolist() if len(starts) else []
        return found

    total = squares = 0
    linear = [sums(sign * part) for part in (c, b, a)]
    products = [sums(part) for part in (c * c, 2 * b * c, 2 * a * c + b * b, 2 * a * b, a * a)]
    for at, shift in enumerate((exponent[starts].astype(np.int64) - 53).tolist()):
        first = sum(each[at] << PART_BITS * power for power, each in enumerate(linear))
        second = sum(each[at] << PART_BITS * power for power, each in enumerate(products))
        total += _shifted(first, shift)
        squares += _shifted(second, 2 * shift)
    return ColumnSums(len(values), total, squares)


def _shifted(number: int, bits: int) -> int:
    """``number`` times 2^bits. The bits that are shifted out are zeros."""
    return number << bits if bits >= 0 else number >> -bits


def mean_of(sums: ColumnSums) -> float:
    """The mean, rounded once."""
    return sums.total / (sums.rows << FRACTION_BITS) if sums.rows else 0.0


def deviation_of(sums: ColumnSums) -> float:
    """The population standard deviation, rounded once; 1 where it is 0, so that it can be divided by."""
    rows, total, squares = sums
    variance = rows * squares - total * total  # times rows^2 and 2^256
    if variance <= 0:
        return 1.0
    # With 128 more bits, no number halfway between two float64 lies strictly between two whole roots. So the
    # last bit, which says whether the root goes on, is all that rounding needs.
    wide = variance << 2 * FRACTION_BITS
    root = isqrt(wide)
    root = 2 * root + (root * root != wide)
    return root / (rows << 2 * FRACTION_BITS + 1)


def scaling_of(columns: Sequence[ColumnSums]) -> Scaling:
    """Means and deviations [2, s]. A column without rows keeps mean 0 and deviation 1."""
    return np.array([[mean_of(each) for each in columns], [deviation_of(each) for each in columns]])


def sums_of(unscaled: Unscaled) -> list[ColumnSums]:
    """The sums of every column, over the rows that have a number."""
    return [column_sums(values[~np.isnan(values)]) for values in unscaled.values.T]


def scaled_graph(graph: Graph, unscaled: Unscaled, scaling: Scaling) -> Graph:
    """The graph with its columns scaled, by the same expression as ``FeatureSchema.apply``.

    Raises:
        BadData: A number is so far from the mean that the features cannot hold it.
    """
    mean, deviation = scaling
    with np.errstate(over="ignore"):
        values = ((unscaled.values - mean) / deviation).astype(np.float32)  # [n, s]
    values[np.isnan(unscaled.values)] = 0  # the mean
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        row, at = bad[0].tolist()
        raise BadData(
            f"graph '{graph.name}': row {row} of column {unscaled.columns[at]} is "
            f"{unscaled.values[row, at]:g}, which scaled by mean {mean[at]:g} and deviation "
            f"{deviation[at]:g} is too large; correct the number or drop the row"
        )
    x = graph.x.clone()
    x[:, list(unscaled.columns)] = torch.from_numpy(values)
    return replace(graph, x=x, schema=scaled_schema(graph.schema, unscaled.columns, scaling))


def scaled_schema(schema: str, columns: Sequence[int], scaling: Scaling) -> str:
    """The feature schema with the scaling in it, so that new tables are treated alike."""
    if not schema:
        return ""
    found, rules = dict(zip(columns, scaling.T.tolist(), strict=True)), []
    whole = FeatureSchema.from_json(schema)
    for at, rule in whole.places:
        if rule.categories is None and at in found:
            rule = scaled_rule(rule, *found[at])
        rules.append(rule)
    return replace(whole, rules=tuple(rules)).to_json()


def scaled_rule(rule: FeatureRule, mean: float, deviation: float) -> FeatureRule:
    """The rule with a scaling. The mean also takes the place of missing numbers, where some may be."""
    return replace(rule, mean=mean, std=deviation, fill=mean if rule.is_open else rule.fill)


def scaled_by(owned: Owned, scaling: Scaling) -> Owned:
    """The client with complete features."""
    if owned.unscaled is None:
        return owned
    return replace(owned, graph=scaled_graph(owned.graph, owned.unscaled, scaling), unscaled=None)


def scaled_together(clients: Sequence[Owned]) -> list[Owned]:
    """The clients with complete features, scaled by the sums over all of them."""
    sums = [sums_of(each.unscaled) for each in clients if each.unscaled is not None]
    scaling = scaling_of([added(column) for column in zip(*sums, strict=True)])
    return [scaled_by(each, scaling) for each in clients]


def with_features(graph: Graph, features: str, compact: bool = False) -> Graph:
    """Features as published, each row divided by its sum of absolute values (a zero row stays zero), 1 for
    every positive value, or rounded to float16.

    They come as float32. With ``compact``, numbers that float16 holds may stay float16, in half the memory.
    """
    if features == "float16":
        graph = in_float16(graph)
    elif features != "raw":
        form = _binary if features == "binary" else _row_normalised
        graph = replace(graph, x=form(widened(graph.x)))
    x = graph.x if compact else widened(graph.x)
    return graph if x is graph.x else replace(graph, x=x)


def _row_normalised(x: Tensor) -> Tensor:
    if x.layout == torch.strided:
        return x / x.abs().sum(1, keepdim=True).clamp(min=1e-12)
    rows = to_scipy(x)
    total = np.asarray(abs(rows).sum(1)).reshape(-1)
    return csr_tensor(sp.csr_matrix(sp.diags(1.0 / np.maximum(total, 1e-12)) @ rows))


def _binary(x: Tensor) -> Tensor:
    """1 where a value is positive. All others stay, as torch_geometric leaves them."""
    if x.layout == torch.strided:
        return torch.where(x > 0, 1.0, x)
    rows = to_scipy(x).copy()
    rows.data = np.where(rows.data > 0, np.float32(1), rows.data)
    return csr_tensor(rows)
