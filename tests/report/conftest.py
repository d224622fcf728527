"""Run folders written by hand, file by file as the record writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.files import clean
from fedepd.longtail import tiers
from fedepd.metrics import client_mean, pooled
from fedepd.report import build_report

WriteRun = Callable[..., Path]


def confusions(sizes: list[int], clients: int, skill: float, seed: int) -> np.ndarray:
    """int64 [K, C, C]: large classes are mostly right, small ones fall to class 0."""
    generator = np.random.default_rng(seed)
    result = np.zeros((clients, len(sizes), len(sizes)), dtype=np.int64)
    for c, size in enumerate(sizes):
        for k, count in enumerate(generator.multinomial(max(1, size // 5), np.full(clients, 1 / clients))):
            right = generator.binomial(count, min(0.95, skill * (size / sizes[0]) ** 0.2))
            result[k, c, c] += right
            result[k, c, 0 if c else 1] += count - right
    return result


@pytest.fixture
def write_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteRun:
    """``write_run("a", method="fedavg", seed=1)`` writes tmp_path/runs/a and returns it."""
    return writer(tmp_path / "runs", monkeypatch)


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three methods. Tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        write = writer(tmp_path_factory.mktemp("compared"), patch)
        write("avg", method="fedavg", label="FedAvg", prunes=False, skill=0.5)
        write("gta", method="fedgta", label="FedGTA", prunes=False, skill=0.6, has_global=False)
        return build_report(write("epd", skill=0.9, proxy=True).parent)


def writer(runs: Path, monkeypatch: pytest.MonkeyPatch) -> WriteRun:
    def write(
        name: str,
        method: str = "fedepd",
        label: str = "FedEPD",
        preset: str = "default",
        dataset: str = "toy",
        seed: int = 0,
        sizes: tuple[int, ...] = (900, 400, 250, 120, 80, 60, 40, 30, 22, 15, 11, 8),
        clients: int = 4,
        rounds: int = 20,
        skill: float = 0.8,
        has_global: bool = True,
        prunes: bool = True,
        proxy: bool = False,
        settings: dict[str, Any] | None = None,
        confusion: np.ndarray | None = None,
        metrics: dict[str, Any] | None = None,
    ) -> Path:
        folder = runs / name
        folder.mkdir(parents=True)
        if metrics is not None:  # made up for a test, so they do not follow from confusion matrices
            monkeypatch.setattr("fedepd.report.runs.check_numbers", lambda *_: None)
        cut = tiers(sizes)
        headline = "global" if has_global else "personal"
        models = (["global"] if has_global else []) + ["personal"]
        matrices = {
            model: confusions(list(sizes), clients, skill, seed) if confusion is None else confusion
            for model in models
        }
        scores = {
            m: {"pooled": pooled(c, cut), "client_mean": client_mean(c, cut)} for m, c in matrices.items()
        }
        protocol = (
            f"{clients} clients (openfgl), split floor 60/20/20, "
            "selection by best pooled validation macro-F1 every 5 rounds"
        )
        facts = {
            "name": dataset,
            "nodes": sum(sizes),
            "edges": 4000,
            "features": 64,
            "classes": len(sizes),
            "label_names": [],
        }
        facts |= {"imbalance_ratio": sizes[0] / sizes[-1], "proxy_features": proxy, "sha256": "ab" * 32}
        shared = {
            "method": method,
            "method_label": label,
            "preset": preset,
            "seed": seed,
            "rounds": rounds,
            "config_hash": f"{seed:012x}",
        }
        experiment = {
            "method": {"gamma": 0.5, "purify": True} | (settings or {}),
            "partition": {"clients": clients, "rule": "openfgl"},
        }
        experiment |= {"split": {"rule": "floor"}, "training": {"lr": 0.01, "seed": seed}}
        _json(
            folder / "config.json",
            shared
            | {"has_global": has_global, "dataset": facts, "experiment": experiment, "protocol": protocol},
        )
        command = ["fedepd", "run", method, "--note", "a b"]
        _json(
            folder / "env.json",
            {"python": "3.11", "torch": "2.13", "platform": "Linux", "threads": 1, "command": command},
        )
        _json(folder / "clients.json", [_client(k, sum(sizes) // clients, prunes) for k in range(clients)])
        lines = [_round(r, models, rounds, skill, seed, method) for r in range(1, rounds + 1)]
        (folder / "rounds.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
        )
        saved: dict[str, Any] = {
            f"{model}_{part}": matrix for model, matrix in matrices.items() for part in ("val", "test")
        }
        np.savez(folder / "confusion.npz", **saved)
        shares = np.random.default_rng(0).dirichlet(np.full(clients, 0.5), size=len(sizes)).T  # [K, C]
        np.savez(
            folder / "partition.npz",
            client_class=(shares * np.array(sizes)).astype(np.int64),
            class_sizes=np.array(sizes),
        )
        summary = shared | {
            "dataset": dataset,
            "proxy_features": proxy,
            "best_round": rounds,
            "protocol": protocol,
        }
        summary |= {"metrics": metrics or scores, "headline": headline, "test_without_local_train": 0.034}
        summary |= {"warnings": ["client 2 is small"]}
        summary |= {"tiers": {"head": cut.head, "medium": cut.medium, "tail": cut.tail}}
        summary |= {
            "bytes_up": 5 * 2**20,
            "bytes_down": 4 * 2**20,
            "seconds": 3.5 + seed,
            "cpu_seconds": 3.0,
            "peak_rss_mb": 400.0,
        }
        _json(folder / "summary.json", summary | {"weights_sha256": "cd" * 32, "partition_sha256": "ef" * 32})
        return folder

    return write


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(clean(content), allow_nan=False), encoding="utf-8")


def _client(k: int, nodes: int, prunes: bool) -> dict[str, Any]:
    client: dict[str, Any] = {
        "client": k,
        "nodes": nodes,
        "edges": 1000,
        "train": nodes * 6 // 10,
        "val": nodes // 5,
        "test": nodes // 5,
        "classes": 12,
    }
    client |= {"edges_kept": 700 - 20 * k if prunes else 1000, "homophily_before": min(1.0, 0.55 + 0.02 * k)}
    return client | {
        "homophily_after": min(1.0, (0.75 if prunes else 0.55) + 0.02 * k),
        "isolated_before": k,
        "isolated_after": 5 * k,
    }


def _round(r: int, models: list[str], rounds: int, skill: float, seed: int, method: str) -> dict[str, Any]:
    line: dict[str, Any] = {
        "round": r,
        "loss": 1 / r,
        "clients": [0, 1, 2, 3],
        "seconds": 0.1,
        "cpu_seconds": 0.1,
    }
    fields = {"model": 200_000} | (
        {"prototype_sum": 40_000, "elite_count": 400} if method == "fedepd" else {}
    )
    line |= {"bytes_up": fields, "bytes_down": fields}
    if r % 5 == 0 or r == rounds:
        score = skill * (1 - np.exp(-r / 6)) + 0.01 * seed
        line["val"] = {model: {"acc": score, "bacc": score, "macro_f1": score} for model in models}
    return line
