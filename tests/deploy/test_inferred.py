"""The site attacks its own answer: with one training node of a class, and with what the run's guard hides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.ended import ended
from deploy.test_sums import make_task
from fedepd.deploy.inferred import NAMES, inferred
from fedepd.deploy.taken import Taken, take
from fedepd.privacy.figures import Figure


@pytest.fixture(scope="module")
def taken(five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Each site has one training node of class 2, so all sites together have three, and five are needed."""
    folder = tmp_path_factory.mktemp("ended") / "fed"
    ended(five_kits, folder, data={"one_node_class": True}, min_count=5, hidden=16)
    return take(folder / "a")


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    assert [f.name for f in figures] == [name for name in NAMES if name in {f.name for f in figures}]
    return {figure.name: figure for figure in figures}


def test_without_protection_a_row_of_one_node_would_name_it(taken: Taken) -> None:
    off = by_name(list(inferred(taken).figures["off"]))
    assert off["rows.single"].value == pytest.approx(1 / 3)
    assert off["rows.single"].cases == 3
    assert (off["reidentified.rank1"].value, off["reidentified.rank1"].cases) == (1.0, 1)
    assert off["classes.shown"].value == 1.0
    assert off["recovery.nodes"].cases == 20  # all nodes of the site
    assert off["classes.accuracy"].chance is None  # whoever knows one client's classes has nothing to guess


def test_in_sums_no_row_of_the_site_is_seen(taken: Taken) -> None:
    on = by_name(list(inferred(taken).figures["on"]))
    assert taken.task.experiment().privacy.secure
    assert [on[name].cases for name in ("rows.single", "rows.few", "reidentified.rank1")] == [0, 0, 0]
    assert (on["classes.shown"].value, on["classes.shown"].cases) == (0.0, 3)
    assert on["model.rank1"].cases == 1
    assert "recovery.nodes" not in on  # of a sum, one site cannot measure it


def test_under_the_guard_alone_the_row_of_one_node_is_not_there(taken: Taken) -> None:
    """Classes 0 and 1 have rows of at least five nodes at this site only if it has as many."""
    alone = replace(taken, task=make_task(sites=3, min_count=5, hidden=16, secure=False))
    on = by_name(list(inferred(alone).figures["on"]))
    enough = int((taken.participant("global").own_sizes.train >= 5).sum())
    assert on["rows.single"].value == 0.0
    assert (on["rows.few"].value, on["rows.few"].cases) == (0.0, enough)
    assert on["reidentified.rank1"].cases == 0
    assert on["classes.shown"].cases == 3
    assert on["recovery.nodes"].cases == 20


def test_the_state_of_the_site_is_as_before(taken: Taken) -> None:
    before = {name: value.clone() for name, value in taken.final.state.items()}
    inferred(taken)
    assert before.keys() == taken.final.state.keys()
    assert all(bool((before[name] == taken.final.state[name]).all()) for name in before)
