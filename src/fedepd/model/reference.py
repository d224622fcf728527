"""What a model folder keeps of its training rows, so that later rows can be held against them.

Nothing but shares is kept: of bins and categories that stand for at least ``FEW`` rows each. Borders of bins
are rounded to about a hundredth of the column's deviation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd.datasets.facts import homophily
from fedepd.datasets.tables import FeatureRule
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json, write_json
from fedepd.model.columns import columns_of
from fedepd.model.model import Model
from fedepd.model.operating import Alerted
from fedepd.network.contract import dense_rows
from fedepd.shapes import EXPORT_AGAIN, NUMBER, SHARE, TEXT, expect, whole
from fedepd.types import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REFERENCE = "reference.json"
"""The file in a model folder."""
FEW = 20
"""The fewest rows that a bin or a category may stand for."""
BINS = 10
MOST_COLUMNS = 2000
"""With more columns none is kept. Such features are words of texts, and no one watches each of them."""
DEGREES = (1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 129.0)
"""Borders of the bins of degrees: 0, 1, 2, 3 to 4, 5 to 8, and so on."""
RARE = "(rare or unknown)"
"""All categories that are not kept by name."""
SHAPE: dict[str, Any] = {
    "rows": whole(1),
    "few": whole(1),
    "columns": [
        {"name": TEXT, "rows": whole(1), "borders": [NUMBER], "categories": ([TEXT],), "shares": [(SHARE,)]}
    ],
    "homophily": (SHARE,),
}


@dataclass(frozen=True)
class Bins:
    """How a column is cut, and the share of the training rows in each part."""

    name: str
    borders: tuple[float, ...]
    """Of a column of numbers: where one bin ends and the next begins."""
    categories: tuple[str, ...] | None
    """Of categories: their names; what is none of them is in one more bin, the last. Classes have no such."""
    shares: tuple[float | None, ...]
    """None where there are too few rows to say how many."""
    rows: int
    """How many rows there were."""

    def counts(self, values: Sequence[Any]) -> Ints:
        """How many values are in each bin."""
        if self.categories is None:
            places = np.searchsorted(np.array(self.borders), np.asarray(values, dtype=np.float64), "right")
            return np.bincount(places, minlength=len(self.shares))
        place = {name: number for number, name in enumerate(self.categories)}
        found = np.array([place.get(value, len(place)) for value in values], dtype=np.int64)
        return np.bincount(found, minlength=len(self.shares))[: len(self.shares)]

    def names(self) -> list[str]:
        """What the bins are called."""
        if self.categories is not None:
            return [*self.categories, RARE][: len(self.shares)]
        ends = [f"{border:.4g}" for border in self.borders]
        if not ends:
            return ["all"]
        between = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
        return [f"below {ends[0]}", *between, f"from {ends[-1]}"]


@dataclass(frozen=True)
class Reference:
    """Shares of the training rows, and what the model said about the other nodes of their graph."""

    rows: int
    few: int
    columns: tuple[Bins, ...]
    """One for each column, then one of degrees and one of predicted classes."""
    homophily: float | None
    """The share of edges whose ends are predicted alike."""
    alerted: Alerted | None = None
    """What the model's operating point alerted. It is not kept, because the point may change."""

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "alerted"}


DEGREE, CLASSES = "degree", "predicted class"
"""The names of the two that are no columns of a table. They are the last two."""


def column_values(model: Model, graph: Graph, rows: Ints) -> dict[int, list[Any]]:
    """The values of each column at these rows, as in the table; by the column's place.

    Args:
        model: It knows how columns became features.
        graph: Its features are as the protocol wants them.
        rows: The nodes.
    """
    columns = columns_of(model.schema, graph)
    if len(columns) > MOST_COLUMNS:
        return {}
    x = dense_rows(graph.x, torch.from_numpy(rows)).numpy().astype(np.float64)  # [r, d]
    return {place: _values(x[:, column.at], column.rule) for place, column in enumerate(columns)}


def _values(part: Floats, rule: FeatureRule | None) -> list[Any]:
    if rule is None:
        return list(part[:, 0])
    if rule.categories is None:
        return list(part[:, 0] * rule.std + rule.mean)
    named = [*rule.categories, ""]
    chosen = np.where(part.any(1), part.argmax(1) if part.shape[1] else 0, len(rule.categories))
    return [named[each] for each in chosen.tolist()]


def degrees_of(graph: Graph, rows: Ints) -> Floats:
    """How many edges each of these nodes has."""
    counts = np.bincount(graph.edge_index.numpy().reshape(-1), minlength=graph.num_nodes)
    return counts[rows].astype(np.float64)


