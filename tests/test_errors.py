from __future__ import annotations

from fedepd.errors import ClientFailed, UnknownName


def test_an_unknown_name_is_answered_with_the_nearest_choice() -> None:
    said = str(UnknownName("method", "fedepp", ["fedavg", "fedepd"]))
    assert said == "unknown method 'fedepp'; did you mean 'fedepd'? (choices: fedavg, fedepd)"
    assert "did you mean" not in str(UnknownName("method", "xyz", ["fedavg"]))


def test_a_clients_failure_names_the_place() -> None:
    assert str(ClientFailed(3, 7, "client_step", ValueError("a stone"))) == "client 3 failed in round 7 (client_step): ValueError: a stone"
