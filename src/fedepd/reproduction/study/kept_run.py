"""A run as a line of kept scores, and a run made from such a line and the plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from fedepd.errors import BadData
from fedepd.metrics import METRICS
from fedepd.report.runs import Run
from fedepd.reproduction.study.scores_file import (
    BLOCKS,
    COLUMNS,
    COSTS,
    CURE,
    EXACT,
    MEANS,
    OTHER,
    SHARE,
    TIER_DIGITS,
    Line,
    column,
    scored_blocks,
    source,
    this_version,
)
from fedepd.runs import selection
from fedepd.runs.folder import SHARED, Json
from fedepd.shown import shown

LONG = ("by_class", "by_tier", "by_client")
"""The large parts of a summary. A long study would hold those of all its cells in memory."""
CLOSE = 2 * 10.0**-TIER_DIGITS
"""Shares that differ by no more are the same but for rounding."""


@dataclass(frozen=True, eq=False)
class KeptRun(Run):
    """A run of which only scores and costs are left. It has no rounds, and no matrices."""

    file: str
    count: int
    """How many clients it had."""

    @property
    def kept_in(self) -> str:
        return self.file

    @property
    def num_clients(self) -> int:
        return self.count

    @cached_property
    def env(self) -> Json:
        return {"fedepd": this_version()}

    @cached_property
    def rounds(self) -> list[Json]:
        return []


# --- a run folder -> a line ---------------------------------------------------------------------------------


def line_of(run: Run) -> Line:
    """What is kept of a run that has a folder.

    Raises:
        BadData: The run has scores that no line can hold.
    """
    known, tested = run.summary, int(run.confusions[f"{run.headline}_test"].sum())
    line = dict.fromkeys(COLUMNS, "") | {
        "cell": str(run.config["config_hash"]),
        **{name: name_of(known[name]) for name in ("method", "preset", "dataset")},
        "seed": str(run.seed),
        "clients": str(run.num_clients),
        "tested": str(tested),
        **{name: _decimal(known[name]) for name in COSTS[:3] if known.get(name) is not None},
        **{name: str(known[name]) for name in COSTS[3:] if known.get(name) is not None},
        "weights_sha256": known.get("weights_sha256", "")[:16],
        "preferred": run.preferred,
    }
    if run.adapted:
        line["adapted_used"] = "yes" if known.get("adapted", {}).get("used") else "no"
    for prefix, part in (("", known), (OTHER, known.get("other_selection", {}))):
        for model, averages in part.get("metrics", {}).items():
            selected = part.get("best_rounds", {}).get(model)
            line |= _block(prefix + model, averages, tested, selected, f"'{shown(run.path.name)}'")
    return line | dict.fromkeys(_twice(line), "")


def _twice(line: Line) -> list[str]:
    """The columns that repeat the scores of a round which both selections have selected."""
    blocks = tuple(f"{block}." for block in BLOCKS if source(line, block) != block)
    names = [name for name in COLUMNS if name.startswith(blocks) and not name.endswith(".round")]
    return [name for name in names if line[name] == line[name.removeprefix(OTHER)]]


def _block(
    block: str, averages: Mapping[str, Json], tested: int, selected: int | None, where: str
) -> dict[str, str]:
    """The columns of one model's scores. Accuracy is kept as the number of nodes that are right."""
    known = BLOCKS.get(block, ())
    whole = all(average in known and scores.keys() == set(METRICS) for average, scores in averages.items())
    if not whole or "pooled" not in averages or selected is None:
        raise BadData(f"{where} has scores of '{shown(block)}' that --scores cannot keep; run it again")
    right = round((averages["pooled"]["acc"] or 0) * tested)
    line = {f"{block}.round": str(selected), f"{block}.right": str(right)}
    for average, scores in averages.items():
        acc = scores["acc"]
        if acc is not None and (not tested or abs(acc - right / tested) > 1e-9):
            raise BadData(f"{where} has an accuracy that is no share of {tested:,} nodes; run it again")
        line |= {column(block, average, name): _text(scores[name], name) for name in MEANS}
    return line


