"""What the watched exchange keeps is what crossed, and the run under it is the run that it would be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.privacy.view import strongest, under, watch
from fedepd.rounds.guard import OPEN, Privacy
from fedepd.rounds.pooled import EVERYONE
from fedepd.runs.drive import now
from fedepd.runs.run import complete
from fedepd.runs.simulation import Simulation
from toy import assert_same

Four = Callable[..., Simulation]
BOTH = Privacy(guard=True, secure=True)


def test_the_truth_is_counted_from_the_training_nodes(four: Four, held: list[list[int]]) -> None:
    view = watch(four(), Privacy(), 1)
    assert [view.held(k).tolist() for k in range(4)] == held
    assert view.held(EVERYONE).tolist() == torch.tensor(held).sum(0).tolist()
    assert view.tiers == {"all": {0, 1, 2}, "head": {0, 1}, "medium": set(), "tail": {2}}


def test_replies_are_kept_by_client(four: Four, held: list[list[int]]) -> None:
    view = watch(four(), Privacy(), 2)
    assert [seen.number for seen in view.rounds] == [1, 2]
    for seen in view.rounds:
        assert list(seen.replies) == list(seen.messages) == [0, 1, 2, 3]
        counts = [seen.replies[k].tensors["prototype.count"].tolist() for k in range(4)]
        assert counts == held
    assert view.declared[0].train.tolist() == held[0]
    assert view.rounds[-1].matrices.keys() == {0, 1, 2, 3}


def test_under_sums_nothing_of_one_client_is_seen(four: Four, held: list[list[int]]) -> None:
    view = watch(four(), BOTH, 2)
    for seen in view.rounds:
        assert list(seen.replies) == list(seen.messages) == [EVERYONE]
        assert OPEN not in seen.messages[EVERYONE]
        total = torch.tensor(held).sum(0).tolist()
        assert seen.replies[EVERYONE].tensors["prototype.count"].tolist() == total
    assert list(view.declared) == list(view.rounds[-1].matrices) == [EVERYONE]


@pytest.mark.parametrize("privacy", [Privacy(), Privacy(guard=True), BOTH])
def test_watching_changes_no_bit(four: Four, privacy: Privacy) -> None:
    """The model that is sent in round 3 is made of the replies of rounds 1 and 2, watched or not."""
    simulation = four(select="last", guard=privacy.guard, secure=privacy.secure, rounds=2)
    plain = complete(simulation, None, None, 0, now())
    longer = watch(four(rounds=3), privacy, 3).rounds[-1].messages
    for message in longer.values():
        assert_same({name: plain.tensors[name] for name in message}, message)


def test_the_run_itself_is_left_alone(four: Four) -> None:
    simulation = four()
    watch(simulation, BOTH, 1)
    assert not simulation.experiment.privacy.secure
    assert all(not participant.state for participant in simulation.participants)


def test_no_more_rounds_than_the_run_has(four: Four) -> None:
    counted = []
    assert len(watch(four(), Privacy(), 20, lambda: counted.append(1)).rounds) == len(counted) == 3


def test_what_cannot_be_summed_is_guarded_alone(four: Four) -> None:
    assert strongest(four()) == (BOTH, "")
    guard, reason = strongest(four("fedgta"))
    assert guard == Privacy(guard=True)
    assert "one by one" in reason or "single" in reason or "compare" in reason
    with pytest.raises(BadConfig, match="secure"):
        under(four("fedgta"), BOTH, 1)
