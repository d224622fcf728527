"""A graph whose columns and classes are brought into the order that others agreed on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.datasets.columns import listed
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadData
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

AGAIN = "import the tables again"


def conformed_features(
    graph: Graph, agreed: FeatureSchema, ignore_unknown: bool = False
) -> tuple[NDArray[np.float32], list[str]]:
    """The features in the agreed order, [n, d], and notes, from a graph whose numbers are not scaled.

    A category that was not agreed on is refused, or becomes zeros with ``ignore_unknown``.
    """
    if not graph.schema:
        raise BadData("it does not say how its features were made; give your tables instead")
    own, at = dict[str, tuple[FeatureRule, int]](), 0
    for rule in FeatureSchema.from_json(graph.schema).rules:
        own[rule.name] = rule, at
        at += len(rule.feature_names)
    if at != graph.num_features:
        raise BadData(f"it has {graph.num_features} features, but names {at}; {AGAIN}")
    width = len(agreed.feature_names)
    memory.check(memory.COPIES * 4 * graph.num_nodes * (width + at), f"{graph.num_nodes:,} rows of features")
    x = (graph.x.to_dense() if graph.is_sparse else graph.x).numpy()
    parts, notes = [], list[str]()
    for rule in agreed.rules:
        if rule.name not in own:
            raise BadData(f"it has no column '{shown(rule.name)}'; {AGAIN} with it (columns: {listed(own)})")
        mine, first = own[rule.name]
        _check_kind(mine, rule)
        if rule.categories is None:
            _check_complete(x, mine, first)
            parts.append(x[:, first : first + 1])
        else:
            parts.append(_categories(x, mine, first, rule.categories, ignore_unknown, notes))
    if unused := [name for name in own if name not in {rule.name for rule in agreed.rules}]:
        notes.append(f"these columns were not agreed on and are left out: {listed(unused)}")
    return np.concatenate(parts, 1), notes


def _check_kind(mine: FeatureRule, agreed: FeatureRule) -> None:
    where = f"its column '{shown(mine.name)}'"
    if mine.categories is None and agreed.categories is not None:
        raise BadData(f"{where} holds numbers instead of categories; {AGAIN} with --one-hot")
    if mine.categories is not None and agreed.categories is None:
        raise BadData(f"{where} holds categories instead of numbers; {AGAIN} without --one-hot for it")
    if (mine.mean, mine.std) != (0.0, 1.0):
        raise BadData(
            f"{where} is scaled already by numbers of this file alone, but all sites scale together; "
            f"{AGAIN} without --scale"
        )


def _check_complete(x: NDArray[np.float32], mine: FeatureRule, first: int) -> None:
    gaps = int((x[:, first + 1] != 0).sum()) if mine.marked else 0
    if gaps:
        raise BadData(
            f"{gaps:,} rows have no number in its column '{shown(mine.name)}', and nothing was agreed on to "
            f"put there; fill them in, and {AGAIN}"
        )


def _categories(
    x: NDArray[np.float32],
    mine: FeatureRule,
    first: int,
    agreed: Sequence[str],
    ignore_unknown: bool,
    notes: list[str],
) -> NDArray[np.float32]:
    out = np.zeros((x.shape[0], len(agreed)), dtype=np.float32)
    for number, category in enumerate(mine.categories or ()):
        if category in agreed:
            out[:, list(agreed).index(category)] = x[:, first + number] != 0
    several = np.flatnonzero(out.sum(1) > 1)
    if several.size:
        raise BadData(
            f"row {several[0] + 1}: column '{shown(mine.name)}' has several categories at once; {AGAIN}"
        )
    unknown = np.flatnonzero(out.sum(1) == 0)
    if unknown.size:
        held = [c for n, c in enumerate(mine.categories or ()) if x[unknown, first + n].any()]
        said = f"have no known value in column '{shown(mine.name)}' ({listed(held, 5) or 'empty'})"
        if not ignore_unknown:
            raise BadData(
                f"{unknown.size:,} rows {said}, the first is row {unknown[0] + 1}; "
                f"correct the tables (values: {listed(agreed)}), or add --unknown-category ignore"
            )
        notes.append(f"{unknown.size:,} of {x.shape[0]:,} rows {said}: their features are 0")
    return out


def conformed_classes(graph: Graph, agreed: Sequence[str]) -> Tensor:
    """The nodes' classes by the agreed numbers, int64 [n]. A class that was not agreed on is refused."""
    if not graph.label_names:
        raise BadData("its classes have no names; give your tables instead")
    number = {name: position for position, name in enumerate(agreed)}
    held = torch.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes).tolist()
    for name, count in zip(graph.label_names, held, strict=True):
        if count and name not in number:
            raise BadData(
                f"it has {count:,} nodes of the class '{shown(name, 40)}', which was not agreed on; "
                f"correct the tables (classes: {listed(agreed)}), or ask the coordinator for another plan"
            )
    numbers = torch.tensor([number.get(name, HIDDEN) for name in graph.label_names] + [HIDDEN])
    return numbers[graph.y]
