"""The benchmark: how methods compare with the plain implementation, and how their cost grows with the
graph."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedepd.errors import FedEPDError
from fedepd.network import kernels
from fedepd.shown import csv_text

Row = dict[str, Any]

COLUMNS = {
    "train": "train",
    "aggregate": "average",
    "evaluate": "eval",
    "round": "round",
    "ratio": "ratio",
    "partition": "cut",
    "prepare": "prep",
    "rss_mb": "MB",
}
"""Field of a row -> its title in the table."""

Point = dict[str, int]


def points(axis: str, values: Sequence[int], **fixed: int) -> list[Point]:
    return [{**fixed, axis: value} for value in values]


SWEEPS: dict[str, list[Point]] = {
    "edges": points(
        "edges",
        (100_000, 1_000_000, 3_000_000, 10_000_000),
        clients=10,
        nodes=1_000_000,
        classes=40,
        features=128,
    ),
    "clients": points(
        "clients", (10, 30, 100, 300, 1_000), nodes=100_000, edges=500_000, classes=10, features=128
    ),
    "classes": points("classes", (10, 50, 150, 500), clients=10, nodes=50_000, edges=250_000, features=128),
}
QUICK_SWEEPS: dict[str, list[Point]] = {
    "edges": points("edges", (5_000, 20_000, 80_000), clients=5, nodes=5_000, classes=10, features=32),
    "clients": points("clients", (5, 20), nodes=5_000, edges=20_000, classes=5, features=32),
    "classes": points("classes", (5, 50), clients=5, nodes=5_000, edges=20_000, features=32),
}


def in_process_of_its_own(with_kernels: str = "auto", **arguments: Any) -> Row:
    """One measurement in a new process, without any cache. If it fails, the row says why."""
    command = [sys.executable, "-m", "fedepd.bench.measure", json.dumps(arguments)]
    environment = {**os.environ, "FEDEPD_KERNELS": with_kernels, "FEDEPD_CACHE": "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["killed: out of memory?"])[-1]
        return {"data": str(arguments["data"]), "method": arguments["method"], "failed": reason}
    row: Row = json.loads(done.stdout)
    return row


@dataclass(frozen=True)
class Line:
    """A row of the table: what is measured, and what it is called."""

    label: str
    method: str
    kernels: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)


def lines_of(methods: Sequence[str], backbones: Sequence[str]) -> list[Line]:
    """The reference, every method, FedAvg without its compiled kernels, FedAvg on each backbone."""
    lines = [Line(method, method) for method in ("reference", *methods)]
    if kernels.name() == "compiled" and "fedavg" in methods:
        lines.append(Line("fedavg, torch alone", "fedavg", "torch"))
    return lines + [Line(f"fedavg, {name}", "fedavg", settings={"backbone": name}) for name in backbones]


def compare(
    data: Sequence[str],
    methods: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    backbones: Sequence[str] = (),
) -> list[Row]:
    """Every line on every graph; "ratio" is the reference's CPU seconds per round over the line's."""
    rows: list[Row] = []
    for name in data:
        yardstick = math.nan
        for line in lines_of(methods, backbones):
            say(f"{line.label} on {name}")
            row = in_process_of_its_own(
                line.kernels, data=name, method=line.method, rounds=rounds, settings=dict(line.settings)
            )
            row["method"] = line.label
            if line.method == "reference":
                yardstick = row.get("round", math.nan)
            row["ratio"] = yardstick / row["round"] if "round" in row else math.nan
            rows.append(row)
    return rows


def scale(
    methods: Sequence[str], rounds: int, say: Callable[[str], None], sweeps: dict[str, list[Point]]
) -> list[Row]:
    """Measure how the cost of a round grows with edges, clients and classes."""
    rows = []
    for axis, many in sweeps.items():
        for point in many:
            for method in methods:
                say(f"{method}, {axis} {point[axis]}")
                row = in_process_of_its_own(
                    data=point, method=method, rounds=rounds, settings={"partition": "owner"}
                )
                rows.append({**row, "axis": axis, "at": point[axis]})
    return rows


def exponents(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """(axis, method) -> the least-squares slope of log CPU seconds per round against log size."""
    out: dict[tuple[str, str], float] = {}
    for axis, method in sorted({(r["axis"], r["method"]) for r in rows}):
        chosen = [r for r in rows if (r["axis"], r["method"]) == (axis, method) and "round" in r]
        if len(chosen) > 1:
            slope, _ = np.polyfit(np.log([r["at"] for r in chosen]), np.log([r["round"] for r in chosen]), 1)
            out[axis, method] = float(slope)
    return out


def write_csv(rows: Sequence[Row], path: Path) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    path.write_text(
        csv_text([names, *([row.get(name, "") for name in names] for row in rows)]), encoding="utf-8"
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw CPU seconds per round against each axis, log-log, with the fitted exponents in the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    from fedepd.methods import METHODS
    from fedepd.report.drawing import METHOD_COLOURS

    axes_names = list(dict.fromkeys(r["axis"] for r in rows))
    figure = Figure(figsize=(4.2 * len(axes_names), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    slopes = exponents(rows)
    for place, axis in enumerate(axes_names):
        ax = figure.add_subplot(1, len(axes_names), place + 1)
        for method in dict.fromkeys(r["method"] for r in rows):
            seen = [
                (r["at"], r["round"])
                for r in rows
                if r["axis"] == axis and r["method"] == method and "round" in r
            ]
            if seen:
                slope = slopes.get((axis, method), math.nan)
                label = f"{METHODS[method].label}: exponent {slope:.2f}"
                ax.loglog(*zip(*seen, strict=True), marker="o", label=label, color=METHOD_COLOURS.get(method))
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.minorticks_off()
        ax.set_xlabel(f"number of {axis}")
        ax.set_ylabel("CPU seconds per round")
        ax.grid(True, which="major", alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=140)


def bench(
    out: Path,
    data: Sequence[str],
    methods: Sequence[str],
    rounds: int,
    scaling: bool,
    quick: bool,
    say: Callable[[str], None],
    backbones: Sequence[str] = (),
) -> tuple[list[Row], list[Row]]:
    """Run the whole benchmark and write methods.csv, scaling.csv and scaling.png into ``out``."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise FedEPDError(f"cannot write to '{out}': {cause.strerror}; give another --out") from cause
    table = compare(data, methods, rounds, say, backbones)
    write_csv(table, out / "methods.csv")
    growth: list[Row] = []
    if scaling:
        growth = scale(("fedavg", "fedepd"), rounds, say, QUICK_SWEEPS if quick else SWEEPS)
        write_csv(growth, out / "scaling.csv")
        draw(growth, out / "scaling.png")
    return table, growth
