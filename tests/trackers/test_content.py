"""What a tracker gets of a run: all of its numbers, and nothing of a single node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedepd.report.runs import read_run
from fedepd.trackers import content
from fedepd.trackers.contract import Results


def test_settings_are_flat(finished: Path) -> None:
    config = json.loads((finished / "config.json").read_text())
    found = content.settings(config)
    assert found["protocol.rounds"] == 3
    assert found["method.name"] == "fedavg"
    assert found["dataset.name"] == "synthetic"
    assert found["dataset.nodes"] == config["dataset"]["nodes"]
    assert found["config_hash"] == config["config_hash"]
    assert all(value is None or isinstance(value, str | bool | int | float) for value in found.values())


def test_the_numbers_of_a_round() -> None:
    """Bytes are summed over fields: 5 + 7 = 12. What was not measured is left out. Clients are counted."""
    line = {
        "round": 4,
        "loss": 0.5,
        "clients": [0, 2],
        "seconds": 1.5,
        "bytes_up": {"encoder": 5, "head": 7},
        "bytes_down": {"encoder": 3},
        "val": {"global": {"acc": 0.25, "tail_acc": None}},
        "privacy": {"epsilon_spent": 0.75},
    }
    assert content.round_numbers(line) == {
        "round/loss": 0.5,
        "round/clients": 2,
        "round/bytes_up": 12,
        "round/bytes_down": 3,
        "round/seconds": 1.5,
        "round/global_val_acc": 0.25,
        "round/epsilon_spent": 0.75,
    }


def test_final_numbers_are_those_of_the_summary(finished: Path, results: Results) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    numbers = results.numbers
    assert numbers["test/global/pooled/bacc"] == summary["metrics"]["global"]["pooled"]["bacc"]
    assert numbers["test/personal/client_mean/acc"] == summary["metrics"]["personal"]["client_mean"]["acc"]
    assert numbers["tiers/tail/recall"] == summary["by_tier"]["tail"]["recall"][0]
    recalls = {f"recall/{each['class']}": each["recall"][0] for each in summary["by_class"] if each["recall"]}
    assert {name: value for name, value in numbers.items() if name.startswith("recall/")} == recalls
    assert numbers["total/bytes_up"] == summary["bytes_up"]
    assert results.step == summary["best_round"]


def test_a_tracker_gets_the_reports_figures_and_two_files(results: Results) -> None:
    assert {"accuracy-by-class", "convergence", "confusion", "partition"} <= results.figures.keys()
    assert all(png.startswith(b"\x89PNG\r\n") for png in results.figures.values())
    assert [path.name for path in results.files] == ["config.json", "summary.json"]


def test_nothing_of_a_single_node_or_client_is_among_the_numbers(results: Results) -> None:
    """Files with tensors, with the partition and with the clients stay where they are."""
    kinds = {name.split("/")[0] for name in results.numbers}
    assert kinds == {"test", "tiers", "recall", "total"}
    assert not {path.suffix for path in results.files} - {".json"}


def test_a_class_is_called_by_its_number_and_its_name(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names that look alike once letters are replaced stay two numbers."""
    monkeypatch.setattr(content, "_drawings", lambda run: ())
    run = read_run(finished)
    count = len(run.summary["by_class"])
    run.config["dataset"]["label_names"] = ["a?", "a!", *map(str, range(2, count))]
    numbers = content.results(run).numbers
    assert {"recall/0-a", "recall/1-a", "recall/2"} <= numbers.keys()
