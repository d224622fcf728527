"""Nothing about a closed class leaves a client, and its holders still predict it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedepd
from fedepd.errors import BadConfig
from fedepd.methods import METHODS, make_method
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.guard import (
    CLOSED_BIAS,
    HOME,
    OPEN,
    Privacy,
    guarded_matrix,
    guarded_predictions,
    with_own_columns,
)
from fedepd.rounds.loop import Round
from fedepd.rounds.participant import Participant
from fedepd.types import ClientData, Field, Sizes, TaskInfo, Tensors
from toy import CLASSES, initial, make_server, toy_client, toy_clients

GUARD = Privacy(guard=True, min_count=1, min_holders=3)
SECURE = Privacy(guard=True, min_count=5, min_holders=3, secure=True)
FEDERATED = [name for name in METHODS if name not in ("centralised", "isolated")]


def sizes(*train: int) -> Sizes:
    counts = torch.tensor(train)
    return Sizes(100, int(counts.sum()), counts, torch.zeros_like(counts), torch.zeros_like(counts))


def test_a_class_needs_nodes_and_holders() -> None:
    """Classes 0 and 4: 6 nodes at 3. Class 1: 9 nodes at 2. Class 2: 3 nodes at 3. Class 3: nobody."""
    declared = [sizes(2, 4, 1, 0, 2), sizes(2, 5, 1, 0, 2), sizes(2, 0, 1, 0, 2)]
    for count, holders, opened in ((5, 3, [0, 4]), (3, 3, [0, 2, 4]), (5, 2, [0, 1, 4])):
        found = Privacy(guard=True, min_count=count, min_holders=holders).open_classes(declared)
        assert found.nonzero().reshape(-1).tolist() == opened


def test_a_single_class_is_not_open() -> None:
    """There would be no other class that a wrongly classified node could be said to be taken for."""
    declared = [sizes(2, 1), sizes(2, 0), sizes(2, 0)]
    assert Privacy(guard=True).open_classes(declared).tolist() == [False, False]


def test_sums_know_their_holders() -> None:
    train, holders = torch.tensor([6, 9, 6]), torch.tensor([3, 2, 3])
    pooled = Sizes(300, 21, train, torch.zeros(3), torch.zeros(3), holders, 3)
    assert Privacy(guard=True).open_classes([pooled]).tolist() == [True, False, True]


def test_closed_classes_have_the_clients_own_columns_or_none() -> None:
    """Classes 0 and 1 are closed; the client holds 0 only."""
    message = {
        "classifier.weight": torch.zeros(2, 3),
        "classifier.bias": torch.zeros(3),
        "encoder.bias": torch.ones(2),
    }
    fields = {
        "classifier.weight": Field((2, 3), classes=1),
        "classifier.bias": Field((3,), classes=0),
        "encoder.bias": Field((2,)),
    }
    home = {
        HOME + "classifier.weight": torch.full((2, 3), 7.0),
        HOME + "classifier.bias": torch.full((3,), 5.0),
    }
    opened, held = torch.tensor([False, False, True]), torch.tensor([True, False, True])
    seen = with_own_columns(message, fields, home, opened, held)
    assert seen["classifier.weight"].tolist() == [[7, 0, 0], [7, 0, 0]]
    assert seen["classifier.bias"].tolist() == [5, CLOSED_BIAS, 0]
    assert seen["encoder.bias"].tolist() == [1, 1]


def participants(
    name: str, clients: list[ClientData], privacy: Privacy, share: float = 1.0
) -> tuple[list[Participant], Tensors]:
    method, model = make_method(name), Backbone(hidden=16)
    training = Training(epochs=1, participation=share)
    server = make_server(clients, model, training)
    info = TaskInfo(server.info.num_features, CLASSES, len(clients))
    made = [Participant(method, c, info, model, training, 0, 3, privacy) for c in clients]
    return made, method.message(initial(method, server), 0)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_reply_says_nothing_about_a_closed_class(name: str) -> None:
    """Class 2 is closed. Its column comes back as it was sent, and all that is of classes has no entry of it.

    The client holds class 2, so that without the guard the same reply differs there.
    """
    clients = toy_clients(3)
    (first, *_), message = participants(name, clients, GUARD)
    opened = torch.tensor([1.0, 1.0, 0.0])
    # GraphSMOTE trains no classifier in its first round.
    reply = first.step(2 if name == "graphsmote" else 1, {**message, OPEN: opened})
    for field in ("classifier.weight", "classifier.bias"):
        if field in reply.tensors:
            assert torch.equal(reply.tensors[field][..., 2], message[field][..., 2])
            assert not torch.equal(reply.tensors[field][..., 0], message[field][..., 0])
    for field in (
        "prototype.count",
        "prototype.sum",
        "prototype.mean",
        "proxy.count",
        "proxy.class",
        "class.count",
    ):
        if field in reply.tensors:
            assert not reply.tensors[field][2].any()
            assert reply.tensors[field][:2].any()
    if "gradient.present" in reply.tensors:
        assert reply.tensors["gradient.present"].tolist() == [1, 1, 0]
        assert len(reply.tensors["gradient.weight"]) == 2


def test_without_secure_sums_a_clients_few_nodes_are_hidden_even_of_an_open_class() -> None:
    """A client with one training node of class 2 declares none of it and sends nothing about it."""
    clients = [toy_client(0, 24, one_node_class=True), *toy_clients(3)[1:]]
    (few, *_), message = participants("fedepd", clients, Privacy(guard=True, min_count=2))
    assert few.sizes.train[2] == 0 < few.sizes.train[0]
    reply = few.step(1, {**message, OPEN: torch.ones(3)})
    assert reply.tensors["prototype.count"][2] == 0 < reply.tensors["prototype.count"][0]
    assert torch.equal(reply.tensors["classifier.weight"][:, 2], message["classifier.weight"][:, 2])


def test_secure_sums_hide_whose_nodes_they_are_so_that_few_may_be_sent() -> None:
    clients = [toy_client(0, 24, one_node_class=True), *toy_clients(3)[1:]]
    (few, *_), message = participants("fedepd", clients, SECURE)
    assert few.sizes.train[2] == 1
    assert few.step(1, {**message, OPEN: torch.ones(3)}).tensors["prototype.count"][2] == 1


@pytest.mark.hostile
def test_a_sum_over_a_cohort_may_have_one_holder_so_that_few_are_hidden() -> None:
    """Five clients, cohorts of three. A class is open because three clients hold it.

    A cohort can have one of them. The sum of the prototypes of the class is then that client's row.
    """
    clients = [toy_client(0, 24, one_node_class=True), *toy_clients(5)[1:]]
    (few, *_), message = participants("fedepd", clients, SECURE, share=0.6)
    assert few.sizes.train[2] == 1  # sizes are summed over everyone
    reply = few.step(1, {**message, OPEN: torch.ones(3)})
    assert reply.tensors["prototype.count"][2] == 0 < reply.tensors["prototype.count"][0]
    assert torch.equal(reply.tensors["classifier.weight"][:, 2], message["classifier.weight"][:, 2])


def test_holders_keep_their_column_from_round_to_round_and_predict_by_it() -> None:
    (first, *_), message = participants("fedavg", [toy_client(k, 60) for k in range(3)], GUARD)
    sent = {**message, OPEN: torch.tensor([1.0, 1.0, 0.0])}
    first.step(1, sent)
    kept = first.state[HOME + "classifier.weight"][:, 2].clone()
    assert not torch.equal(kept, message["classifier.weight"][:, 2])
    for number in range(2, 30):
        first.step(number, sent)
    assert first.evaluate(30, sent)["global_test"][:, 2].sum() > 0


def test_validation_of_hidden_classes_is_not_told() -> None:
    (first, *_), message = participants("fedavg", toy_clients(3), SECURE)
    found = first.evaluate(1, {**message, OPEN: torch.tensor([1.0, 1.0, 0.0])})
    assert found["global_val"][2].sum() == 0 < found["global_val"][:2].sum()
    assert found["global_test"][2].sum() > 0  # a simulation's own test scores
    first.shows_test = False
    assert first.evaluate(1, {**message, OPEN: torch.tensor([1.0, 1.0, 0.0])})["global_test"][2].sum() == 0


def test_a_node_taken_for_a_closed_class_counts_as_taken_for_the_open_class_after_its_own() -> None:
    """Classes 0, 2 and 3 are open, 3 is not shown. Row 0: its 4 were taken for class 1, so now for class 2.

    Row 2: its 6 goes to class 3. What is right stays right, and a shown row keeps its sum.
    """
    matrix = torch.tensor([[1, 4, 2, 3], [9, 9, 9, 9], [1, 6, 2, 0], [1, 2, 3, 4]])
    opened, shown = torch.tensor([True, False, True, True]), torch.tensor([True, False, True, False])
    found = guarded_matrix(matrix, opened, shown)
    assert found.tolist() == [[1, 0, 6, 3], [0, 0, 0, 0], [1, 0, 2, 6], [0, 0, 0, 0]]


def test_the_last_open_class_is_followed_by_the_first() -> None:
    matrix, opened = torch.tensor([[5, 0, 0], [0, 5, 3], [0, 0, 0]]), torch.tensor([True, True, False])
    assert guarded_matrix(matrix, opened, opened).tolist() == [[5, 0, 0], [3, 5, 0], [0, 0, 0]]


def test_predictions_are_told_as_the_matrix_counts_them() -> None:
    draws, opened = torch.Generator().manual_seed(0), torch.tensor([True, False, True, True, False])
    y = torch.tensor([0, 2, 3])[torch.randint(0, 3, (50,), generator=draws)]
    predicted = torch.randint(0, 5, (50,), generator=draws)

    def matrix(classes: Tensor) -> Tensor:
        return torch.bincount(y * 5 + classes, minlength=25).reshape(5, 5)

    told = guarded_predictions(predicted, y, opened)
    assert torch.equal(matrix(told), guarded_matrix(matrix(predicted), opened, opened))


def test_a_stage_without_a_classifier_keeps_the_own_columns() -> None:
    """The last of LWS's three rounds sends scales alone, and predictions still need the classifier."""
    (first, *_), message = participants("lws", toy_clients(3), GUARD)
    sent = {**message, OPEN: torch.tensor([1.0, 1.0, 0.0])}
    first.step(1, sent)
    kept = first.state[HOME + "classifier.weight"].clone()
    assert first.step(3, sent).tensors.keys() == {"scale", "owned"}
    assert torch.equal(first.state[HOME + "classifier.weight"], kept)
    assert HOME + "scale" in first.state


