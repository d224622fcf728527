"""A tuning -> one self-contained page in the report's style: history, importance of settings, all trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from fedepd.methods import method_class
from fedepd.report.document import document, paragraphs, section
from fedepd.report.drawing import GREY, METHOD_COLOURS, OTHER_COLOURS, svg_of
from fedepd.report.tables import Cell, Table, html_table
from fedepd.shown import html_text, listed, shown
from fedepd.tune.search import Search, Trial
from fedepd.tune.tuning import Found

HISTORY = (
    "Left: the score of each trial in its order, in percent: the mean of balanced accuracy and macro-F1 on "
    "validation nodes, over the graphs. Dots: complete trials. Crosses: trials that were stopped early, at "
    "their mean so far. Line: the best so far. Grey line: where the extra trials begin. Right: the share of "
    "the variance of the scores that goes with each setting (epsilon squared over complete trials). "
    "After few trials it says little."
)


def render(found: Found, command: str) -> str:
    """The page's HTML."""
    tuning, searches = found.tuning, found.searches
    names = [title_of(search) for search in searches]
    links = {f"search-{place}": name for place, name in enumerate(names)}
    parts = [
        f'<section><h2 id="best">Best settings</h2>{html_table(overview(found))}'
        f"{paragraphs(said(found))}</section>\n"
    ]
    parts += [_search(found, search, place) for search, place in zip(searches, links, strict=True)]
    methods, graphs = len(tuning.methods), len(tuning.data)
    where = shown(tuning.data[0]) if graphs == 1 else f"{graphs} graphs"
    what = method_class(tuning.methods[0][0]).label if methods == 1 else f"{methods} methods"
    title = f"Tuning of {what} on {where}"
    scope = (
        f"Every method had {tuning.trials + found.extra} trials of {found.rounds} rounds. "
        "Validation nodes alone decide."
    )
    foot = _footer(found, command)
    return document(title, scope, {"best": "Best settings", **links}, parts, foot, "Protocol and command")


def title_of(search: Search) -> str:
    label = method_class(search.method).label
    name = label if search.preset == "default" else f"{label} ({search.preset.replace('_', ' ')})"
    return name if len(search.graphs) > 1 else f"{name} on {shown(search.graphs[0])}"


def said(found: Found) -> list[str]:
    """What a reader must know about the effort, in sentences."""
    tuning = found.tuning
    out = []
    if found.extra:
        which = [f"{title_of(s)}: {listed(s.extended, 10)}" for s in found.searches if s.extended]
        out.append(
            f"Best values were at an end of what was tried ({'; '.join(which)}). These were tried one step "
            f"further, and every method got {found.extra} more trials, beyond the {tuning.trials}."
        )
    still = [
        f"{title_of(s)}: {listed(names, 10)}"
        for s in found.searches
        if (names := [k.name for k in s.knobs if k.ladder.beyond(s.best.rungs[k.name])])
    ]
    if still:
        out.append(f"The best value is at the new end, and no step further was tried: {'; '.join(still)}.")
    failed = sum(trial.state == "failed" for search in found.searches for trial in search.trials)
    if failed:
        out.append(f"{failed} trials failed and have no score.")
    return out


def overview(found: Found) -> Table:
    """The best setting of every search beside its default."""
    knobs = list(dict.fromkeys(knob.name for search in found.searches for knob in search.knobs))
    top = max(search.best.mean for search in found.searches)
    rows = []
    for search in found.searches:
        best, default = search.best, search.trials[0]
        settings = [_setting(search, best, name) for name in knobs]
        gain = best.mean - default.mean if default.state == "complete" else float("nan")
        rank = 1 if best.mean == top and not found.tuning.per_graph else 0
        score = Cell(f"{100 * best.mean:.1f}", best.mean, rank=rank)
        rows.append([Cell(title_of(search)), score, Cell(f"{100 * gain:+.1f}", gain), *settings])
    note = "Score: percent, on validation nodes. Gain: over the default, which is every search's first trial."
    return Table("tuned", ["Method", "Score", "Gain", *knobs], [rows], note)


