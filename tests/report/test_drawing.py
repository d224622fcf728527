"""How figures look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
