"""A run on float16 features has the bits of one on the same numbers in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.clients.client_file import write_client_file
from fedepd.clients.clients_dir import read_files
from fedepd.clients.partition import PartitionConfig, partition, subgraphs
from fedepd.clients.rounded import in_float16
from fedepd.datasets.npz import pack, write_npz
from fedepd.datasets.synthetic import synthetic
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.methods import METHODS
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import weights_sha256
from fedepd.runs.resume import resume
from fedepd.runs.run import RunResult
from fedepd.runs.simulation import build
from fedepd.runs.source import Source
from fedepd.types import Graph
from toy import CLASSES, FEATURES, toy_clients

SETTINGS: dict[str, Any] = {"rounds": 2, "clients": 3, "hidden": 8, "backbone": "gcn", "evaluate_every": 1}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Dense numbers that float16 does not have."""
    return synthetic(nodes=200, edges=600, classes=4, imbalance=5.0, smallest=None, features=8, communities=6)


@pytest.fixture(scope="module")
def rounded(graph: Graph) -> Graph:
    return replace(graph, x=graph.x.to(torch.float16).to(torch.float32))


def same(one: RunResult, other: RunResult) -> bool:
    assert one.tensors.keys() == other.tensors.keys()
    equal = [torch.equal(value, other.tensors[name]) for name, value in one.tensors.items()]
    return all(equal) and one.metrics == other.metrics and one.clients == other.clients


def test_the_features_are_not_in_float16_already(graph: Graph, rounded: Graph) -> None:
    assert graph.x.dtype == torch.float32
    assert not torch.equal(graph.x, rounded.x)


# Of the methods that read X themselves, three that get it in float32: dense rows, sketches, attention.
@pytest.mark.parametrize(
    "method",
    [name for name, each in METHODS.items() if each.reads_float16] + ["fedspray", "fedsage", "fedgac"],
)
def test_a_method_has_the_bits_of_the_rounded_features(graph: Graph, rounded: Graph, method: str) -> None:
    settings = {**SETTINGS, "rounds": 3} if METHODS[method].merges_clients else SETTINGS
    assert same(
        fedepd.run(graph, method, **settings, features="float16"), fedepd.run(rounded, method, **settings)
    )


@pytest.mark.parametrize("backbone", ["sage", "gat", "sgc", "mlp", "h2gcn"])
def test_so_has_a_backbone(graph: Graph, rounded: Graph, backbone: str) -> None:
    settings = {**SETTINGS, "backbone": backbone}
    assert same(
        fedepd.run(graph, "fedavg", **settings, features="float16"),
        fedepd.run(rounded, "fedavg", **settings),
    )


@pytest.mark.parametrize(
    "more",
    [
        {"workers": 3},
        {"shards": 2},
        {"secure": True},
        {"guard": True},
        {"scope": "pooled"},
        {"pruned": "by_vote"},
        {"corrupt": "features=0.2,features-missing=0.1,edges=0.1"},
        {"adapt": True},
    ],
)
def test_so_has_every_way_to_run(graph: Graph, rounded: Graph, more: dict[str, Any]) -> None:
    threads = {name: value for name, value in more.items() if name in ("workers", "shards")}
    others = {name: value for name, value in more.items() if name not in threads}
    one = fedepd.run(graph, "fedavg", **SETTINGS, **more, features="float16")
    assert same(one, fedepd.run(rounded, "fedavg", **SETTINGS, **others))


@pytest.mark.parametrize("secure", [False, True])
def test_so_has_a_federation(tmp_path: Path, secure: bool) -> None:
    """Its sites round their own features."""
    found = []
    for name, form in (("own", "float16"), ("rounded", "raw")):
        (tmp_path / name).mkdir()
        files = []
        for client in toy_clients():
            x = client.graph.x.to_dense() / 3  # thirds, which float16 does not have
            x = x if form == "float16" else x.to(torch.float16).to(torch.float32)
            files.append(tmp_path / name / f"{client.client_id}.npz")
            write_client_file(replace(client, graph=replace(client.graph, x=x)), files[-1])
        settings = {"rounds": 2, "hidden": 4, "features": form, "secure": secure}
        settings |= {"min_count": 1, "min_holders": 1}
        names = ("a", "b", "c")
        task = FederationTask("r", "fedavg", "default", settings, FEATURES, CLASSES, names)
        found.append(weights_sha256(rehearse(task, files).progress.tensors))
    assert found[0] == found[1]


def test_features_stay_float16_while_a_run_goes_on(graph: Graph) -> None:
    simulation = build(Experiment.make("fedavg", **SETTINGS, features="float16"), graph)
    assert simulation.graph.x.dtype == torch.float16
    assert {client.graph.x.dtype for client in simulation.clients} == {torch.float16}
    assert {p._hidden.graph.x.dtype for p in simulation.participants} == {torch.float16}
    # A method that reads X itself gets float32.
    simulation = build(Experiment.make("fedspray", **SETTINGS, features="float16"), graph)
    assert {p._hidden.graph.x.dtype for p in simulation.participants} == {torch.float32}


def test_a_folder_in_float16_is_mapped_and_has_the_identity_of_its_numbers(
    graph: Graph, rounded: Graph, tmp_path: Path
) -> None:
    pack(in_float16(graph), tmp_path / "half")
    write_npz(rounded, tmp_path / "rounded.npz")
    x = Source.make(tmp_path / "half").load()
    assert isinstance(x, Graph)
    assert x.x.dtype == torch.float16
    assert np.load(tmp_path / "half" / "x.npy", mmap_mode="r").dtype == np.float16
    assert fedepd.load(tmp_path / "half").x.dtype == torch.float32  # for whoever is no run
    found, wanted = (fedepd.run(tmp_path / name, **SETTINGS) for name in ("half", "rounded.npz"))
    assert same(found, wanted)
    assert found.config["config_hash"] == wanted.config["config_hash"]


def test_the_setting_is_part_of_the_identity_and_survives_an_interruption(
    graph: Graph, tmp_path: Path
) -> None:
    write_npz(graph, tmp_path / "bank.npz")

    class Stop(Exception):
        pass

    def stop(_: object) -> None:
        raise Stop

    settings = {**SETTINGS, "features": "float16"}
    whole = fedepd.run(tmp_path / "bank.npz", "fedavg", **settings)
    with pytest.raises(Stop):
        fedepd.run(tmp_path / "bank.npz", "fedavg", **settings, out=tmp_path / "run", on_round=stop)
    again = resume(tmp_path / "run")
    assert same(again, whole)
    assert again.config["config_hash"] == whole.config["config_hash"]
    raw = fedepd.run(tmp_path / "bank.npz", "fedavg", **SETTINGS)
    assert whole.config["config_hash"] != raw.config["config_hash"]
    assert "features float16" in whole.config["protocol"]


def test_clients_in_files_may_be_in_float16(graph: Graph, tmp_path: Path) -> None:
    for client, (part, ids) in enumerate(subgraphs(graph, partition(graph, PartitionConfig(clients=3), 0))):
        for name, one in (("wide", part), ("narrow", in_float16(part))):
            folder = tmp_path / name / f"c{client}"
            folder.mkdir(parents=True)
            write_npz(one, folder / "graph.npz", {"global_ids": ids.numpy()})
    assert np.load(tmp_path / "narrow" / "c0" / "graph.npz")["x"].dtype == np.float16
    wide, narrow = (read_files(tmp_path / name) for name in ("wide", "narrow"))
    found = fedepd.run(wide, "fedavg", **SETTINGS, features="float16")
    assert same(found, fedepd.run(narrow, "fedavg", **SETTINGS))
