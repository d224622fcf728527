"""The features of a graph by the columns of its tables, with the values that the tables had."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.network.contract import dense_rows
from fedepd.network.sparse import to_scipy
from fedepd.types import Graph, widened

OTHER = "(none of the known)"
"""The value of a category that training did not have."""
MISSING = "(missing)"
"""The value of an empty cell, whatever number was put in its place."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table, or one feature where there was no table."""

    name: str
    at: NDArray[np.int64]
    """Its features."""
    rule: FeatureRule | None
    """How it became features, where that is known."""
    usual: float | str
    """Its mean over the graph, or its most frequent category."""
    value: Callable[[int], float | str]
    """The value of a node, as in its table."""


def columns_of(schema: FeatureSchema | None, graph: Graph) -> list[Column]:
    """The columns behind a graph's features, in order.

    Args:
        schema: How columns became features. None: every feature is a column of its own.
        graph: The graph, before its rows are normalised.
    """
    rows = to_scipy(graph.x) if graph.is_sparse else widened(graph.x).numpy()
    means = np.asarray(rows.mean(0), dtype=np.float64).reshape(-1)  # [d]
    rules = schema.rules if schema is not None else [None] * graph.num_features
    out: list[Column] = []
    at = 0
    for rule in rules:
        width = 1 if rule is None else len(rule.feature_names)
        place = np.arange(at, at + width)
        name = f"feature {at}" if rule is None else rule.name
        out.append(Column(name, place, rule, _text(means[place], rule), _reader(graph, place, rule)))
        at += width
    return out


def _reader(graph: Graph, place: NDArray[np.int64], rule: FeatureRule | None) -> Callable[[int], float | str]:
    def value(node: int) -> float | str:
        row = dense_rows(graph.x, torch.tensor([node]))[0].numpy().astype(np.float64)[place]
        if rule is not None and rule.marked and row[1] != 0:
            return MISSING
        return _text(row, rule)

    return value


def _text(values: NDArray[np.float64], rule: FeatureRule | None) -> float | str:
    """A feature, or the value of the column that it was made from."""
    if rule is None:
        return float(values[0])
    if rule.categories is None:
        value = float(values[0] * rule.std + rule.mean)
        largest = max(abs(value), abs(rule.mean), rule.std)
        return round(value, 5 - math.floor(math.log10(largest)))  # float32 has no more digits
    known = len(values) and values.max() > 0
    return (rule.categories[int(values.argmax())] or MISSING) if known else OTHER
