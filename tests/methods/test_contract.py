"""The contract battery of ``fedepd.testing`` on every method of ours, and what is asked of ours alone.

A method listed in ``METHODS`` is tested without a line here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedepd.methods
from fedepd.errors import BadConfig
from fedepd.methods import METHODS, make_method
from fedepd.methods.alone import Alone
from fedepd.methods.base import Method
from fedepd.methods.rows import Boosting, Logistic
from fedepd.testing import Check, method_checks
from fedepd.testing.methods import SMALL
from fedepd.types import ClientData
from toy import make_client, run_rounds, toy_client, toy_clients

OURS = METHODS.built_in
RUNS = [*sorted(OURS), "fedepd:printed"]
"""The paper's text too: what our default replaced must meet the same awkward clients."""


def made(name: str) -> Method[Any]:
    method, _, preset = name.partition(":")
    return make_method(method, preset or "default")


WIDTHS = ("fedproto", "fedtgp")
"""Also with clients of different widths: one as wide as all, two wider. gat needs multiples of 4."""
CHECKS = [pytest.param(check, id=f"{name}: {check}") for name in RUNS for check in method_checks(made(name))]
CHECKS += [
    pytest.param(check, id=f"{name} of widths: {check}")
    for name in WIDTHS
    for check in method_checks(make_method(name, settings={"widths": "4-8-12"}))
]

all_methods = pytest.mark.parametrize("name", sorted(OURS))


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check: Check) -> None:
    check()


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


UNLISTED = (Alone, Logistic, Boosting)
"""What ``--scope`` and ``--against`` make of other methods, and rows without a graph: none can be named."""


def test_every_method_of_the_package_is_listed() -> None:
    defined = set()
    for info in pkgutil.walk_packages(fedepd.methods.__path__, "fedepd.methods."):
        for _, cls in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            if issubclass(cls, Method) and cls.__module__ == info.name and not inspect.isabstract(cls):
                defined.add(cls)
    assert defined == {*OURS.values(), *UNLISTED}
    assert len(set(OURS.values())) == len(OURS)


@all_methods
def test_the_module_says_what_crosses_and_its_bytes(name: str) -> None:
    """The battery takes the class's docstring, too; docs/methods.md is made of the modules'."""
    doc = importlib.import_module(OURS[name].__module__).__doc__ or ""
    assert all(word in doc for word in ("Down", "Up", "Bytes"))


@pytest.mark.parametrize("name", RUNS)
def test_every_client_keeps_a_model_of_its_own(name: str) -> None:
    """The headline of a method without a global model; the battery leaves this to a method."""
    _, exchange = run_rounds(made(name), toy_clients(2), rounds=1, model=SMALL)
    for participant in exchange.participants.values():
        assert "classifier.weight" in participant.own


@all_methods
def test_settings_round_trip(name: str) -> None:
    for preset in OURS[name].presets:
        method = make_method(name, preset)
        assert make_method(name, settings=asdict(method)) == method
        assert eval(repr(method), {type(method).__name__: type(method)}) == method


def weighed(clients: list[ClientData], first: float, last: float) -> list[ClientData]:
    """The clients with weights of edges between ``first`` and ``last``."""
    return [
        replace(c, graph=replace(c.graph, edge_weight=torch.linspace(first, last, c.graph.num_edges)))
        for c in clients
    ]


@all_methods
def test_weights_of_edges_are_used_or_refused(name: str) -> None:
    """All 1: the bits of no weights. Others: another model, or one sentence."""
    method, clients = made(name), toy_clients()
    if not method.weighs_edges:
        with pytest.raises(BadConfig, match=re.escape(f"have weights, and {method.label} does not use them")):
            run_rounds(method, weighed(clients, 1, 1), rounds=1)
        return
    plain, ones, some = (
        run_rounds(method, each, rounds=2)[1].participants[0].state
        for each in (clients, weighed(clients, 1, 1), weighed(clients, 0.5, 8))
    )
    assert plain.keys() == ones.keys() == some.keys()
    assert all(torch.equal(plain[key], ones[key]) for key in plain)
    assert any(not torch.equal(plain[key], some[key]) for key in plain)


def test_which_methods_use_weights() -> None:
    """docs/own-data.md names those that do not."""
    page = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()
    part = page[page.index("### Weights of edges") :]
    refusing = [name for name in sorted(OURS) if not made(name).weighs_edges]
    assert {"fedgac", "graphsmote", "hiertail"} <= set(refusing)
    assert all(f"`{name}`" in part for name in refusing)
    assert Alone(made("fedepd")).weighs_edges
    assert not Alone(made("hiertail")).weighs_edges
