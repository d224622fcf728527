"""From a graph to numbers and a folder.

The bits are the same however it is run, and odd input leaves nothing behind.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedepd.clients.partition import PartitionConfig, partition
from fedepd.clients.split import SplitConfig, make_clients
from fedepd.datasets import load
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig, FedEPDError
from fedepd.metrics import METRICS
from fedepd.report.page import build_report
from fedepd.rng import seeded
from fedepd.rounds.loop import Round
from fedepd.runs.folder import weights_sha256
from fedepd.runs.jobs import Job, run_jobs
from fedepd.runs.run import RunResult, run
from fedepd.types import HIDDEN, ClientData, Graph
from toy import assert_same, relabelled

QUICK: dict[str, Any] = {"rounds": 3, "hidden": 8, "clients": 3, "evaluate_every": 2}

FILES = {
    "config.json", "env.json", "rounds.jsonl", "confusion.npz", "partition.npz", "clients.json",
    "model.safetensors", "final.safetensors", "ranking.json", "summary.json",
}  # fmt: skip
SUMMARY = {
    "method", "method_label", "preset", "dataset", "proxy_features", "seed", "rounds", "best_round",
    "metrics", "headline", "tiers", "test_without_local_train", "bytes_up", "bytes_down", "seconds",
    "cpu_seconds", "peak_rss_mb", "config_hash", "weights_sha256", "partition_sha256", "protocol",
    "by_class", "by_tier", "by_client",
}  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic")


@pytest.fixture(scope="module")
def kept(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run and its folder, which the tests only read."""
    return run(graph, "fedepd", out=tmp_path_factory.mktemp("runs") / "kept", **QUICK)


def small(
    labels: list[int], edges: list[tuple[int, int]], num_classes: int | None = None, **more: Any
) -> Graph:
    x = torch.randn(len(labels), 4, generator=seeded("features"))
    ends = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return Graph.make(x, ends, torch.tensor(labels), num_classes, name="small", **more)


def test_public_names_in_a_fresh_process() -> None:
    settings = ", ".join(f"{name}={value}" for name, value in QUICK.items())
    code = (
        f"import fedepd; r = fedepd.run(fedepd.load('synthetic'), 'fedavg', {settings}); "
        "print(r.metrics['global']['pooled']['acc'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 <= float(done.stdout) <= 1


def test_python_interface(graph: Graph) -> None:
    seen: list[int] = []
    result = run(graph, "fedepd", on_round=lambda each: seen.append(each.number), **QUICK)
    assert seen == [1, 2, 3]
    assert result.folder is None
    assert len(result.rounds) == 3
    assert result.metrics.keys() == {"global", "personal"}
    for model in result.metrics.values():
        assert model.keys() == {"pooled", "client_mean"}
        for scores in model.values():
            assert (
                scores.keys()
                == set(METRICS)
                == {"acc", "bacc", "macro_f1", "head_acc", "medium_acc", "tail_acc"}
            )
            assert all(0 <= score <= 1 for score in scores.values())


def test_training_beats_the_largest_class(graph: Graph) -> None:
    """A classifier that always answers the largest class has a balanced accuracy of 1 / 10 classes."""
    result = run(graph, "fedavg", rounds=15, clients=3)
    assert result.metrics["global"]["pooled"]["bacc"] > 0.2
    assert result.rounds[-1]["loss"] < result.rounds[0]["loss"]


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedepd", "guard": True},
        {"method": "fedepd", "secure": True},
        {"method": "fedavg", "attack": "alie", "attackers": 1},
        {"method": "fedgta", "participation": 0.5},
    ],
)
def test_shards_give_the_bits_of_one_process(settings: dict[str, Any]) -> None:
    """What every method does in shards is in test_resume. Here is what else a server may ask."""
    graph = synthetic(nodes=150, edges=500, classes=3, smallest=20, imbalance=4.0, features=8)
    here = run(graph, **settings, **QUICK)
    there = run(graph, **settings, **QUICK, shards=2)
    assert here.summary["weights_sha256"] == there.summary["weights_sha256"]
    assert_same(here.adapted, there.adapted)
    for name, matrix in here.confusions.items():
        assert np.array_equal(matrix, there.confusions[name]), name
    assert not multiprocessing.active_children()


