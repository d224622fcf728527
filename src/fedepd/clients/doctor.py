"""Check a graph before training. Each finding says what it means for federated training and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from fedepd.clients.split import SplitConfig, split
from fedepd.datasets.facts import (
    adjusted_homophily,
    class_pairs,
    class_sizes,
    homophily,
    label_informativeness,
    weights_in_words,
)
from fedepd.datasets.tables import FeatureSchema
from fedepd.longtail import imbalance_ratio, tiers
from fedepd.network.sparse import to_scipy
from fedepd.rng import seeded_numpy
from fedepd.shown import listed, shown
from fedepd.types import Graph

Floats = NDArray[np.float64]

SPLIT = SplitConfig()
SAMPLE = 20_000
"""Most nodes used when dense columns are searched for leaks."""
CELLS = 2**21
"""Most numbers of a dense table that are made at a time."""
LEAK = 0.8
"""A column is suspicious if it removes this share of the errors of always guessing the largest class."""
EXACT = 0.95
"""A column is also suspicious if it marks one class with at least this F1."""
LARGE = 1000.0
"""Feature values beyond this dominate the others in a sum over neighbours."""


@dataclass(frozen=True)
class Finding:
    level: Literal["note", "warning", "error"]
    what: str
    meaning: str
    cure: str


@dataclass(frozen=True)
class Checkup:
    facts: dict[str, Any]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0: fine; 1: usable, with warnings; 2: not usable."""
        levels = {finding.level for finding in self.findings}
        return 2 if "error" in levels else 1 if "warning" in levels else 0


def check(graph: Graph) -> Checkup:
    """Check a graph: all its facts and findings, errors first."""
    findings = [
        *_classes(graph),
        *_structure(graph),
        *_owners(graph),
        *_columns(graph),
        *_leaks(graph),
        *_twins(graph),
    ]
    order = ("error", "warning", "note")
    return Checkup(_facts(graph), tuple(sorted(findings, key=lambda finding: order.index(finding.level))))


def _facts(graph: Graph) -> dict[str, Any]:
    sizes = class_sizes(graph)
    src, dst = graph.edge_index
    ends = torch.cat([graph.y[src], graph.y[dst]])  # [2e]
    same = torch.cat([graph.y[src] == graph.y[dst]] * 2)
    labelled = torch.cat([(graph.y[src] >= 0) & (graph.y[dst] >= 0)] * 2)

    def of_tier(classes: tuple[int, ...]) -> float | None:
        mine = labelled & torch.isin(ends, torch.tensor(classes, dtype=torch.int64))
        return float(same[mine].to(torch.float64).mean()) if bool(mine.any()) else None

    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        **({} if graph.edge_weight is None else {"edge weights": weights_in_words(graph.edge_weight)}),
        "features": graph.num_features,
        "classes": graph.num_classes,
        "unlabelled nodes": int((graph.y < 0).sum()),
        "owners": None if graph.owner is None else int(torch.unique(graph.owner).numel()),
        "imbalance ratio": imbalance_ratio(sizes),  # Eq. 17
        "homophily": homophily(graph.edge_index, graph.y),
        **_beyond_chance(graph),
        **{
            f"homophily of the {tier}": of_tier(classes)
            for tier, classes in vars(tiers(sizes)).items()
            if classes
        },
        "split": "drawn" if graph.time is None else f"oldest first by {shown(graph.time_name)}",
    }


def _beyond_chance(graph: Graph) -> dict[str, Any]:
    """What homophily does not say where one class is large; nothing without edges between labelled nodes."""
    pairs = class_pairs(graph)
    if not bool(pairs.any()):
        return {}
    return {
        "homophily beyond chance": adjusted_homophily(pairs),
        "a neighbour's class tells": label_informativeness(pairs),
    }


def _classes(graph: Graph) -> list[Finding]:
    sizes = class_sizes(graph)
    names = graph.label_names or tuple(map(str, range(graph.num_classes)))
    out = []
    if not bool((SPLIT.train_share * sizes >= 1).any()):
        out.append(
            Finding(
                "error", "no class has two labelled nodes", "there is nothing to train on", "label more nodes"
            )
        )
    if small := [names[c] for c in range(graph.num_classes) if 0 < sizes[c] < 3]:
        meaning = "they have too few nodes for training, validation and test, and most clients lack them"
        what = f"{len(small)} classes with fewer than 3 nodes: {listed(small)}"
        out.append(Finding("warning", what, meaning, "merge or drop them, or label more nodes"))
    if absent := [names[c] for c in range(graph.num_classes) if sizes[c] == 0]:
        what = f"{len(absent)} classes without nodes: {listed(absent)}"
        out.append(
            Finding(
                "warning",
                what,
                "the model has outputs that are never trained",
                "drop them from the list of classes",
            )
        )
    if unlabelled := int((graph.y < 0).sum()):
        what = f"{unlabelled:,} nodes ({_percent(unlabelled, graph.num_nodes)}) without a label"
        out.append(
            Finding(
                "note",
                what,
                "they pass messages, but are not used for training, validation or testing",
                "nothing, if this is intended",
            )
        )
    ratio = imbalance_ratio(sizes)
    if ratio >= 10:
        what = f"the largest class is {ratio:.0f} times as large as the smallest"
        cure = "look at balanced accuracy and at the accuracy of the tail; compare fedepd with fedavg"
        out.append(Finding("note", what, "plain accuracy hides the small classes", cure))
    return out


