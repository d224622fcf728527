from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedepd.options import ladder
from fedepd.runs.tuned import TunedFile
from fedepd.tune.output import PAGE, TRIALS, acting, write_found
from fedepd.tune.search import Knob, Search, knobs_of
from fedepd.tune.tuning import Found, Tuning

pytest.importorskip("optuna", reason="needs the extra 'tune'")


def made(per_graph: bool) -> Found:
    tuning = Tuning(
        (("fedepd", "default"),), ("email", "cora"), 2, settings={"lr": 0.01}, per_graph=per_graph
    )
    searches = tuning.searches()
    for search in searches:
        for score in (0.25, 0.75):
            trial = search.ask()
            for _ in search.graphs:
                search.add_score(trial, score)
            search.tell(trial, "complete")
    return Found(tuning, searches, 0, 20, 0.2)


@pytest.mark.parametrize("per_graph", [False, True])
def test_the_best_settings_can_be_read_back(tmp_path: Path, per_graph: bool) -> None:
    found = made(per_graph)
    tuned, page = write_found(found, tmp_path, "fedepd tune fedepd")
    read = TunedFile.read(tuned)
    assert [entry.data for entry in read.entries] == (["email", "cora"] if per_graph else [None])
    assert {entry.score for entry in read.entries} == {0.75}
    assert {entry.trial for entry in read.entries} == {1}
    assert read.vault == 0.2
    best = found.searches[-1].best.settings
    assert read.applied("fedepd", "default", "cora", {"lr": 0.01}) == {"lr": 0.01, **best}
    assert "lr" not in best, "it was given, so that nobody searched it"
    assert page == tmp_path / PAGE
    assert page.read_text().startswith("<!doctype html>")
    trials = json.loads((tmp_path / TRIALS).read_text())
    assert len(trials["searches"]) == len(found.searches)
    assert [t["scores"] for t in trials["searches"][0]["trials"]] == (
        [[0.25], [0.75]] if per_graph else [[0.25] * 2, [0.75] * 2]
    )


def test_a_preset_is_kept(tmp_path: Path) -> None:
    found = made(False)
    search = Search("fedepd", "printed", ("email",), knobs_of("fedepd", "printed"))
    trial = search.ask()
    search.add_score(trial, 0.5)
    search.tell(trial, "complete")
    tuned, _ = write_found(replace(found, searches=[search]), tmp_path, "")
    assert TunedFile.read(tuned).entries[0].preset == "printed"


def test_a_setting_that_changes_nothing_is_left_out() -> None:
    """With the constant gate nobody reads isolated_gate, and a run would refuse it."""
    knobs = [Knob("isolated_gate", ladder(0.1, 0.9), 0, 0, 1), Knob("mu", ladder(0.5, 2.0), 0, 0, 1)]
    search = Search("fedepd", "default", ("email",), knobs)
    trial = search.ask()
    search.add_score(trial, 0.5)
    search.tell(trial, "complete")
    assert acting(search, {}) == {"mu": 0.5}
    assert acting(search, {"gate": "labelled"}) == {"isolated_gate": 0.1, "mu": 0.5}
