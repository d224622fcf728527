"""The numbers behind the tables and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import isnan

import numpy as np
import numpy.typing as npt

from fedepd.metrics import class_scores, mean_with_interval
from fedepd.report.runs import Group
from fedepd.runs.folder import Json

Floats = npt.NDArray[np.float64]


def mean_std(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation (divided by n - 1) of the values that are not NaN.

    The mean of no value and the deviation of a single one are NaN.
    """
    known = [value for value in values if not isnan(value)]
    return mean_of(known), float(np.std(known, ddof=1)) if len(known) > 1 else float("nan")


def mean_of(values: Iterable[float]) -> float:
    """The mean of the values that are not NaN. NaN if there is none."""
    known = [value for value in values if not isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def bin_accuracy(
    group: Group, bins: Sequence[Sequence[int]], model: str = "headline"
) -> tuple[Floats, Floats, Floats]:
    """Mean test accuracy of the classes in each bin, and both ends of its 95 % interval: three arrays [B].

    Choice: the interval uses the counts of an average seed. Seeds test overlapping nodes of one graph, so
    three seeds do not have three times the information.
    Choice: each class has Wilson's interval, and a bin's mean has what ``metrics.mean_with_interval`` makes
    of them. The paper shows no intervals.
    """
    counts = np.sum(
        [run.confusions[f"{run.kind(model)}_test"].sum(0) for run in group.runs], axis=0
    )  # [C, C]
    result = np.array([mean_accuracy(counts, classes, len(group.runs)) for classes in bins])
    return result[:, 0], result[:, 1], result[:, 2]


def mean_accuracy(
    counts: npt.NDArray[np.int64], classes: Sequence[int], seeds: int = 1
) -> tuple[float, float, float]:
    """Mean accuracy of some classes, and both ends of its 95 % interval, from a confusion matrix [C, C].

    Classes without nodes are left out. ``seeds``: how many runs the counts are the sum of.
    """
    return mean_with_interval(class_scores(counts, seeds)["recall"], classes)


def convergence(group: Group) -> tuple[list[int], Floats, Floats]:
    """The evaluated rounds, and the mean and standard deviation of the validation macro-F1 over seeds: [T]
    each."""
    found: dict[int, list[float]] = {}
    for run in group.runs:
        for line in run.rounds:
            value = line.get("val", {}).get(run.headline, {}).get("macro_f1")
            if value is not None:
                found.setdefault(int(line["round"]), []).append(float(value))
    rounds = sorted(found)
    stats = np.array([mean_std(found[r]) for r in rounds]).reshape(-1, 2)
    return rounds, stats[:, 0], stats[:, 1]


def bytes_by_field(group: Group, direction: str) -> dict[str, float]:
    """Message field -> bytes sent in a whole run, mean over seeds. ``direction`` is ``up`` or ``down``."""
    total: dict[str, float] = {}
    for run in group.runs:
        for line in run.rounds:
            for name, size in line.get(f"bytes_{direction}", {}).items():
                total[name] = total.get(name, 0.0) + size / len(group.runs)
    return total


def same_clients(groups: Iterable[Group]) -> list[list[Group]]:
    """The groups, put together where their first runs have the same clients."""
    keys = ("client", "nodes", "edges", "train", "val", "test", "classes")
    found: dict[str, list[Group]] = {}
    for group in groups:
        clients = [[client.get(key) for key in keys] for client in group.first.clients]
        found.setdefault(json.dumps(clients), []).append(group)
    return list(found.values())


def same_partition(groups: Iterable[Group]) -> list[list[Group]]:
    """The groups whose clients hold as many nodes of each class, whatever their edges are."""
    found: dict[bytes, list[Group]] = {}
    for group in groups:
        run = group.first
        held = run.partition["client_class"]
        key = repr((held.shape, run.summary.get("test_without_local_train"))).encode() + held.tobytes()
        found.setdefault(key, []).append(group)
    return list(found.values())


def prunings(groups: Iterable[Group]) -> list[tuple[list[Group], list[Json]]]:
    """The different ways in which groups prune edges: the groups that share one, and its clients at the
    lowest seed."""
    found: dict[str, tuple[list[Group], list[Json]]] = {}
    for group in groups:
        clients = group.first.clients
        if any(client["edges_kept"] < client["edges"] for client in clients):
            found.setdefault(json.dumps(clients), ([], clients))[0].append(group)
    return list(found.values())


def pruned_share(client: Json) -> float:
    """The share of a client's edges that its method does not train on. NaN for a client without edges."""
    return 1 - client["edges_kept"] / client["edges"] if client["edges"] else float("nan")
