from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.datasets import synthetic
from fedepd.errors import BadData
from fedepd.report.runs import Group, group, read_runs
from fedepd.reproduction.judging.statistics import critical_difference
from fedepd.reproduction.pages import figures
from fedepd.reproduction.pages.drawing import COLUMN, PAGE, save_figure
from fedepd.runs.run import run

Panels = dict[str, list[Group]]
ROWS = (("fedepd", "default"), ("fedepd", "printed"), ("fedavg", "default"), ("isolated", "default"))


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> Panels:
    """Two seeds of four rows on a small graph, shown as two datasets."""
    folder, graph = (
        tmp_path_factory.mktemp("runs"),
        synthetic(nodes=300, classes=6, edges=900, features=16, imbalance=10),
    )
    for method, preset in ROWS:
        for seed in range(2):
            run(
                graph,
                method,
                preset=preset,
                out=folder / f"{method}-{preset}-{seed}",
                seed=seed,
                rounds=3,
                clients=3,
                evaluate_every=1,
            )
    groups = group(read_runs(folder))
    return {"First": groups, "Second": groups[:3]}


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("draw", [figures.per_class, figures.tiers, figures.convergence, figures.efficiency])
def test_figures_of_runs_name_datasets_methods_and_protocol(
    panels: Panels, draw: Any, tmp_path: Path
) -> None:
    figure = draw(panels)
    shown = texts(figure)
    for label in ("FedEPD", "FedEPD (printed)", "FedAvg", "Isolated †"):
        assert label in shown
    assert any(text.startswith("First") for text in shown)
    assert any(text.startswith("Second") for text in shown)
    everything = " ".join(shown).replace("\n", " ")
    assert "Protocol: global model, nodes of all clients pooled" in everything
    for words in ("3 clients, 3 rounds, 2 seeds.", "† A method without a global model", "better"):
        assert words in everything
    assert figure.get_figwidth() == PAGE
    png, svg = save_figure(figure, tmp_path / "a.figure")
    assert (png.name, svg.name) == ("a.figure.png", "a.figure.svg")
    assert png.read_bytes()[:4] == b"\x89PNG"


