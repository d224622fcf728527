"""New rivals beside those of before: which of them beat FedEPD, where, and what each row costs.

A target says which of its rows are new (``new = true``). The sentences here are made from the numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedepd.report.numbers import mean_std
from fedepd.report.runs import Run
from fedepd.report.tables import METRIC_TITLES, METRIC_WORDS, Cell, Table, marked_label, measured
from fedepd.reproduction.judging.comparisons import compared, ranks
from fedepd.reproduction.pages.tables import note
from fedepd.reproduction.study.results import METRICS, Entry, Results
from fedepd.reproduction.study.targets import Row
from fedepd.shown import shown

BASE = "fedavg"
DOUBT = "(?)"
DOUBTFUL = (
    f"{DOUBT} marks a lead that is within the 95 % paired interval over seeds, or that has too few seeds for "
    "one. Differences are in points."
)
TIERS = ("head_acc", "medium_acc", "tail_acc")


def newcomers(results: Results) -> list[Row]:
    """The new rows that are ranked."""
    return [row for row in results.target.rows if row.new and not row.reference]


def rank_table(results: Results) -> Table | None:
    """Mean ranks by every metric, among all rows and among the old ones. None without two datasets."""
    found = {(metric, new): ranks(results, metric, new=new) for metric in METRICS for new in (True, False)}
    if any(each is None for each in found.values()):
        return None
    places = {key: each.mean_ranks for key, each in found.items() if each is not None}
    finished = {e.row.key: e for d in results.datasets for e in results.finished(d, references=False)}
    rows = []
    for row in sorted(results.target.rows, key=lambda row: places[METRICS[0], True].get(row.key, math.inf)):
        if row.key not in places[METRICS[0], True]:
            continue
        cells = [measured(places[key].get(row.key, math.nan), math.nan) for key in found]
        rows.append([Cell(marked_label(finished[row.key].group)), Cell("new" if row.new else ""), *cells])
    headers = ["Method", "", *(f"{METRIC_TITLES[m]}{'' if new else ', old only'}" for m, new in found)]
    text = (
        f"Mean rank over {len(results.datasets)} datasets, 1 is best: among all rows, and among those that "
        "are not new."
    )
    return Table(f"{results.target.name}-ranks", headers, [rows], note(results, text, marked=False))


def cost_tables(results: Results) -> dict[str, Table]:
    """CPU seconds and bytes of a run, as multiples of FedAvg's. Empty where FedAvg has no run."""
    if not any(_entry(results, BASE, dataset) for dataset in results.datasets):
        return {}
    measures: dict[str, Callable[[Run], float]] = {
        "CPU seconds against FedAvg": lambda run: float(run.summary.get("cpu_seconds") or math.nan),
        "Bytes against FedAvg": lambda run: float(
            (run.summary.get("bytes_up") or 0) + (run.summary.get("bytes_down") or 0)
        ),
    }
    return {heading: _cost_table(results, heading, of) for heading, of in measures.items()}


def _cost_table(results: Results, heading: str, of: Callable[[Run], float]) -> Table:
    rows = []
    for row in results.target.rows:
        found = [_ratio(results, row.key, dataset, of) for dataset in results.datasets]
        known = [each for each in found if each > 0]  # NaN is not
        typical = math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan
        label = shown(row.label) + (" (new)" if row.new else "")
        rows.append([Cell(label), measured(typical, math.nan), *(measured(each, math.nan) for each in found)])
    headers = ["Method", "All", *(results.title(dataset) for dataset in results.datasets)]
    text = (
        f"{heading}, for a whole run: 2.00 means twice as much. All: the geometric mean over the datasets. "
        "A row about other models of the same runs costs what these cost."
    )
    key = "cpu" if heading.startswith("CPU") else "bytes"
    return Table(f"{results.target.name}-{key}", headers, [rows], note(results, text, None, marked=False))


def _ratio(results: Results, key: str, dataset: str, of: Callable[[Run], float]) -> float:
    mine, base = (_entry(results, each, dataset) for each in (key, BASE))
    if mine is None or base is None:
        return math.nan
    top, bottom = (mean_std(of(run) for run in entry.runs.values())[0] for entry in (mine, base))
    return top / bottom if bottom > 0 else math.nan


