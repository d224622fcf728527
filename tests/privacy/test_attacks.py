"""The list of attacks is complete: every figure has a title, and every attack says what it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedepd.errors import UnknownName
from fedepd.privacy.attacks import ATTACKS, Target, chosen, titles
from fedepd.privacy.view import watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation


@pytest.mark.heavy
def test_every_figure_has_a_title_and_every_title_a_figure(four: Callable[..., Simulation]) -> None:
    """All six attacks of a short run, with as many steps as they say."""
    simulation = four(rounds=1)
    steps: list[int] = []
    target = Target(
        watch(simulation, Privacy(), 1), simulation.experiment, simulation.clients, 4, steps.append
    )
    for name, attack in ATTACKS.items():
        steps.clear()
        found = attack.run(target)
        assert {figure.name for figure in found} == attack.titles.keys(), name
        assert sum(steps) == attack.units(4), name
        for title in attack.titles:
            assert [f.tier for f in found if f.name == title] == ["all", "head", "medium", "tail"], title


def test_titles_are_told_apart() -> None:
    words = titles()
    assert len(set(words.values())) == len(words)
    assert len({attack.label for attack in ATTACKS.values()}) == len(ATTACKS)


def test_attacks_are_left_out_by_name() -> None:
    assert list(chosen(["rows", "links"])) == ["reidentified", "classes", "recovery", "membership"]
    with pytest.raises(UnknownName, match="did you mean 'membership'"):
        chosen(["member"])
