"""Is FedEPD better than what a bank has? Logistic regression and boosting, pooled and alone, over tables.

    python benchmarks/bank.py --seeds 0 1 2 --out bank.jsonl
    python benchmarks/bank.py --seeds 0 1 2 --tables FOLDER --out other.jsonl

Without --tables, the tables are those of `fedepd examples bank --seed N`. With it, FOLDER has a folder for
each seed, which holds accounts.csv and transfers.csv with the same columns or with more of them.

Thresholds are chosen on validation nodes, and everything is measured on test nodes. Every finished run is a
line of the file, so that the command can be stopped and given again.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedepd.datasets.example_bank import write_bank
from fedepd.datasets.tables import Roles, import_files
from fedepd.methods.rows import BASELINES
from fedepd.model.operating import threshold_for_recall
from fedepd.report.paired import compare_seeds
from fedepd.rounds.ranking import ranking
from fedepd.runs.drive import drive
from fedepd.runs.experiment import Experiment
from fedepd.runs.ranked import selected_rows
from fedepd.runs.simulation import build
from fedepd.types import Graph

Line = dict[str, Any]
Floats = NDArray[np.float64]
Split = tuple[Floats, NDArray[np.int64]]
"""Probabilities [n, C] and classes [n]."""

ROLES = Roles(
    id="account_id", label="fraud", owner="branch", scale=True, one_hot=True, dates=True, impute="median",
    unknown_ends="drop", leave_out=("note",),
)  # fmt: skip
RECALLS, BUDGETS, MUS = (0.5, 0.8), (0.02, 0.05), (0.5, 1.0, 2.0, 4.0)
"""Shares of a class to find, alerts per node, and values of FedEPD's mu."""
OURS = "fedepd"


