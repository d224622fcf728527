"""The figures of a run or of several, as JSON that plotly's script draws in the browser.

Only numbers and plain text go into a figure. Text is escaped, because plotly reads some tags in it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedepd.board.prototypes import Map, prototype_map
from fedepd.errors import BadData
from fedepd.longtail import class_order
from fedepd.report.decisions import numbers, total
from fedepd.report.matrices import confusion_order
from fedepd.report.numbers import bytes_by_field
from fedepd.report.runs import Group, Run
from fedepd.runs import frames
from fedepd.runs.folder import PARTITION
from fedepd.shown import shown

Json = dict[str, Any]
MOST_CELLS = 40_000
"""Most cells of a map. A larger one could not be read, and would be slow to draw."""
FEW_ROWS, MOST_PIXELS = 9, 900
"""Up to so many names stand in a chart of the usual height, and the largest height of a chart."""
MOST_NAMED = 12
"""Most classes without a place on a map that are named beside their marks. Others are named on demand."""
SUMS = "The server saw sums over all sites only, so it does not know who has what."
MEASURES = {"recall": "Recall", "precision": "Precision", "f1": "F1"}


def label(text: object) -> str:
    """A name for a figure. It is shown as it is: plotly's own tags have no effect in it."""
    return html.escape(shown(text, 60), quote=False)


def class_labels(run: Run) -> list[str]:
    return [label(name) for name in frames.class_names(run, len(run.partition["class_sizes"]))]


def client_labels(run: Run, count: int) -> list[str]:
    """What the clients are called: sites and owners by their names, others by their numbers."""
    sites = run.config.get("sites", [])
    return [label(name) for name in (sites if len(sites) == count else frames.client_names(run, count))]


def before_the_end(run: Run) -> list[Json]:
    """What can be drawn of a run that is not finished."""
    found = []
    if (run.path / PARTITION).is_file():
        found.append(partition(run))
    return [*found, *pruned(run)]


def of_run(group: Group) -> list[Json]:
    """All figures of a finished run, what it is read for first."""
    run = group.first
    found = [per_class([group]), *confusion(group), partition(run), *pruned(run), left(group)]
    return [*found, *prototypes(run)]


def of_several(groups: Sequence[Group]) -> list[Json]:
    """Validation scores and classes, of several rows beside each other."""
    first = groups[0].first.partition["class_sizes"].tolist()
    same = all(each.first.partition["class_sizes"].tolist() == first for each in groups)
    return [validation(groups), *([per_class(groups)] if same else [])]


def high_enough(rows: int) -> Json:
    """A chart of names below each other is as high as they need. Few fit into any chart."""
    return {"height": min(110 + 20 * rows, MOST_PIXELS)} if rows > FEW_ROWS else {}


def figure(name: str, title: str, data: list[Json], caption: str = "", **layout: Any) -> Json:
    return {"name": name, "title": title, "caption": caption, "data": data, "layout": layout}


def axis(title: str, names: Sequence[str] = (), **more: Any) -> Json:
    """An axis; with names, one place for each, so that equal names stay apart."""
    places = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}
    words = {"text": title, "standoff": 8}
    return {"title": words, "automargin": True, **(places if names else {}), **more}


def per_class(groups: Sequence[Group]) -> Json:
    """Recall of every class, the largest first; of one row, precision and F1 on demand."""
    run = groups[0].first
    order, names = class_order(run.partition["class_sizes"]), class_labels(run)
    data: list[Json] = []
    for each in groups:
        for measure, word in MEASURES.items() if len(groups) == 1 else (("recall", "Recall"),):
            value, low, high = (100 * part[order] for part in numbers(each)[measure])
            data.append(
                {
                    "type": "bar",
                    "name": word if len(groups) == 1 else label(each.label),
                    "x": list(range(len(order))),
                    "y": listed(value),
                    "error_y": {
                        "type": "data",
                        "symmetric": False,
                        "array": listed(high - value),
                        "arrayminus": listed(value - low),
                        "thickness": 1,
                        "width": 2,
                    },
                    **({} if measure == "recall" else {"visible": "legendonly"}),
                }
            )
    return figure(
        "classes",
        "Which classes are found",
        data,
        "Test nodes, percent, with 95 % intervals. The largest class is first. A click on a word of the "
        "legend shows or hides it.",
        xaxis=axis("class", [names[c] for c in order]),
        yaxis=axis("percent", range=[0, 103]),
        barmode="group",
    )