@pytest.mark.parametrize("name", [n for n in METHODS if n != "centralised"])
@pytest.mark.parametrize("guard", [{"min_holders": 4}, {"min_holders": 3, "min_count": 2}])
def test_every_method_runs_guarded_and_nothing_is_refused(name: str, guard: dict[str, Any]) -> None:
    """All classes are closed, or some. Three clients cannot be four holders."""
    run = fedepd.run("synthetic", name, rounds=2, clients=3, guard=True, **guard)
    assert [line["round"] for line in run.rounds if "refused" in line or not line["clients"]] == []


@pytest.mark.parametrize(
    ("guard", "same"), [({"min_count": 1, "min_holders": 1}, True), ({"min_holders": 4}, False)]
)
def test_a_guard_that_opens_every_class_changes_no_bit(guard: dict[str, Any], same: bool) -> None:
    """The synthetic graph's rarest class has a training node at one of its three clients at least."""
    both: list[dict[str, Any]] = [{}, {"guard": True, **guard}]
    runs = [fedepd.run("synthetic", "fedepd", rounds=2, clients=3, **settings) for settings in both]
    assert (runs[0].summary["weights_sha256"] == runs[1].summary["weights_sha256"]) is same


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"method": "fedgta"}, "FedGTA compares the clients"),
        ({"method": "fedgac"}, "FedGAC weighs each client"),
        ({"method": "graphfedmig", "threshold": 0.5}, "GraphFedMig with clusters"),
        ({"robust": "clip"}, "look at single replies"),
        ({"cap_weights": True}, "look at single replies"),
        ({"attack": "sign-flip", "attackers": 1}, "attacks change single replies"),
        ({"clients": 2}, "2 clients in a round; it needs 3"),
        ({"participation": 0.2}, "2 clients in a round; it needs 3"),
    ],
)
def test_what_secure_sums_cannot_do_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(BadConfig, match=match):
        fedepd.run("synthetic", **{"method": "fedavg", "rounds": 1, "secure": True, **settings})


