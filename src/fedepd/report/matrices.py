"""Pictures of matrices: who is called what, and scores over two settings."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedepd.longtail import class_order
from fedepd.report import drawing
from fedepd.report.decisions import class_names, total
from fedepd.report.drawing import DARK, GREY, NAME, ticks_of
from fedepd.report.runs import Group
from fedepd.shown import drawn

WRITTEN = 20
"""Up to so many classes the counts are written into the cells. More classes are put in clusters."""
TICKS = 40


def confusion_order(counts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> list[int]:
    """The order of classes in the picture: by size, or beyond ``WRITTEN`` classes in clusters.

    Choice: average linkage of 1 - (share of i called j + share of j called i) / 2, with the order of leaves
    that puts the nearest classes side by side. Classes without test nodes come last.
    """
    order = class_order(sizes)
    tested = [c for c in order if counts[c].sum()]
    if len(order) <= WRITTEN or len(tested) < 3:
        return order
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    shares = counts[np.ix_(tested, tested)] / counts[tested].sum(1, keepdims=True)
    apart = 1 - (shares + shares.T) / 2
    np.fill_diagonal(apart, 0)
    leaves = leaves_list(linkage(squareform(apart, checks=False), "average", optimal_ordering=True))
    return [tested[place] for place in leaves] + [c for c in order if c not in tested]


def confusion_map(group: Group) -> str:
    """Which classes are called what, in shares of the true class. Empty if no node was tested."""
    counts, run = total(group), group.first
    if not counts.sum():
        return ""
    order = confusion_order(counts, run.partition["class_sizes"])
    names = [drawn(name, NAME) for name in class_names(run)]
    shown = counts[np.ix_(order, order)]
    rows = shown.sum(1, keepdims=True)
    shares = np.ma.masked_array(100 * shown / np.maximum(rows, 1), np.broadcast_to(rows == 0, shown.shape))
    few = len(order) <= WRITTEN

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        look = {"edgecolors": "white", "linewidth": 0.5} if few else {"rasterized": True}
        mesh = axis.pcolormesh(shares, cmap="Blues", vmin=0, vmax=100, **look)
        if few:
            _write(axis, shown, shares, len(group.runs))
        axis.invert_yaxis()
        labels = [names[c] for c in order]
        axis.set_xticks(*ticks_of(labels, TICKS), rotation=90 if len(order) > 6 else 0)
        axis.set_yticks(*ticks_of(labels, TICKS))
        axis.tick_params(length=0, labelsize=8 if few else 6.5)
        axis.set_xlabel("called")
        axis.set_ylabel("is")
        figure.colorbar(mesh, ax=axis, label="% of the true class", pad=0.01)

    height = 1.8 + 0.36 * max(len(order), 3) if few else 7.6
    name = f"confusion-{zlib.crc32(group.label.encode()):08x}"
    return drawing.svg_of(name, f"Confusion matrix of {group.label}", height, draw, run.path.name)


def _write(axis: Any, counts: npt.NDArray[np.int64], shares: Any, seeds: int) -> None:
    for i, row in enumerate(counts):
        for j, count in enumerate(row.tolist()):
            if count:
                mean = count / seeds
                text = f"{mean:,.0f}" if mean == int(mean) else f"{mean:,.1f}"
                colour = "white" if shares[i, j] > 60 else DARK
                axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=colour, fontsize=8)


def value_map(
    axis: Any,
    means: npt.NDArray[np.float64],
    framed: tuple[int, int],
    ticks: tuple[Sequence[str], Sequence[str]],
    size: float,
) -> Any:
    """Draw scores over the values of two settings, [up, across], with a frame around one cell.

    Args:
        axis: Where to.
        means: NaN where there is no score.
        framed: Row and column of the frame.
        ticks: What stands at the columns and at the rows.
        size: Of the numbers in the cells; 0: none.

    Returns:
        What a colour bar explains.
    """
    mesh = axis.pcolormesh(np.ma.masked_invalid(means), cmap="cividis", edgecolors="white", linewidth=0.6)
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, column), value in np.ndenumerate(means) if size else ():
        text, colour = ("–", GREY) if np.isnan(value) else (f"{value:.1f}", _readable(bool(value > middle)))
        axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=size)
    row, column = framed
    around = column + np.array([0, 1, 1, 0, 0]), row + np.array([0, 0, 1, 1, 0])
    axis.plot(*around, color="#D55E00", linewidth=1.8, clip_on=False)
    axis.set_xticks(np.arange(len(ticks[0])) + 0.5, ticks[0])
    axis.set_yticks(np.arange(len(ticks[1])) + 0.5, ticks[1])
    axis.tick_params(length=0)
    return mesh


def _readable(on_light: bool) -> str:
    return "black" if on_light else "white"
