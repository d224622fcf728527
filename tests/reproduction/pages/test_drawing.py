"""The frame of every figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedepd.errors import BadData
from fedepd.reproduction.pages.drawing import (
    LOOK,
    finished,
    legend_below,
    new_figure,
    panel_grid,
    protocol_line,
    save_figure,
    styled,
)
from fedepd.reproduction.study.results import Results

MakeResults = Callable[..., Results]


def test_a_grid_has_as_many_axes_as_asked_for() -> None:
    """Five in rows of three: two rows, and the sixth place is empty."""
    figure, axes = panel_grid(5, 3, 1.0, "Title", "Note.")
    assert len(axes) == len(figure.axes) == 5


def test_a_longer_note_makes_the_figure_higher_not_the_panels_smaller() -> None:
    low, high = (new_figure(3.4, 2.0, "Title", "word " * count).get_figheight() for count in (5, 100))
    assert high > low >= 2.17


def test_a_label_of_several_axes_stands_once_in_the_legend() -> None:
    figure, axes = panel_grid(2, 2, 1.0, "Title", "Note.")
    for axis in axes:
        axis.plot([0, 1], label="FedAvg")
    legend_below(figure, axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FedAvg"]


def test_a_figure_has_our_look_whatever_matplotlib_is_set_to() -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    seen = []

    @styled
    def draw() -> Figure:
        seen.append(mpl.rcParams["font.size"])
        return Figure()

    with mpl.rc_context({"font.size": 30}):
        draw()
        assert mpl.rcParams["font.size"] == 30
    assert seen == [LOOK["font.size"]]


def test_files_are_named_by_their_stem_and_say_no_date(tmp_path: Path) -> None:
    png, svg = save_figure(new_figure(2.0, 1.0, "Title", ""), tmp_path / "fig.a")
    assert (png.name, svg.name) == ("fig.a.png", "fig.a.svg")
    assert "<dc:date>" not in svg.read_text(encoding="utf-8")


def test_what_is_not_finished_is_left_out(make_results: MakeResults) -> None:
    results = make_results({("fedavg", "a"): [50], ("fedepd", "a"): [None]})
    groups = [entry.group for entry in results.entries]
    assert [group.label for group in finished({"A": groups, "B": groups[1:]})["A"]] == ["FEDAVG"]
    with pytest.raises(BadData, match="nothing to draw"):
        finished({"B": groups[1:]})


def test_the_protocol_names_rounds_and_seeds(make_results: MakeResults) -> None:
    """The made-up runs have 5 rounds and, here, 3 clients; one row has two seeds, the other three."""
    results = make_results({("fedavg", "a"): [50, 51], ("fedepd", "a"): [60, 61, 62]})
    for run in results.runs:
        vars(run)["clients"] = [{}, {}, {}]  # else read from the run's folder
    line = protocol_line(entry.group for entry in results.entries)
    assert "3 clients, 5 rounds, 2 to 3 seeds" in line
    assert "round of best validation macro-F1" in line
    assert "personal" not in line