def _decimal(value: float) -> str:
    """A cost, with six digits after the point or fewer. Tables print one."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _text(value: float | None, metric: str) -> str:
    """A share in plain digits, exactly or rounded."""
    if value is None:
        return "nan"
    digits = Decimal(repr(float(value if metric in EXACT else round(value, TIER_DIGITS))))
    text = f"{digits:f}"
    return text.removesuffix(".0") if digits in (0, 1) else text.removeprefix("0")


def name_of(text: str) -> str:
    """A name in the plain characters that the file may hold."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[:100] or "unnamed"


# --- a line -> a run ----------------------------------------------------------------------------------------


def rounded(run: Run, line: Line) -> Run:
    """The run with the numbers of its line, without what no page of a study shows."""
    known = {name: value for name, value in run.summary.items() if name not in LONG}
    numbers = _numbers(line, run.config)
    return replace(run, summary={**known, **numbers}, known_preference=line["preferred"])


def kept_run(line: Line, folder: Path, config: Json, kept_in: str) -> KeptRun:
    """The run of a line. Everything but its numbers comes from ``config``, which the plan gives.

    Raises:
        BadData: The line cannot be of this cell.
    """
    headline = "global" if config["has_global"] else "personal"
    found = _numbers(line, config)
    select = config["experiment"]["protocol"]["select"]
    rounds = [int(line[f"{block}.round"]) for block in scored_blocks(line)]
    wrong = {
        "method": line["method"] != name_of(config["method"]),
        "seed": int(line["seed"]) != config["seed"],
        f"{headline}.round": headline not in found["metrics"],
        "other.personal.round": "other_selection" in found and select not in selection.OTHER,
        "round": max(rounds, default=0) > config["rounds"],
    }
    for name in (name for name, is_wrong in wrong.items() if is_wrong):
        raise BadData(f"the cell {line['cell']} of '{shown(kept_in)}' does not fit its '{name}'; {CURE}")
    summary = {name: config[name] for name in SHARED} | {
        "dataset": config["dataset"]["name"],
        "proxy_features": config["dataset"]["proxy_features"],
        "headline": headline,
        **found,
        "best_round": found["best_rounds"][headline],
        "weights_sha256": line["weights_sha256"],
    }
    if line["adapted_used"]:
        summary["adapted"] = {"used": line["adapted_used"] == "yes"}
    preferred = line["preferred"]
    return KeptRun(folder, summary, config, kept_in, int(line["clients"]), known_preference=preferred)


def _numbers(line: Line, config: Json) -> Json:
    """The part of a summary that a line holds."""
    found: dict[str, Any] = {}
    for prefix in ("", OTHER):
        models = [
            each.removeprefix(prefix)
            for each in scored_blocks(line)
            if each.startswith(OTHER) == bool(prefix)
        ]
        found[prefix] = {
            "best_rounds": {model: int(line[f"{prefix}{model}.round"]) for model in models},
            "metrics": {model: _scores(line, source(line, prefix + model)) for model in models},
        }
    select = config["experiment"]["protocol"]["select"]
    other = {"select": selection.OTHER.get(select, ""), **found[OTHER]}
    costs = {name: float(line[name]) for name in COSTS[:3] if line[name]}
    costs |= {name: int(line[name]) for name in COSTS[3:] if line[name]}
    return {**found[""], **({"other_selection": other} if other["metrics"] else {}), **costs}


def _scores(line: Line, block: str) -> Json:
    tested = int(line["tested"])
    acc = int(line[f"{block}.right"]) / tested if tested else None
    return {
        average: {
            name: acc if name == "acc" else _number(line[column(block, average, name)]) for name in METRICS
        }
        for average in BLOCKS[block]
        if line[column(block, average, MEANS[0])]
    }


def _number(text: str) -> float | None:
    return None if text == "nan" else float(text)


def difference(one: Line, other: Line) -> str:
    """The first column of scores in which two lines of a cell differ beyond rounding. Else empty."""
    for name, kind in COLUMNS.items():
        mine, theirs = one[name], other[name]
        if mine == theirs or ("." not in name and name != "preferred"):
            continue
        numbers = kind is SHARE and all(text not in ("", "nan") for text in (mine, theirs))
        if not numbers or abs(float(mine) - float(theirs)) > CLOSE:
            return name
    return ""