def reference_of(model: Model, graph: Graph, training: Ints, few: int = FEW) -> Reference:
    """What is kept of a model's training rows.

    Choice: degrees and predictions are those of the whole graph at hand, as later graphs will be. A client
    has trained on its own part of it. Predictions are of nodes that were not trained on, as later ones are.

    Args:
        model: The model.
        graph: The graph that it was trained on; its features are as the protocol wants them.
        training: The training nodes.
        few: The fewest rows that a bin may stand for.
    """
    if len(training) < few:
        raise BadConfig(f"there are {len(training)} training rows; shares of them need at least {few}")
    columns, bins = columns_of(model.schema, graph), []
    for place, values in column_values(model, graph, training).items():
        column = columns[place]
        if column.rule is not None and column.rule.categories is not None:
            bins.append(categories_of(column.name, values, few))
        else:
            bins.append(numbers_of(column.name, np.array(values), few))
    logits = model.logits(graph)
    classes = logits.argmax(1)
    others = np.setdiff1d(np.arange(graph.num_nodes), training)
    others = others if len(others) >= few else np.arange(graph.num_nodes)
    bins.append(numbers_of(DEGREE, degrees_of(graph, training), few, DEGREES))
    said = [model.label_names[c] for c in classes[torch.from_numpy(others)].tolist()]
    bins.append(categories_of(CLASSES, said, few, model.label_names))
    alike = homophily(graph.edge_index, classes)
    alerted = None
    if model.operating is not None:
        alerts = model.operating.decide(model.calibrated(logits.numpy().astype(np.float64)[others])).alerts
        alerted = Alerted(float(alerts.mean()), len(alerts))
    return Reference(len(training), few, tuple(bins), None if alike is None else round(alike, 3), alerted)


def numbers_of(name: str, values: Floats, few: int, borders: Sequence[float] | None = None) -> Bins:
    """Bins of about equally many rows, or between given borders; neighbours with too few are joined."""
    if borders is None:
        quantiles = np.quantile(values, np.arange(1, BINS) / BINS)
        # Rounded, so that no border gives all digits of a row's own value.
        spread = float(values.std())
        digits = 2 - math.floor(math.log10(spread)) if spread > 0 else 0
        borders = sorted({float(np.round(each, digits)) for each in quantiles})
    counts = np.bincount(np.searchsorted(np.array(borders), values, "right"), minlength=len(borders) + 1)
    kept, sums = [], [0]
    for place, count in enumerate(counts.tolist()):
        sums[-1] += count
        left = int(counts[place + 1 :].sum())
        if sums[-1] >= few and left >= few:
            kept.append(float(borders[place]))
            sums.append(0)
    shares = tuple(round(each / len(values), 4) for each in sums)
    return Bins(name, tuple(kept), None, shares, len(values))


def categories_of(name: str, values: Sequence[str], few: int, all_names: Sequence[str] = ()) -> Bins:
    """Every category with enough rows, and one share for all others.

    ``all_names``: these are kept by name in any case. The share of one with too few rows is not given.
    """
    found, counts = np.unique(np.array(values, dtype=np.str_), return_counts=True)
    known = {str(each): int(count) for each, count in zip(found, counts, strict=True) if str(each)}
    kept = [each for each in (all_names or known) if all_names or known[each] >= few]
    rows = [known.get(each, 0) for each in kept]
    if not all_names:
        rows.append(len(values) - sum(rows))
    shares = tuple(round(count / len(values), 4) if count >= few else None for count in rows)
    return Bins(name, (), tuple(kept), shares, len(values))


def write_reference(folder: Path, model: Model, graph: Graph, training: Ints, few: int = FEW) -> None:
    """Put the shares into a model folder, if there are enough rows for any."""
    if len(training) >= few:
        write_json(folder / REFERENCE, reference_of(model, graph, training, few).as_json())


def read_reference(folder: Path) -> Reference | None:
    """What ``write_reference`` wrote; None if there is nothing."""
    path = folder / REFERENCE
    if not path.is_file():
        return None
    content = read_json(path, cure=EXPORT_AGAIN)
    expect(content, SHAPE, f"'{REFERENCE}'", EXPORT_AGAIN)
    columns = []
    for each in content["columns"]:
        names = None if each["categories"] is None else tuple(each["categories"])
        parts = len(each["borders"] if names is None else names) + (each["name"] != CLASSES)
        where = f"'{REFERENCE}': the number of shares of a column"
        expect(len(each["shares"]), whole(parts, parts), where, EXPORT_AGAIN)
        shares = tuple(each["shares"])
        columns.append(Bins(each["name"], tuple(each["borders"]), names, shares, each["rows"]))
    if [each.name for each in columns[-2:]] != [DEGREE, CLASSES]:
        raise BadData(f"'{REFERENCE}' lacks degrees or classes; {EXPORT_AGAIN}")
    return Reference(content["rows"], content["few"], tuple(columns), content["homophily"])
