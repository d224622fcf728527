"""Writes a target's folder (Markdown, LaTeX, CSV, figures) and collects what the page shows of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fedepd.errors import BadConfig
from fedepd.files import write_json, write_text
from fedepd.report.tables import METRIC_WORDS, Table, markdown
from fedepd.reproduction.judging.comparisons import PAIRS, Duel, all_pairs, duel_table, duels
from fedepd.reproduction.judging.judgement import RULE, verdict_lines, verdict_table, verdicts_of
from fedepd.reproduction.judging.newcomers import cost_tables, in_words, newcomers, rank_table
from fedepd.reproduction.judging.standings import Standings, standings, standings_json, standings_table
from fedepd.reproduction.judging.verdicts import Verdict
from fedepd.reproduction.pages.drawing import save_figure
from fedepd.reproduction.pages.figure_tables import BY_DATASET, robustness_tables, shape_table
from fedepd.reproduction.pages.illustrations import figures_of, points_of
from fedepd.reproduction.pages.noise import curves, noise_tables, overview
from fedepd.reproduction.pages.settings_table import settings_table
from fedepd.reproduction.pages.tables import (
    failure_table,
    latex,
    latex_document,
    metric_tables,
    note,
)
from fedepd.reproduction.study.results import (
    HEADLINE,
    METRICS,
    OPENFGL,
    Results,
    Scoring,
    numbers_csv,
    with_folders,
)
from fedepd.shown import csv_text, markdown_text

TESTED = ("comparison", "ablation")
"""Kinds of targets whose rows are tested against each other."""
NEED_FOLDERS = ("distribution", "per_class", "convergence")
"""Kinds of targets whose figures and tables need more than scores: curves, matrices, what clients hold."""
MOST_ROWS = 16
"""Up to so many rows, every pair of them is shown."""


@dataclass(frozen=True)
class Written:
    """A target as it was written."""

    results: Results
    folder: Path
    tables: dict[str, Table]
    """Heading -> table, the most important first."""
    more: dict[str, dict[str, Table]]
    """Tables that are folded away on the page: title of the fold -> heading -> table."""
    judged: dict[Scoring, list[Verdict]]
    figures: list[Path]
    """SVG files."""
    words: tuple[str, ...] = ()
    """What the tables say about new rivals, in sentences."""

    @property
    def verdicts(self) -> list[Verdict]:
        return self.judged[HEADLINE]


def write_target(results: Results, out: Path) -> Written:
    """Write everything but the page."""
    name, folder = results.target.name, out / results.target.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(
            f"cannot write to the output folder '{folder}': {cause.strerror}; give another --out"
        ) from cause
    scorings = (HEADLINE, OPENFGL) if results.target.kind in TESTED else ()
    tested = {scoring: duels(results, scoring) for scoring in scorings}
    judged = {scoring: verdicts_of(results, scoring) for scoring in scorings or (HEADLINE,)}
    stand = standings_of(results)
    drawn_from = with_folders(results) if results.target.kind in NEED_FOLDERS else results
    tables, more = tables_of(drawn_from), folded_tables(results, tested, judged)
    tables, more = with_standings(results, stand, tables, more)
    words = (*in_words(results), *left_out(results, drawn_from))
    if newcomers(results) and results.runs:
        placed = rank_table(results)
        tables = ({"Ranks with and without the new rows": placed} if placed else {}) | tables
        tables |= cost_tables(results)
    drawn = [save_figure(figure, folder / stem) for stem, figure in figures_of(drawn_from).items()]
    figures = [svg for _, svg in drawn]
    everything = tables | {heading: table for fold in more.values() for heading, table in fold.items()}
    write_text(folder / f"{name}.md", _markdown(results, everything, figures, words))
    write_text(folder / f"{name}.tex", latex_document([latex(table) for table in everything.values()]))
    write_text(folder / f"{name}.csv", numbers_csv(results))
    behind = {
        "points": points_of(drawn_from),
        "tests": _duel_lines(itertools.chain(*tested.values())),
        "verdicts": verdict_lines(judged),
    }
    behind = {f"{name}-{suffix}.csv": lines for suffix, lines in behind.items() if lines}
    for file, lines in behind.items():
        write_text(folder / file, csv_text(lines))
    ranked = {f"{name}-standings.json"} if stand else set[str]()
    for file in ranked:
        write_json(folder / file, standings_json(stand))
    _remove_others(folder, name, {*behind, *ranked, *(path.name for pair in drawn for path in pair)})
    return Written(results, folder, tables, more, judged, figures, words)


def left_out(results: Results, drawn_from: Results) -> list[str]:
    """A sentence on runs whose scores are kept, but nothing else that the target shows."""
    count, missing = len(results.runs), len(results.runs) - len(drawn_from.runs)
    if not missing:
        return []
    verb = "is" if missing == 1 else "are"
    return [f"{missing} of {count} runs {verb} left out of tables and figures: only their scores are kept."]


def _remove_others(folder: Path, name: str, current: Set[str]) -> None:
    """Remove our files from an earlier call with other datasets or seeds that this call did not overwrite."""
    ours = re.compile(
        rf"{re.escape(name)}(-(points|tests|verdicts)\.csv|-standings\.json|(-macro_f1|-ranks-\w+)?(-\d+)?\.(png|svg))"
    )
    for path in folder.iterdir():
        if ours.fullmatch(path.name) and path.name not in current:
            path.unlink()


def standings_of(results: Results) -> list[Standings]:
    """Where all rows stand over the datasets, by every scoring that the runs have, and by every metric."""
    if results.target.kind != "comparison" or not results.runs:
        return []
    found = [
        standings(results, metric, scoring) for scoring in (*results.scorings, OPENFGL) for metric in METRICS
    ]
    return [each for each in found if each is not None]


def with_standings(
    results: Results, found: Sequence[Standings], tables: dict[str, Table], more: dict[str, dict[str, Table]]
) -> tuple[dict[str, Table], dict[str, dict[str, Table]]]:
    """The visible and the folded tables, with the standings and with the scores of other scorings.

    Headline standings are visible. Every other scoring has a fold.
    """
    tables, more = dict(tables), {fold: dict(inside) for fold, inside in more.items()}
    if results.target.kind == "comparison":
        for scoring in results.scorings[1:]:
            fold = f"The same, {scoring.words}"
            more.setdefault(fold, {}).update(metric_tables(results, METRICS, scoring))
    for each in found:
        heading, table = f"Over all datasets: {METRIC_WORDS[each.metric]}", standings_table(results, each)
        if each.scoring == HEADLINE:
            tables[heading] = table
            continue
        fold = next((fold for fold in more if each.scoring.words in fold), f"The same, {each.scoring.words}")
        more.setdefault(fold, {})[f"{heading} ({each.scoring.words})"] = table
    return tables, more


def tables_of(results: Results) -> dict[str, Table]:
    """The tables that are visible at once: heading -> table, the most important first."""
    kind, shown = results.target.kind, dict[str, Table]()
    if kind in TESTED:
        shown |= metric_tables(results, METRICS)
    if kind == "tiers":
        shown |= metric_tables(results, ("tail_acc", "medium_acc", "head_acc"))
    if kind in BY_DATASET:
        shown |= {
            results.title(d): BY_DATASET[kind](results, d)
            for d in results.datasets
            if results.finished(d, references=False)
        }
    if kind == "robustness":
        for dataset in (d for d in results.datasets if results.finished(d)):
            tables = robustness_tables(results, dataset)
            shown |= {
                f"{results.title(dataset)}: {metric.lower()}": table for metric, table in tables.items()
            }
    if kind == "noise":
        for dataset in results.datasets:
            shown |= {results.title(dataset): overview(results, dataset)} if curves(results, dataset) else {}
    if kind == "distribution" and results.runs:
        shown["Datasets and clients"] = shape_table(results)
    if any(entry.failures for entry in results.entries):
        shown["Runs without a result"] = failure_table(results)
    return shown


def folded_tables(
    results: Results, tested: Mapping[Scoring, Sequence[Duel]], judged: Mapping[Scoring, Sequence[Verdict]]
) -> dict[str, dict[str, Table]]:
    more: dict[str, dict[str, Table]] = {}
    if results.target.kind == "noise":
        for dataset, metric in itertools.product(results.datasets, ("bacc", "macro_f1")):
            title = f"{results.title(dataset)}: every share, {METRIC_WORDS[metric]}"
            more |= {title: inside} if (inside := noise_tables(results, dataset, metric)) else {}
    titles = {dataset: results.title(dataset) for dataset in results.datasets}
    reasons = {
        scoring: verdict_table(
            verdicts,
            titles,
            f"{results.target.name}-{scoring.name}",
            note(results, RULE, scoring, marked=False),
        )
        for scoring, verdicts in judged.items()
        if verdicts
    }
    if HEADLINE in reasons:
        more["Every verdict with its reason"] = {"Does each claim hold?": reasons[HEADLINE]}
    if tested.get(HEADLINE):
        against = "its best rival" if results.target.kind == "comparison" else "each other row"
        more[f"Is the difference real? {results.target.champion} against {against}"] = {
            "Is the difference real?": duel_table(results, tested[HEADLINE])
        }
    if not results.target.shipped and results.target.kind in TESTED:
        more |= pair_tables(results)
    if tested.get(OPENFGL):
        scored = more[f"The same, {OPENFGL.words}: each client's own model, averaged over clients"] = (
            metric_tables(results, METRICS, OPENFGL)
        )
        scored[f"Is the difference real? ({OPENFGL.words})"] = duel_table(results, tested[OPENFGL])
        if OPENFGL in reasons:
            scored[f"Does each claim hold? ({OPENFGL.words})"] = reasons[OPENFGL]
    changed = settings_table(results) if results.target.kind in TESTED else None
    if changed is not None:
        heading = "Settings that differ from the defaults"
        more[heading] = {heading: changed}
    return more


def pair_tables(results: Results) -> dict[str, dict[str, Table]]:
    """Folds with every pair of rows, by metric. Empty if there are too many rows to read them."""
    if len(results.target.rows) > MOST_ROWS:
        return {}
    found = {metric: all_pairs(results, metric) for metric in METRICS}
    return {
        f"Every pair of rows by {METRIC_WORDS[metric]}": {
            f"Every pair by {METRIC_WORDS[metric]}": duel_table(results, pairs, PAIRS)
        }
        for metric, pairs in found.items()
        if pairs
    }


def _markdown(
    results: Results, tables: dict[str, Table], figures: Iterable[Path], words: Sequence[str] = ()
) -> str:
    title = markdown_text(results.target.title)
    blocks = [f"## {markdown_text(heading)}\n\n{markdown(table)}" for heading, table in tables.items()]
    pictures = [f"![{title}]({quote(figure.with_suffix('.png').name)})\n" for figure in figures]
    return "\n".join(
        [
            f"# {title}\n",
            *(f"{markdown_text(each)}\n" for each in words),
            *(pictures + blocks if results.target.kind not in TESTED else blocks + pictures),
        ]
    )


def _duel_lines(found: Iterable[Duel]) -> list[list[object]]:
    header: list[object] = [
        "scoring",
        "dataset",
        "metric",
        "ours",
        "against",
        "seeds",
        "difference_points",
        "half_width_95_points",
    ]
    lines = [[*header, "welch_p", "welch_p_holm", "wilcoxon_p", "wilcoxon_p_holm"]]
    for duel in found:
        who = [duel.scoring.name, duel.ours.dataset, duel.metric, duel.ours.row.key, duel.theirs.row.key]
        tests = [duel.outcome.welch_p, duel.welch_p, duel.outcome.wilcoxon_p, duel.wilcoxon_p]
        lines.append([*who, duel.outcome.n, duel.outcome.difference, duel.outcome.half_width, *tests])
    return lines if len(lines) > 1 else []
