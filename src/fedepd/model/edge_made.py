"""Features that a model makes from edges, where new nodes are attached to older ones.

Tables of old and new edges show them all, so that every node has the features that one table would give. A
graph file shows no amounts any more: its nodes keep the features that they had there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedepd.datasets.columns import Table
from fedepd.datasets.edges import amounts, find_ends, gathered
from fedepd.datasets.roles import Roles
from fedepd.datasets.schema import OF_EDGES, FeatureRule, FeatureSchema


def edge_rules(schema: FeatureSchema | None) -> list[tuple[int, FeatureRule]]:
    """The rules that read edges, each with the position of its feature."""
    return [] if schema is None else [(at, rule) for at, rule in schema.places if rule.made in OF_EDGES]


def of_own_edges(
    schema: FeatureSchema, nodes: Table, ids: Sequence[str], edges: Table, roles: Roles
) -> Tensor:
    """The features of new nodes, [rows, d], from their own table of edges. Edges to all other nodes count."""
    if not schema.needs_edges:
        return schema.apply(nodes)
    return schema.apply(nodes, find_ends(edges, ids, replace(roles, unknown_ends="drop")))


def of_all_edges(
    x: Tensor, schema: FeatureSchema, ids: Sequence[str], tables: Sequence[tuple[Table, Roles]]
) -> Tensor:
    """The features of all nodes, where those that are made from edges are made from all tables together.

    Args:
        x: The features, [n, d].
        schema: How they are made.
        ids: The ids of all nodes.
        tables: Tables of edges, each with the columns of its ends. A row in two tables counts twice.

    Returns:
        The same features, but for those made from edges.
    """
    found = [find_ends(table, ids, replace(roles, unknown_ends="drop")) for table, roles in tables]
    joint = replace(found[0], nodes=np.concatenate([each.nodes for each in found], axis=1))
    out = x.clone()
    for at, rule in edge_rules(schema):
        values = None
        if not rule.made.endswith("count"):
            parts = [amounts(each, rule.of, bool(rule.impute), schema.words) for each in found]
            values = np.concatenate(parts)
        made = (gathered(joint, rule.made, values) - rule.mean) / rule.std
        out[:, at] = torch.from_numpy(made.astype(np.float32))
    return out


def kept(x: Tensor, old: Tensor, schema: FeatureSchema, rows: Sequence[int], places: Sequence[int]) -> Tensor:
    """``x`` with the features from edges that the same nodes have in ``old``: row ``rows[i]`` those of
    ``places[i]``.
    """
    if not rows:
        return x
    out, before = x.clone(), old.to_dense() if old.layout == torch.sparse_csr else old
    for at, _ in edge_rules(schema):
        out[list(rows), at] = before[list(places), at]
    return out
