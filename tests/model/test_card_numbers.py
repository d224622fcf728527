"""The parts of a card that a decision needs, also where every name was made to do harm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.longtail import Tiers
from fedepd.model.card_numbers import MOST, by_class, by_group, operating_point
from fedepd.model.model import Model
from fedepd.report.runs import Run
from fedepd.types import TaskInfo
from hostile_names import ALL, cases, unfit


def model(names: tuple[str, ...]) -> Model:
    tiers = Tiers((0,), tuple(range(1, len(names) - 1)), (len(names) - 1,))
    return Model(None, TaskInfo(3, len(names), 2, "nodes"), {}, names, tiers, {})  # type: ignore[arg-type]


def run(classes: int, ranked: bool = True) -> Run:
    own: dict[str, Any] = {"nodes": 10, "predicted": 8, "precision": [0.5, 0.2, 0.8], "recall": None}
    own |= {"f1": [0.5, 0.2, 0.8], **({"average_precision": [0.25, 0.1, 0.5]} if ranked else {})}
    return Run(Path("run"), {"by_class": [{"class": c, **own} for c in range(classes)]}, {})


def point(name: str, **aim: Any) -> dict[str, Any]:
    rule = {"classes": [1], "threshold": 0.25, "nodes": 10, "found": [8, 5.0, 10.0]}
    rule |= {"false_alarms": [12, 6.0, 20.0], "recall": [0.8, 0.5, 1.0], "precision": [None, None, None]}
    scores = {"bacc": 0.7, "macro_f1": float("nan")}
    return {
        "usual": 0, "aim": aim or {"recall": {name: 0.8}}, "validation_nodes": 100, "test_nodes": 110,
        "resamples": 1000, "measured": [rule], "likeliest": scores, "decided": scores,
    }  # fmt: skip


def test_every_class_has_a_row_and_many_are_shortened() -> None:
    table, how = by_class(run(2), model(("clean", "mule")))
    assert "| mule | 10 | 8 | 50.0 (20 to 80) | – | 50.0 (20 to 80) | 25.0 (10 to 50) |" in table
    assert "left out" not in how
    table, how = by_class(run(100), model(tuple(f"c{i}" for i in range(100))))
    assert table.count("\n") == MOST + 1
    assert "60 classes between them are left out" in how
    assert "average" not in by_class(run(2, ranked=False), model(("clean", "mule")))[0]
    assert by_class(Run(Path("run"), {}, {}), model(("clean", "mule"))) == []


def grouped(names: tuple[str, ...], owner: str = "north", **config: Any) -> Run:
    """Two clients. Of 10 nodes of each class one is called the next class, the rest what they are."""
    made, classes = run(len(names)), len(names)
    for one in made.summary["by_class"]:
        one["at_alerts"] = [[10, 2.0], [20, 3.5]]
    own = {"precision": [0.5, 0.2, 0.8], "recall": [0.9, 0.6, 1.0], "f1": None, "average_precision": None}
    nobody = dict.fromkeys(own)
    client: dict[str, Any] = {
        "nodes": 5,
        "precision": 0.25,
        "recall": 0.5,
        "f1": None,
        "cases": 2,
        "at_alerts": [],
    }
    made.summary["by_tier"] = {"head": own, "medium": nobody, "tail": own}
    made.summary["by_client"] = [{"client": k, **client} for k in range(2)]
    made.summary["headline"] = "global"
    made.config.update({"dataset": {"owner_names": [owner, "south"]}, **config})
    each = 9 * np.eye(classes, dtype=np.int64) + np.roll(np.eye(classes, dtype=np.int64), 1, axis=1)
    made.__dict__["confusions"] = {"global_test": np.stack([each, 0 * each])}
    return made


def test_tiers_clients_and_mistakes_are_on_the_card() -> None:
    """A tier without test nodes has no row. Beyond ten classes, mistakes are listed: all are equally many."""
    names = ("clean", "mule", "takeover")
    made = "\n".join(by_group(grouped(names), model(names)))
    assert "| class | 10 nodes | 20 nodes |" in made
    assert "| takeover | 2 of 10 | 3.5 of 10 |" in made
    assert "| clean | 2 of 10 |" not in made  # nobody is alerted to the largest class
    assert "| head | 50.0 (20 to 80) | 90.0 (60 to 100) | – | – |" in made
    assert "| medium |" not in made
    assert "| north | 5 | 25.0 | 50.0 | – |" in made
    assert "| is | clean | mule | takeover |" in made
    assert "| takeover | 1 | 0 | 9 |" in made
    many = tuple(f"c{i}" for i in range(11))
    made = "\n".join(by_group(grouped(many), model(many)))
    assert "The 10 most frequent mistakes." in made
    assert "| c0 | c1 | 1 of 10 |" in made
    assert by_group(Run(Path("run"), {}, {}), model(names)) == []


def test_the_card_of_a_federation_names_no_sites_own_numbers() -> None:
    names = ("clean", "mule")
    made = "\n".join(by_group(grouped(names, sites=["north", "south"]), model(names)))
    assert "north" not in made
    assert "| mule | 1 | 9 |" in made


def test_the_point_says_what_was_aimed_at_and_what_came_of_it() -> None:
    made = "\n".join(operating_point(point("mule"), model(("clean", "mule"))))
    assert "The model shall find 80 % of mule." in made
    assert "| mule | 0.25 | 8 (5 to 10) of 10 | 12 (6 to 20) | 80.0 (50 to 100) | – |" in made
    budget = point("", alerts={"mule": 50}, per=4000)
    assert "raise 50 alerts to mule in 4,000 nodes" in operating_point(budget, model(("clean", "mule")))[0]
    costs = point("", cost="costs.csv") | {"costs": [], "costs_per_node": {
        "likeliest": [3.0, 2.0, 4.0], "decided": [1.5, 1.0, 2.0], "usual": [9.0, 8.0, 10.0]}}  # fmt: skip
    made = "\n".join(operating_point(costs, model(("clean", "mule"))))
    assert "1.5 (1 to 2) by this point, 3 (2 to 4) by the likeliest class, 9 (8 to 10) if every node" in made
    assert operating_point(None, model(("clean", "mule"))) == []


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(ALL))
def test_names_are_text(text: str) -> None:
    names = model((text, text))
    groups = by_group(grouped((text, text), text), names)
    made = "\n".join([*by_class(run(2), names), *groups, *operating_point(point(text), names)[:-1]])
    assert unfit(made.replace("\n", "")) == []
    for line in made.splitlines():
        bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", line)
        assert not re.search(r"[<>\[\]`$~&]|://|www\.", bare)
        if line.startswith("|"):
            assert bare.count("|") in (8, 7, 6, 4)
