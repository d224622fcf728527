"""One client stands for all: what the loop sees of it is the sum over the clients that answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.admission import Refusal
from fedepd.rounds.guard import Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round, train
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import EVERYONE, Pooled, Summed
from fedepd.rounds.sums import summed
from fedepd.types import ClientData, TaskInfo, Tensors
from toy import initial, make_server, toy_clients

MODEL, TRAINING = Backbone(hidden=8), Training(epochs=1)


def participants(clients: Sequence[ClientData]) -> list[Participant]:
    info = TaskInfo(clients[0].graph.num_features, clients[0].graph.num_classes, len(clients))
    how = Privacy(secure=True)
    return [Participant(FedAvg(), c, info, MODEL, TRAINING, 0, 3, how) for c in clients]


class Dropping(InProcess):
    """Client 1 never answers a step."""

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        here = {k: self.participants[k].step_vector(round, m) for k, m in messages.items() if k != 1}
        return summed(list(here.values())), tuple(sorted(here))

    def take_refusals(self) -> list[Refusal]:
        return [Refusal(1, "reply", "is missing", absent=True)]


class Silent(Dropping):
    """Nobody answers."""

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return torch.zeros(0, dtype=torch.int64).numpy(), ()


def rounds(exchange: InProcess, clients: Sequence[ClientData]) -> list[Round]:
    server = make_server(clients, MODEL, TRAINING, rounds=3)
    ids = [c.client_id for c in clients]
    pooled = Pooled(exchange, FedAvg(), server, [ids] * 4)
    return list(train(FedAvg(), server, initial(FedAvg(), server), [EVERYONE], pooled, 1))


def test_the_sum_of_all_is_what_the_loop_sees() -> None:
    clients = toy_clients(3)
    done = rounds(InProcess(participants(clients)), clients)
    assert [each.clients for each in done] == [(0, 1, 2)] * 3
    confusions = done[-1].confusions
    assert confusions is not None
    assert confusions.keys() == {EVERYONE}
    tested = sum(int(c.test_mask.sum()) for c in clients)
    assert int(confusions[EVERYONE]["global_test"].sum()) == tested


def test_a_client_that_drops_out_is_missing_from_the_sum_and_nobody_is_blamed() -> None:
    clients = toy_clients(3)
    done = rounds(Dropping(participants(clients)), clients)
    assert [each.clients for each in done] == [(0, 2)] * 3
    assert done[-1].excluded == ()
    assert done[0].refused[0].client == 1


def test_the_others_end_as_if_it_had_never_been_there() -> None:
    """Sums are exact: without client 1 the model is bit for bit that of the other two."""
    clients = toy_clients(3)
    dropped = rounds(Dropping(participants(clients)), clients)[-1].tensors
    two = [clients[0], clients[2]]
    server = make_server(clients, MODEL, TRAINING, rounds=3)
    both = [p for p in participants(clients) if p.client_id != 1]
    pooled = Pooled(InProcess(both), FedAvg(), server, [[c.client_id for c in two]] * 4)
    alone = list(train(FedAvg(), server, initial(FedAvg(), server), [EVERYONE], pooled, 1))[-1].tensors
    assert all(torch.equal(dropped[name], alone[name]) for name in dropped)


def test_a_round_without_answers_is_an_empty_round() -> None:
    clients = toy_clients(3)
    done = rounds(Silent(participants(clients)), clients)
    assert [each.clients for each in done] == [()] * 3


def test_declarations_are_summed_once() -> None:
    clients = toy_clients(3)
    server = make_server(clients, MODEL, TRAINING)
    pooled = Pooled(InProcess(participants(clients)), FedAvg(), server, [[0, 1, 2]] * 4)
    sizes = pooled.declared([EVERYONE])[EVERYONE]
    assert sizes.num_nodes == sum(c.graph.num_nodes for c in clients)
    assert sizes.clients == 3
    assert sizes.holders.tolist() == [3, 3, 3]
    assert pooled.declared([EVERYONE])[EVERYONE] is sizes


@pytest.mark.hostile
def test_a_client_takes_back_a_reply_that_the_server_could_not_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedepd.errors import BadMessage

    clients = toy_clients(3)
    first = participants(clients)[0]
    server = make_server(clients, MODEL, TRAINING)
    message = initial(FedAvg(), server)
    message["encoder.bias"] = torch.full_like(message["encoder.bias"], float("nan"))
    with pytest.raises(BadMessage, match=r"client 0 takes back its reply: .* NaN"):
        first.step_vector(1, message)


def test_class_rows_are_used_only_if_no_client_dropped_out() -> None:
    """FedEPD without client 1: the averaged model is that of the others, prototypes stay as they were."""
    from fedepd.methods.fedepd.method import FedEPD

    clients, method, how = toy_clients(3), FedEPD(), Privacy(secure=True)
    server = make_server(clients, MODEL, TRAINING, rounds=2)
    here = [Participant(method, c, server.info, MODEL, TRAINING, 0, 2, how) for c in clients]

    class Once(Dropping):
        """Client 1 is there in the first round."""

        def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
            if round == 1:
                return InProcess.sum_steps(self, round, messages)
            return super().sum_steps(round, messages)

    pooled = Pooled(Once(here), method, server, [[0, 1, 2]] * 3)
    first, second = train(method, server, initial(method, server), [EVERYONE], pooled, 1)
    assert second.clients == (0, 2)
    assert bool(first.tensors["prototype.count"].any())
    for name in ("prototype.mean", "prototype.count"):
        assert torch.equal(first.tensors[name], second.tensors[name])
    assert not torch.equal(first.tensors["encoder.weight"], second.tensors["encoder.weight"])


def test_bytes_are_those_of_all_clients_and_of_the_masks() -> None:
    """Every client sends 8 bytes a number, of the model and of five facts about its reply.

    Keys, sealed and opened shares come on top: 3 * (576 + 2 * 226 + 3 * 132) bytes.
    """
    clients = toy_clients(3)
    done = rounds(InProcess(participants(clients)), clients)
    server = make_server(clients, MODEL, TRAINING)
    model = sum(value.numel() for value in initial(FedAvg(), server).values())
    about = 5 + 4  # five facts, and the weight of each of the four tensors
    masks = 3 * (576 + 2 * 226 + 3 * 132)
    assert sum(done[0].bytes_up.values()) == 3 * 8 * (model + about) + masks
    assert sum(done[0].bytes_down.values()) == 3 * 4 * model + 3 * (3 * 576 + 2 * 226 + 3 * 8)
