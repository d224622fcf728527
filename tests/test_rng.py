from __future__ import annotations

import pytest
import torch

from fedepd.rng import fast_numpy, key, seeded, seeded_numpy, torch_seeded


def test_a_stream_depends_on_every_part_and_on_nothing_else() -> None:
    assert key(0, "dropout", 1, 2) == key(0, "dropout", 1, 2)
    others = {
        key(1, "dropout", 1, 2),
        key(0, "split", 1, 2),
        key(0, "dropout", 2, 2),
        key(0, "dropout", 1, 3),
        key(0, "dropout", 12),
    }
    assert len(others | {key(0, "dropout", 1, 2)}) == 6


def test_generators_repeat_and_the_global_ones_are_left_alone() -> None:
    state = torch.get_rng_state()
    assert torch.equal(torch.rand(3, generator=seeded(0, "a")), torch.rand(3, generator=seeded(0, "a")))
    for make in (seeded_numpy, fast_numpy):
        assert make(0, "a").random(3).tolist() == make(0, "a").random(3).tolist()
        assert make(0, "a").random(3).tolist() != make(0, "b").random(3).tolist()
    assert torch.equal(torch.get_rng_state(), state)


def test_torchs_own_generator_is_seeded_for_a_while() -> None:
    state, drawn = torch.get_rng_state(), []
    for name in ("a", "a", "b"):
        with torch_seeded(0, name):
            drawn.append(torch.rand(3).tolist())
        assert torch.equal(torch.get_rng_state(), state)
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(RuntimeError), torch_seeded(0, "a"):
        torch.rand(1) @ torch.rand(2)
    assert torch.equal(torch.get_rng_state(), state)
