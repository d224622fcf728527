"""The one driver of the round loop: where it begins, what it hands to the loop, when it calls whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.rounds.loop import OFFENCES, Round
from fedepd.runs.drive import drive
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json, weights_sha256
from fedepd.runs.selection import Progress
from fedepd.runs.simulation import Simulation, build
from toy import toy_clients


class Interrupted(Exception):
    """By a function that is called after a round."""


def simulation(**settings: Any) -> Simulation:
    clients = toy_clients()
    sizes = [client.graph.num_nodes for client in clients]
    parts = torch.split(torch.arange(sum(sizes)), sizes)
    numbered = [replace(client, global_ids=part) for client, part in zip(clients, parts, strict=True)]
    settings = {"rounds": 3, "evaluate_every": 2, "hidden": 4, **settings}
    return build(Experiment.make("fedavg", **settings), numbered)


def walk(of: Simulation, progress: Progress, *after: Any) -> list[Round]:
    rounds: list[Round] = []

    def add(each: Round) -> Json:
        rounds.append(each)
        return progress.add(each, dict)

    drive(of.course(), progress, add, *after)
    return rounds


def test_a_round_is_added_and_then_everyone_is_called_in_turn() -> None:
    one, called = simulation(), list[tuple[str, int, int]]()
    progress = one.start()
    after = [lambda each, line, who=who: called.append((who, each.number, line["round"])) for who in "ab"]
    rounds = walk(one, progress, *after)
    assert called == [(who, number, number) for number in (1, 2, 3) for who in "ab"]
    assert [each.confusions is not None for each in rounds] == [
        False,
        True,
        True,
    ]  # every second, and the last
    assert progress.next_round == 4
    assert walk(one, progress) == []


def test_a_walk_that_was_interrupted_goes_on_to_the_same_bits() -> None:
    whole, broken = simulation(), simulation()
    wanted, progress = whole.start(), broken.start()
    walk(whole, wanted)

    def interrupt(each: Round, _: Json) -> None:
        if each.number == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        walk(broken, progress, interrupt)
    assert [each.number for each in walk(broken, progress)] == [3]
    assert weights_sha256(progress.tensors) == weights_sha256(wanted.tensors)


def test_answers_that_were_refused_before_still_count() -> None:
    """Client 1 was refused in as many rounds as leave it out, so the next round asks 0 and 2 alone."""
    one = simulation(rounds=OFFENCES + 1)
    progress = one.start()
    refusal = {"client": 1, "field": "encoder.weight", "reason": "is missing", "absent": False}
    progress.lines = [{"round": number, "refused": [refusal]} for number in range(1, OFFENCES + 1)]
    (each,) = walk(one, progress)
    assert (each.number, each.clients, each.excluded) == (OFFENCES + 1, (0, 2), (1,))
