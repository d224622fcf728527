"""What holds for every method, whatever it computes: its class, and small federations that it is run on.

Three clients have three classes. One client is awkward: it lacks a class, or edges, or training nodes.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

from fedepd.methods.base import Client, Method
from fedepd.methods.contract import check_named_class
from fedepd.network.backbones import Backbone, network_name
from fedepd.network.training import Training
from fedepd.rounds.adapt import trained_on
from fedepd.rounds.loop import Round
from fedepd.runs.experiment import setting_owners
from fedepd.runs.settings import coerced
from fedepd.testing.checks import Check, require, require_same, run_all
from fedepd.testing.toy import CLASSES, OneLine, relabelled, run_rounds, toy_client
from fedepd.testing.watch import Outcome, Watched, copies
from fedepd.types import ClientData

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
"""What is the matter with the middle client; ``partial``: half of the clients take part in a round."""
FEATURE_KINDS = {"dense": False, "sparse": True}
OTHERS = [
    Backbone("gat", 4),
    Backbone("h2gcn", 4),
    Backbone("sage", 4, layers=1),
    Backbone(OneLine(), 4),
]
"""A last layer with parameters, one that widens, a dense encoder, and somebody's own."""
NETWORKS = [(backbone, head) for backbone in ("gcn", "sage") for head in ("gcn", "linear")]
SHORTEST_HELP = 10

CROSSES = (
    "change copies only (x.clone()), and reply with dense float32 tensors without a gradient (x.detach())"
)
DRAWS = (
    "draw random numbers from client.draws, client.torch_draws and server.torch_draws alone, and keep nothing"
    " on the object"
)
LABELS = "read labels at client.data.train_mask alone; the others are hidden as -1"


def check_method(method: type[Method[Any]] | Method[Any]) -> None:
    """Run the whole battery on a method.

    Args:
        method: the class, which is then made with its defaults; or an object, to test other settings.

    Raises:
        CheckFailed: names the first check that fails, what is wrong, and what to do.

    >>> from fedepd.methods import METHODS
    >>> check_method(METHODS["fedavg"])
    """
    run_all(method_checks(method))


def method_checks(method: type[Method[Any]] | Method[Any]) -> list[Check]:
    """The battery as named checks: ``pytest.mark.parametrize("check", method_checks(MyMethod), ids=str)``."""
    battery = Battery(method)
    return [*class_checks(method if isinstance(method, type) else type(method)), *battery.checks()]


# --- the class


def class_checks(cls: type[Method[Any]]) -> list[Check]:
    """What can be seen without running it."""
    return [
        Check("its class can be a method", partial(_can_be_run, cls), "see docs/extend.md"),
        Check(
            "it is final",
            partial(_is_final, cls),
            "derive it from Method alone and write @final above the class",
        ),
        Check(
            "it says what it sends", partial(_says, cls), "write what goes down and up, and how many bytes"
        ),
        Check(
            "the server's half has no data",
            partial(_has_no_data, cls),
            "the server sees tensors and replies alone",
        ),
        Check("every field is explained", partial(_explains, cls), "write option(DEFAULT, HELP)"),
        Check("no field is a setting of the protocol", partial(_owns, cls), "rename the field"),
        Check("its presets can be made and written down", partial(_presets, cls), "correct the preset"),
    ]


def _can_be_run(cls: type[Method[Any]]) -> None:
    check_named_class(cls)


def _is_final(cls: type[Method[Any]]) -> None:
    require(cls.__mro__[1] is Method, f"{cls.__name__} is derived from {cls.__mro__[1].__name__}")
    require(getattr(cls, "__final__", False), f"{cls.__name__} is not final")


def _says(cls: type[Method[Any]]) -> None:
    """In the docstring of its class or its module."""
    text = f"{importlib.import_module(cls.__module__).__doc__} {cls.__doc__}"
    missing = [word for word in ("Down", "Up", "Bytes") if word not in text]
    require(not missing, f"the docstring does not say {', '.join(missing)}")


def _has_no_data(cls: type[Method[Any]]) -> None:
    """The privacy line is a type: no parameter of the server's functions can hold a client's data."""

    def inside(hint: Any) -> set[Any]:
        return {hint} | {part for arg in get_args(hint) for part in inside(arg)}

    for function in (cls.server_init, cls.server_step, cls.message):
        hints = get_type_hints(function)
        unnamed = set(inspect.signature(function).parameters) - {"self"} - hints.keys()
        require(not unnamed, f"{function.__name__} does not say the types of {sorted(unnamed)}")
        seen = set().union(*(inside(hint) for hint in hints.values()))
        holds = not seen.isdisjoint({ClientData, Client, Any, object})
        holds |= any(getattr(hint, "__origin__", None) is Client for hint in seen)
        require(not holds, f"{function.__name__} could be given a client's data")


