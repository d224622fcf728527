"""What it costs to read, check and draw a finished study: `fedepd reproduce TARGET --no-run`.

    python benchmarks/study.py make FOLDER --target equal --data-dir DATA --tries 1
    python benchmarks/study.py time FOLDER --target equal --data-dir DATA --tries 3

`make` writes the run folders of all cells without training them: two methods are trained for five rounds on
every graph, and every cell gets a copy of one of them, with its own settings and scores. The scores follow
from the matrices of the cell, as the reader wants it, but mean nothing. `time` runs the command, and prints
its seconds of CPU and its peak of memory. With `--scores`, it keeps the scores in a file and reads them from
there.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fedepd.files import read_json, read_lines, write_json
from fedepd.longtail import Tiers
from fedepd.metrics import by_average, class_numbers
from fedepd.reproduction.study.cells import Planned, datasets_of, plan
from fedepd.reproduction.study.kept import configs_of
from fedepd.reproduction.study.targets import read_targets
from fedepd.runs import record
from fedepd.runs.folder import CLIENTS, CONFUSION, ENV, PARTITION, ROUNDS, SHARED, SUMMARY
from fedepd.runs.jobs import Job, run_job

TRAINED = 5
"""Rounds that are trained. Those of a cell repeat them."""
MODELS = {True: "fedavg", False: "isolated"}
"""What is copied: a method that has a global model, and one that has none."""

Counts = npt.NDArray[np.int64]


def planned(values: argparse.Namespace) -> list[Planned]:
    targets = read_targets(values.target)
    names = {each.name: values.data or datasets_of(each, values.data_dir)[0] for each in targets}
    cells = plan(targets, names, Path(values.folder), {}, values.seeds, values.data_dir)
    return list({each.job.out: each for each in cells}.values())


def make(values: argparse.Namespace) -> None:
    cells = planned(values)
    for folder, config in configs_of(cells):
        job = next(each.job for each in cells if each.job.out == folder)
        copy(trained(job, config["has_global"], Path(values.folder)), folder, config)
    print(f"{len(cells)} cells in {values.folder}")


def trained(job: Job, has_global: bool, folder: Path) -> Path:
    """The run folder that is copied, trained if it is not there yet."""
    method, name = MODELS[has_global], Path(job.data).stem
    out = folder / "trained" / f"{name}-{method}"
    own = {name: job.settings[name] for name in ("shuffle_nodes", "adapt") if name in job.settings}
    if not (out / SUMMARY).exists():
        run_job(Job(method, "default", job.data, out, job.data_dir, {**own, "rounds": TRAINED}))
    return out


def copy(source: Path, folder: Path, config: dict[str, Any]) -> None:
    """A finished run with other settings and other scores."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (ENV, CLIENTS, PARTITION):
        shutil.copyfile(source / file, folder / file)
    record.write_config(folder, config)
    with np.load(source / CONFUSION) as arrays:
        confusions = dict(moved(dict(arrays), config))
    record.write_arrays(folder / CONFUSION, confusions)
    lines = read_lines(source / ROUNDS)
    numbers = range(1, config["rounds"] + 1)
    record.write_rounds(folder, [{**lines[(n - 1) % len(lines)], "round": n} for n in numbers])
    summary = read_json(source / SUMMARY) | {name: config[name] for name in SHARED}
    scored(summary, confusions)
    write_json(folder / SUMMARY, summary)


def moved(confusions: dict[str, Counts], config: dict[str, Any]) -> Iterator[tuple[str, Counts]]:
    """The matrices, with a part of the wrong nodes made right: more for some methods, and by chance."""
    cell = int(config["config_hash"], 16)
    share = crc32(config["method"].encode()) % 20 / 100 + np.random.default_rng(cell).uniform(0, 0.1)
    for name, counts in confusions.items():
        # Both selections have selected the same round, so their matrices stay the same.
        draws = np.random.default_rng([cell, crc32(name.partition("_by_")[0].encode())])
        made = counts - draws.binomial(counts, share)
        np.einsum("kcc->kc", made)[:] += counts.sum(-1) - made.sum(-1)
        yield name, made


def scored(summary: dict[str, Any], confusions: dict[str, Counts]) -> None:
    """Put the numbers into the summary that follow from the matrices."""
    cut = Tiers(*(tuple(summary["tiers"][name]) for name in ("head", "medium", "tail")))
    other = summary.get("other_selection", {})
    by = f"_by_{other.get('select', '').removeprefix('val_')}"
    for models, ending in ((summary["metrics"], ""), (other.get("metrics", {}), by)):
        for model, averages in models.items():
            (found,) = by_average([confusions[f"{model}_test{ending}"]], cut)
            averages |= {average: found[average] for average in averages}
    numbers = class_numbers(confusions[f"{summary['headline']}_test"], cut)
    for part in ("by_class", "by_client"):
        pairs = zip(summary[part], numbers[part], strict=True)
        summary[part] = [old | new for old, new in pairs]
    summary["by_tier"] = {tier: old | numbers["by_tier"][tier] for tier, old in summary["by_tier"].items()}


def measure(values: argparse.Namespace) -> None:
    command = [str(Path(sys.executable).parent / "fedepd"), "reproduce", values.target, "--no-run"]
    command += ["--out", values.folder, *(["--data", *values.data] if values.data else [])]
    command += ["--data-dir", values.data_dir] if values.data_dir else []
    command += ["--seeds", str(values.seeds)] if values.seeds else []
    command += ["--scores", values.scores] if values.scores else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(values.tries):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(f"{spent:.1f} CPU seconds, {after.ru_maxrss / 1024:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "time"))
    parser.add_argument("folder")
    parser.add_argument("--target", default="equal")
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--scores", metavar="FILE")
    parser.add_argument("--tries", type=int, default=3)
    values = parser.parse_args()
    make(values) if values.what == "make" else measure(values)


if __name__ == "__main__":
    main()
