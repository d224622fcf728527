"""How figures look."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedepd.report import drawing
from fedepd.report.runs import group, read_runs

WriteRun = Callable[..., Path]
METHODS = {
    "fedavg",
    "fedproto",
    "fedgta",
    "graphsmote",
    "hiertail",
    "lws",
    "fedlc",
    "fedgac",
    "creff",
    "fedspray",
    "graphfedmig",
    "fedepd",
}


def test_every_method_has_its_colour_and_variants_differ(write_run: WriteRun) -> None:
    assert METHODS | {"isolated", "centralised"} == set(drawing.METHOD_COLOURS)
    assert len({*drawing.METHOD_COLOURS.values(), *drawing.OTHER_COLOURS}) == 16
    write_run("a", method="mine", label="Mine")
    look = drawing.styles(
        group(read_runs(write_run("b", method="mine", label="Mine", preset="other").parent))
    )
    assert look["Mine"].colour == look["Mine (other)"].colour in drawing.OTHER_COLOURS
    assert (look["Mine"].line, look["Mine"].hatch) != (look["Mine (other)"].line, look["Mine (other)"].hatch)


def test_labels_are_turned_where_they_have_no_room() -> None:
    assert drawing.turned(["clean", "mule"], 80) == {}
    assert drawing.turned(["a name that is long"] * 10, 80)["rotation"] == 30
    assert drawing.turned(["a name that is long"] * 20, 80) == {"rotation": 90}


def test_a_narrow_drawing_has_its_own_name_and_fewer_legends_in_a_row() -> None:
    """Six labels of 20 characters and 7 for the mark: four fit into 110 characters, and two into 58."""
    seen = []

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for number in range(6):
            axis.plot([0, 1], label=f"{number}{'x' * 19}")
        drawing.legend(figure, axis)
        seen.append((figure.get_figwidth(), figure.legends[0]._ncols))

    wide = drawing.svg_of("a", "title", 3.0, draw, "here")
    narrow = wide.narrow()
    assert seen == [(8.6, 4), (4.6, 2)]
    assert ('data-name="a"' in wide, 'data-name="a-narrow"' in narrow) == (True, True)
    ids = [set(re.findall(r'\bid="([^"]+)"', each)) for each in (wide, narrow)]
    assert not ids[0] & ids[1]
