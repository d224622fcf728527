"""How far `--backbone auto` is behind the best single backbone, graph by graph.

    python benchmarks/backbone_choice.py --data email actor my.npz --rounds 60 --out choice.jsonl

Trains FedEPD on every backbone and by `auto`, one run at a time. Prints test balanced accuracy, then means
over all graphs, of the round that validation macro-F1 selects, and the first backbone minus each other one,
paired by graph and seed, with 95 % intervals. Every finished run is a line of the file, so that the command
can be stopped and given again. With `--choices 10` nothing is trained: what `auto` takes at seeds 0 to 9 is
counted.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded

from fedepd import load, run
from fedepd.network.backbones import AUTO, BACKBONES
from fedepd.report.paired import compare_seeds
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build
from fedepd.types import Graph

Line = dict[str, Any]


def measured(graph: Graph, name: str, backbone: str, seed: int, rounds: int, method: str) -> Line:
    started = time.process_time()
    result = run(graph, method, backbone=backbone, seed=seed, rounds=rounds, evaluate_every=2)
    pooled = result.metrics[result.summary["headline"]]["pooled"]
    headline = result.summary["headline"]
    curve = [(line["round"], line["val"][headline]) for line in result.rounds if "val" in line]
    spent = sum(line["cpu_seconds"] for line in result.rounds)
    return {
        "data": name, "backbone": backbone, "seed": seed, "rounds": rounds, "method": method,
        "test": {score: pooled[score] for score in ("acc", "bacc", "macro_f1")},
        "val": curve, "cpu": time.process_time() - started, "rounds_cpu": spent,
        "notes": result.summary["warnings"], "protocol": result.summary["protocol"],
    }  # fmt: skip


def table(lines: list[Line]) -> str:
    """Test balanced accuracy in percent by graph and backbone, mean over seeds."""
    names, columns = list(dict.fromkeys(line["data"] for line in lines)), [*BACKBONES.names(), AUTO]
    rows = [f"| graph | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name in names:
        cells = []
        for column in columns:
            found = [x["test"]["bacc"] for x in lines if (x["data"], x["backbone"]) == (name, column)]
            cells.append(f"{100 * sum(found) / len(found):.1f}" if found else "")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def of_line(line: Line) -> dict[str, float]:
    """Validation and test scores in the selected round, in percent, and the CPU seconds of the rounds."""
    val = max((scores for _, scores in line["val"]), key=lambda scores: scores["macro_f1"])
    splits = {"validation": val, "test": line["test"]}
    out = {f"{split}, {s}": 100 * splits[split][s] for split in splits for s in ("bacc", "macro_f1")}
    return out | {"CPU seconds of the rounds": line["rounds_cpu"]}


def means(lines: list[Line], columns: list[str]) -> str:
    """Means over the graphs and seeds that all of these backbones ran on, and differences to the first."""
    by = {(line["data"], line["seed"], line["backbone"]): of_line(line) for line in lines}
    runs = dict.fromkeys((line["data"], line["seed"]) for line in lines)
    keys = [key for key in runs if all((*key, column) in by for column in columns)]
    if not keys:
        return ""
    first, *others = columns
    rows = [f"| {len(keys)} runs | {' | '.join(columns)} | {' | '.join(f'{first} - {o}' for o in others)} |"]
    rows.append("|---" * (len(columns) + len(others) + 1) + "|")
    for name in by[(*keys[0], first)]:
        values = {column: [by[*key, column][name] for key in keys] for column in columns}
        cells = [f"{sum(found) / len(found):.1f}" for found in values.values()]
        for other in others:
            each = compare_seeds(values[first], values[other])
            cells.append(f"{each.difference:+.1f} ± {each.half_width:.1f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def choices(graph: Graph, name: str, seeds: int) -> str:
    """What `auto` takes at each seed."""
    made = (Experiment.make("fedepd", "default", backbone=AUTO, seed=seed) for seed in range(seeds))
    taken = Counter(build(each, graph, choose=False).experiment.model.backbone for each in made)
    return f"{name}: {', '.join(f'{count} times {backbone}' for backbone, count in taken.items())}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--backbones", nargs="+", default=[*BACKBONES.names(), AUTO])
    parser.add_argument("--method", default="fedepd")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--choices", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--out", type=Path, default=None)
    values = parser.parse_args()
    if values.choices:
        for data in values.data:
            print(choices(load(data), Path(data).stem, values.choices), flush=True)
        return
    if values.out is None:
        parser.error("give --out FILE, or --choices SEEDS")
    text = values.out.read_text(encoding="utf-8") if values.out.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    for data in values.data:
        graph, name = None, Path(data).stem
        for seed in range(values.first_seed, values.first_seed + values.seeds):
            for backbone in values.backbones:
                key = {"data": name, "backbone": backbone, "seed": seed, "rounds": values.rounds}
                if any(key.items() <= line.items() and line["method"] == values.method for line in lines):
                    continue
                graph = load(data) if graph is None else graph
                lines.append(measured(graph, name, backbone, seed, values.rounds, values.method))
                with values.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines), means(lines, values.backbones), sep="\n\n")


if __name__ == "__main__":
    main()
