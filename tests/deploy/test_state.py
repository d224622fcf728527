"""A site's state on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedepd.deploy.state import Final, SiteState, read_final
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


def test_the_final_model_is_read_again_and_other_rounds_models_are_removed(tmp_path: Path) -> None:
    state = SiteState(tmp_path, "id")
    for round in (2, 4):
        state.keep_evaluated(round, {"a": torch.tensor([float(round)]), "encoder.moments.m": torch.ones(1)})
    personal = state.evaluated(2)
    assert personal is not None
    assert [*personal] == ["a"]
    assert state.evaluated(3) is None
    state.save(4, {"a": torch.zeros(1)})
    state.keep_final(Final({"w": torch.ones(2)}, {"a": torch.zeros(1)}, personal, {"task": "t"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-000004", "final"]
    found = read_final(tmp_path, "id")
    assert found.model["w"].tolist() == [1, 1]
    assert found.personal is not None
    assert found.personal["a"].tolist() == [2]
    assert found.about["task"] == "t"


def test_a_site_that_was_away_in_the_selected_round_has_no_personal_model(tmp_path: Path) -> None:
    state = SiteState(tmp_path, "id")
    state.keep_final(Final({"w": torch.ones(2)}, {}, state.evaluated(2), {}))
    assert read_final(tmp_path, "id").personal is None


def test_a_tampered_or_foreign_final_model_is_refused(tmp_path: Path) -> None:
    SiteState(tmp_path, "id").keep_final(Final({"w": torch.ones(2)}, {}, None, {}))
    with pytest.raises(BadData, match="belongs to another run"):
        read_final(tmp_path, "other")
    content = bytearray((tmp_path / "final").read_bytes())
    content[-1] ^= 1
    (tmp_path / "final").write_bytes(bytes(content))
    with pytest.raises(BadData, match="checksum"):
        read_final(tmp_path, "id")