def _structure(graph: Graph) -> list[Finding]:
    out = []
    isolated = graph.num_nodes - int(torch.unique(graph.edge_index).numel())
    if isolated:
        level: Literal["note", "warning"] = "warning" if isolated > 0.1 * graph.num_nodes else "note"
        what = f"{isolated:,} nodes ({_percent(isolated, graph.num_nodes)}) have no edge"
        out.append(
            Finding(
                level,
                what,
                "they are classified by their own features only",
                "check the ids in the table of edges, or add edges",
            )
        )
    share = homophily(graph.edge_index, graph.y)
    if share is not None and share < 0.3:
        meaning = "neighbours may mislead more than they help"
        cure = "compare with --against no-graph, and fedavg with fedepd, which can prune misleading edges"
        out.append(Finding("note", f"only {share:.0%} of the edges join nodes of one class", meaning, cure))
    return out


def _owners(graph: Graph) -> list[Finding]:
    if graph.owner is None:
        return []
    numbers, owner = torch.unique(graph.owner, return_inverse=True)
    names = [graph.owner_names[n] if n < len(graph.owner_names) else str(n) for n in numbers.tolist()]
    labelled = torch.bincount(owner[graph.y >= 0], minlength=len(names))
    kinds = [int(torch.unique(graph.y[(owner == k) & (graph.y >= 0)]).numel()) for k in range(len(names))]
    out = []
    if len(names) == 1:
        cure = "check the owner column, or cut the graph with --partition openfgl"
        out.append(
            Finding("warning", f"a single owner: {shown(names[0])}", "there are no clients to federate", cure)
        )
    if few := [name for name, count in zip(names, labelled.tolist(), strict=True) if count < 10]:
        meaning = "they add little to training, and their test scores are mostly noise"
        out.append(
            Finding(
                "warning",
                f"{len(few)} owners with fewer than 10 labelled nodes: {listed(few)}",
                meaning,
                "merge or drop them",
            )
        )
    if single := [name for name, count in zip(names, kinds, strict=True) if count == 1]:
        meaning = "on its own, such an owner only learns to always predict that class"
        what = f"{len(single)} owners with one class: {listed(single)}"
        out.append(
            Finding(
                "note", what, meaning, "nothing, but compare with 'fedepd run isolated' to see the effect"
            )
        )
    src, dst = owner[graph.edge_index]
    if cut := int((src != dst).sum()):
        level: Literal["note", "warning"] = "warning" if cut > 0.5 * graph.num_edges else "note"
        what = f"{cut:,} edges ({_percent(cut, graph.num_edges)}) join nodes of two owners"
        out.append(
            Finding(
                level,
                what,
                "no owner has both ends, so these edges are not used in training",
                "compare with 'fedepd run centralised' to see what they are worth",
            )
        )
    return out


def _columns(graph: Graph) -> list[Finding]:
    x = to_scipy(graph.x) if graph.is_sparse else graph.x.numpy()
    low, high = (
        np.asarray(e.todense() if sp.issparse(e) else e).reshape(-1) for e in (x.min(axis=0), x.max(axis=0))
    )  # [d]
    names, out = feature_names(graph), []
    if constant := [names[c] for c in np.flatnonzero(low == high)]:
        what = f"{len(constant):,} constant columns: {listed(constant)}"
        out.append(
            Finding(
                "warning", what, "they carry no information and cost bytes in every round", "leave them out"
            )
        )
    if large := [names[c] for c in np.flatnonzero(np.maximum(-low, high) > LARGE)]:
        what = f"{len(large):,} columns with values beyond {LARGE:g}: {listed(large)}"
        out.append(
            Finding(
                "warning",
                what,
                "they dominate the other columns, and training may diverge",
                "import with --scale",
            )
        )
    return out


