"""A sweep -> one self-contained page in the report's style: the answer, a figure, all values, all tests."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from fedepd.report.document import both, document, section
from fedepd.report.drawing import GREY, Drawing, svg_of
from fedepd.report.footer import footer
from fedepd.report.matrices import value_map
from fedepd.report.numbers import mean_std
from fedepd.report.paired import paired_half_width
from fedepd.report.runs import Run, group
from fedepd.report.tables import METRIC_TITLES, METRIC_WORDS, Cell, Table, html_table, measured
from fedepd.shown import drawn, shown
from fedepd.sweeps.sweep import Combination, Swept, swept

SURE = 0.05
WRITTEN = 200
"""Up to so many cells of a map have their numbers in them."""
METRIC = "macro_f1"
"""What figures show, and what values are tested by."""
LINE = (
    "Test macro-F1 in percent, higher is better. Dots: seeds. Blue: their mean. Bars: the 95 % t interval of "
    "the mean, with three seeds or more. Ring: the value that validation chooses."
)
MAP = (
    "Test macro-F1 in percent, mean over seeds, higher is better. Framed: what validation chooses. "
    "The best cell of many leads by chance alone, so look at the tests below."
)
TESTS = (
    "Difference of test macro-F1 in points, first minus second: the mean over seeds and, with three "
    "or more, its 95 % t interval, paired by seed. p: the t test of that interval, corrected by Holm over "
    "all pairs. So an interval of one sign may still not be told."
)


def render(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The page's HTML."""
    found, groups = swept(runs, names), group(runs)
    first = runs[0]
    picture = _line(found) if len(names) == 1 else _heat_map(found) if len(names) == 2 else None
    caption = LINE if len(names) == 1 else MAP
    table, tests = html_table(values_table(found)), tests_table(found)
    parts = [
        *([section(f"Over {' and '.join(map(shown, names))}", both(picture, caption))] if picture else []),
        section("All values", table),
        section("Which values can be told apart", _folded(html_table(tests), len(tests.sections[0]))),
    ]
    label, data = shown(first.summary["method_label"]), shown(first.dataset["name"])
    title = f"{label} over {' and '.join(map(shown, names))} on {data}"
    said, *more = answer(found)
    scope = f"{len(runs)} runs."
    return document(title, scope, {}, parts, footer(groups), answer=[said], more=" ".join(more))


def _folded(table: str, pairs: int) -> str:
    if pairs <= 15:
        return table
    return f"<details><summary>All {pairs} pairs</summary>{table}</details>"


def answer(found: Swept) -> list[str]:
    """What the sweep says, in sentences. Validation chooses, and test scores say what that is worth."""
    best = found.best
    if isnan(best.validation):
        return ["No validation node was scored, so no value can be chosen."]
    mean, std = mean_std(best.scores(METRIC))
    spread = "" if isnan(std) else f" ± {std:.1f}"
    lines = [
        f"Validation chooses {found.words(best)} (validation {best.validation:.1f}). "
        f"Its test macro-F1 is {mean:.1f}{spread}."
    ]
    tests = found.tests(METRIC)
    told = [each for each in tests if each[3] < SURE]
    seeds = min(len(each.runs) for each in found.combinations)
    if all(isnan(p) for *_, p in tests):
        few = "1 seed" if seeds == 1 else f"{seeds} seeds"
        return [*lines, f"With {few} no difference can be tested; give --seeds 3 or more."]
    own = [each for each in told if best in each[:2]]
    lines.append(
        f"Of {len(tests)} pairs of values, {len(told)} can be told apart over {seeds} seeds"
        + (f", {len(own)} of them with the chosen one." if told else ".")
    )
    return lines


def values_table(found: Swept, digits: int = 2) -> Table:
    """One row per combination, the chosen one marked."""
    headers = [
        *(shown(name) for name in found.names),
        "Seeds",
        "Validation",
        *METRIC_TITLES.values(),
        "Choice",
    ]
    rows = []
    for each in found.combinations:
        validation = mean_std([each.validation])
        rows.append(
            [
                *(_value(value) for value in each.values),
                Cell(str(len(each.runs)), len(each.runs)),
                measured(*validation, digits),
                *(measured(*mean_std(each.scores(metric)), digits) for metric in METRIC_TITLES),
                Cell("chosen" if each is found.best else ""),
            ]
        )
    note = (
        "Test scores in percent, mean ± standard deviation over seeds. Validation: the score that selects "
        "rounds, on validation nodes, in the selected round. Its mean over seeds chooses."
    )
    return Table("values", headers, [rows], note)


