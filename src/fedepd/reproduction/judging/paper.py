"""The numbers that the paper prints, in percent, under our own names of datasets, methods and metrics."""

from __future__ import annotations

import csv
from importlib.resources import files

from fedepd.datasets.published import TABLE1

Printed = dict[tuple[str, str, str], tuple[float, float]]
"""(dataset, row, metric) -> mean and standard deviation. Both are NaN where the paper prints OOM (out of
memory).

A row is a method or ``method:preset``.
"""

VARIANTS = {
    "w/o Consensus": "fedepd:without_consensus",
    "w/o Topological Purification": "fedepd:without_purification",
    "w/o Decoupled Recalibration": "fedepd:without_recalibration",
    "FedEPD": "fedepd",
}

PAPER_SENSITIVITY = {"corafull": (60.51, 61.96), "clothing": (70.76, 71.72)}
"""Dataset -> lowest and highest macro-F1 over the grid of mu and gamma, from Section 4.5."""


def paper_table2() -> Printed:
    """Every cell of Table 2, twelve methods on six datasets."""
    return {
        (dataset, method.lower(), metric): cell
        for (dataset, method, metric), cell in _read("table2.csv").items()
    }


def paper_table3() -> Printed:
    """Every cell of Table 3, the ablation on three datasets.

    Its numbers for the full method differ from Table 2 (accuracy on CoraFull: 66.73, not 66.71). Both are as
    printed.
    """
    return {
        (dataset, VARIANTS[variant], metric): cell
        for (dataset, variant, metric), cell in _read("table3.csv").items()
    }


def _read(name: str) -> Printed:
    names = {row.title: dataset for dataset, row in TABLE1.items()}
    text = files("fedepd.reproduction.judging").joinpath("paper", name).read_text(encoding="utf-8")
    found: Printed = {}
    for dataset, row, metric, mean, std in list(csv.reader(text.splitlines()))[1:]:
        found[names[dataset], row, metric] = (
            (float("nan"), float("nan")) if mean == "OOM" else (float(mean), float(std))
        )
    return found
