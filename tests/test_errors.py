from __future__ import annotations

import pytest

from fedepd.errors import ClientFailed, UnknownName
from hostile_names import PAYLOADS, cases, unfit


def test_an_unknown_name_is_answered_with_the_nearest_choice() -> None:
    said = str(UnknownName("method", "fedepp", ["fedavg", "fedepd"]))
    assert said == "unknown method 'fedepp'; did you mean 'fedepd'? (choices: fedavg, fedepd)"
    assert "did you mean" not in str(UnknownName("method", "xyz", ["fedavg"]))


def test_a_clients_failure_names_the_place() -> None:
    assert (
        str(ClientFailed(3, 7, "client_step", ValueError("a stone")))
        == "client 3 failed in round 7 (client_step): ValueError: a stone"
    )


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_an_unknown_name_is_shown_short_and_harmless(text: str) -> None:
    said = str(UnknownName("setting", text, ["rounds", text]))
    assert unfit(said) == []
    assert len(said) < 350


@pytest.mark.hostile
def test_half_a_million_choices_are_not_all_told() -> None:
    said = str(UnknownName("column", "x" * 10**6, [f"column {number}" for number in range(500_000)]))
    assert len(said) < 2000
    assert said.endswith("and 499,900 more)")
