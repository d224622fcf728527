"""The contract battery: what holds for every method, whatever it computes. A method listed in ``METHODS`` is tested without a line here."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import fedepd.methods
from fedepd.methods import METHODS, make_method
from fedepd.methods.base import Client, Method
from fedepd.network.backbones import Backbone, network_name
from fedepd.network.contract import Dropout, Inputs, Network, Shapes, times
from fedepd.network.sparse import spmm
from fedepd.network.training import Training
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round
from fedepd.runs.experiment import setting_owners
from fedepd.types import ClientData, Reply, Tensors
from toy import CLASSES, assert_same, make_client, relabelled, run_rounds, toy_client

SMALL = Backbone(hidden=4)
AWKWARD: dict[str, dict[str, Any]] = {
    "plain": {},
    "missing_class": {"missing_class": True},
    "one_node_class": {"one_node_class": True},
    "no_edges": {"edges": False},
    "no_train": {"train": False},
    "partial": {},
    "nobody_has_class": {},
}
FEATURE_KINDS = {"dense": False, "sparse": True}

all_methods = pytest.mark.parametrize("name", sorted(METHODS))
all_runs = pytest.mark.parametrize("name", [*sorted(METHODS), "fedepd:printed"])
"""The paper's text too: what our default replaced must meet the same awkward clients."""
all_cases = pytest.mark.parametrize("case", AWKWARD)
both_features = pytest.mark.parametrize("features", FEATURE_KINDS)


def federation(case: str, features: str) -> list[ClientData]:
    """Three clients; the middle one is the awkward one, except that a class may be missing everywhere."""
    everywhere = {"missing_class": True} if case == "nobody_has_class" else {}
    more = {k: {**everywhere, **(AWKWARD[case] if k == 1 else {})} for k in range(3)}
    return [toy_client(k, nodes=16 + 4 * k, sparse=FEATURE_KINDS[features], **more[k]) for k in range(3)]