def tests_table(found: Swept) -> Table:
    """Every pair of combinations."""
    rows = []
    for one, other, outcome, p in found.tests(METRIC):
        half = "" if isnan(outcome.half_width) else f"±{outcome.half_width:.2f}"
        rows.append(
            [
                Cell(found.words(one)),
                Cell(found.words(other)),
                Cell(f"{outcome.difference:+.2f}", outcome.difference, half),
                Cell("–" if isnan(p) else f"{p:.3f}", 2.0 if isnan(p) else p),
                Cell("–" if isnan(p) else "yes" if p < SURE else "no"),
            ]
        )
    return Table("tests", ["First", "Second", "Difference", "p", "Told apart"], [rows], TESTS)


def _value(value: Any) -> Cell:
    number = float(value) if isinstance(value, int | float) else None
    return Cell(shown(value, 40), number)


def _line(found: Swept) -> Drawing:
    def draw(figure: Any) -> None:
        axis = figure.subplots()
        places = np.arange(len(found.combinations))
        means = []
        for place, each in zip(places, found.combinations, strict=True):
            values = np.array([v for v in each.scores(METRIC) if not isnan(v)])
            means.append(values.mean() if len(values) else np.nan)
            axis.plot([place] * len(values), values, "o", color=GREY, markersize=3.5, alpha=0.7)
            half = paired_half_width(values)
            if not isnan(half):
                axis.errorbar(place, means[-1], yerr=half, color="#0072B2", capsize=4, linewidth=1.4)
        numbers = all(isinstance(each.values[0], int | float) for each in found.combinations)
        # Between names there is nothing, so no line is drawn.
        axis.plot(places, means, "-o" if numbers else "o", color="#0072B2", markersize=4.5)
        chosen = found.combinations.index(found.best)
        axis.plot(chosen, means[chosen], "o", markersize=13, markerfacecolor="none", color="#D55E00")
        labels = [drawn(shown(each.values[0]), 20) for each in found.combinations]
        axis.set_xticks(places, labels, rotation=90 if max(map(len, labels)) * len(labels) > 80 else 0)
        axis.set_xlabel(drawn(found.names[0], 40))
        axis.set_ylabel(f"{METRIC_WORDS[METRIC]} (%)")
        axis.grid(axis="y")

    return svg_of("sweep-line", f"Test macro-F1 over {found.names[0]}", 3.6, draw, "sweep")


def _heat_map(found: Swept) -> Drawing:
    across, up = (_distinct(found.combinations, place) for place in (0, 1))
    means = np.full((len(up), len(across)), np.nan)
    for each in found.combinations:
        means[_index(up, each.values[1]), _index(across, each.values[0])] = mean_std(each.scores(METRIC))[0]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        chosen = _index(up, found.best.values[1]), _index(across, found.best.values[0])
        ticks = [drawn(shown(v), 20) for v in across], [drawn(shown(v), 20) for v in up]
        mesh = value_map(axis, means, chosen, ticks, 8 if means.size <= WRITTEN else 0)
        axis.set(xlabel=drawn(found.names[0], 40), ylabel=drawn(found.names[1], 40))
        figure.colorbar(mesh, ax=axis, pad=0.02).set_label(f"{METRIC_WORDS[METRIC]} (%)")

    height = 1.6 + 0.5 * min(len(up), 14)
    names = " and ".join(found.names)
    return svg_of("sweep-map", f"Test macro-F1 over {names}", height, draw, "sweep")


def _distinct(combinations: Sequence[Combination], place: int) -> list[Any]:
    """A setting's values in the order of the combinations, each once. 1 and True are two values."""
    out: list[Any] = []
    for each in combinations:
        if not any(_same(each.values[place], value) for value in out):
            out.append(each.values[place])
    return out


def _index(values: Sequence[Any], value: Any) -> int:
    return next(place for place, each in enumerate(values) if _same(each, value))


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
