"""Checks that the files of a run folder agree with each other.

A number that was changed after the run is named in an error instead of shown in a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadData
from fedepd.longtail import Tiers, tiers
from fedepd.metrics import by_average, class_numbers
from fedepd.runs.folder import CONFIG, CONFUSION, PARTITION, SHARED, SUMMARY
from fedepd.shapes import DAMAGED

Json = Mapping[str, Any]
Arrays = Mapping[str, npt.NDArray[Any]]

TOLERANCE = 1e-9
MOST = 2**40
"""Most nodes in one entry of a matrix. Sums of many such entries still fit an int64."""
CHANGED = "the folder was changed after the run or is damaged, so remove it and run it again"


def check_arrays(confusion: Arrays, partition: Arrays, config: Json, folder: str) -> None:
    """Check that the arrays hold counts of nodes and have matching shapes.

    All matrices of confusion.npz are [K, C, C] with the same K and C, and partition.npz has the same C. Those
    of adapted models are sums over the clients, [1, C, C].
    """
    classes = config["dataset"].get(
        "classes", len(partition["class_sizes"]) if partition["class_sizes"].ndim else 0
    )
    clients = len(confusion["personal_test"]) if confusion["personal_test"].ndim else 0
    wanted: dict[str, tuple[int | None, ...]] = {
        name: (1 if name.startswith("adapted_") else clients, classes, classes) for name in confusion
    }
    places = [(CONFUSION, confusion, wanted)]
    places.append((PARTITION, partition, {"class_sizes": (classes,), "client_class": (None, classes)}))
    for file, arrays, shapes in places:
        for name, shape in shapes.items():
            array, where = arrays[name], f"'{folder}/{file}': '{name}'"
            fits = array.ndim == len(shape) and all(
                n in (None, m) for n, m in zip(shape, array.shape, strict=True)
            )
            if not fits or not array.size:
                asked = ", ".join("any" if n is None else str(n) for n in shape)
                raise BadData(f"{where} has shape {list(array.shape)}, not [{asked}]; {DAMAGED}")
            if array.dtype.kind not in "iu" or array.min() < 0 or array.max() > MOST:
                raise BadData(f"{where} does not count nodes; {DAMAGED}")


def check_numbers(
    summary: Json, config: Json, confusion: Arrays, class_sizes: npt.NDArray[Any], folder: str
) -> None:
    """Check that every metric in summary.json follows from confusion.npz."""
    where = f"'{folder}/{SUMMARY}'"
    for name in SHARED:
        if name in summary and name in config and summary[name] != config[name]:
            raise BadData(f"{where} and {CONFIG} differ in '{name}'; {CHANGED}")
    cut = _tiers(summary, "sites" in config, class_sizes, where)
    if summary["headline"] not in summary["metrics"]:
        raise BadData(f"{where} has no metrics of its headline model, '{summary['headline']}'; {CHANGED}")
    other = summary.get("other_selection", {})
    by = f"_by_{str(other.get('select', '')).removeprefix('val_')}"
    stated = [(f"{model}_test", model, averages) for model, averages in summary["metrics"].items()]
    stated += [(f"{model}_test{by}", model, averages) for model, averages in other.get("metrics", {}).items()]
    _check_scores(stated, confusion, cut, where)
    _check_classes(summary, config, confusion, cut, where)


def _check_scores(stated: Sequence[tuple[str, str, Json]], confusion: Arrays, cut: Tiers, where: str) -> None:
    """``stated``: the name of confusion matrices, and the model and the scores that are theirs."""
    if any(name not in confusion for name, _, _ in stated):
        raise BadData(f"{where} has metrics that do not come from {CONFUSION}; {CHANGED}")
    every = by_average([confusion[name] for name, _, _ in stated], cut)
    for (_, model, averages), ours in zip(stated, every, strict=True):
        for average, scores in averages.items():
            if average not in ours:
                raise BadData(f"{where} has metrics that do not come from {CONFUSION}; {CHANGED}")
            found = ours[average]
            for metric, value in scores.items():
                if metric not in found or not _same(value, found[metric]):
                    said = f"{found[metric]:.6g}" if metric in found else "no such metric"
                    raise BadData(
                        f"{where} says {metric if metric in found else 'one'} = {value} ({model}, "
                        f"{average}), but its confusion matrices give {said}; {CHANGED}"
                    )


def _check_classes(summary: Json, config: Json, confusion: Arrays, cut: Tiers, where: str) -> None:
    """Check the numbers by class, tier and client, if the summary has them.

    A ranking's numbers do not follow from the matrices. Their form is all that can be checked.
    """
    if "by_class" not in summary:
        return
    secure = config["experiment"].get("privacy", {}).get("secure", False)
    found = class_numbers(confusion[f"{summary['headline']}_test"], cut, not secure)
    for part, ours in found.items():
        stated = summary.get(part, [])
        if not _agrees(stated, ours):
            raise BadData(f"{where}: '{part}' does not follow from its confusion matrices; {CHANGED}")


def _agrees(stated: Any, found: Any) -> bool:
    """Whether every number of ``found`` is in ``stated``, up to rounding. More may be there."""
    if isinstance(found, dict):
        return found.keys() <= stated.keys() and all(_agrees(stated[name], found[name]) for name in found)
    if isinstance(found, list):
        same = stated is not None and len(stated) == len(found)
        return same and all(map(_agrees, stated, found))
    return stated is None if found is None else stated is not None and _same(stated, found)


def _same(stated: float | None, found: float) -> bool:
    return isnan(found) if stated is None else abs(stated - found) <= TOLERANCE


def _tiers(summary: Json, is_federation: bool, class_sizes: npt.NDArray[Any], where: str) -> Tiers:
    """The tiers of summary.json, checked against the class sizes.

    A federation fixes its tiers at its first evaluation. So only their form can be checked there.
    """
    stated = Tiers(*(tuple(summary["tiers"][name]) for name in ("head", "medium", "tail")))
    if is_federation:
        classes = [*stated.head, *stated.medium, *stated.tail]
        fits = len(set(classes)) == len(classes) and max(classes, default=0) < len(class_sizes)
    else:
        fits = stated == tiers(class_sizes)
    if not fits:
        raise BadData(f"{where}: 'tiers' are not those of the class sizes in {PARTITION}; {CHANGED}")
    return stated


def check_ranking(ranking: Json, summary: Json, confusion: Arrays, where: str) -> None:
    """Check that a ranking is of the headline model, and of the test nodes that confusion.npz counts."""
    matrices = confusion[f"{summary['headline']}_test"]
    nodes = matrices.sum((0, 2)).tolist()
    fits = (
        ranking["model"] == summary["headline"]
        and [each["nodes"] for each in ranking["classes"]] == nodes
        and len(ranking["clients"]) == len(matrices)
        and ranking["nodes"] == sum(nodes)
    )
    if not fits:
        raise BadData(f"{where} is not about the test nodes of {CONFUSION}; {CHANGED}")
    stated = [each.get("average_precision") for each in summary.get("by_class", [])]
    if not _agrees(stated, [each["average_precision"] for each in ranking["classes"]]):
        raise BadData(f"{where} and {SUMMARY} differ in average precision; {CHANGED}")
    together = [(sum(nodes), own, own["nodes"]) for own in ranking.get("tiers", {}).values()]
    of_clients = ranking.get("client_alerts", [])
    if sum(own["nodes"] for _, own, _ in together) > sum(nodes) or len(of_clients) not in (0, len(matrices)):
        raise BadData(f"{where} is not about the test nodes of {CONFUSION}; {CHANGED}")
    together += [(int(m.sum()), own, own["nodes"]) for m, own in zip(matrices, of_clients, strict=False)]
    single = [(sum(nodes), own, count) for own, count in zip(ranking["classes"], nodes, strict=True)]
    for most, own, count in [*single, *together]:
        for alerts, found in [*own["at_alerts"], *own.get("curve", [])]:
            if not 0 < alerts <= most or found > min(alerts, count):
                raise BadData(f"{where} finds more nodes than there are; {CHANGED}")
    for own, count in zip(ranking["classes"], nodes, strict=True):
        if (own["average_precision"] is None) != (count == 0) or bool(own["curve"]) != (count > 0):
            raise BadData(f"{where} lacks numbers of a class that was tested; {CHANGED}")


def check_rounds(summary: Json, config: Json, lines: Sequence[Json], where: str) -> None:
    """Check that the rounds are 1, 2, ... in order, and that each selected round was evaluated and no
    later one is better."""
    last = summary.get("privacy", {}).get("stopped_after", summary["rounds"])
    if [line["round"] for line in lines] != list(range(1, last + 1)):
        raise BadData(
            f"{where} must have one line for each of the rounds 1 to {last} of {SUMMARY}; {CHANGED}"
        )
    best = {**summary.get("best_rounds", {}), summary["headline"]: summary["best_round"]}
    if summary.get("best_rounds", best).get(summary["headline"]) != summary["best_round"]:
        raise BadData(f"{where}: 'best_round' and 'best_rounds' of {SUMMARY} differ; {CHANGED}")
    select = str(config["experiment"].get("protocol", {}).get("select", ""))
    if best.pop("adapted", None) not in (None, best.get("global")):
        raise BadData(f"{where}: adapted models of {SUMMARY} are not those of its best round; {CHANGED}")
    other = summary.get("other_selection", {})
    rules = [(model, selected, select) for model, selected in best.items()]
    rules += [(model, n, str(other.get("select", ""))) for model, n in other.get("best_rounds", {}).items()]
    for model, selected, rule in rules:
        evaluated = {line["round"]: line["val"][model] for line in lines if model in line.get("val", {})}
        if selected not in evaluated:
            raise BadData(
                f"{where}: {SUMMARY} says that round {selected} is the best ({model}), but it was not "
                f"evaluated; {CHANGED}"
            )
        if not _is_best(selected, evaluated, rule):
            raise BadData(
                f"{where}: {SUMMARY} says that round {selected} is the best ({model}), but a later one is "
                f"better; {CHANGED}"
            )


def _is_best(selected: int, evaluated: Mapping[int, Json], select: str) -> bool:
    """Whether no later round is better, by the rule of ``runs.selection``.

    Earlier rounds may be better, because a method with stages may not select all of its rounds.
    """
    later = [scores for round, scores in evaluated.items() if round > selected]
    if select == "last":
        return not later
    metric = select.removeprefix("val_")
    score = evaluated[selected].get(metric)
    if not metric or metric not in evaluated[selected]:
        return True
    if score is None:
        return not later
    known = [each[metric] for each in later if each.get(metric) is not None]
    return not known or bool(np.max(known) <= score)