def copies(value: Any, path: str = "") -> dict[str, Tensor]:
    """Copies of all numbers held anywhere inside ``value``, by where they are."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        parts: Any = {"rows": value.crow_indices(), "columns": value.col_indices(), "values": value.values()}
    elif isinstance(value, Tensor):
        return {path: value.detach().clone()}
    elif isinstance(value, np.ndarray):
        return {path: torch.from_numpy(value.copy())}
    elif isinstance(value, (bool, int, float)):
        return {path: torch.tensor(value)}
    elif sp.issparse(value):
        parts = {"rows": value.tocsr().indptr, "columns": value.tocsr().indices, "values": value.tocsr().data}
    elif is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    else:
        return {}
    return {name: copy for key, part in parts.items() for name, copy in copies(part, f"{path}/{key}").items()}


@dataclass
class Watched:
    """A method with everything that crosses written down and, where ``strict``, every step's inputs compared before and after it."""

    method: Method[Any]
    strict: bool
    down: dict[tuple[int, int], Tensors] = field(default_factory=dict)
    """By (round, client)."""
    up: dict[tuple[int, int], Tensors] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    @contextmanager
    def unchanged(self, what: str, *values: Any) -> Iterator[None]:
        before = [copies(value) for value in values] if self.strict else []
        yield
        for old, value in zip(before, values, strict=False):
            new = copies(value)
            assert old.keys() == new.keys(), f"{what} added or removed {sorted(old.keys() ^ new.keys())}"
            for name in old:
                same = old[name].shape == new[name].shape and torch.equal(old[name], new[name])
                assert same, f"{what} wrote into {name}"

    def client_step(self, client: Client[Any], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        with self.unchanged("client_step", client, message, state):
            reply, new_state = self.method.client_step(client, message, state)
        place = (client.round, client.data.client_id)
        self.down[place], self.up[place] = dict(message), dict(reply.tensors)
        return reply, new_state

    def server_step(self, server: Any, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        with self.unchanged("server_step", server, tensors, replies):
            return self.method.server_step(server, tensors, replies)

    def predict(self, client: Client[Any], tensors: Tensors) -> Tensor:
        with self.unchanged("predict", client, tensors):
            logits = self.method.predict(client, tensors)
        assert logits.shape == (client.data.graph.num_nodes, CLASSES)
        assert not bool(logits.isnan().any())
        return logits


@dataclass(frozen=True, eq=False)
class Outcome:
    watched: Watched
    rounds: list[Round]
    exchange: InProcess

    def trained(self) -> Tensors:
        """Every bit that training produced or sent, by place."""
        out: dict[str, Any] = {"down": self.watched.down, "up": self.watched.up}
        out["server"] = {r.number: r.tensors for r in self.rounds}
        out["loss"] = {r.number: r.loss if r.loss == r.loss else "nan" for r in self.rounds}
        out["state"] = {k: p.state for k, p in self.exchange.participants.items()}
        return copies(out)

    def evaluated(self) -> Tensors:
        return copies({r.number: r.confusions for r in self.rounds})


def run(
    name: str,
    case: str,
    features: str,
    clients: list[ClientData] | None = None,
    strict: bool = False,
    **more: Any,
) -> Outcome:
    method, _, preset = name.partition(":")
    watched = Watched(make_method(method, preset or "default"), strict)
    training = Training(epochs=2, lr=0.05, participation=0.5 if case == "partial" else 1.0)
    options: dict[str, Any] = {"rounds": 3, "model": SMALL, "training": training, **more}
    rounds, exchange = run_rounds(watched, clients or federation(case, features), **options)  # type: ignore[arg-type]
    return Outcome(watched, rounds, exchange)


@functools.cache
def first_run(name: str, case: str, features: str) -> Outcome:
    return run(name, case, features, strict=True)


# What crosses, and what a step may touch


@all_runs
@all_cases
@both_features
def test_steps_write_into_nothing_they_were_given_and_only_dense_float32_tensors_cross(
    name: str, case: str, features: str
) -> None:
    """That the strict run comes to its end is the first half of the test."""
    outcome = first_run(name, case, features)
    assert all(r.refused == [] for r in outcome.rounds)
    assert [len(r.clients) for r in outcome.rounds] == [2 if case == "partial" else 3] * 3
    crossed = [
        *outcome.watched.up.values(),
        *outcome.watched.down.values(),
        *(r.tensors for r in outcome.rounds),
    ]
    for tensors in crossed:
        for key, value in tensors.items():
            assert isinstance(key, str)
            assert value.layout == torch.strided, key
            assert value.dtype == torch.float32, key
            assert not value.requires_grad, key
            assert bool(value.isfinite().all()), key


@all_runs
@all_cases
def test_a_clients_state_is_named_finite_tensors(name: str, case: str) -> None:
    """The state is saved with the personal model and comes back in the next round."""
    for participant in first_run(name, case, "dense").exchange.participants.values():
        for key, value in participant.state.items():
            assert isinstance(value, Tensor), key
            assert value.layout == torch.strided, key
            assert not value.requires_grad, key
            assert bool(value.isfinite().all()), key


@all_runs
@all_cases
@both_features
def test_counted_bytes_are_the_bytes_sent(name: str, case: str, features: str) -> None:
    outcome = first_run(name, case, features)
    for each in outcome.rounds:
        for counted, sent in ((each.bytes_up, outcome.watched.up), (each.bytes_down, outcome.watched.down)):
            of_round = [tensors for (number, _), tensors in sent.items() if number == each.number]
            assert len(of_round) == len(each.clients)
            assert counted.keys() == {key for tensors in of_round for key in tensors}
            assert sum(counted.values()) == sum(
                value.nbytes for tensors in of_round for value in tensors.values()
            )


# Which bits depend on what


@all_runs
@all_cases
@both_features
def test_same_seed_same_bits_in_any_order_of_clients_and_in_two_threads(
    name: str, case: str, features: str
) -> None:
    first, again = (
        first_run(name, case, features),
        run(name, case, features, clients=federation(case, features)[::-1], workers=2),
    )
    assert_same(first.trained(), again.trained())
    assert_same(first.evaluated(), again.evaluated())


@all_runs
def test_another_seed_gives_other_bits(name: str) -> None:
    first, other = first_run(name, "plain", "dense").trained(), run(name, "plain", "dense", seed=1).trained()
    models = [key for key in first if key.startswith("/state/") and key.endswith("classifier.weight")]
    assert models
    assert not any(torch.equal(first[key], other[key]) for key in models)


@all_runs
@all_cases
def test_labels_outside_the_training_mask_have_no_influence(name: str, case: str) -> None:
    clients = federation(case, "dense")
    others = [relabelled(c, torch.where(c.train_mask, c.graph.y, (c.graph.y + 1) % CLASSES)) for c in clients]
    assert not any(torch.equal(c.graph.y, o.graph.y) for c, o in zip(clients, others, strict=True))
    first, other = first_run(name, case, "dense"), run(name, case, "dense", clients=others)
    assert_same(first.trained(), other.trained())
    assert not all(torch.equal(value, other.evaluated()[key]) for key, value in first.evaluated().items())


def test_draws_depend_on_seed_purpose_round_and_client_and_on_nothing_else() -> None:
    """Named streams: whoever draws first or more often changes nobody else's numbers."""

    def drawn(
        seed: int = 0, purpose: str = "dropout", number: int = 1, client_id: int = 0, **more: Any
    ) -> tuple[float, float]:
        client = make_client(make_method("fedavg"), toy_client(client_id, **more), seed=seed, round=number)
        return float(client.draws(purpose).random()), float(
            torch.rand((), generator=client.torch_draws(purpose))
        )

    others = [drawn(seed=1), drawn(purpose="walk"), drawn(number=2), drawn(client_id=1)]
    assert drawn() == drawn() == drawn(nodes=30, edges=False)
    assert all(len({first, *(other[kind] for other in others)}) == 5 for kind, first in enumerate(drawn()))


# That it learns, on every network


@all_runs
@both_features
def test_the_loss_falls_on_a_learnable_toy(name: str, features: str) -> None:
    outcome = run(name, "plain", features, rounds=10, model=Backbone(hidden=8, dropout=0.0))
    losses = [r.loss for r in outcome.rounds]
    assert losses[-1] < losses[0], losses


@all_runs
@both_features
@pytest.mark.parametrize("head", ["gcn", "linear"])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_every_backbone_and_head_runs(name: str, features: str, backbone: Any, head: Any) -> None:
    rounds = run(name, "one_node_class", features, model=Backbone(backbone, hidden=4, head=head)).rounds
    assert np.isfinite([r.loss for r in rounds]).all()
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())


@dataclass(frozen=True)
class OneLine(Network):
    """As little as the contract of a network asks for."""

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden)}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        return dropout(torch.tanh(spmm(inputs.operator, times(inputs.features, params["encoder.weight"]))))


