"""Missing numbers, which a graph leaves open: what takes their place comes from training rows alone.

A table is imported before it is split. So the file holds 0 where a number is missing, marks the row, and its
schema says "median" or "mean" without a value. Whoever splits the graph computes the value, puts it into the
rows and writes it into the schema. The model keeps it for new tables.

Choice: over the training rows of all owners together, as if they had agreed on the value. So a simulation
fills gaps as it scales columns. The sites of a real federation count no training rows together. By a plan
they put the mean over all their rows there, from the sums that scale the column; a file with other gaps is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedepd.datasets.schema import FeatureRule, FeatureSchema, refilled
from fedepd.errors import BadData
from fedepd.shown import shown
from fedepd.types import ClientData, Graph


def open_rules(graph: Graph) -> dict[int, FeatureRule]:
    """The rules whose missing numbers wait for a value, by the position of their feature."""
    if '"impute"' not in graph.schema:
        return {}
    schema = FeatureSchema.from_json(graph.schema)
    found = {at: rule for at, rule in schema.places if rule.is_open}
    if found and (graph.is_sparse or len(schema.feature_names) != graph.num_features):
        raise BadData(
            f"graph '{shown(graph.name)}' has {graph.num_features} features, but its schema, by which gaps "
            f"are filled, names {len(schema.feature_names)}; import the tables again"
        )
    return found


def fills_of(clients: Sequence[ClientData]) -> dict[int, float]:
    """What takes the place of missing numbers, by the position of the feature, from training rows alone.

    A column without any number in a training row gets its mean over all rows, or 0 if it is not scaled.
    """
    out = {}
    for at, rule in open_rules(clients[0].graph).items():
        rows = []
        for client in clients:
            used = client.train_mask & (client.graph.x[:, at + 1] == 0) if rule.marked else client.train_mask
            rows.append(client.graph.x[used, at].numpy().astype(np.float64))
        known = np.concatenate(rows) * rule.std + rule.mean
        middle = np.median if rule.impute == "median" else np.mean
        out[at] = _rounded(float(middle(known)), rule) if known.size else rule.mean
    return out


def _rounded(value: float, rule: FeatureRule) -> float:
    """Without the digits that features, which are float32, do not have."""
    size = max(abs(value), abs(rule.mean), rule.std if rule.std != 1 else 0.0)
    return round(value, 6 - math.floor(math.log10(size))) if size > 0 else 0.0


def filled(graph: Graph, fills: dict[int, float]) -> Graph:
    """The graph with the values in its missing numbers and in its schema.

    The features are what ``FeatureSchema.apply`` makes of the same rows with the new schema.
    """
    if not fills:
        return graph
    schema, x = FeatureSchema.from_json(graph.schema), graph.x.to(torch.float32, copy=True)
    for at, rule in schema.places:
        if at in fills and rule.marked:
            x[x[:, at + 1] != 0, at] = torch.tensor((fills[at] - rule.mean) / rule.std).to(x.dtype)
    return replace(graph, x=x, schema=refilled(schema, fills).to_json())


def filled_together(clients: Sequence[ClientData]) -> list[ClientData]:
    """The clients without missing numbers."""
    fills = fills_of(clients)
    return [replace(client, graph=filled(client.graph, fills)) for client in clients]


def filled_as(graph: Graph, schema: FeatureSchema | None) -> Graph:
    """The graph with the values that another schema has for the same columns, where its own are open."""
    mine = open_rules(graph) if schema is not None else {}
    if schema is None or not mine or len(schema.feature_names) != graph.num_features:
        return graph
    theirs = dict(schema.places)
    fills = {at: theirs[at].fill for at in mine if at in theirs}
    return filled(graph, {at: value for at, value in fills.items() if value is not None})


def check_filled(graph: Graph, where: str, scaled: Sequence[int] = ()) -> None:
    """Refuse a graph whose missing numbers wait for a value. ``where`` names its file.

    The columns ``scaled`` get the mean that scales them.
    """
    if names := [rule.name for at, rule in open_rules(graph).items() if rule.marked and at not in scaled]:
        raise BadData(
            f"{where} has missing numbers in column '{shown(names[0])}', and the sites of a federation have "
            f"agreed on nothing to put there; fill them in before the import, or ask for a plan with "
            f'missing = "mean"'
        )
