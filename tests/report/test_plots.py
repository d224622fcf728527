from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fedepd.report import plots
from fedepd.report.runs import Group, group, read_runs

WriteRun = Callable[..., Path]


@pytest.fixture
def groups(write_run: WriteRun) -> list[Group]:
    write_run("avg", method="fedavg", label="FedAvg", prunes=False)
    write_run("printed", preset="printed")
    for seed in range(2):
        folder = write_run(f"epd{seed}", seed=seed)
    return group(read_runs(folder.parent))


def texts(svg: str) -> list[str]:
    return [
        element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def figures(groups: list[Group]) -> dict[str, str]:
    drawn = [
        plots.per_class,
        plots.tier_bars,
        plots.convergence_lines,
        plots.purification,
        plots.communication,
    ]
    return {draw.__name__: draw(groups) for draw in drawn} | {
        "partition": plots.partition_heatmap(groups[0].first)
    }


def test_figures_are_deterministic_valid_and_apart(groups: list[Group]) -> None:
    once, again = figures(groups), figures(groups)
    assert once == again
    ids = [name for svg in once.values() for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))
    for svg in once.values():
        assert ElementTree.fromstring(svg).get("role") == "img"
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= set(re.findall(r'\bid="([^"]+)"', svg))
        assert "<metadata" not in svg


def test_the_class_figure_shows_every_class_where_there_is_room(groups: list[Group]) -> None:
    """12 classes of three groups are 36 marks. Of nine groups they are 108, more than the 100 that fit."""
    shown = texts(plots.per_class(groups))
    assert [text for text in shown if text.isdigit()][:12] == [str(c) for c in range(12)]
    assert "class, largest to smallest" in shown
    assert "classes, largest (1) to smallest" in texts(plots.per_class(3 * groups))


def test_the_class_figure_names_tiers_bins_and_methods(
    groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 classes in ten bins: two of two classes, then eight of one."""
    monkeypatch.setattr(plots, "SINGLE", 10)
    shown = texts(plots.per_class(groups))
    for text in (
        "head",
        "medium",
        "tail",
        "1–2",
        "3–4",
        "5",
        "12",
        "FedAvg",
        "FedEPD",
        "FedEPD (printed)",
        "1000",
    ):
        assert text in shown


def test_purification_shows_only_what_is_pruned(groups: list[Group]) -> None:
    shown = texts(plots.purification(groups))
    assert "FedEPD, FedEPD (printed)" in shown
    assert "FedAvg" not in shown
    assert plots.purification(groups[:1]) == ""


def test_many_message_fields_end_in_others(groups: list[Group]) -> None:
    """Of "model" (only down, the largest) and 12 layers (only up, layer0 the largest), six are shown and
    seven are others."""
    for line in groups[0].first.rounds:
        line["bytes_up"] = {f"layer{i:02}": 1000 - i for i in range(12)}
    shown = texts(plots.communication(groups[:1]))
    assert [text for text in shown if text.startswith(("model", "layer"))] == [
        "model",
        *(f"layer{i:02}" for i in range(5)),
    ]
    assert "7 others" in shown


def test_labels_with_odd_signs_stay_text(write_run: WriteRun) -> None:
    svg = plots.per_class(group(read_runs(write_run("a", label="$\\frac$ 图 <b>"))))
    assert "$\\frac$ 图 <b>" in texts(svg)


def named(folder: Path) -> list[Group]:
    """The run with names for its four classes and three clients."""
    config = json.loads((folder / "config.json").read_text())
    config["dataset"] |= {"label_names": ["clean", "mule", "takeover", "money <launderer> of all"]}
    config["dataset"] |= {"owner_names": ["north", "south", "west $x$"]}
    (folder / "config.json").write_text(json.dumps(config))
    return group(read_runs(folder))


def test_axes_have_names_where_they_are_known(write_run: WriteRun) -> None:
    """Classes from the largest to the smallest; a name has at most 18 characters beside an axis."""
    groups = named(write_run("a", sizes=(60, 90, 30, 12), clients=3))
    classes = ["mule", "clean", "takeover", "money <laundere..."]
    for figure in (plots.per_class(groups), plots.partition_heatmap(groups[0].first)):
        assert [text for text in texts(figure) if text in classes] == classes
        assert "class, largest to smallest" in texts(figure)
    for tier in ("head: mule, clean", "medium: takeover", "tail: money <launderer> of all"):
        assert tier in texts(plots.tier_bars(groups))
    for drawing in (plots.partition_heatmap(groups[0].first), plots.purification(groups)):
        found = [text for text in texts(drawing) if text in ("north", "south", "west $x$")]
        assert found in (["north", "south", "west $x$"], ["north", "south", "west $x$"] * 2)


@pytest.mark.parametrize(("sizes", "clients", "rounds"), [((5, 3), 1, 1), (tuple(range(90, 0, -1)), 30, 2)])
def test_small_and_large_runs_are_drawn(
    write_run: WriteRun, sizes: tuple[int, ...], clients: int, rounds: int
) -> None:
    folder = write_run("a", sizes=sizes, clients=clients, rounds=rounds)
    assert all(svg.startswith("<svg") for svg in figures(group(read_runs(folder))).values())