OTHERS = [
    Backbone("gat", 4),
    Backbone("h2gcn", 4),
    Backbone("sage", 4, layers=1),
    Backbone(OneLine(), 4),
]
"""A last layer with parameters, one that widens, a dense encoder, and somebody's own."""


@all_runs
@pytest.mark.parametrize("model", OTHERS, ids=lambda m: f"{network_name(m.network)}-{m.layers}")
def test_every_method_runs_with_every_kind_of_network(name: str, model: Backbone) -> None:
    """Two rounds, the middle client awkward; strict: steps write into nothing that they were given."""
    rounds = run(name, "one_node_class", "sparse", strict=True, model=model, rounds=2).rounds
    assert np.isfinite([r.loss for r in rounds]).all()
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())


# The class itself


def test_every_method_of_the_package_is_listed() -> None:
    defined = set()
    for info in pkgutil.walk_packages(fedepd.methods.__path__, "fedepd.methods."):
        for _, cls in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            if issubclass(cls, Method) and cls.__module__ == info.name and not inspect.isabstract(cls):
                defined.add(cls)
    assert defined == set(METHODS.values())
    assert len(defined) == len(METHODS)


@all_methods
def test_a_method_is_final_frozen_and_says_what_it_sends(name: str) -> None:
    cls = METHODS[name]
    assert cls.__mro__[1] is Method
    assert getattr(cls, "__final__", False)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.label
    doc = importlib.import_module(cls.__module__).__doc__ or ""
    assert all(word in doc for word in ("Down", "Up", "Bytes")), (
        "the module's docstring states what crosses and its bytes"
    )


@all_methods
def test_the_servers_half_cannot_be_given_data(name: str) -> None:
    """The privacy line is a type: no parameter of the server's functions can hold a client's data."""

    def inside(hint: Any) -> set[Any]:
        return {hint} | {part for arg in get_args(hint) for part in inside(arg)}

    for function in (METHODS[name].server_init, METHODS[name].server_step, METHODS[name].message):
        seen = set().union(*(inside(hint) for hint in get_type_hints(function).values()))
        assert seen.isdisjoint({ClientData, Client, Any, object}), function
        assert not any(getattr(hint, "__origin__", None) is Client for hint in seen), function


@all_methods
def test_every_field_has_a_default_and_an_explanation(name: str) -> None:
    for f in fields(METHODS[name]):
        assert f.default is not MISSING, f.name
        assert len(f.metadata.get("help", "")) > 10, f.name


@all_methods
def test_no_field_is_named_like_a_setting_of_the_protocol(name: str) -> None:
    assert {f.name for f in fields(METHODS[name])} <= setting_owners(name).keys()


@all_methods
def test_settings_round_trip(name: str) -> None:
    assert "default" in METHODS[name].presets
    for preset in METHODS[name].presets:
        method = make_method(name, preset)
        assert make_method(name, settings=asdict(method)) == method
        assert eval(repr(method), {type(method).__name__: type(method)}) == method
