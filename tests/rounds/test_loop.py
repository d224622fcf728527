from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.methods.base import Server
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.method import FedEPD
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.admission import Refusal
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import GIVE_UP, OFFENCES, Round, added, cohort, mean_loss, sizes_in_bytes, train
from fedepd.rounds.participant import Participant
from fedepd.types import Reply, Sizes, TaskInfo, Tensors
from toy import assert_same, initial, make_server, run_rounds, toy_client, toy_clients


def server(participation: float = 1.0, rounds: int = 3, seed: int = 0) -> Server:
    return Server(
        TaskInfo(1, 2, 3), Backbone(hidden=2), Training(participation=participation), seed, 0, rounds
    )


class Answers:
    """An exchange whose clients answer k·(values) whatever they are sent; client k has 1 + 2k nodes, all
    of them training nodes."""

    def __init__(self, bad: Mapping[int, float] | None = None, untrained: bool = False) -> None:
        self.bad, self.untrained = bad or {}, untrained
        self.asked: list[tuple[str, int, tuple[int, ...]]] = []

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        self.asked.append(("step", round, tuple(messages)))
        values = {k: self.bad.get(k, 4.0 * k) for k in reversed(list(messages))}
        nodes = {k: 1 + 2 * k for k in values}
        train = dict.fromkeys(nodes, 0) if self.untrained else nodes
        return {
            k: Reply({"w": torch.tensor([v])}, nodes[k], train[k], {"loss": float(k)}, round)
            for k, v in values.items()
        }

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        none = torch.zeros(2, dtype=torch.int64)
        train = {k: 0 if self.untrained else 1 + 2 * k for k in clients}
        return {k: Sizes(1 + 2 * k, train[k], torch.tensor([train[k], 0]), none, none) for k in clients}

    def take_refusals(self) -> list[Refusal]:
        return []

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        self.asked.append(("evaluate", round, tuple(messages)))
        return {k: {} for k in messages}


def play(exchange: Answers, clients: list[int], evaluate_every: int = 1, **more: float) -> list[Round]:
    start = {"w": torch.zeros(1)}
    how = server(**more)  # type: ignore[arg-type]
    return list(train(FedAvg(), how, start, clients, exchange, evaluate_every))


# Who takes part


@given(clients=st.integers(1, 30), share=st.floats(0.01, 1.0), number=st.integers(1, 50))
@settings(max_examples=60)
def test_a_cohort_is_the_asked_share_ascending_and_at_least_one(
    clients: int, share: float, number: int
) -> None:
    drawn = cohort(range(clients), server(share), number)
    assert len(drawn) == max(1, round(share * clients))
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(clients))


def test_cohorts_are_seeded_change_with_the_round_and_reach_everyone() -> None:
    drawn = [cohort(range(10), server(0.3), number) for number in range(1, 40)]
    assert drawn == [cohort(range(10), server(0.3), number) for number in range(1, 40)]
    assert drawn != [cohort(range(10), server(0.3, seed=1), number) for number in range(1, 40)]
    assert {k for clients in drawn for k in clients} == set(range(10))


def test_the_order_of_the_clients_does_not_change_the_draw() -> None:
    assert cohort([7, 3, 9, 1], server(0.5), 4) == cohort([1, 3, 7, 9], server(0.5), 4)
    assert cohort([7, 3, 9, 1], server(), 4) == [1, 3, 7, 9]


# What a round reports


def test_one_round_by_hand() -> None:
    """Clients 0, 1, 2 with 1, 3, 5 nodes answer 0, 4, 8 and losses 0, 1, 2: the mean is (12 + 40) / 9, the
    loss (3 + 10) / 9; three float32 scalars go each way."""
    (each,) = play(Answers(), [2, 0, 1], rounds=1)
    assert each.tensors["w"].tolist() == pytest.approx([52 / 9])
    assert each.loss == pytest.approx(13 / 9)
    assert (each.number, each.clients, each.refused) == (1, (0, 1, 2), [])
    assert (each.bytes_up, each.bytes_down) == ({"w": 12}, {"w": 12})
    assert each.seconds >= 0
    assert each.cpu_seconds >= 0


def test_partial_participation_renormalises_the_weights() -> None:
    """Two of the three clients, whichever they are: their mean by their own nodes, and two scalars each
    way."""
    for each in play(Answers(), [0, 1, 2], participation=0.5, rounds=4):
        nodes = {k: 1 + 2 * k for k in each.clients}
        assert len(nodes) == 2
        assert each.tensors["w"].tolist() == pytest.approx(
            [sum(4 * k * n for k, n in nodes.items()) / sum(nodes.values())]
        )
        assert each.bytes_up == {"w": 8}


def test_rounds_are_evaluated_every_so_often_and_at_the_last_on_all_clients() -> None:
    exchange = Answers()
    rounds = play(exchange, [1, 0, 2], evaluate_every=2, participation=0.5, rounds=5)
    assert [r.number for r in rounds if r.confusions is not None] == [2, 4, 5]
    assert [(number, who) for what, number, who in exchange.asked if what == "evaluate"] == [
        (n, (0, 1, 2)) for n in (2, 4, 5)
    ]


def test_bytes_are_counted_by_field() -> None:
    """2·3 float32 and one float64 are 24 + 8; a field that only some send counts where it is sent."""
    many = [{"a": torch.zeros(2, 3), "b": torch.zeros(1, dtype=torch.float64)}, {"a": torch.zeros(1)}]
    assert added(map(sizes_in_bytes, many)) == {"a": 28, "b": 8}
    assert added([]) == {}


