from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedepd.errors import BadData
from fedepd.report.runs import by_dataset, group, read_run, read_runs, unfinished

WriteRun = Callable[..., Path]


def test_a_run_is_read_with_its_parts(write_run: WriteRun) -> None:
    run = read_run(write_run("a", seed=3))
    assert run.seed == 3
    assert run.headline == "global"
    assert run.confusions["global_test"].shape == (4, 12, 12)
    assert run.partition["client_class"].shape == (4, 12)
    assert [client["client"] for client in run.clients] == [0, 1, 2, 3]
    assert [line["round"] for line in run.rounds] == list(range(1, 21))
    assert run.env["python"] == "3.11"


def test_a_metric_that_was_not_measured_is_nan(write_run: WriteRun) -> None:
    metrics = {"personal": {"pooled": {"acc": 0.5, "tail_acc": None}}}
    run = read_run(write_run("a", has_global=False, metrics=metrics))
    assert run.metric("acc") == 0.5
    assert math.isnan(run.metric("tail_acc"))
    assert math.isnan(run.metric("acc", model="global"))
    assert math.isnan(run.metric("acc", average="client_mean"))


@pytest.mark.parametrize(
    ("select", "model"), [("val_macro_f1", "personal"), ("val_acc", "global"), ("last", "personal")]
)
def test_validation_prefers_a_kind_of_model(write_run: WriteRun, select: str, model: str) -> None:
    """Of 10 nodes the global model calls all of class 0, accuracy 9 / 10, macro-F1 (18 / 19 + 0) / 2 = 0.47.

    The personal one has 7 of the 9 and the last: 8 / 10 and (14 / 16 + 2 / 4) / 2 = 0.69.
    """
    run = read_run(write_run("a"))
    assert run.kind("preferred") == run.preferred
    run.config["experiment"].setdefault("protocol", {})["select"] = select
    of_global, of_personal = np.array([[9, 0], [1, 0]]), np.array([[7, 2], [0, 1]])
    fresh = replace(run)
    fresh.__dict__["confusions"] = {"global_val": of_global[None], "personal_val": of_personal[None]}
    assert fresh.preferred == model
    fresh = replace(run)
    fresh.__dict__["confusions"] = dict.fromkeys(("global_val", "personal_val"), of_global[None])
    assert fresh.preferred == "global"


def test_a_folder_is_one_run_or_many(write_run: WriteRun) -> None:
    one, other = write_run("b", method="fedavg", label="FedAvg"), write_run("a", seed=1)
    assert [run.path.name for run in read_runs(one)] == ["b"]
    assert [run.path.name for run in read_runs(other.parent)] == ["b", "a"]  # FedAvg before FedEPD


def test_unfinished_runs_are_left_out_and_named(write_run: WriteRun) -> None:
    done, half = write_run("done"), write_run("half", seed=1)
    (half / "summary.json").unlink()
    (done.parent / "notes").mkdir()
    assert [run.path.name for run in read_runs(done.parent)] == ["done"]
    assert [folder.name for folder in unfinished(done.parent)] == ["half"]
    with pytest.raises(BadData, match=r"holds only unfinished runs \(half\)"):
        read_runs(half)
    with pytest.raises(BadData, match=r"unfinished run: it has no summary\.json"):
        read_run(half)


def test_a_folder_without_runs_names_the_cure(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"holds no run; name a folder that `fedepd run --out` has written"):
        read_runs(tmp_path)
    with pytest.raises(BadData, match="is not a folder"):
        read_runs(tmp_path / "nowhere")
    with pytest.raises(BadData, match="is not a run folder"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "file", ["env.json", "clients.json", "rounds.jsonl", "confusion.npz", "partition.npz"]
)
def test_a_missing_file_is_named(write_run: WriteRun, file: str) -> None:
    folder = write_run("a")
    (folder / file).unlink()
    with pytest.raises(BadData, match=rf"'a/{file}' (is missing|does not exist); "):
        getattr(read_run(folder), file.split(".")[0])


@pytest.mark.parametrize(
    ("file", "text"),
    [("rounds.jsonl", '{"round": 1}\n{"rou'), ("clients.json", "{}"), ("confusion.npz", "PK")],
)
def test_a_damaged_file_is_named(write_run: WriteRun, file: str, text: str) -> None:
    folder = write_run("a")
    (folder / file).write_text(text)
    with pytest.raises(BadData, match=f"'a/{file}' .*run it again"):
        getattr(read_run(folder), file.split(".")[0])


def test_a_summary_without_a_needed_key_is_named(write_run: WriteRun) -> None:
    folder = write_run("a")
    summary = json.loads((folder / "summary.json").read_text())
    del summary["tiers"]
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(BadData, match=r"'a/summary\.json' has no 'tiers'"):
        read_run(folder)


def test_runs_that_differ_in_their_seed_alone_are_one_group(write_run: WriteRun) -> None:
    for seed in (2, 0, 1):
        folder = write_run(f"a{seed}", seed=seed)
    write_run("b", method="fedavg", label="FedAvg")
    write_run("c", preset="printed")
    write_run("d", dataset="other")
    groups = group(read_runs(folder.parent))
    found = [(each.first.dataset["name"], each.label, [run.seed for run in each.runs]) for each in groups]
    assert found == [
        ("other", "FedEPD", [0]),
        ("toy", "FedAvg", [0]),
        ("toy", "FedEPD", [0, 1, 2]),
        ("toy", "FedEPD (printed)", [0]),
    ]
    assert [[each.label for each in block] for block in by_dataset(groups)] == [
        ["FedEPD"],
        ["FedAvg", "FedEPD", "FedEPD (printed)"],
    ]


def test_labels_name_the_settings_that_differ(write_run: WriteRun) -> None:
    write_run("a", settings={"purify": True, "gamma": 0.5})
    write_run("b", settings={"purify": False, "gamma": 0.5})
    folder = write_run("c", settings={"purify": True, "gamma": 0.9}, clients=3)
    labels = {each.first.path.name: each.label for each in group(read_runs(folder.parent))}
    assert labels == {
        "a": "FedEPD (gamma=0.5, partition.clients=4)",
        "b": "FedEPD (gamma=0.5, no purify, partition.clients=4)",
        "c": "FedEPD (gamma=0.9, partition.clients=3)",
    }


def test_the_same_run_twice_is_refused(write_run: WriteRun) -> None:
    write_run("a")
    runs = read_runs(write_run("b").parent)
    with pytest.raises(BadData, match="'a' and 'b' are the same run"):
        group(runs)