def test_a_killed_shard_ends_the_run_with_one_sentence(graph: Graph, tmp_path: Path) -> None:
    def kill(each: Round) -> None:
        for process in multiprocessing.active_children()[:1]:
            process.kill()

    with pytest.raises(FedEPDError, match=r"the process of a shard was killed \(SIGKILL\)"):
        run(graph, "fedavg", out=tmp_path / "run", shards=2, on_round=kill, **QUICK)
    assert not multiprocessing.active_children()
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [({"shards": 0}, "shards is 0; give at least 1"), ({"shards": 2, "workers": 2}, "give one of the two")],
)
def test_shards_that_cannot_be(graph: Graph, given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        run(graph, "fedavg", **given, **QUICK)


def test_the_folder_is_complete(kept: RunResult, graph: Graph) -> None:
    folder = kept.folder
    assert folder is not None
    assert {path.name for path in folder.iterdir()} == FILES
    summary, config = (json.loads((folder / f"{name}.json").read_text()) for name in ("summary", "config"))
    assert summary.keys() >= SUMMARY
    assert summary["metrics"] == kept.metrics
    assert summary["best_round"] in (2, 3)
    assert (config["method"], config["rounds"], config["seed"], config["preset"]) == (
        "fedepd",
        3,
        0,
        "default",
    )
    assert config["config_hash"] == summary["config_hash"]
    assert config["experiment"]["model"]["hidden"] == 8
    assert config["dataset"]["nodes"] == graph.num_nodes
    clients = json.loads((folder / "clients.json").read_text())
    assert [client["client"] for client in clients] == [0, 1, 2]
    assert sum(client["nodes"] for client in clients) == graph.num_nodes


def test_one_line_per_round(kept: RunResult) -> None:
    assert kept.folder is not None
    lines = [json.loads(line) for line in (kept.folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert ["val" in line for line in lines] == [False, True, True]  # every second round, and the last
    assert lines[1]["val"].keys() == {"global", "personal"}
    assert sum(sum(line["bytes_up"].values()) for line in lines) == kept.summary["bytes_up"] > 0
    assert sum(sum(line["bytes_down"].values()) for line in lines) == kept.summary["bytes_down"] > 0
    assert all(line["clients"] == [0, 1, 2] and line["seconds"] > 0 for line in lines)


def test_arrays_of_the_folder_agree_with_the_numbers(kept: RunResult, graph: Graph) -> None:
    assert kept.folder is not None
    with np.load(kept.folder / "confusion.npz", allow_pickle=False) as confusion:
        names = {"global_val", "global_test", "personal_val", "personal_test"}
        assert set(confusion.files) == names | {f"{name}_by_acc" for name in names}  # of both selections
        pooled = confusion["global_test"].sum(0)
    assert np.trace(pooled) / pooled.sum() == pytest.approx(kept.metrics["global"]["pooled"]["acc"])
    with np.load(kept.folder / "partition.npz", allow_pickle=False) as partition:
        assert (partition["split"] == 2).sum() == pooled.sum()
        assert (
            partition["class_sizes"].tolist()
            == torch.bincount(graph.y).tolist()
            == partition["client_class"].sum(0).tolist()
        )
        assert np.bincount(partition["owner"]).tolist() == partition["client_class"].sum(1).tolist()
        assert partition["owner"].dtype == partition["client_class"].dtype == np.int64


def test_weights_of_the_folder(kept: RunResult) -> None:
    assert kept.folder is not None
    assert weights_sha256(load_file(kept.folder / "final.safetensors")) == kept.summary["weights_sha256"]
    assert_same(load_file(kept.folder / "model.safetensors"), kept.tensors)


@pytest.mark.usefixtures("no_figures")
def test_report_needs_the_folder_alone(kept: RunResult, tmp_path: Path) -> None:
    assert kept.folder is not None
    page = build_report(kept.folder, tmp_path / "report.html").read_text()
    assert "FedEPD" in page
    assert kept.summary["config_hash"] in page


@pytest.mark.parametrize("workers", [1, 2])
def test_two_runs_give_the_same_bits(kept: RunResult, graph: Graph, workers: int) -> None:
    again = run(graph, "fedepd", workers=workers, **QUICK)
    assert again.summary["weights_sha256"] == kept.summary["weights_sha256"]
    assert again.metrics == kept.metrics
    assert [line["loss"] for line in again.rounds] == [line["loss"] for line in kept.rounds]
    assert_same(again.tensors, kept.tensors)


def test_another_seed_gives_other_bits(kept: RunResult, graph: Graph) -> None:
    other = run(graph, "fedepd", seed=1, **QUICK)
    assert other.summary["weights_sha256"] != kept.summary["weights_sha256"]
    assert other.summary["partition_sha256"] == kept.summary["partition_sha256"]  # Louvain is deterministic


def test_one_and_two_processes_give_the_same_bits(kept: RunResult, tmp_path: Path) -> None:
    def outcome(workers: int) -> dict[str, str]:
        out = tmp_path / str(workers)
        jobs = [
            Job(m, "default", "synthetic", out / f"{m}{s}", None, {**QUICK, "seed": s})
            for m in ("fedepd", "fedavg")
            for s in (0, 1)
        ]
        run_jobs(jobs, workers)
        return {
            job.out.name: json.loads((job.out / "summary.json").read_text())["weights_sha256"] for job in jobs
        }

    alone, together = outcome(1), outcome(2)
    assert alone == together
    assert len(set(alone.values())) == 4
    assert alone["fedepd0"] == kept.summary["weights_sha256"]  # and the same as without any process


def test_the_watcher_sees_every_round(tmp_path: Path) -> None:
    job = Job("fedavg", "default", "synthetic", tmp_path / "a", None, QUICK)
    assert job.rounds_done == 0
    calls: list[int] = []
    run_jobs([job], 1, lambda: calls.append(job.rounds_done))
    assert calls[-1] == 3


def test_an_error_in_a_worker_arrives_as_its_sentence(tmp_path: Path) -> None:
    jobs = [
        Job("fedavg", "default", data, tmp_path / data, None, QUICK) for data in ("sinthetic", "synthetic")
    ]
    with pytest.raises(FedEPDError, match=r"^unknown dataset 'sinthetic'; did you mean 'synthetic'"):
        run_jobs(jobs, 1)
    assert not (tmp_path / "sinthetic").exists()


@pytest.mark.parametrize(
    ("method", "preset"), [("fedepd", "default"), ("fedepd", "printed"), ("fedavg", "default")]
)
def test_hidden_labels_move_no_trained_bit(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, method: str, preset: str
) -> None:
    """Every label outside the training mask becomes the next class; only scores may change."""

    def lie(client: ClientData) -> ClientData:
        return relabelled(
            client,
            torch.where(client.train_mask, client.graph.y, (client.graph.y + 1) % client.graph.num_classes),
        )

    honest = run(graph, method, preset=preset, select="last", **QUICK)
    monkeypatch.setattr(
        sys.modules["fedepd.runs.simulation"],
        "make_clients",
        lambda *arguments: [lie(c) for c in make_clients(*arguments)],
    )
    lied = run(graph, method, preset=preset, select="last", **QUICK)
    assert lied.summary["weights_sha256"] == honest.summary["weights_sha256"]
    assert [line["loss"] for line in lied.rounds] == [line["loss"] for line in honest.rounds]
    assert lied.metrics != honest.metrics


@pytest.fixture(params=["fedepd", "fedavg"])
def run_odd(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., RunResult]:
    """A run of each method with its folder and report; every trained tensor is finite.

    FedEPD's page has every figure that FedAvg's has, so FedAvg's are not drawn.
    """
    if request.param == "fedavg":
        request.getfixturevalue("no_figures")

    def run_it(graph: Graph, **settings: Any) -> RunResult:
        result = run(graph, request.param, out=tmp_path / "odd", **{**QUICK, **settings})
        build_report(tmp_path / "odd")
        assert all(bool(torch.isfinite(value).all()) for value in result.tensors.values())
        assert math.isfinite(result.rounds[-1]["loss"])
        return result

    return run_it


def test_one_client(run_odd: Callable[..., RunResult], graph: Graph) -> None:
    result = run_odd(graph, clients=1)
    assert result.metrics["global"]["pooled"] == pytest.approx(result.metrics["global"]["client_mean"])
    assert result.summary["warnings"] == []


def test_graph_without_edges(run_odd: Callable[..., RunResult], graph: Graph) -> None:
    result = run_odd(replace(graph, edge_index=torch.empty(2, 0, dtype=torch.int64)), partition="dirichlet")
    assert "no edges at client 0, 1, 2" in result.summary["warnings"][0]


def test_client_without_edges(run_odd: Callable[..., RunResult]) -> None:
    """Nodes 0-9 form a ring at client 0, nodes 10-19 have no edges and belong to client 1."""
    ring = [(i, (i + 1) % 10) for i in range(10)]
    result = run_odd(small([0, 1] * 10, ring, owner=torch.tensor([0] * 10 + [1] * 10)), partition="owner")
    assert result.summary["warnings"] == [
        "no edges at client 1: it trains as a plain network on its nodes' own features"
    ]


def test_class_with_one_node(run_odd: Callable[..., RunResult]) -> None:
    """Floor rule: int(0.6 * 1) = 0 training nodes, so the only node of class 2 is a test node.

    One of the 5 test nodes is unseen. Classes 0 and 1 have 10 nodes each: 6 train, 2 validate, 2 test.
    """
    result = run_odd(small([0, 1] * 10 + [2], [(i, i + 1) for i in range(20)]), clients=1)
    assert result.summary["test_without_local_train"] == pytest.approx(1 / 5)


def test_class_without_a_node(run_odd: Callable[..., RunResult]) -> None:
    result = run_odd(small([0, 1] * 10, [(i, i + 1) for i in range(19)], num_classes=4), clients=2)
    assert sorted(sum(result.summary["tiers"].values(), ())) == [0, 1]


def test_client_without_training_nodes(run_odd: Callable[..., RunResult]) -> None:
    """Client 1 has one node of each of two classes: the floor rule makes both test nodes."""
    graph = small(
        [0, 1] * 10 + [0, 1], [(i, i + 1) for i in range(21)], owner=torch.tensor([0] * 20 + [1] * 2)
    )
    result = run_odd(graph, partition="owner")
    assert result.summary["warnings"] == [
        "no training nodes at client 1: it is evaluated but has no say in the average"
    ]
    assert result.confusions["global_test"].sum((1, 2)).tolist() == [4, 2]


def test_unlabelled_nodes(run_odd: Callable[..., RunResult]) -> None:
    """Every fifth of 40 nodes has no label.

    32 are labelled, 16 of each class, of which 9 train, 3 validate and 4 test.
    """
    labels = [HIDDEN if i % 5 == 0 else int(i % 5 > 2) for i in range(40)]
    result = run_odd(small(labels, [(i, i + 1) for i in range(39)]), clients=1)
    assert result.confusions["global_test"].sum() == 8
    assert result.confusions["global_val"].sum() == 6


def test_no_workers(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="workers is 0"):
        run(graph, "fedavg", workers=0, out=tmp_path / "a", **QUICK)
    with pytest.raises(BadConfig, match="workers is 0"):
        run_jobs([], 0)
    assert not (tmp_path / "a").exists()


def test_public_functions_survive_the_import_of_every_module() -> None:
    """A submodule of the same name would replace the function as soon as anything imports it."""
    import pkgutil

    import fedepd

    modules = {m.name for m in pkgutil.iter_modules(fedepd.__path__)}
    assert not modules & set(fedepd.__all__)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("method", ["fedepd", "centralised"])
def test_the_vault_is_scored_only_where_somebody_asks(graph: Graph, tmp_path: Path, method: str) -> None:
    """The same training both times: weights and validation have the same bits, and only the scores differ.

    The clients are cut anew by the seed, and the vault has the same size all the same.
    """
    common = {**QUICK, "vault": 0.2, "shuffle_nodes": True}
    development = run(graph, method, out=tmp_path / "development", **common)
    final = run(graph, method, **common, score_on="vault")
    other = run(graph, method, **common, score_on="vault", seed=1)
    kind = development.summary["headline"]
    assert_same(development.tensors, final.tensors)
    assert [line.get("val") for line in development.rounds] == [line.get("val") for line in final.rounds]
    tested, kept_shut, again = (r.confusions[f"{kind}_test"].sum((0, 2)) for r in (development, final, other))
    sizes = np.bincount(graph.y.numpy())
    assert kept_shut.tolist() == again.tolist() == [int(0.2 * n) for n in sizes]
    assert (tested + kept_shut < sizes).all()
    assert any("nodes are in the vault (vault = 0.2)" in line for line in development.summary["warnings"])
    assert "scores of nodes outside the vault" in development.summary["protocol"]
    assert build_report(tmp_path).exists()


def test_a_vault_among_clients_that_are_split_is_refused(graph: Graph) -> None:
    part = partition(graph, PartitionConfig(clients=3), 0)
    with pytest.raises(BadConfig, match="the clients were split before; leave vault out"):
        run(make_clients(graph, part, SplitConfig(), 0), "fedavg", vault=0.2)