def _leaks(graph: Graph) -> list[Finding]:
    """Find columns that reveal the label on their own."""
    chosen = torch.nonzero(graph.y >= 0).reshape(-1).numpy()
    if chosen.size > SAMPLE and not graph.is_sparse:
        chosen = np.sort(seeded_numpy(0, "doctor").choice(chosen, SAMPLE, replace=False))
    y = graph.y.numpy()[chosen]
    marks = sp.csr_matrix(
        (np.ones(y.size), (y, np.arange(y.size))), shape=(graph.num_classes, y.size)
    )  # [C, n]
    if graph.is_sparse:
        gain, f1 = _sparse_leaks(
            sp.csc_matrix(marks @ to_scipy(graph.x)[chosen].astype(bool).astype(np.float64)), y
        )
    else:
        x = graph.x.numpy()[chosen]
        gain = np.array([_explained(_by_value(column, y, graph.num_classes)) for column in x.T])
        upper = x > (x.min(0) + x.max(0)) / 2  # the larger value of a two-valued column, scaled or not
        f1 = _f1(marks @ upper.astype(np.float64), y)
    suspects = [feature_names(graph)[c] for c in np.flatnonzero((gain >= LEAK) | (f1 >= EXACT))]
    if not suspects:
        return []
    meaning = (
        "a column may be the label in disguise: scores will look too good, and will not hold on new nodes"
    )
    cure = "make sure that it is known before the label is known, or leave it out"
    return [
        Finding(
            "warning",
            f"{len(suspects)} columns that determine the label or a class: {listed(suspects)}",
            meaning,
            cure,
        )
    ]


def _sparse_leaks(hits: sp.csc_matrix, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """What each column explains, and its best F1, [d] each.

    ``hits`` counts the nodes of each class that have the column, [C, d]. Some columns are handled at a time.
    """
    classes, columns = hits.shape
    sizes, step = np.bincount(y, minlength=classes)[:, None], max(1, CELLS // classes)
    parts = []
    for at in range(0, columns, step):
        some = np.asarray(hits[:, at : at + step].todense())  # [C, step]
        parts.append((_explained(np.stack([some, sizes - some])), _f1(some, y)))
    gain, f1 = (np.concatenate(found) for found in zip(*parts, strict=True))
    return gain, f1


def _by_value(column: NDArray[np.float32], y: NDArray[np.int64], classes: int) -> Floats:
    """Counts of a column's values by class, [values, C].

    A column with many values is cut into quantiles, with about ten nodes or more in each on average.
    """
    limit = max(2, min(max(32, 2 * classes), y.size // 10))
    values, group = np.unique(column, return_inverse=True)
    if values.size > limit:
        group = np.searchsorted(np.quantile(column, np.linspace(0, 1, limit + 1)[1:-1]), column)
    counts = np.zeros((int(group.max()) + 1, classes))
    np.add.at(counts, (group, y), 1)
    return counts


def _explained(counts: Floats) -> Any:
    """The share of errors that the column removes.

    Guessing the largest class for each value is compared with always guessing the largest class of all.
    """
    best = counts.max(axis=1).sum(axis=0)  # over values; [d] or one number
    total, largest = counts.sum(axis=(0, 1)), counts.sum(axis=0).max(axis=0)
    return (best - largest) / np.maximum(total - largest, 1)


def _f1(hits: Floats, y: NDArray[np.int64]) -> Floats:
    """The best F1 of each column as a mark of one class, [d]. ``hits`` is [C, d].

    Only classes with at least 5 nodes and at most half of all nodes count.
    """
    sizes = np.bincount(y, minlength=hits.shape[0])[:, None]  # [C, 1]
    counted = (sizes[:, 0] >= 5) & (2 * sizes[:, 0] <= y.size)
    scores: Floats = (2 * hits / np.maximum(sizes + hits.sum(axis=0), 1))[counted].max(axis=0, initial=0)
    return scores


def _twins(graph: Graph) -> list[Finding]:
    """Find nodes with equal features, and test nodes that equal a training node in the default split."""
    row = _row_groups(graph)
    sizes = np.bincount(row)
    twins = int((sizes[row] > 1).sum())
    if not twins:
        return []
    train, _, test = (mask.numpy() for mask in split(graph, SPLIT, seeded_numpy(0, "split", 0)))
    seen = int(np.isin(row[test], row[train]).sum())
    what = f"{twins:,} nodes ({_percent(twins, graph.num_nodes)}) have exactly the features of another node"
    out = [
        Finding(
            "note",
            what,
            "a model can tell them apart only by their neighbours",
            "check for rows that were entered twice",
        )
    ]
    if seen > 0.05 * test.sum():
        what = f"{seen:,} of {int(test.sum()):,} test nodes have exactly the features of a training node"
        out.append(
            Finding(
                "warning",
                what,
                "the test rewards memorising",
                "remove repeated nodes, or add features that differ",
            )
        )
    return out


def _row_groups(graph: Graph) -> NDArray[np.int64]:
    """A number for each distinct row of features, [n]."""
    if graph.is_sparse:
        x = to_scipy(graph.x)
        parts = np.split(np.arange(x.indices.size), x.indptr[1:-1])
        keys = [x.indices[part].tobytes() + x.data[part].tobytes() for part in parts]
    else:
        keys = [line.tobytes() for line in graph.x.numpy()]
    number: dict[bytes, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def feature_names(graph: Graph) -> list[str]:
    """The names of the features: from the schema if there is one, else "feature 0", "feature 1", ..."""
    named = FeatureSchema.from_json(graph.schema).feature_names if graph.schema else ()
    if len(named) == graph.num_features:
        return list(named)
    return [f"feature {number}" for number in range(graph.num_features)]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