def test_the_mean_loss_leaves_out_clients_without_one() -> None:
    """Losses 1 and 4 over 1 and 3 training nodes: 13/4; nobody's loss is NaN."""
    replies = {0: Reply({}, 9, 1, {"loss": 1.0}), 1: Reply({}, 9, 3, {"loss": 4.0}), 2: Reply({}, 9, 5)}
    assert mean_loss(replies) == 13 / 4
    assert math.isnan(mean_loss({2: replies[2]}))
    assert math.isnan(mean_loss({}))


# Replies that fail their checks


def test_a_bad_reply_is_refused_named_and_left_out() -> None:
    """Without client 2: (1 · 0 + 3 · 4) / 4 = 3."""
    (each,) = play(Answers({2: math.nan}), [0, 1, 2], rounds=1)
    assert each.tensors["w"].tolist() == [3.0]
    assert each.clients == (0, 1)
    assert [(r.client, r.field) for r in each.refused] == [(2, "w")]


def test_a_round_without_a_usable_reply_leaves_the_tensors_and_five_in_a_row_end_the_run() -> None:
    rounds = play(Answers({0: math.inf}), [0], rounds=OFFENCES)
    assert [r.tensors["w"].tolist() for r in rounds] == [[0.0]] * OFFENCES
    assert math.isnan(rounds[-1].loss)
    with pytest.raises(
        BadMessage, match=r"round 5 \(clients excluded because their answers were refused too often: 0\)"
    ):
        play(Answers({0: math.inf}), [0], evaluate_every=9, rounds=GIVE_UP)


def test_a_round_in_which_nobody_who_answered_trained_is_empty() -> None:
    """FedAvg would move w to the clients' means; with no training node anywhere it stays, and the fifth
    such round ends the run."""
    rounds = play(Answers(untrained=True), [0, 1], rounds=GIVE_UP - 1)
    assert [(r.tensors["w"].tolist(), r.clients, r.refused) for r in rounds] == [([0.0], (), [])] * (
        GIVE_UP - 1
    )
    with pytest.raises(BadMessage, match=r"round 5 \(no client that answered has a training node\)"):
        play(Answers(untrained=True), [0, 1], rounds=GIVE_UP)


def test_one_client_that_trained_makes_a_round() -> None:
    rounds, _ = run_rounds(FedAvg(), [toy_client(0, train=False), toy_client(1)], rounds=GIVE_UP)
    assert [r.clients for r in rounds] == [(0, 1)] * GIVE_UP


@pytest.mark.hostile
def test_a_client_that_offends_three_times_is_left_out_and_named() -> None:
    """Client 2 sends NaN in every round. From round 4 on nobody asks it, in a resumed run neither."""
    exchange = Answers({2: math.nan})
    rounds = play(exchange, [0, 1, 2], rounds=5)
    assert [len(r.refused) for r in rounds] == [1, 1, 1, 0, 0]
    assert [r.excluded for r in rounds] == [(), (), (2,), (2,), (2,)]
    assert [who for _, number, who in exchange.asked if number > 3] == [(0, 1)] * 4
    start = {"w": torch.zeros(1)}
    again = train(FedAvg(), server(rounds=5), start, [0, 1, 2], exchange, 1, 5, {2: OFFENCES})
    assert [(r.clients, r.excluded) for r in again] == [((0, 1), (2,))]


class Boasting(InProcess):
    """Client 1 moves one node of class 2, of which it has none, from class 0 into its count."""

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = super().step(round, messages)
        if 1 in replies:
            counts = replies[1].tensors["prototype.count"] + torch.tensor([-1.0, 0.0, 1.0])
            replies[1] = replace(replies[1], tensors={**replies[1].tensors, "prototype.count": counts})
        return replies


def test_the_simulator_holds_clients_to_their_class_sizes_and_ends_as_if_a_boaster_were_absent() -> None:
    clients = [toy_client(0), toy_client(1, missing_class=True), toy_client(2)]
    model, training = Backbone(hidden=4), Training()
    start = make_server(clients, model, training)
    ends = []
    for exchange, ids in ((Boasting, [0, 1, 2]), (InProcess, [0, 2])):
        at = exchange([Participant(FedEPD(), c, start.info, model, training, 0, 3) for c in clients])
        ends.append(list(train(FedEPD(), start, initial(FedEPD(), start), ids, at, 3)))
    assert [[(r.client, r.field, r.reason) for r in each.refused] for each in ends[0]] == [
        [(1, "prototype.count", "counts 1 nodes of class 2, but the client declared 0")]
    ] * 3
    assert_same(ends[0][-1].tensors, ends[1][-1].tensors)


# Going on


def test_going_on_from_a_round_gives_the_same_bits() -> None:
    """What a run needs to go on: the server's tensors, the clients' states and the number of the next
    round."""
    clients, model, training = toy_clients(), Backbone(hidden=8), Training(participation=0.5)
    whole, whole_at = run_rounds(FedAvg(), clients, rounds=5, model=model, training=training)
    start = make_server(clients, model, training, rounds=5)
    ids = [c.client_id for c in clients]

    def exchange() -> InProcess:
        return InProcess([Participant(FedAvg(), c, start.info, model, training, 0, 5) for c in clients])

    first = exchange()
    until_two = list(train(FedAvg(), replace(start, last_round=2), initial(FedAvg(), start), ids, first, 1))
    second = exchange()
    for k, participant in second.participants.items():
        participant.state = first.participants[k].state
    rest = list(train(FedAvg(), start, until_two[-1].tensors, ids, second, 1, first_round=3))
    assert [r.number for r in rest] == [3, 4, 5]
    assert_same(rest[-1].tensors, whole[-1].tensors)
    for k in ids:
        assert_same(second.participants[k].state, whole_at.participants[k].state)
