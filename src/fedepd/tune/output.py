"""What a tuning writes into its folder: the tuned settings, all trials, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedepd.files import write_json, write_text
from fedepd.report.document import write_page
from fedepd.runs.experiment import Experiment
from fedepd.runs.tuned import Entry, as_toml
from fedepd.shown import shown
from fedepd.tune.page import render
from fedepd.tune.search import Search
from fedepd.tune.tuning import Found

TUNED, TRIALS, PAGE = "tuned.toml", "trials.json", "tune.html"
OBJECTIVE = "mean over the graphs of (accuracy + balanced accuracy + macro-F1) / 3 on validation nodes"


def acting(search: Search, common: Mapping[str, Any]) -> dict[str, Any]:
    """The best settings without those that change nothing beside the others, which a run would refuse."""
    best = search.best.settings
    idle = Experiment.recorded(search.method, search.preset, {**common, **best}).idle(best)
    return {name: value for name, value in best.items() if name not in idle}


def write_found(found: Found, out: Path, command: str) -> tuple[Path, Path]:
    """Write the files. Returns where the tuned settings and the page are."""
    tuning = found.tuning
    entries = [
        Entry(
            search.method,
            search.preset,
            round(search.best.mean, 6),
            search.best.number,
            acting(search, tuning.settings),
            search.graphs[0] if tuning.per_graph else None,
        )
        for search in found.searches
    ]
    about = {
        "data": tuning.data,
        "trials": tuning.trials,
        "extra": found.extra,
        "rounds": found.rounds,
        "seeds": tuning.seeds,
        "vault": found.vault,
        "per_graph": tuning.per_graph,
        "objective": OBJECTIVE,
    }
    comments = ["The best settings that 'fedepd tune' found; take them with --tuned."]
    if tuning.earlier is not None:
        comments.append(f"Searches began at the default and at what '{shown(tuning.earlier.path.name)}' has.")
    write_text(out / TUNED, as_toml(entries, about, comments))
    searches = [
        {
            "method": search.method,
            "preset": search.preset,
            "graphs": search.graphs,
            "extended": search.extended,
            "importance": search.importance(),
            "trials": [asdict(trial) for trial in search.trials],
        }
        for search in found.searches
    ]
    write_json(out / TRIALS, {"command": command, **about, "searches": searches})
    write_page(out / PAGE, render(found, command))
    return out / TUNED, out / PAGE
