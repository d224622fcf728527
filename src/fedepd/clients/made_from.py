"""What the columns of the tables became in a graph, in words, and what the words of a check-up mean."""

from __future__ import annotations

from dataclasses import dataclass

from fedepd.datasets.columns import listed
from fedepd.datasets.edges import AMOUNTS
from fedepd.datasets.schema import OF_EDGES, OUTSIDE, FeatureRule, FeatureSchema
from fedepd.shown import shown
from fedepd.types import Graph

MEANINGS = {
    "nodes": "rows of the table of nodes, and external nodes if there are any",
    "edges": "pairs of nodes that are joined, each counted once",
    "edge weights": "how much an edge counts beside the others of a node; only ratios matter",
    "features": "numbers that a model sees of each node",
    "classes": "what is to be told apart",
    "unlabelled nodes": "their class is unknown: they pass messages, but never train or test",
    "owners": "who holds the nodes; they become the clients",
    "imbalance ratio": "size of the largest class divided by that of the smallest",
    "homophily": "share of edges that join nodes of one class; a large class alone makes it large",
    "homophily beyond chance": "how much more often edges join like nodes than by chance; 0: as often",
    "a neighbour's class tells": "this share of what there is to know about a node's class; 0: nothing",
    "homophily of the head": "the same at the head: the fewest classes that hold half of the nodes",
    "homophily of the medium": "the same at the classes between head and tail",
    "homophily of the tail": "the same at the tail: the smallest 30 % of the classes",
    "split": "how every run chooses the nodes that train, validate and test",
}
"""What each fact of a check-up means."""


@dataclass(frozen=True)
class MadeFrom:
    """One column and what became of it."""

    column: str
    becomes: str
    missing: str
    """How many cells are missing, and what takes their place; empty if none is."""


def made_from(graph: Graph) -> list[MadeFrom]:
    """What each column became, in the order of the features; empty if the graph does not know."""
    if not graph.schema:
        return []
    schema = FeatureSchema.from_json(graph.schema)
    if len(schema.feature_names) != graph.num_features or graph.is_sparse:
        return []
    out = list[MadeFrom]()
    for at, rule in schema.places:
        if rule.made in OF_EDGES and rule.of:  # sum, mean and max of a column share a line
            side = rule.made.partition(" ")[0]
            edges = "go out" if side == "out" else "come in"
            line = MadeFrom(
                shown(f"{side} {rule.of}"), f"{', '.join(AMOUNTS)} over the edges that {edges}", ""
            )
            out += [line] if line not in out else []
        else:
            out.append(MadeFrom(shown(rule.name), _becomes(rule), _missing(graph, at, rule)))
    return out


def _becomes(rule: FeatureRule) -> str:
    if rule.made == OUTSIDE:
        return "1 where the node is not in the table of nodes, else 0"
    of = f" of '{shown(rule.of)}'" if rule.of else ""
    if rule.categories is not None:
        named = [category or "(missing)" for category in rule.categories]
        what = f"{rule.made}{of}: " if rule.made else ""
        return f"{what}{len(named)} categories: {listed(named, 6)}"
    what = "number"
    if rule.made == "age":
        what = f"days before {rule.day}"
    elif rule.made:
        what = f"number of edges that {'go out' if rule.made.startswith('out') else 'come in'}"
    scaled = (rule.mean, rule.std) != (0.0, 1.0)
    return f"{what} (mean {rule.mean:.4g}, deviation {rule.std:.4g})" if scaled else what


def _missing(graph: Graph, at: int, rule: FeatureRule) -> str:
    if rule.categories is not None and "" in rule.categories:
        rows = int((graph.x[:, at + rule.categories.index("")] != 0).sum())
        return f"{rows:,}: own category"
    if not rule.marked:
        return ""
    rows = int((graph.x[:, at + 1] != 0).sum())
    return f"{rows:,}: {rule.impute} of training rows" if rule.fill is None else f"{rows:,}: {rule.fill:.6g}"