@pytest.mark.parametrize(("name", "value"), [("min_count", 0), ("min_holders", -1)])
def test_bounds(name: str, value: Any) -> None:
    with pytest.raises(BadConfig, match=f"{name} is {value}; give at least 1"):
        Privacy(**{name: value})


def test_secure_runs_add_up_to_the_same_model_in_any_number_of_threads() -> None:
    runs = [fedepd.run("synthetic", "fedepd", rounds=2, secure=True, workers=workers) for workers in (1, 2)]
    assert runs[0].summary["weights_sha256"] == runs[1].summary["weights_sha256"]
    plain = fedepd.run("synthetic", "fedepd", rounds=2)
    for name, value in plain.tensors.items():
        torch.testing.assert_close(runs[0].tensors[name], value, atol=1e-4, rtol=1e-4)
    assert runs[0].rounds[0]["clients"] == tuple(range(10))
    assert runs[0].metrics["global"]["pooled"]["acc"] == pytest.approx(
        plain.metrics["global"]["pooled"]["acc"], abs=0.01
    )


@pytest.mark.usefixtures("no_figures")
def test_a_report_of_a_secure_run_has_no_scores_of_single_clients(tmp_path: Path) -> None:
    fedepd.run("synthetic", "fedavg", rounds=1, clients=3, secure=True, out=tmp_path / "run")
    page = fedepd.build_report(tmp_path / "run").read_text()
    assert "the server sees sums over the clients only" in page