def _setting(search: Search, trial: Trial, name: str) -> Cell:
    if name not in trial.settings:
        return Cell("–", -1.0)
    value, knob = trial.settings[name], next(k for k in search.knobs if k.name == name)
    at_default = " (default)" if trial.rungs[name] == knob.default else ""
    return Cell(f"{value:g}{at_default}", float(value))


def _search(found: Found, search: Search, place: str) -> str:
    figure = (
        f"<figure><div>{chart(found, search)}</div><figcaption>{html_text(HISTORY)}</figcaption></figure>"
    )
    rows = [_row(search, trial) for trial in search.trials]
    headers = ["Trial", "Score", "State", *(knob.name for knob in search.knobs), *search.graphs]
    table = html_table(Table("trials", headers, [rows]))
    folded = f"<details><summary>All {len(rows)} trials</summary>{table}</details>"
    head = f'<h2 id="{place}">{html_text(title_of(search))}</h2>'
    return f"<section>{head}{section('History and importance', figure)}{folded}</section>\n"


def _percent(score: float) -> Cell:
    return Cell(f"{100 * score:.1f}", score)


def _row(search: Search, trial: Trial) -> list[Cell]:
    scores = [_percent(score) for score in trial.scores]
    scores += [Cell("–", -1.0)] * (len(search.graphs) - len(scores))
    mean = _percent(trial.mean) if trial.scores else Cell("–", -1.0)
    name = f"{trial.number}{' (extra)' if trial.extra else ''}"
    settings = [_setting(search, trial, knob.name) for knob in search.knobs]
    return [Cell(name, float(trial.number)), mean, Cell(trial.failure or trial.state), *settings, *scores]


def chart(found: Found, search: Search) -> str:
    """History and importance side by side."""
    methods = [method for method, _ in found.tuning.methods]
    spare = OTHER_COLOURS[methods.index(search.method) % len(OTHER_COLOURS)]
    colour = METHOD_COLOURS.get(search.method, spare)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_history(left, search.trials, colour, found.tuning.trials if found.extra else None)
        _draw_importance(right, search.importance(), colour)

    height = 1.4 + 0.22 * max(5, len(search.knobs))
    return svg_of("tuning", f"Trials of {title_of(search)}", height, draw, title_of(search))


def _draw_history(axis: Any, trials: Sequence[Trial], colour: str, extra_from: int | None) -> None:
    complete = [trial for trial in trials if trial.state == "complete"]
    stopped = [trial for trial in trials if trial.state == "pruned"]
    axis.plot([t.number for t in complete], [100 * t.mean for t in complete], "o", color=colour, markersize=4)
    axis.plot([t.number for t in stopped], [100 * t.mean for t in stopped], "x", color=GREY, markersize=4)
    best = list(accumulate((100 * trial.mean for trial in complete), max))
    axis.step([t.number for t in complete], best, where="post", color=colour, linewidth=1.2)
    if extra_from is not None:
        axis.axvline(extra_from - 0.5, color=GREY, linewidth=0.8)
    axis.set_xlabel("trial")
    axis.set_ylabel("score, percent")
    axis.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)


def _draw_importance(axis: Any, importance: dict[str, float], colour: str) -> None:
    names = list(importance)
    axis.barh(range(len(names)), [100 * importance[name] for name in names], color=colour, height=0.6)
    axis.set_yticks(range(len(names)), names, fontsize=7.5)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of the variance, percent")


def _footer(found: Found, command: str) -> str:
    tuning = found.tuning
    fixed = listed([f"{name} = {value}" for name, value in tuning.settings.items()], 40)
    lines = [
        f"graphs: {listed(list(tuning.data), 30)}",
        f"seeds {', '.join(map(str, tuning.seeds))}; tables have other seeds",
        "one setting for each graph" if tuning.per_graph else "one setting for all graphs",
        f"settings for all trials: {fixed or 'none'}",
    ]
    return f"""<footer id="protocol">
<h2>Protocol</h2>{paragraphs(lines)}
<h2>Command</h2><pre>{html_text(command)}</pre>
</footer>"""
