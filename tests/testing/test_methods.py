"""The battery finds what is wrong: a method for each way to break the contract, and its check."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor

import fedepd
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import option
from fedepd.testing import CheckFailed, check_method, method_checks
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class Sound(Method[Inputs]):
    """Down: the model. Up: the model. Bytes: 4 per weight. The wrong ones replace one of its functions."""

    label: ClassVar[str] = "Sound"
    tau: float = option(1.0, "a number that does nothing here")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


def changed(**parts: Any) -> Any:
    """The class with some of its attributes replaced; decorators and fields stay."""
    return type("Sound", (Method,), {**{k: v for k, v in vars(Sound).items() if k != "__dict__"}, **parts})


def failing(method: Any, name: str) -> str:
    """The sentence of the check whose name starts so; it must fail."""
    check = next(check for check in method_checks(method) if check.name.startswith(name))
    with pytest.raises(CheckFailed) as caught:
        check()
    assert str(caught.value).startswith(check.name)
    assert str(caught.value).endswith(check.cure)
    return str(caught.value)


def writes(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    message["encoder.bias"].add_(1.0)
    return Sound().client_step(client, message, state)


def sends_doubles(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    answer, state = Sound().client_step(client, message, state)
    return replace(answer, tensors={name: value.double() for name, value in answer.tensors.items()}), state


def keeps_text(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    answer, state = Sound().client_step(client, message, state)
    return answer, {**state, "note": "seen"}


def draws_anywhere(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    answer, state = Sound().client_step(client, message, state)
    noise = float(np.random.default_rng().normal())
    return replace(answer, tensors={name: value + noise for name, value in answer.tensors.items()}), state


def draws_nothing(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    same = {name: torch.zeros_like(value) for name, value in message.items()}
    return reply(client, same, loss=1.0), same


def fails(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    raise ValueError("no such client")


def ascends(self: Any, client: Any, message: Tensors, state: Tensors) -> Any:
    params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
    away = {name: message[name] - 3 * (params[name] - message[name]) for name in params}
    return reply(client, away, loss=loss), {**state, **away}


def knows_the_shape(self: Any, client: Any, tensors: Tensors) -> Tensor:
    return Sound().predict(client, {**tensors, "encoder.weight": tensors["encoder.weight"].reshape(6, 4)})


def predicts_one_column(self: Any, client: Any, tensors: Tensors) -> Tensor:
    return Sound().predict(client, tensors)[:, :1]


PLAIN = "steps write into nothing they were given [plain-dense]"
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "writes": ({"client_step": writes}, PLAIN, "wrote into /encoder.bias"),
    "doubles": ({"client_step": sends_doubles}, PLAIN, "float64"),
    "fails": ({"client_step": fails}, PLAIN, "ClientFailed: client "),
    "keeps text": (
        {"client_step": keeps_text},
        "a client's state is finite tensors [plain]",
        "'note' is not a tensor",
    ),
    "draws": ({"client_step": draws_anywhere}, "same seed, same bits", "differs; draw random numbers from"),
    "no seed": ({"client_step": draws_nothing}, "another seed gives other bits", "is the same"),
    "ascends": ({"client_step": ascends}, "the loss falls [dense]", "it went from"),
    "shape": ({"predict": knows_the_shape}, "every backbone and head runs [dense-sage-gcn]", "RuntimeError"),
    "one column": ({"predict": predicts_one_column}, PLAIN, "predict gave the shape [24, 1], not [24, 3]"),
    "not final": ({"__final__": False}, "it is final", "is not final"),
    "silent": (
        {"__doc__": "Nothing."},
        "it says what it sends",
        "the docstring does not say Down, Up, Bytes",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, check, reason = WRONG[case]
    monkeypatch.setattr(sys.modules[__name__], "__doc__", "")
    assert reason in failing(changed(**parts), check)


def test_the_sound_one_passes_these_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each case above fails for its own reason."""
    wanted = {check for _, check, _ in WRONG.values()}
    for check in method_checks(Sound):
        if any(check.name.startswith(start) for start in wanted) or not check.name.endswith("]"):
            check()


def sees_data(self: Any, server: Server, tensors: Tensors, replies: Mapping[int, ClientData]) -> Tensors:
    return tensors


def says_no_types(self, server, tensors, replies):  # type: ignore[no-untyped-def]
    return tensors


@pytest.mark.parametrize(
    ("function", "reason"),
    [(sees_data, "could be given a client's data"), (says_no_types, "does not say the types of")],
)
def test_the_server_s_half_has_no_data(function: Any, reason: str) -> None:
    assert reason in failing(changed(server_step=function), "the server's half has no data")


@dataclass(frozen=True)
class ClashingFields:
    rounds: int = 3
    tau: float = option(1.0, "short")


def test_fields_are_explained_and_are_no_settings_of_the_protocol() -> None:
    fields = {
        "__dataclass_fields__": ClashingFields.__dataclass_fields__,
        "__annotations__": {"rounds": "int"},
    }
    assert "'rounds' is a setting of both protocol and Sound" in failing(
        changed(**fields), "no field is a setting"
    )
    assert "has no help text" in failing(changed(**fields), "every field is explained")


def test_a_preset_must_be_one_of_its_fields() -> None:
    wrong = changed(presets={"default": {}, "theirs": {"rho": 1}})
    assert "sets what is no field" in failing(wrong, "its class can be a method")


def test_the_first_failure_is_raised_and_an_object_may_be_checked() -> None:
    with pytest.raises(CheckFailed, match="it is final: Sound is not final; derive it from Method alone"):
        check_method(changed(__final__=False))
    names = [check.name for check in method_checks(FedAvg())]
    assert len(names) == len(set(names)) > 60


def test_pytest_is_not_needed() -> None:
    """Whoever has the package has the battery: nothing shipped imports what only tests have."""
    for file in Path(fedepd.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pytest", "hypothesis"}, file