def _entry(results: Results, key: str, dataset: str) -> Entry | None:
    return next((entry for entry in results.finished(dataset) if entry.row.key == key), None)


def in_words(results: Results) -> list[str]:
    """Which new rows beat FedEPD on average, and where. A paragraph each, what goes against FedEPD first."""
    rows = newcomers(results)
    if not rows or not any(_entry(results, results.target.ours, dataset) for dataset in results.datasets):
        return []
    verdicts = [_on_average(results, rows, metric) for metric in METRICS]
    told = [text for _, text in sorted(verdicts, key=lambda each: not each[0])]
    told += [_where(results, rows, dataset, METRICS[:2]) for dataset in results.datasets]
    return [*told, DOUBTFUL] if any(DOUBT in text for text in told) else told


def _lead(results: Results, key: str, metric: str) -> tuple[float, int]:
    """A row's mean lead over FedEPD in points, over the datasets that both have, and their number."""
    pairs = [(_entry(results, key, d), _entry(results, results.target.ours, d)) for d in results.datasets]
    leads = [theirs.mean(metric) - ours.mean(metric) for theirs, ours in pairs if theirs and ours]
    leads = [lead for lead in leads if not math.isnan(lead)]
    return (sum(leads) / len(leads) if leads else math.nan), len(leads)


def _on_average(results: Results, rows: Sequence[Row], metric: str) -> tuple[bool, str]:
    """Whether a new row beats FedEPD on average by a metric, and the sentences about it."""
    leads = {row.key: _lead(results, row.key, metric) for row in rows}
    known = sorted(
        (row for row in rows if leads[row.key][1]), key=lambda row: leads[row.key][0], reverse=True
    )
    by = f"By {METRIC_WORDS[metric]}"
    if not known:
        return False, f"{by}, no new rival has a score yet."
    ahead = [row for row in known if leads[row.key][0] > 0]
    if not ahead:
        lead, count = leads[known[0].key]
        return False, (
            f"{by}, no new rival beats {shown(results.target.champion)} on average. "
            f"The nearest is {shown(known[0].label)}, {-lead:.2f} points behind over {_graphs(count)}."
        )
    found = [(shown(row.label), *leads[row.key]) for row in ahead]
    names = ", ".join(f"{label} (+{lead:.2f} points over {_graphs(count)})" for label, lead, count in found)
    verb = "beats" if len(ahead) == 1 else "beat"
    reasons = " ".join(_tiers_of(results, row) for row in ahead)
    behind = len(known) - len(ahead)
    rest = f" {behind} {'other does' if behind == 1 else 'others do'} not." if behind else ""
    return True, f"{by}, {names} {verb} {shown(results.target.champion)} on average.{rest} {reasons}"


def _tiers_of(results: Results, row: Row) -> str:
    """Where a lead comes from: the lead in each tier of classes."""
    parts = [f"{_signed(_lead(results, row.key, tier)[0])} on {tier.removesuffix('_acc')}" for tier in TIERS]
    return f"{shown(row.label)}'s accuracy is {', '.join(parts)} classes."


def _where(results: Results, rows: Sequence[Row], dataset: str, metrics: Sequence[str]) -> str:
    """Which new rows beat FedEPD on one dataset, and whether that is beyond what seeds vary."""
    ours = _entry(results, results.target.ours, dataset)
    parts = []
    for metric in metrics:
        found: list[tuple[float, str]] = []
        for row in rows:
            theirs = _entry(results, row.key, dataset)
            if ours is None or theirs is None:
                continue
            outcome = compared(theirs, ours, metric)
            if outcome.difference > 0:
                doubt = "" if outcome.difference > outcome.half_width else f" {DOUBT}"  # NaN with one seed
                text = f"{shown(row.label)} by {outcome.difference:.2f}{doubt}"
                found.append((outcome.difference, text))
        if found:
            parts.append(
                f"by {METRIC_WORDS[metric]}: {', '.join(text for _, text in sorted(found, reverse=True))}"
            )
    where, name = f"On {results.title(dataset, words=True)}", shown(results.target.champion)
    if not parts:
        return f"{where} no new rival beats {name}."
    return f"{where} {name} is beaten, {'; '.join(parts)}."


def _signed(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def _graphs(count: int) -> str:
    return "1 graph" if count == 1 else f"{count} graphs"
