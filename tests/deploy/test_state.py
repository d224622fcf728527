"""A site's state on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedepd.deploy.state import SiteState
from fedepd.errors import BadData


def test_a_round_that_is_asked_again_begins_with_the_state_it_began_with(tmp_path: Path) -> None:
    state = SiteState(tmp_path / "s", "id")
    assert state.before(1) == {}
    for round in (1, 2, 4):
        state.save(round, {"a": torch.tensor([float(round)])})
    for place in (state, SiteState(tmp_path / "s", "id")):
        assert place.before(4)["a"].tolist() == [2.0]
        assert place.before(5)["a"].tolist() == [4.0]
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["checkpoint-000002", "checkpoint-000004"]


def test_a_repeated_round_drops_what_came_after_it(tmp_path: Path) -> None:
    state = SiteState(tmp_path / "s", "id")
    for round, value in ((1, 1.0), (2, 2.0), (3, 3.0), (2, 9.0)):
        state.save(round, {"a": torch.tensor([value])})
    assert state.before(9)["a"].tolist() == [9.0]


def test_the_order_of_tensors_is_kept(tmp_path: Path) -> None:
    """Sums over a client's tensors round differently in another order.

    A restarted site would then leave the simulation's bits.
    """
    names = ["w", "b", "moment.w", "a"]
    SiteState(tmp_path / "s", "id").save(1, {name: torch.ones(2) for name in names})
    assert list(SiteState(tmp_path / "s", "id").before(2)) == names


def test_a_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    SiteState(tmp_path / "s", "id").save(1, {"a": torch.ones(2)})
    (tmp_path / "s" / "checkpoint-000001").write_bytes(b"no")
    with pytest.raises(BadData, match="saved state"):
        SiteState(tmp_path / "s", "id")


def test_the_state_of_another_run_is_refused(tmp_path: Path) -> None:
    SiteState(tmp_path / "s", "id").save(1, {"a": torch.ones(2)})
    with pytest.raises(BadData, match="another run"):
        SiteState(tmp_path / "s", "other")