def test_a_secure_run_is_exported_and_resumed_like_any_other(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 3, "clients": 3, "secure": True, "guard": True}

    def stop(each: Round) -> None:
        if each.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedepd.run("synthetic", "fedepd", out=tmp_path / "cut", on_round=stop, **settings)
    whole = fedepd.run("synthetic", "fedepd", out=tmp_path / "whole", **settings)
    resumed = fedepd.resume(tmp_path / "cut")
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert resumed.metrics == whole.metrics
    fedepd.run("synthetic", "fedavg", rounds=1, clients=3, secure=True, out=tmp_path / "open")
    assert fedepd.export(tmp_path / "open", tmp_path / "model").is_dir()


def test_the_model_of_a_guarded_run_never_says_a_closed_class(tmp_path: Path) -> None:
    """With 60 training nodes a class needs to be open, the built-in graph's small classes are closed.

    Their columns stayed at the clients. The card names them.
    """
    settings: dict[str, Any] = {"rounds": 2, "clients": 3, "guard": True, "secure": True, "min_count": 60}
    result = fedepd.run("synthetic", "fedavg", out=tmp_path / "run", **settings)
    opened = set(result.summary["open_classes"])
    assert 0 < len(opened) < 10
    model = fedepd.load_model(fedepd.export(tmp_path / "run", tmp_path / "model"))
    said = model.predict(fedepd.load("synthetic")).probabilities
    assert set(said.argmax(1).tolist()) <= opened
    closed = [k for k in range(10) if k not in opened]
    assert said[:, closed].max() < 1e-6
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"Never predicted: {', '.join(map(str, closed))}." in card