def confusion(group: Group) -> list[Json]:
    """What each class is taken for, in percent of its test nodes."""
    counts, names = total(group), class_labels(group.first)
    if counts.size > MOST_CELLS:
        return []
    order = confusion_order(counts, group.first.partition["class_sizes"])
    shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    named = [names[c] for c in order]
    data = heat(shares[np.ix_(order, order)], counts[np.ix_(order, order)], "%{z:.1f} % (%{text} nodes)")
    return [
        figure(
            "confusion",
            "What is taken for what",
            [data],
            "Numbers: test nodes. Colour: percent of the true class. On the diagonal: correct.",
            xaxis=axis("predicted class", named),
            yaxis=axis("true class", named, autorange="reversed"),
            **high_enough(len(named)),
        )
    ]


def partition(run: Run) -> Json:
    """How many nodes of each class every client has."""
    counts = run.partition["client_class"]
    if counts.ndim != 2 or counts.shape[1] != len(run.partition["class_sizes"]):
        raise BadData("the partition does not fit its classes; the folder is damaged")
    title = "Who has which classes"
    if counts.size > MOST_CELLS:
        return figure("partition", title, [], f"More than {MOST_CELLS:,} cells: not drawn.")
    if not counts.any():
        return figure("partition", title, [], SUMS)
    order, names = class_order(run.partition["class_sizes"]), class_labels(run)
    data = heat(np.log10(1 + counts[:, order]), counts[:, order], "%{text} nodes")
    return figure(
        "partition",
        title,
        [{**data, "showscale": False}],
        "Nodes of each class at each client. The colour grows with the logarithm.",
        xaxis=axis("class", [names[c] for c in order]),
        yaxis=axis("client", client_labels(run, len(counts)), autorange="reversed"),
        **high_enough(len(counts)),
    )


def heat(colour: npt.NDArray[Any], counts: npt.NDArray[Any], said: str) -> Json:
    few = counts.size <= 400
    return {
        "type": "heatmap",
        "z": np.round(colour, 3).tolist(),
        "text": counts.tolist(),
        **({"texttemplate": "%{text}"} if few else {}),
        "hovertemplate": f"%{{y}}, %{{x}}: {said}<extra></extra>",
        "colorscale": [[0, "#eef3fb"], [0.5, "#7ea6e6"], [1, "#1f4fb0"]],
        "xgap": 1,
        "ygap": 1,
    }


def pruned(run: Run) -> list[Json]:
    """Edges that were kept and edges that were not, client by client; nothing where none was pruned."""
    try:
        clients = run.clients
    except BadData:  # a run that has only begun
        return []
    if not any(client["edges_kept"] < client["edges"] for client in clients):
        return []
    kept = [client["edges_kept"] for client in clients]
    lost = [client["edges"] - client["edges_kept"] for client in clients]
    places = list(range(len(clients)))
    return [
        figure(
            "pruned",
            "Pruned edges",
            [
                {"type": "bar", "name": "kept", "x": places, "y": kept},
                {"type": "bar", "name": "pruned", "x": places, "y": lost},
            ],
            "Edges inside each client.",
            xaxis=axis("client", client_labels(run, len(clients))),
            yaxis=axis("edges"),
            barmode="stack",
        )
    ]


def left(group: Group) -> Json:
    """The bytes of each field that went between the clients and the server."""
    ways = {"up": "to the server", "down": "to the clients"}
    sent = {way: bytes_by_field(group, way) for way in ways}
    fields = sorted({*sent["up"], *sent["down"]}, key=lambda name: sent["up"].get(name, 0.0))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "y": list(range(len(fields))),
            "x": [sent[way].get(name, 0.0) / 2**20 for name in fields],
        }
        for way, words in ways.items()
    ]
    return figure(
        "left",
        "What left the house",
        data,
        "MiB of the whole run by field of the messages, all clients together.",
        xaxis=axis("MiB"),
        yaxis=axis("", [label(name) for name in fields]),
        **high_enough(len(fields)),
    )


