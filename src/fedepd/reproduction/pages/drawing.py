"""What all figures share: size, style, title and note, legend, and the files they are saved to."""

from __future__ import annotations

import functools
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from fedepd.errors import BadData
from fedepd.report.drawing import DARK, METHOD_COLOURS, RC, Style, styles
from fedepd.report.runs import Group
from fedepd.report.tables import PERSONAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
Panels = Mapping[str, Sequence[Group]]
"""A dataset's title -> its groups of runs."""

COLUMN, PAGE = 3.4, 7.0
"""Width of a column and of a page, in inches."""
LOOK = RC | {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "legend.fontsize": 6.5,
    "legend.handlelength": 2.6,
}
LOOK |= {
    "svg.hashsalt": "fedepd",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
}


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` (300 dots per inch) and ``stem.svg``. The same runs give the same bytes."""
    from matplotlib import style

    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with style.context(["default", LOOK]), warnings.catch_warnings():
        # A missing glyph is a box in the PNG. The SVG holds the text itself.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        # Names can be too long for the layout. The figure is still readable.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        figure.savefig(png, dpi=300, metadata={"Software": None})
        figure.savefig(svg, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return [png, svg]


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with our style, whatever the caller has set in matplotlib."""

    @functools.wraps(draw)
    def with_look(*args: P.args, **kwargs: P.kwargs) -> Figure:
        from matplotlib import style

        with style.context(["default", LOOK]):
            return draw(*args, **kwargs)

    return with_look


def new_figure(width: float, height: float, title: str, note: str) -> Figure:
    """An empty figure with its title and note. ``height`` is the height below them, in inches."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(note, int(20 * width))
    height += 0.17 + 0.115 * len(lines)
    figure = Figure(figsize=(width, height), layout="constrained")
    margin: dict[str, Any] = {"x": 0.04 / width, "ha": "left", "va": "top"}
    figure.text(y=1 - 0.04 / height, s=title, fontsize=8, fontweight="bold", **margin)
    figure.suptitle("\n".join(["", *lines]), fontsize=6.5, linespacing=1.25, color=DARK, **margin)
    return figure


def panel_grid(
    count: int, columns: int, height: float, title: str, note: str, width: float = PAGE
) -> tuple[Figure, list[Any]]:
    """A figure with ``count`` axes, filled row by row."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(width, height * rows, title, note)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, list(axes[:count])


def legend_below(figure: Figure, axes: Iterable[Any]) -> None:
    """One legend for all axes, with every label once."""
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    longest = max((len(label) for label in handles), default=1)
    columns = max(1, min(len(handles), int(18 * figure.get_figwidth()) // (longest + 9)))
    figure.set_figheight(figure.get_figheight() + 0.1 + 0.13 * -(-len(handles) // columns))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns)


def finished(panels: Panels) -> Panels:
    """The panels without groups that have no run, and without datasets that have no group."""
    kept = {title: [group for group in groups if group.runs] for title, groups in panels.items()}
    kept = {title: groups for title, groups in kept.items() if groups}
    if not kept:
        raise BadData("no run of this figure is finished, so there is nothing to draw; run its cells first")
    return kept


def looks(panels: Panels) -> dict[str, Style]:
    """Label -> style, the same in all panels."""
    return styles(list({group.label: group for groups in panels.values() for group in groups}.values()))


def line_look(style: Style) -> dict[str, Any]:
    """How matplotlib draws a line. Variants of a method have hollow markers, and FedEPD is drawn on top."""
    look = {"color": style.colour, "linestyle": style.line, "marker": style.marker}
    look |= {"markerfacecolor": "white"} if style.hatch else {}
    return look | {"zorder": 3 if style.colour == METHOD_COLOURS["fedepd"] else 2}


def protocol_line(groups: Iterable[Group], all_rounds: bool = False) -> str:
    """One line that says which model is scored, on which nodes, at which round and over how many seeds."""
    groups = list(groups)
    runs = [run for group in groups for run in group.runs]
    clients = " or ".join(str(count) for count in sorted({run.num_clients for run in runs}))
    rounds = " or ".join(str(count) for count in sorted({int(run.summary["rounds"]) for run in runs}))
    seeds = sorted({len(group.runs) for group in groups})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    count = "1 seed" if count == "1" else f"{count} seeds"
    rules = (
        set()
        if all_rounds
        else {_select(run.config["experiment"].get("protocol", {}).get("select", "")) for run in runs}
    )
    kinds = {run.headline for run in runs}
    model = "personal models" if kinds == {"personal"} else "global model"
    scores = ", ".join([model, "nodes of all clients pooled", *sorted(rules)])
    text = f"Protocol: {scores}; {clients} clients, {rounds} rounds, {count}."
    return text + (
        f" {PERSONAL.strip()} A method without a global model; its clients' personal models are scored."
        if len(kinds) > 1
        else ""
    )


def _select(rule: str) -> str:
    rules = {"last": "last round", "val_acc": "round of best validation accuracy"}
    return rules.get(rule, "round of best validation macro-F1")