def _explains(cls: type[Method[Any]]) -> None:
    for f in fields(cls):
        require(
            len(f.metadata.get("help", "")) > SHORTEST_HELP, f"field '{f.name}' has no help text to speak of"
        )


def _owns(cls: type[Method[Any]]) -> None:
    require({f.name for f in fields(cls)} <= setting_owners(cls).keys(), "a field is no setting")


def _presets(cls: type[Method[Any]]) -> None:
    hints = get_type_hints(cls)
    for preset, settings in cls.presets.items():
        method = cls(**settings)
        as_text = {name: coerced(name, str(value), hints[name]) for name, value in asdict(method).items()}
        require(cls(**asdict(method)) == method, f"preset '{preset}' is not made again from its settings")
        require(
            cls(**as_text) == method, f"preset '{preset}' is not made again from the text of its settings"
        )


# --- what it does


@dataclass(frozen=True, eq=False)
class Battery:
    """The runs of one method; a run that several checks look at is made once."""

    method: type[Method[Any]] | Method[Any]
    _runs: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def checks(self) -> Iterator[Check]:
        for case, features in ((case, features) for case in AWKWARD for features in FEATURE_KINDS):
            where = f"[{case}-{features}]"
            yield self._check(
                f"steps write into nothing they were given {where}", self.crosses, CROSSES, case, features
            )
            yield self._check(
                f"counted bytes are the bytes sent {where}", self.counts, CROSSES, case, features
            )
            yield self._check(
                f"same seed, same bits, in any order {where}", self.repeats, DRAWS, case, features
            )
        for case in AWKWARD:
            yield self._check(f"a client's state is finite tensors [{case}]", self.keeps, CROSSES, case)
            yield self._check(f"held-out labels have no influence [{case}]", self.sees_no_label, LABELS, case)
        yield self._check("another seed gives other bits", self.depends_on_seed, DRAWS)
        for features in FEATURE_KINDS:
            cure = "look at the sign of the gradient, and whether the server keeps what was trained"
            yield self._check(f"the loss falls [{features}]", self.learns, cure, features)
            for backbone, head in NETWORKS:
                cure = "use client.model's functions and no shapes of your own"
                where = f"[{features}-{backbone}-{head}]"
                yield self._check(
                    f"every backbone and head runs {where}", self.fits, cure, features, backbone, head
                )
        if self.method.has_global:
            for case in AWKWARD:
                cure = "give encoder, last layer and their loss in 'adaptation', or leave it out"
                yield self._check(f"its model can be adapted [{case}]", self.adapts, cure, case)
        for model in OTHERS:
            cure = "use client.model's functions and no shapes of your own; reply with finite tensors"
            where = f"[{network_name(model.network)}-{model.layers}]"
            yield Check(f"every kind of network runs {where}", partial(self.fits_others, model), cure)

    @staticmethod
    def _check(name: str, act: Callable[..., None], cure: str, *arguments: str) -> Check:
        return Check(name, partial(act, *arguments), cure)

    def run(
        self,
        case: str,
        features: str,
        clients: list[ClientData] | None = None,
        strict: bool = False,
        **more: Any,
    ) -> Outcome:
        method = self.method() if isinstance(self.method, type) else self.method
        torch.set_num_threads(1)  # as in a run: more would change bits
        watched = Watched(method, strict)
        training = Training(epochs=2, lr=0.05, participation=0.5 if case == "partial" else 1.0)
        options: dict[str, Any] = {
            "rounds": 3,
            "model": SMALL,
            "training": training,
            "threaded_from": 0,
            **more,
        }
        clients = clients or federation(case, features)
        rounds, exchange = run_rounds(watched, clients, **options)  # type: ignore[arg-type]
        return Outcome(watched, rounds, exchange)

    def first(self, case: str, features: str) -> Outcome:
        if (case, features) not in self._runs:
            self._runs[case, features] = self.run(case, features, strict=True)
        return self._runs[case, features]

    def crosses(self, case: str, features: str) -> None:
        """That the strict run comes to its end is the first half of the check."""
        outcome = self.first(case, features)
        refused = [refusal for r in outcome.rounds for refusal in r.refused]
        require(not refused, f"the server refused {refused[:1]}")
        taking_part = [len(r.clients) for r in outcome.rounds]
        require(taking_part == [2 if case == "partial" else 3] * 3, f"{taking_part} clients took part")
        sent = [*outcome.watched.up.values(), *outcome.watched.down.values()]
        for tensors in [*sent, *(r.tensors for r in outcome.rounds)]:
            for key, value in tensors.items():
                _require_sendable(key, value)
                require(value.dtype == torch.float32, f"'{key}' is {value.dtype}, not float32")

    def keeps(self, case: str) -> None:
        """The state is saved with the personal model and comes back in the next round."""
        for participant in self.first(case, "dense").exchange.participants.values():
            for key, value in participant.state.items():
                _require_sendable(key, value)

    def counts(self, case: str, features: str) -> None:
        outcome = self.first(case, features)
        for each in outcome.rounds:
            for counted, crossed in (
                (each.bytes_up, outcome.watched.up),
                (each.bytes_down, outcome.watched.down),
            ):
                of_round = [tensors for (number, _), tensors in crossed.items() if number == each.number]
                require(len(of_round) == len(each.clients), "a step was made twice or left out")
                names = {key for tensors in of_round for key in tensors}
                require(counted.keys() == names, f"{sorted(counted.keys() ^ names)} crossed uncounted")
                sent = sum(value.nbytes for tensors in of_round for value in tensors.values())
                require(
                    sum(counted.values()) == sent,
                    f"{sent} bytes crossed, {sum(counted.values())} were counted",
                )

    def repeats(self, case: str, features: str) -> None:
        first = self.first(case, features)
        again = self.run(case, features, clients=federation(case, features)[::-1], workers=2)
        require_same(first.trained(), again.trained())
        require_same(first.evaluated(), again.evaluated())

    def depends_on_seed(self) -> None:
        first, other = self.first("plain", "dense").trained(), self.run("plain", "dense", seed=1).trained()
        models = [
            key for key in first if key.startswith(("/state/", "/up/")) and key.endswith("classifier.weight")
        ]
        require(models, "no client keeps or sends a 'classifier.weight'")
        for key in models:
            require(key not in other or not torch.equal(first[key], other[key]), f"{key} is the same")

    def sees_no_label(self, case: str) -> None:
        clients = federation(case, "dense")
        others = [
            relabelled(c, torch.where(c.train_mask, c.graph.y, (c.graph.y + 1) % CLASSES)) for c in clients
        ]
        first, other = self.first(case, "dense"), self.run(case, "dense", clients=others)
        require_same(first.trained(), other.trained())
        changed = other.evaluated()
        same = all(torch.equal(value, changed[key]) for key, value in first.evaluated().items())
        require(not same, "the labels did not reach the evaluation either, so that this check says nothing")

    def learns(self, features: str) -> None:
        outcome = self.run("plain", features, rounds=10, model=Backbone(hidden=8, dropout=0.0))
        losses = [r.loss for r in outcome.rounds]
        require(losses[-1] < losses[0], f"it went from {losses[0]:.4f} to {losses[-1]:.4f}")

    def adapts(self, case: str) -> None:
        """A few steps after the last round, at every client."""
        outcome = self.first(case, "dense")
        for number, participant in outcome.exchange.participants.items():
            method, client = participant.method, participant._client(participant.last_round + 1)
            message = method.message(outcome.rounds[-1].tensors, number)
            before = copies(message)
            models, again = (trained_on(method, client, message, (2, 4)) for _ in range(2))
            require_same(before, copies(message))
            require_same(copies(models), copies(again))
            for steps, model in models.items():
                require(model.keys() == message.keys(), f"{steps} steps change the names of its tensors")
                logits = method.predict(client, model)
                require(bool(logits.isfinite().all()), f"its logits are not finite after {steps} steps")
            if bool(client.data.train_mask.any()):
                same = all(torch.equal(value, message[name]) for name, value in models[4].items())
                require(not same, "4 steps change nothing")

    def fits(self, features: str, backbone: Any, head: Any) -> None:
        model, case = Backbone(backbone, hidden=4, head=head), "one_node_class"
        run = self.first(case, features) if model == SMALL else self.run(case, features, model=model)
        _require_finite(run.rounds)

    def fits_others(self, model: Backbone) -> None:
        """Strict: steps write into nothing that they were given."""
        _require_finite(self.run("one_node_class", "sparse", strict=True, model=model, rounds=2).rounds)


def _require_finite(rounds: list[Round]) -> None:
    require(all(math.isfinite(r.loss) for r in rounds), "a round has no finite loss")
    for each in rounds:
        for key, value in each.tensors.items():
            require(bool(value.isfinite().all()), f"'{key}' is not finite after round {each.number}")


def federation(case: str, features: str) -> list[ClientData]:
    """Three clients; the middle one is the awkward one, except that a class may be missing everywhere."""
    everywhere = {"missing_class": True} if case == "nobody_has_class" else {}
    more = {k: {**everywhere, **(AWKWARD[case] if k == 1 else {})} for k in range(3)}
    return [toy_client(k, nodes=16 + 4 * k, sparse=FEATURE_KINDS[features], **more[k]) for k in range(3)]


def _require_sendable(key: Any, value: Any) -> None:
    require(isinstance(key, str), f"the name {key!r} is not a text")
    require(isinstance(value, Tensor), f"'{key}' is not a tensor")
    require(value.layout == torch.strided, f"'{key}' is not dense")
    require(not value.requires_grad, f"'{key}' carries a gradient")
    require(bool(value.isfinite().all()), f"'{key}' is not finite")