def prototypes(run: Run) -> list[Json]:
    """The classes' prototypes on the plane that shows most of their spread; nothing where there are none.

    Classes that the guard has closed have no prototype at the server, so no place. They stand below the map.
    """
    found = prototype_map(run.path)
    if found is None or len(found.counts) != len(run.partition["class_sizes"]):
        return []
    names, opened = class_labels(run), run.summary.get("open_classes")
    kept = [c for c in range(len(names)) if found.counts[c] > 0]
    closed = [c for c in range(len(names)) if c not in (*kept, *opened)] if opened is not None else []
    data = [_sent(found, kept, names)]
    caption = (
        f"After the last round, by principal components ({found.explained:.0%} of the spread). The area "
        f"grows with the count behind a prototype."
    )
    if without := len(names) - len(kept):
        caption += f" {without} {'class has' if without == 1 else 'classes have'} none."
    if closed:
        data.append(_closed(found.places[kept], [names[c] for c in closed]))
        caption += (
            f" Of these, {len(closed)} are closed by the guard, or have no training node. The server knows "
            "no prototype of them, so they stand in a row below the map, and their places there mean nothing."
        )
    return [
        figure(
            "prototypes",
            "Prototypes of the classes",
            data,
            caption,
            xaxis=axis("first component", zeroline=False),
            yaxis=axis("second component", zeroline=False, range=_with_names(data)),
            showlegend=bool(closed),
        )
    ]


def _with_names(data: Sequence[Json]) -> list[float]:
    """A range that has room for the names above and below the marks."""
    values = [value for each in data for value in each["y"]]
    low, high = min(values), max(values)
    room = 0.3 * (high - low) or 1.0
    return [low - room, high + room]


def _sent(found: Map, kept: Sequence[int], names: Sequence[str]) -> Json:
    """The prototypes that the server holds."""
    largest = max(float(found.counts.max()), 1.0)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "sent to the server",
        "x": listed(found.places[kept, 0]),
        "y": listed(found.places[kept, 1]),
        "text": [names[c] for c in kept],
        "customdata": listed(found.counts[kept]),
        "hovertemplate": "%{text}: %{customdata} training nodes<extra></extra>",
        "textposition": "top center",
        "marker": {"size": [8 + 26 * (found.counts[c] / largest) ** 0.5 for c in kept]},
    }


def _closed(places: npt.NDArray[np.float64], names: Sequence[str]) -> Json:
    """A row of marks below the map, as wide as it is."""
    low, high = places.min(0), places.max(0)
    below = float(low[1] - 0.25 * max(high[1] - low[1], 1e-9))
    return {
        "type": "scatter",
        "mode": "markers+text" if len(names) <= MOST_NAMED else "markers",
        "name": "kept by the guard",
        "x": listed(np.linspace(low[0], high[0], len(names))),
        "y": [below] * len(names),
        "text": list(names),
        "hovertemplate": "%{text}: nothing was sent<extra></extra>",
        "textposition": "bottom center",
        "marker": {"size": 9, "symbol": "x", "color": "#888888"},
    }


def validation(groups: Sequence[Group]) -> Json:
    """Validation macro-F1 of every run. Runs of one row have one colour."""
    data = []
    for place, each in enumerate(groups):
        for run in each.runs:
            scored = [(line["round"], line["val"][run.headline]) for line in run.rounds
                      if run.headline in line.get("val", {})]  # fmt: skip
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{label(each.label)}, seed {run.seed}",
                    "x": [number for number, _ in scored],
                    "y": [percent(values.get("macro_f1")) for _, values in scored],
                    "line": {"color": COLOURS[place % len(COLOURS)]},
                }
            )
    return figure(
        "validation",
        "Validation macro-F1",
        data,
        "Percent, of the headline model. Rows keep one colour over their seeds.",
        xaxis=axis("round"),
        yaxis=axis("percent"),
    )


COLOURS = ("#3b6fd4", "#d9672b", "#2f9e6e", "#b04fb0", "#b8912a", "#4aa3b8", "#c2455f", "#7a7f8c")


def percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 3)


def listed(values: npt.NDArray[Any]) -> list[float | None]:
    """Numbers for JSON, which knows no NaN."""
    return [None if not np.isfinite(value) else round(float(value), 4) for value in values]