def test_nothing_overlaps(panels: Panels) -> None:
    """The boxes of title, note, legend and of all axes with their labels lie apart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for draw in (figures.per_class, figures.tiers, figures.convergence, figures.efficiency):
        figure = draw(panels)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        title, note = figure.texts[0], vars(figure)["_suptitle"]
        lowest_line = note.get_window_extent(renderer).y0
        boxes = [box for axis in figure.axes if (box := axis.get_tightbbox(renderer)) is not None]
        assert len(boxes) == len(figure.axes)
        assert all(box.y1 <= lowest_line for box in boxes), draw.__name__
        assert all(box.y0 >= figure.legends[0].get_window_extent(renderer).y1 for box in boxes), draw.__name__
        assert title.get_window_extent(renderer).x1 < figure.bbox.x1
        assert note.get_window_extent(renderer).x1 < figure.bbox.x1


def test_the_same_runs_give_the_same_svg(panels: Panels, tmp_path: Path) -> None:
    first, second = (save_figure(figures.tiers(panels), tmp_path / name)[1] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_method_has_one_colour_in_all_figures(panels: Panels) -> None:
    """The first bar of FedEPD in the tiers and its line in the convergence."""
    from matplotlib.colors import to_hex
    from matplotlib.container import BarContainer

    bars, lines = figures.tiers(panels), figures.convergence(panels)
    for axis in bars.axes:
        drawn = [container for container in axis.containers if isinstance(container, BarContainer)]
        colours = {container.get_label(): to_hex(container[0].get_facecolor()) for container in drawn}
        assert colours["FedEPD"] == "#d55e00"
        assert colours["FedAvg"] == "#0072b2"
    assert {to_hex(line.get_color()) for line in lines.axes[0].lines if line.get_label() == "FedEPD"} == {
        "#d55e00"
    }


def test_a_method_that_sends_nothing_has_no_line_over_megabytes(panels: Panels) -> None:
    by_round, by_second, by_megabyte = (
        {line.get_label() for line in axis.lines} for axis in figures.convergence(panels).axes[:3]
    )
    assert by_round == by_second == by_megabyte | {"Isolated †"}


def test_figures_leave_out_what_is_not_finished(panels: Panels) -> None:
    empty = replace(panels["First"][0], label="FedEPD (not run)", runs=())
    shown = texts(figures.tiers({"First": [*panels["First"], empty], "Third": [empty]}))
    assert "FedEPD (not run)" not in shown
    assert "Third" not in shown
    with pytest.raises(BadData, match="nothing to draw"):
        figures.tiers({"Third": [empty]})


def test_the_distribution_states_classes_and_ratios(panels: Panels) -> None:
    chosen = panels["First"][0].first
    shown = texts(figures.distribution({"Toy": chosen}))
    sizes = chosen.partition["class_sizes"]
    assert f"Toy: 6 classes, IR {sizes.max() / sizes.min():.1f}" in shown
    held = chosen.partition["client_class"][0]
    assert f"0: {held.max() / held[held > 0].min():.0f}" in shown
    assert {"head", "medium", "tail"} <= set(shown)


def test_the_heat_map_states_its_noise_floor() -> None:
    """Means 1 and 4, variances 2 and 8 with one degree of freedom each, pooled sqrt(5) = 2.24, of a mean
    of two 1.58."""
    shown = texts(figures.sensitivity({"Toy": {(0.1, 0.5): [0, 2], (1.0, 0.5): [2, 6], (1.0, 0.1): []}}))
    assert "Toy: range 3.00 points\nnoise 2.24 per seed, 1.58 for a mean of 2 seeds" in shown
    assert {"1.0", "4.0", "–"} <= set(shown)
    alone = figures.sensitivity({"Toy": {(0.1, 0.5): [50.0], (1.0, 0.5): [50.0]}})
    assert "Toy: range 0.00 points\nnoise unknown: one seed" in texts(alone)
    assert alone.get_figwidth() == COLUMN
    (axis, *_) = alone.axes
    assert axis.get_xlabel()[0] == "μ"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0.1", "1"]


def test_a_heat_map_of_other_settings_names_them_and_keeps_their_order() -> None:
    figure = figures.sensitivity({"Toy": {(0.1, 2.0): [50.0], (0.9, 2.0): [60.0]}}, settings=("gamma", "rho"))
    (axis, *_) = figure.axes
    assert (axis.get_xlabel()[0], axis.get_ylabel()) == ("γ", "rho")
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0.1", "0.9"]
    assert "over γ and rho" in " ".join(texts(figure))


def test_the_diagram_names_ranks_tests_and_rows_left_out() -> None:
    """Wilcoxon over four datasets is at least 0.125, times three pairs."""
    scores = {
        f"d{d}": {"fedepd": 3.0 + d, "fedavg": 2.0, "own": 1.0} | ({"fedgac": 1.0} if d else {})
        for d in range(4)
    }
    labels, protocol = {"fedepd": "FedEPD", "fedgac": "FedGAC"}, "Protocol: of this test."
    figure = figures.critical_difference_diagram(critical_difference(scores), "bacc", labels, protocol)
    shown = texts(figure)
    assert {"FedEPD  1.00", "fedavg  2.00", "3.00  own"} <= set(shown)
    note = " ".join(shown).replace("\n", " ")
    assert "4 datasets and 3 pairs the smallest possible result is p = 0.375" in note
    assert "Left out because a dataset is missing: FedGAC. Protocol: of this test." in note
    unknown = figures.critical_difference_diagram(critical_difference({"d": {"a": 1.0, "b": 2.0}}), "bacc")
    assert "Friedman's test: p unknown" in " ".join(texts(unknown))


def test_the_front_is_what_no_other_beats() -> None:
    """By time: a (1 s, 50), b (2 s, 40) is beaten by a, c (3 s, 60), d (3 s, 55) is beaten by c."""
    assert figures._front(np.array([1.0, 2.0, 3.0, 3.0]), np.array([50.0, 40.0, 60.0, 55.0])) == [0, 2]
