"""Methods given as objects of a class that has no name: run, reported, resumed with an equal object."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
from torch import Tensor

import fedepd
from fedepd.cli import main
from fedepd.datasets.synthetic import synthetic
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig
from fedepd.methods import Client, Method, Server
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedlc import FedLC
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.runs.experiment import Experiment
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

NAME = f"{__name__}:Mine"
TINY: dict[str, Any] = {"rounds": 4, "hidden": 4, "clients": 2, "evaluate_every": 2}


@final
@dataclass(frozen=True)
class Mine(Method[Inputs]):
    """FedAvg whose loss is reported in other units."""

    label: ClassVar[str] = "Mine"
    tau: float = 2.0
    """Without a help text: an object is no option of the command line."""

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss / self.tau), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


@pytest.fixture(scope="module")
def graph() -> fedepd.Graph:
    return synthetic(nodes=200, edges=600, classes=3, imbalance=4, smallest=25)


@pytest.mark.usefixtures("no_figures")
def test_an_object_is_run_and_its_folder_says_what_it_was(graph: fedepd.Graph, tmp_path: Path) -> None:
    result = fedepd.run(graph, Mine(tau=3), out=tmp_path / "run", **TINY)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == config["experiment"]["method"]["name"] == NAME
    assert config["method_label"] == "Mine"
    assert config["experiment"]["method"] == {"name": NAME, "preset": "default", "tau": 3.0}
    plain = fedepd.run(graph, "fedavg", **TINY)
    assert result.summary["weights_sha256"] == plain.summary["weights_sha256"]  # it computes what FedAvg does
    assert result.summary["config_hash"] != plain.summary["config_hash"]
    page = fedepd.build_report(tmp_path / "run").read_text()
    assert "Mine" in page


@pytest.mark.parametrize("method", [FedAvg(), FedLC(), FedLC(tau=0.5)])
def test_an_object_of_ours_is_what_its_name_is(method: Method[Any]) -> None:
    name = type(method).__name__.lower()
    by_name = Experiment.make(name, **asdict(method))
    assert Experiment.make(method) == by_name
    assert Experiment.make(method).config_hash("data") == by_name.config_hash("data")


def test_values_become_plain_ones() -> None:
    """A number of numpy's is no JSON; one that is no number at all is refused."""
    made = Experiment.make(Mine(tau=np.float64(0.5)), rounds=3)
    assert type(made.method.tau) is float  # type: ignore[attr-defined]
    assert made == Experiment.make(Mine(tau=0.5), rounds=3)
    made.config_hash("data")
    with pytest.raises(BadConfig, match="tau is 'x'; give a finite number"):
        Experiment.make(Mine(tau="x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Experiment.make(Mine), "Mine is a class; give an object of it"),  # type: ignore[arg-type]
        (lambda: Experiment.make(3), "'int' is not derived from fedepd.methods.Method"),  # type: ignore[arg-type]
        (lambda: Experiment.make(Mine(), tau=3), "'tau' is a setting of the Mine object"),
        (lambda: Experiment.make(Mine(), "printed"), "has its own settings; leave preset out"),
        (lambda: Experiment.make(Mine(), no_such=1), "unknown setting 'no_such'"),
        (lambda: Experiment.make(NAME), "is a class that has no name here; pass an object of it"),
        (lambda: Experiment.make("fedepd:printed"), "unknown method 'fedepd:printed'; did you mean 'fedepd'"),
        (
            lambda: FederationTask("r", NAME, "default", {}, 4, 3, ("a",)),
            "register it through an entry point",
        ),
    ],
)
def test_what_is_no_object_is_refused_in_one_sentence(make: Any, reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        make()


class Stop(Exception):
    pass


@pytest.fixture
def interrupted(graph: fedepd.Graph, tmp_path: Path) -> Path:
    def stop(each: Any) -> None:
        if each.number == 2:
            raise Stop

    with pytest.raises(Stop):
        fedepd.run(graph, Mine(tau=3), out=tmp_path / "run", on_round=stop, **TINY)
    return tmp_path / "run"


def test_resume_takes_an_equal_object(graph: fedepd.Graph, interrupted: Path) -> None:
    result = fedepd.resume(interrupted, graph, method=Mine(tau=3))
    whole = fedepd.run(graph, Mine(tau=3), **TINY)
    assert result.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert result.summary["config_hash"] == whole.summary["config_hash"]


def test_resume_takes_a_class_that_moved_to_another_module(
    graph: fedepd.Graph, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's own class is in '__main__', and in the script's module when another one imports it."""
    monkeypatch.setitem(sys.modules, "elsewhere", sys.modules[__name__])
    monkeypatch.setattr(Mine, "__module__", "elsewhere")
    assert fedepd.resume(interrupted, graph, method=Mine(tau=3)).summary["method"] == NAME


def test_resume_refuses_what_the_run_did_not_have(graph: fedepd.Graph, interrupted: Path) -> None:
    with pytest.raises(
        BadConfig, match=r"made with tau = 3.0, and the Mine object has 2.0; give an equal one"
    ):
        fedepd.resume(interrupted, graph, method=Mine())
    with pytest.raises(BadConfig, match=r"made with the method '.*:Mine', not FedAvg"):
        fedepd.resume(interrupted, graph, method=FedAvg())
    with pytest.raises(BadConfig, match=r"fedepd.resume\(folder, method=METHOD\), or register it"):
        fedepd.resume(interrupted, graph)
    assert not (interrupted / "summary.json").exists()


def test_the_command_and_the_export_refuse_it_with_the_cure(
    graph: fedepd.Graph, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(interrupted)]) == 2
    assert "register it through an entry point of the group 'fedepd.methods'" in capsys.readouterr().err
    fedepd.resume(interrupted, graph, method=Mine(tau=3))
    with pytest.raises(BadConfig, match="register it through an entry point"):
        fedepd.export(interrupted, tmp_path / "model", graph)
    assert not (tmp_path / "model").exists()
