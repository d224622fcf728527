"""A client as a running thing: it sees no hidden label, keeps its state, and says where it broke."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.errors import BadData, ClientFailed
from fedepd.methods import METHODS, Method, Server
from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.adapt import CANDIDATES
from fedepd.rounds.participant import Participant
from fedepd.types import ClientData, TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_client

MODEL, INFO = Backbone(hidden=8), TaskInfo(FEATURES, CLASSES, 1)


def participant(method: Method[Any], data: ClientData) -> Participant:
    return Participant(method, data, INFO, MODEL, Training(), 0, 3)


def test_labels_outside_the_training_mask_reach_no_method() -> None:
    seen: list[ClientData] = []

    class Watching(Participant):
        def prepare(self) -> None:
            seen.append(self._hidden)
            super().prepare()

    data = toy_client()
    Watching(FedAvg(), data, INFO, MODEL, Training(), 0, 3).prepare()
    assert set(seen[0].graph.y[~data.train_mask].tolist()) == {-1}
    assert torch.equal(seen[0].graph.y[data.train_mask], data.graph.y[data.train_mask])


def test_the_state_comes_back_in_the_next_round() -> None:
    client = participant(FedAvg(), toy_client())
    message = MODEL.initial(INFO, 0)
    first = client.step(1, message)
    assert first.round == 1
    assert {name for name in client.state if name in message} == message.keys()  # its personal model
    assert any(name.startswith("fit.moments.") for name in client.state)


def test_a_method_without_a_global_model_is_scored_by_its_own() -> None:
    message = MODEL.initial(INFO, 0)
    client = participant(FedAvg(), toy_client())
    assert client.evaluate(1, message).keys() == {
        "global_val",
        "global_test",
        "personal_val",
        "personal_test",
    }
    alone = participant(METHODS["isolated"](), toy_client())
    alone.step(1, {})
    found = alone.evaluate(1, {})
    assert found.keys() == {"personal_val", "personal_test"}
    data = toy_client()
    assert int(found["personal_test"].sum()) == int(data.test_mask.sum())


def test_a_client_that_has_not_trained_is_predicted_once() -> None:
    """Its own model is the model of all. After a step it has one of its own."""
    client, message = participant(FedAvg(), toy_client()), MODEL.initial(INFO, 0)
    before = client.predictions(1, message)
    assert list(before) == ["personal", "global"]
    assert before["personal"] is before["global"]
    client.step(1, message)
    after = client.predictions(1, message)
    assert torch.equal(after["global"], before["global"])
    assert not torch.equal(after["personal"], after["global"])


@pytest.mark.parametrize("cause", [ValueError("no"), BadData("too small; give more")])
def test_a_failure_says_who_when_and_where(cause: Exception) -> None:
    """An error that is a sentence already stays as it is."""

    class Broken(Participant):
        def _client(self, round: int) -> Any:
            raise cause

    client = Broken(FedAvg(), toy_client(client_id=4), INFO, MODEL, Training(), 0, 3)
    with pytest.raises(type(cause) if isinstance(cause, BadData) else ClientFailed) as raised:
        client.step(2, MODEL.initial(INFO, 0))
    expected = (
        "too small; give more"
        if isinstance(cause, BadData)
        else "client 4 failed in round 2 (client_step): ValueError: no"
    )
    assert str(raised.value) == expected


def first_message(method: Method[Any]) -> Tensors:
    server = Server(INFO, MODEL, Training(), 0, 0, 3)
    return method.message(method.server_init(server, MODEL.initial(INFO, 0)), 0)


def test_a_client_trains_on_corrupted_data_and_is_asked_about_clean_ones() -> None:
    """Without the edges a node's own features decide, so the two graphs give two predictions."""
    data = toy_client()
    bare = replace(data, graph=replace(data.graph, edge_index=data.graph.edge_index[:, :0]))
    method = FedAvg()
    corrupted = Participant(method, data, INFO, MODEL, Training(), 0, 3, trained=bare)
    without, clean = participant(method, bare), participant(method, data)
    message = first_message(method)
    trained, alone = corrupted.step(1, message), without.step(1, message)
    assert all(torch.equal(value, alone.tensors[name]) for name, value in trained.tensors.items())
    assert any(not torch.equal(v, trained.tensors[n]) for n, v in clean.step(1, message).tensors.items())
    said = {p: p.predictions(1, trained.tensors)["global"] for p in (corrupted, without, clean)}
    assert torch.equal(said[corrupted], said[clean])
    assert not torch.equal(said[corrupted], said[without])
    assert torch.equal(corrupted.taken_home(trained.tensors)[0], said[clean])
    assert corrupted.facts(message)["edges"] == 0
    assert clean.facts(message)["edges"] == data.graph.num_edges


def test_an_adapted_model_trains_on_corrupted_data_too() -> None:
    data = toy_client()
    bare = replace(data, graph=replace(data.graph, edge_index=data.graph.edge_index[:, :0]))
    method = FedAvg()
    corrupted = Participant(method, data, INFO, MODEL, Training(), 0, 3, trained=bare)
    without, clean = participant(method, bare), participant(method, data)
    message = first_message(method)
    mine, bare_one, clean_one = (p.adapter(message) for p in (corrupted, without, clean))
    last = max(mine.models)
    assert torch.equal(mine.models[last]["encoder.weight"], bare_one.models[last]["encoder.weight"])
    assert not torch.equal(mine.models[last]["encoder.weight"], clean_one.models[last]["encoder.weight"])
    kept = mine.kept(len(CANDIDATES) - 1)
    assert torch.equal(corrupted.adapted_predictions(message, kept), clean.adapted_predictions(message, kept))