def rows(rounds: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The runs on one table: method and settings."""
    out: dict[str, tuple[str, dict[str, Any]]] = {OURS: ("fedepd", {"rounds": rounds, "backbone": "auto"})}
    for name, cls in BASELINES.items():
        for scope in ("pooled", "alone"):
            own = {"rounds": cls.candidates, "scope": scope, "backbone": "auto"}
            out[f"{name}, {scope}"] = (name, own)
    for mu in MUS:
        out[f"mu {mu:g}"] = ("fedepd", {"rounds": rounds, "backbone": "auto", "mu": mu})
    return out


def graph_of(seed: int, tables: Path | None) -> Graph:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) if tables is None else tables / str(seed)
        if tables is None:
            write_bank(folder, seed)
        return import_files(folder / "accounts.csv", folder / "transfers.csv", ROLES)[0]


def said(graph: Graph, method: str, settings: dict[str, Any], seed: int) -> tuple[Split, Split, str]:
    """What the selected model says of validation and of test nodes, and its backbone."""
    experiment = Experiment.make(method, "default", **settings, seed=seed)
    simulation = build(experiment, graph, choose=False)
    progress = simulation.start()
    simulation.exchange.prepare()
    drive(simulation.course(), progress, lambda each: progress.add(each, simulation.personal_models))
    kind = "global" if simulation.experiment.method.has_global else "personal"
    out = []
    for split in ("val", "test"):
        found = selected_rows(simulation, progress, kind, split)
        assert found is not None, method
        logits, y = (np.concatenate(part) for part in zip(*found, strict=True))
        out.append((softmax(logits, axis=1), y))
    simulation.exchange.close()
    return out[0], out[1], str(simulation.experiment.model.backbone)


def measured(val: Split, test: Split, names: Sequence[str]) -> dict[str, float]:
    """Found cases and false alarms of each rare class, and of all of them together."""
    out: dict[str, float] = {}
    usual = names.index("clean")
    targets = {name: [c] for c, name in enumerate(names) if c != usual}
    targets["any fraud"] = [c for c in range(len(names)) if c != usual]
    for name, classes in targets.items():
        scores = [p[:, classes].sum(1) for p, _ in (val, test)]
        positive = [np.isin(y, classes) for _, y in (val, test)]
        for share in RECALLS:
            alerted = scores[1] >= threshold_for_recall(scores[0], positive[0], share, name)
            out[f"{name}: false alarms of 1,000 nodes, threshold for recall {share:g}"] = float(
                1000 * (alerted & ~positive[1]).mean()
            )
            out[f"{name}: recall, threshold for recall {share:g}"] = float(alerted[positive[1]].mean())
        ranked = ranking(scores[1], positive[1])
        for share in BUDGETS:
            alerts = round(share * len(scores[1]))
            out[f"{name}: found with alerts for {share:.0%} of nodes"] = (
                ranked.found_at(alerts) / ranked.nodes
            )
        out[f"{name}: average precision"] = ranked.average_precision()
    recalls = [float((test[0].argmax(1) == c)[test[1] == c].mean()) for c in range(len(names))]
    return out | {"balanced accuracy, likeliest class": float(np.mean(recalls))}


def called(split: Split, usual: int) -> tuple[float, float]:
    """Found frauds and false alarms of 1,000 nodes, where every node is called its likeliest class."""
    alerted, fraud = split[0].argmax(1) != usual, split[1] != usual
    return float(alerted[fraud].mean()), float(1000 * (alerted & ~fraud).mean())


def by_threshold(val: Split, test: Split, usual: int, share: float) -> tuple[float, float]:
    """The same where a threshold is to find this share of the validation nodes' frauds."""
    scores, fraud = [1 - p[:, usual] for p, _ in (val, test)], [y != usual for _, y in (val, test)]
    alerted = scores[1] >= threshold_for_recall(scores[0], fraud[0], share)
    return float(alerted[fraud[1]].mean()), float(1000 * (alerted & ~fraud[1]).mean())


def lines_of(graph: Graph, seed: int, rounds: int, wanted: Sequence[str]) -> list[Line]:
    """Every run on one table. What a value of mu reaches is held against a threshold on FedEPD's own."""
    out, names = [], list(graph.label_names)
    usual, ours = names.index("clean"), None
    for row, (method, settings) in rows(rounds).items():
        if row not in wanted:
            continue
        if ours is None or settings.get("mu") != 1:  # FedEPD has it by default
            val, test, backbone = said(graph, method, settings, seed)
        else:
            val, test = ours
        ours = (val, test) if row == OURS else ours
        line: Line = {"seed": seed, "row": row, "backbone": backbone, "measured": measured(val, test, names)}
        if row.startswith("mu ") and ours is not None:
            trained = called(test, usual)
            free = by_threshold(*ours, usual, called(val, usual)[0])
            line["trade"] = {"trained": trained, "threshold": free}
        out.append(line)
    return out


def table(lines: list[Line]) -> str:
    """Each measure: FedEPD's mean, and FedEPD minus each other row, paired by table, with 95 % intervals."""
    by = {(line["row"], line["seed"]): line["measured"] for line in lines}
    seeds = sorted({line["seed"] for line in lines})
    others = [row for row in dict.fromkeys(line["row"] for line in lines) if row != OURS and "mu " not in row]
    out = [f"| {len(seeds)} tables | FedEPD | {' | '.join(f'minus {row}' for row in others)} |"]
    out.append("|---" * (2 + len(others)) + "|")
    for measure in by[OURS, seeds[0]]:
        factor = 1 if "false alarms" in measure else 100
        ours = [factor * by[OURS, seed][measure] for seed in seeds]
        cells = [f"{np.mean(ours):.1f}"]
        for row in others:
            each = compare_seeds(ours, [factor * by[row, seed][measure] for seed in seeds])
            cells.append(f"{each.difference:+.1f} ± {each.half_width:.1f}")
        out.append(f"| {measure} | {' | '.join(cells)} |")
    return "\n".join(out)


def trade(lines: list[Line]) -> str:
    """What mu buys by training, against what a threshold buys."""
    out = [
        "| mu | recall, trained | false alarms | recall, threshold | false alarms | trained minus threshold |"
    ]
    out.append("|---" * 6 + "|")
    for row in dict.fromkeys(line["row"] for line in lines if "trade" in line):
        pairs = [line["trade"] for line in lines if line["row"] == row]
        trained, free = (np.array([pair[name] for pair in pairs]) for name in ("trained", "threshold"))
        each = compare_seeds(trained[:, 1].tolist(), free[:, 1].tolist())
        cells = [f"{100 * a[:, 0].mean():.1f} | {a[:, 1].mean():.1f}" for a in (trained, free)]
        difference = f"{each.difference:+.1f} ± {each.half_width:.1f}"
        out.append(f"| {row.removeprefix('mu ')} | {' | '.join(cells)} | {difference} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--tables", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--no-mu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    values = parser.parse_args()
    wanted = [row for row in rows(values.rounds) if not (values.no_mu and row.startswith("mu "))]
    text = values.out.read_text(encoding="utf-8") if values.out.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    for seed in values.seeds:
        if {row for row in wanted} <= {line["row"] for line in lines if line["seed"] == seed}:
            continue
        lines = [line for line in lines if line["seed"] != seed]
        lines += lines_of(graph_of(seed, values.tables), seed, values.rounds, wanted)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        values.out.write_text(text, encoding="utf-8")
    print(table(lines), trade(lines), sep="\n\n")


if __name__ == "__main__":
    main()
