from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd import memory
from fedepd.errors import BadData, ClientFailed
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.method import FedEPD
from fedepd.methods.isolated import Isolated
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds import in_process as simulate
from fedepd.rounds.evaluate import confusions
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.types import HIDDEN, ClientData, Fields, Reply, Tensors, same_fields
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients


class Stumbling(Method[None]):
    """Fails at client 1 in the stage it is told; and keeps what it was shown."""

    label = "Stumbling"

    def __init__(self, stage: str, error: Exception | None = None) -> None:
        object.__setattr__(self, "stage", stage)
        object.__setattr__(self, "error", error or ValueError("a stone"))
        object.__setattr__(self, "seen", [])

    def stumble(self, stage: str, data: ClientData) -> None:
        self.seen.append(data.graph.y)  # type: ignore[attr-defined]
        if stage == self.stage and data.client_id == 1:  # type: ignore[attr-defined]
            raise self.error  # type: ignore[attr-defined]

    def prepare(self, data: ClientData, model: Backbone) -> None:
        self.stumble("prepare", data)

    def client_step(self, client: Client[None], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        self.stumble("client_step", client.data)
        return Reply(message, client.data.graph.num_nodes, 1, {}, client.round), state

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return tensors

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[None], tensors: Tensors) -> Tensor:
        self.stumble("evaluate", client.data)
        return torch.zeros(client.data.graph.num_nodes, client.info.num_classes)


def exchange_of(
    method: Method[Any], clients: list[ClientData], workers: int = 1
) -> tuple[InProcess, Tensors]:
    model, training = Backbone(hidden=4), Training()
    server = make_server(clients, model, training)
    return InProcess(
        [Participant(method, c, server.info, model, training, 0, 3) for c in clients], workers
    ), initial(method, server)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("stage", "round"), [("prepare", 0), ("client_step", 7), ("evaluate", 7)])
def test_a_failure_names_client_round_and_stage(stage: str, round: int, workers: int) -> None:
    exchange, tensors = exchange_of(Stumbling(stage), toy_clients(), workers)
    messages = dict.fromkeys((0, 1, 2), tensors)
    with pytest.raises(
        ClientFailed, match=rf"client 1 failed in round {round} \({stage}\): ValueError: a stone"
    ) as caught:
        (exchange.evaluate if stage == "evaluate" else exchange.step)(7, messages)
    exchange.close()
    assert (caught.value.client, caught.value.round, caught.value.stage) == (1, round, stage)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_made_for_people_arrives_as_it_is() -> None:
    exchange, tensors = exchange_of(Stumbling("client_step", BadData("x is bad; mend it")), toy_clients())
    with pytest.raises(BadData, match=r"^x is bad; mend it$"):
        exchange.step(1, dict.fromkeys((0, 1, 2), tensors))


def test_the_method_never_sees_a_label_outside_the_training_mask() -> None:
    method = Stumbling("never")
    clients = toy_clients()
    exchange, tensors = exchange_of(method, clients)
    exchange.step(1, dict.fromkeys((0, 1, 2), tensors))
    exchange.evaluate(1, dict.fromkeys((0, 1, 2), tensors))
    masks = {c.graph.num_nodes: c.train_mask for c in clients}
    assert len(method.seen) >= 12  # type: ignore[attr-defined]
    for y in method.seen:  # type: ignore[attr-defined]
        assert bool((y[~masks[len(y)]] == HIDDEN).all())
        assert bool((y[masks[len(y)]] >= 0).all())


@pytest.mark.parametrize("method", [FedAvg(), FedEPD()])
def test_threads_give_the_same_bits(method: Method[Any]) -> None:
    clients = toy_clients(4)
    (a, a_at), (b, b_at) = (run_rounds(method, clients, workers=w) for w in (1, 3))
    assert_same(a[-1].tensors, b[-1].tensors)
    for k in range(4):
        assert_same(a_at.participants[k].state, b_at.participants[k].state)


def test_workers_are_threads_with_one_blas_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watching(FedAvg):  # type: ignore[misc]
        def client_step(self, client: Client[Any], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
            threads.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
            return super().client_step(client, message, state)

    threads: list[tuple[bool, int]] = []
    run_rounds(Watching(), toy_clients(), rounds=1, workers=2)
    assert threads == [(False, 1)] * 3
    threads.clear()
    run_rounds(Watching(), toy_clients(), rounds=1, workers=1)
    assert [main for main, _ in threads] == [True] * 3
    threads.clear()
    monkeypatch.setattr(simulate, "THREADED_FROM", toy_client().graph.num_nodes + 1)
    run_rounds(Watching(), toy_clients(), rounds=1, workers=2)
    assert [main for main, _ in threads] == [True] * 3, "clients too small for threads to pay"


def test_only_the_clients_that_are_asked_work() -> None:
    exchange, tensors = exchange_of(FedAvg(), toy_clients())
    replies = exchange.step(1, {2: tensors, 0: tensors})
    assert sorted(replies) == [0, 2]
    assert {k for k, p in exchange.participants.items() if p.state} == {0, 2}


def test_the_personal_model_is_the_message_overlaid_with_the_state() -> None:
    """Before its first step a client's personal model is the global one; afterwards it is its own."""
    exchange, tensors = exchange_of(FedAvg(), toy_clients(1))
    participant = exchange.participants[0]
    before = participant.evaluate(0, tensors)
    assert sorted(before) == ["global_test", "global_val", "personal_test", "personal_val"]
    assert torch.equal(before["global_test"], before["personal_test"])
    participant.step(1, tensors)
    after = participant.evaluate(1, tensors)
    client = make_client(FedAvg(), toy_clients(1)[0], Backbone(hidden=4))
    own = confusions(client.model.predict(participant.state, client.prepared), toy_clients(1)[0])
    assert torch.equal(after["global_test"], before["global_test"])
    assert torch.equal(after["personal_test"], own["test"])
    assert not torch.equal(after["personal_test"], after["global_test"])


def test_a_method_without_a_global_model_is_evaluated_personally_only() -> None:
    exchange, tensors = exchange_of(Isolated(), toy_clients(1))
    assert sorted(exchange.participants[0].evaluate(0, tensors)) == ["personal_test", "personal_val"]


def test_facts_are_of_the_graph_the_method_trains_on() -> None:
    data = toy_client(nodes=30)
    exchange, tensors = exchange_of(FedEPD(prune="always"), [data])
    exchange.prepare()
    facts = exchange.participants[0].facts(tensors)
    assert facts["edges"] == data.graph.num_edges > facts["edges_kept"] > 0  # type: ignore[operator]
    assert facts["train"] == int(data.train_mask.sum())


def test_memory_goes_back_after_every_fourth_act_of_large_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients prepare, are evaluated and prepare again: nine acts, so two times."""
    given: list[int] = []
    monkeypatch.setattr(memory, "give_back", lambda: given.append(1))
    for large, times in ((1, 2), (10**6, 0)):
        monkeypatch.setattr(simulate, "LARGE", large)
        exchange, tensors = exchange_of(FedAvg(), toy_clients())
        exchange.prepare()
        exchange.evaluate(0, dict.fromkeys(range(3), tensors))
        exchange.prepare()
        assert len(given) == times
        given.clear()
