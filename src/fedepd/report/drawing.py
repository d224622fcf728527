"""How the figures of all pages look, and how a figure becomes SVG text.

The same content gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedepd.report.runs import Group
from fedepd.shown import html_text

# The first eight are Okabe and Ito's, with a darker yellow that is visible on white. The others follow Paul
# Tol's muted set.
METHOD_COLOURS = {
    "fedepd": "#D55E00",
    "fedavg": "#0072B2",
    "fedproto": "#009E73",
    "fedgta": "#CC79A7",
    "graphsmote": "#E69F00",
    "hiertail": "#56B4E9",
    "centralised": "#000000",
    "fedlc": "#B8A900",
    "lws": "#332288",
    "fedgac": "#882255",
    "creff": "#117733",
    "fedspray": "#44AA99",
    "graphfedmig": "#AA4499",
    "isolated": "#777777",
}
OTHER_COLOURS = ("#661100", "#6699CC")
TIER_COLOURS = {"head": "#DCEAF7", "medium": "#F3F1E2", "tail": "#FBE4D8"}
FIELD_COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")
FILLS = dict(zip(LINES, ("full", "none", "left", "bottom"), strict=True))
"""How markers without a line are filled, in place of the line's style."""
HATCHES = ("", "////", "....", "xxxx")
WIDE, NARROW = 8.6, 4.6
"""Inches that a figure is wide, and that it is wide for a phone. Its letters have the same size in both."""
GREY, DARK = "#777777", "#333333"
TICK = 60
"""Most characters of a label beside an axis."""
NAME = 18
"""Most characters of the name of a class or a client."""


@dataclass(frozen=True)
class Style:
    """How a group looks in every figure.

    A method has a colour and a marker; its variants differ in line and hatch.
    """

    colour: str
    marker: str
    line: str
    hatch: str


def styles(groups: Sequence[Group]) -> dict[str, Style]:
    """Label -> style."""
    known, seen, result = list(METHOD_COLOURS), dict[str, int](), dict[str, Style]()
    for group in groups:
        variant = seen[group.method] = seen.get(group.method, -1) + 1
        place = known.index(group.method) if group.method in known else zlib.crc32(group.method.encode())
        colour = METHOD_COLOURS.get(group.method, OTHER_COLOURS[place % len(OTHER_COLOURS)])
        result[group.label] = Style(
            colour,
            MARKERS[place % len(MARKERS)],
            LINES[variant % len(LINES)],
            HATCHES[variant % len(HATCHES)],
        )
    return result


def dodge(place: int, count: int, width: float = 0.8) -> float:
    """The offset of item ``place`` of ``count`` items that are drawn side by side at the same x."""
    return width * ((place + 0.5) / count - 0.5)


def ticks_of(labels: list[str], most: int, offset: float = 0.5) -> tuple[list[float], list[str]]:
    places = range(0, len(labels), -(-len(labels) // most))
    return [place + offset for place in places], [labels[place] for place in places]


def turned(labels: Sequence[str], most: int) -> dict[str, Any]:
    """How labels are written below an axis: turned, if together they have more than ``most`` characters."""
    if sum(len(label) + 2 for label in labels) <= most:
        return {}
    return (
        {"rotation": 90} if len(labels) > 12 else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    )


def legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(len(labels), int(110 * figure.get_figwidth() / WIDE) // (longest + 7)))
    rows = -(-len(labels) // columns)
    # A long legend makes the figure taller, so that the axes keep their height.
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 4))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


RC = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "figure.edgecolor": "none",
    "axes.facecolor": "none",
    "text.parse_math": False,
    "font.size": 9,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": DARK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
}

SVG_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
"""The style element that matplotlib writes into every figure."""


class Drawing(str):
    """A figure as one SVG element. It can be drawn again as a PNG, for programs that show no SVG."""

    name: str
    """What the figure is called. Figures of one page have different names."""
    about: str
    """Its title for screen readers. A text has a method of the name title."""
    draw: Callable[[Any], None]
    height: float
    where: str

    def narrow(self) -> Drawing:
        """The same figure for a phone. ``draw`` sees how wide it is."""
        name = f"{self.name}-narrow"
        return svg_of(name, self.about, min(self.height, NARROW), self.draw, self.where, NARROW)

    def png(self) -> bytes:
        """The same figure in dots, on white."""
        file = io.BytesIO()
        size = WIDE, self.height
        with _drawn(self.name, size, self.draw, {"savefig.facecolor": "white"}) as figure:
            figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
        return file.getvalue()


def svg_of(
    name: str, title: str, height: float, draw: Callable[[Any], None], where: str, width: float = WIDE
) -> Drawing:
    """The figure as one SVG element, with a title for screen readers and ids that are unique on the page.

    ``where`` tells figures of one name apart.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    with _drawn(name, (width, height), draw, {}) as figure:
        # Figure.savefig would draw everything twice, the first time for the layout alone.
        FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    own = rf"\1{name}-{zlib.crc32(where.encode()):08x}-"
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r'(\bid="|url\(#|href="#)', own, tag[0]), file.getvalue())
    svg = svg.replace(SVG_STYLE, "", 1)  # it is in page.css; the page's policy allows no other style
    drawing = Drawing(
        svg[svg.index("<svg") :].replace(
            "<svg ", f'<svg role="img" aria-label="{html_text(title)}" data-name="{name}" ', 1
        )
    )
    drawing.name, drawing.about, drawing.draw = name, title, draw
    drawing.height, drawing.where = height, where
    return drawing


@contextmanager
def _drawn(
    name: str, size: tuple[float, float], draw: Callable[[Any], None], look: Mapping[str, Any]
) -> Iterator[Any]:
    """The figure, to be saved inside the context."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", {**RC, **look, "svg.hashsalt": name}]), warnings.catch_warnings():
        # Text stays text in the SVG, and the browser has the font. In a PNG such a letter is a box.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        # Names can be too long for the layout. The figure is still readable.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        yield figure
