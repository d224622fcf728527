"""Run folders that somebody has changed: named by ``report``, ``export`` and ``resume``, never shown."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedepd.datasets import write_npz
from fedepd.errors import BadData
from fedepd.report import drawing
from fedepd.report.runs import read_run
from fedepd.runs.folder import weights_sha256
from fedepd.runs.run import run
from fedepd.types import Graph
from hostile import ANY_FILE, ANY_JSON, Put, edited, refusal

pytestmark = pytest.mark.hostile
QUICK: dict[str, Any] = {"rounds": 4, "hidden": 4, "clients": 2, "evaluate_every": 1, "partition": "balanced"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draws = np.random.default_rng(0)
    y = np.repeat(np.arange(3), (40, 20, 10))
    x = np.eye(3, 8)[y] + 0.4 * draws.standard_normal((70, 8))
    place = tmp_path_factory.mktemp("honest")
    graph = Graph.make(
        torch.tensor(x, dtype=torch.float32), torch.tensor(draws.integers(0, 70, (2, 200))), torch.tensor(y)
    )
    write_npz(graph, place / "tiny.npz")
    run(place / "tiny.npz", "fedavg", out=place / "run", **QUICK)
    return place / "run"


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_an_honest_run_is_read(folder: Path) -> None:
    assert read_run(folder).rounds[-1]["round"] == 4


def test_the_rounds_of_the_other_selection_are_read_and_checked(folder: Path) -> None:
    run = read_run(folder)
    other = run.summary["other_selection"]
    assert other["select"] == "val_acc"
    for select in ("val_acc", "val_macro_f1", ""):
        metrics = other["metrics"] if select == "val_acc" else run.summary["metrics"]
        assert (
            run.metric("acc", "personal", "client_mean", select) == metrics["personal"]["client_mean"]["acc"]
        )
    assert math.isnan(run.metric("acc", select="last"))
    assert run.rounds
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["other_selection"]["metrics"]["global"]["pooled"]["acc"] = 0.99
    path.write_text(json.dumps(summary))
    with pytest.raises(BadData, match=r"says acc = 0.99 \(global, pooled\), but its confusion"):
        read_run(folder)


def test_an_older_run_without_the_optional_keys_is_read(folder: Path) -> None:
    optional = (
        "best_rounds",
        "warnings",
        "weights_sha256",
        "partition_sha256",
        "proxy_features",
        "test_without_local_train",
        "seconds",
    )
    edited(folder / "summary.json", **dict.fromkeys(optional, ...))
    edited(folder / "config.json", source=..., notes=...)
    assert read_run(folder).rounds


JSON_FILES = ("summary.json", "config.json", "clients.json", "env.json", "rounds.jsonl")


@pytest.mark.parametrize("case", [*ANY_FILE, *ANY_JSON])
@pytest.mark.parametrize("file", JSON_FILES)
def test_report_refuses_what_is_no_file_of_a_run(
    folder: Path, file: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (file, case) == ("env.json", "empty table"):
        pytest.skip("an environment of nothing is fine")
    {**ANY_FILE, **ANY_JSON}[case](folder / file)
    said = refusal(capsys, folder.parent, "report", str(folder))
    assert file in said or "run" in said


@pytest.mark.parametrize("file", ["env.json", "clients.json", "rounds.jsonl", "ranking.json"])
def test_a_damaged_file_is_refused_before_anything_is_drawn(
    folder: Path, file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "svg_of", lambda *_: pytest.fail("a figure was drawn"))
    (folder / file).write_text("{")
    assert file in refusal(capsys, folder.parent, "report", str(folder))


@pytest.mark.parametrize("case", ANY_FILE)
@pytest.mark.parametrize("file", ["confusion.npz", "partition.npz"])
def test_report_refuses_what_is_no_array_file(
    folder: Path, file: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ANY_FILE[case](folder / file)
    assert f"'run/{file}'" in refusal(capsys, folder.parent, "report", str(folder))


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("summary.json", {"metrics": []}, "'metrics' is a list, not a table"),
    ("summary.json", {"metrics": ...}, "has no 'metrics'"),
    ("summary.json", {"metrics": {"global": 3}}, "'metrics.global' is 3, not a table"),
    (
        "summary.json",
        {"metrics__global__pooled__acc": "99 %"},
        "'metrics.global.pooled.acc' is the text '99 %', not a finite number",
    ),
    (
        "summary.json",
        {"metrics__global__pooled__acc": 0.999},
        "says acc = 0.999 (global, pooled), but its confusion matrices give",
    ),
    (
        "summary.json",
        {"metrics__global__client_mean__tail_acc": 1.0},
        "says tail_acc = 1.0 (global, client_mean)",
    ),
    (
        "summary.json",
        {"metrics__personal__pooled__macro_f1": 0.75},
        "says macro_f1 = 0.75 (personal, pooled)",
    ),
    ("summary.json", {"metrics__global__pooled__acc": None}, "says acc = None"),
    ("summary.json", {"metrics__global__pooled__acc": float("nan")}, "is nan, not a finite number"),
    (
        "summary.json",
        {"metrics__global__pooled__acc": 10**400},
        "is a number of many digits, not a finite number",
    ),
    ("summary.json", {"metrics__global__pooled__auc": 0.9}, "no such metric"),
    (
        "summary.json",
        {"metrics__global__best": {"acc": 0.9}},
        "has metrics that do not come from confusion.npz",
    ),
    (
        "summary.json",
        {"metrics__magic": {"pooled": {"acc": 1.0}}},
        "has metrics that do not come from confusion.npz",
    ),
    ("summary.json", {"metrics__global": ...}, "has no metrics of its headline model"),
    ("summary.json", {"headline": "local"}, "'headline' is the text 'local'"),
    ("summary.json", {"headline": ["global"]}, "'headline' is a list"),
    (
        "summary.json",
        {"tiers": {"head": [0], "medium": [], "tail": [1, 2]}},
        "'tiers' are not those of the class sizes",
    ),
    ("summary.json", {"tiers__head": [99]}, "'tiers' are not those"),
    ("summary.json", {"tiers__head": 0}, "'tiers.head' is 0, not a list"),
    ("summary.json", {"tiers__tail": ...}, "'tiers' has no 'tail'"),
    (
        "summary.json",
        {"best_round": 3, "best_rounds": {"global": 4, "personal": 4}},
        "'best_round' and 'best_rounds' of summary.json differ",
    ),
    ("summary.json", {"best_round": 99, "best_rounds": {"global": 99, "personal": 99}}, "was not evaluated"),
    ("summary.json", {"best_round": -1}, "'best_round' is -1, not a whole number of at least 1"),
    ("summary.json", {"best_round": 1.5}, "'best_round' is 1.5, not a whole number"),
    ("summary.json", {"best_rounds": "4"}, "'best_rounds' is the text '4', not a table"),
    ("summary.json", {"seed": "0"}, "'seed' is the text '0'"),
    ("summary.json", {"seed": True}, "'seed' is true"),
    ("summary.json", {"seed": 1}, "differ in 'seed'"),
    ("summary.json", {"method": "fedepd"}, "differ in 'method'"),
    ("summary.json", {"config_hash": "0" * 12}, "differ in 'config_hash'"),
    ("summary.json", {"rounds": 0}, "'rounds' is 0"),
    ("summary.json", {"rounds": -4}, "'rounds' is -4"),
    ("summary.json", {"rounds": 10**30}, "'rounds' is a number of many digits"),
    ("summary.json", {"warnings": "none"}, "'warnings' is the text 'none', not a list"),
    ("summary.json", {"warnings": [{"a": 1}]}, "'warnings.0' is a table, not a text"),
    ("summary.json", {"protocol": None}, "'protocol' is null"),
    ("summary.json", {"cpu_seconds": "fast"}, "'cpu_seconds' is the text 'fast'"),
    ("summary.json", {"seconds": float("inf")}, "'seconds' is inf"),
    ("summary.json", {"bytes_up": [1]}, "'bytes_up' is a list"),
    ("summary.json", {"test_without_local_train": "3 %"}, "'test_without_local_train' is the text"),
    ("config.json", {"dataset": "tiny"}, "'dataset' is the text 'tiny', not a table"),
    ("config.json", {"dataset__name": 7}, "'dataset.name' is 7, not a text"),
    ("config.json", {"dataset__classes": 4}, "has shape"),
    ("config.json", {"dataset__label_names": {"a": 1}}, "'dataset.label_names' is a table, not a list"),
    ("config.json", {"dataset__label_names": [1, 2, 3]}, "'dataset.label_names.0' is 1, not a text"),
    ("config.json", {"experiment": []}, "'experiment' is a list, not a table"),
    ("config.json", {"experiment__protocol": 4}, "'experiment.protocol' is 4, not a table"),
    ("config.json", {"config_hash": ...}, "has no 'config_hash'"),
    ("env.json", {"command": 4}, "'command' is 4, not a list"),
    ("env.json", {"command": [["fedepd"]]}, "'command.0' is a list"),
    ("env.json", {"torch": {"version": 2}}, "'torch' is a table"),
]


@pytest.mark.parametrize(
    ("file", "changes", "says"), WRONG, ids=[f"{n}-{file}" for n, (file, *_) in enumerate(WRONG)]
)
def test_report_names_what_is_wrong(
    folder: Path, file: str, changes: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(folder / file, **changes)
    assert says in refusal(capsys, folder.parent, "report", str(folder))
    if file != "env.json" or "command" in changes:
        assert says in refusal(
            capsys, folder.parent, "export", str(folder), "-o", str(folder.parent / "model")
        )


def test_a_comparison_of_changed_folders_is_refused_as_a_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(folder / "summary.json", metrics__global__pooled__bacc=0.97)
    assert "says bacc = 0.97" in refusal(capsys, folder.parent, "report", str(folder.parent))


CLIENTS: list[tuple[Any, str]] = [
    ("edges_kept", "'0.edges_kept' is the text 'x'"),
    ("homophily_before", "'0.homophily_before' is the text 'x'"),
    ("nodes", "'0.nodes' is the text 'x'"),
    ("client", "'0.client' is the text 'x'"),
]


@pytest.mark.parametrize(("key", "says"), CLIENTS)
def test_clients_of_wrong_types_are_named(
    folder: Path, key: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((folder / "clients.json").read_text())
    content[0][key] = "x"
    (folder / "clients.json").write_text(json.dumps(content))
    assert says in refusal(capsys, folder.parent, "report", str(folder))


ROUNDS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"round": "1"}, "'0.round' is the text '1'"),
    "negative": ({"round": -1}, "'0.round' is -1"),
    "again": ({"round": 2}, "must have one line for each of the rounds 1 to 4 of summary.json"),
    "val": ({"val": [1]}, "'0.val' is a list"),
    "score": ({"val": {"global": {"macro_f1": "high"}}}, "'0.val.global.macro_f1' is the text 'high'"),
    "bytes": ({"bytes_up": {"model": -5}}, "'0.bytes_up.model' is -5"),
    "bytes as text": ({"bytes_down": {"model": "5"}}, "'0.bytes_down.model' is the text '5'"),
    "time": ({"cpu_seconds": float("nan")}, "'0.cpu_seconds' is nan"),
}


@pytest.mark.parametrize("case", ROUNDS)
def test_rounds_of_wrong_types_are_named(folder: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    lines[0] |= ROUNDS[case][0]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ROUNDS[case][1] in refusal(capsys, folder.parent, "report", str(folder))


def test_a_better_round_that_was_not_selected_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(folder / "summary.json", best_round=1, best_rounds={"global": 1, "personal": 1})
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["val"] = {
            model: {"acc": 0.5, "bacc": 0.5, "macro_f1": 0.1 * line["round"]}
            for model in ("global", "personal")
        }
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "round 1 is the best (global), but a later one is better" in refusal(
        capsys, folder.parent, "report", str(folder)
    )


ARRAYS: dict[str, tuple[str, str, Any, str]] = {
    "floats": ("confusion.npz", "global_test", np.ones((2, 3, 3)), "does not count nodes"),
    "negative": ("confusion.npz", "global_test", -np.ones((2, 3, 3), dtype=np.int64), "does not count nodes"),
    "too many": ("confusion.npz", "global_test", np.full((2, 3, 3), 2**62), "does not count nodes"),
    "flat": ("confusion.npz", "global_test", np.ones(9, dtype=np.int64), "has shape [9], not [2, 3, 3]"),
    "not square": ("confusion.npz", "global_test", np.ones((2, 3, 4), dtype=np.int64), "has shape [2, 3, 4]"),
    "other clients": (
        "confusion.npz",
        "global_test",
        np.ones((5, 3, 3), dtype=np.int64),
        "has shape [5, 3, 3]",
    ),
    "one number": ("confusion.npz", "personal_test", np.array(3), "has shape"),
    "texts": ("confusion.npz", "personal_val", np.full((2, 3, 3), "x"), "does not count nodes"),
    "other counts": (
        "confusion.npz",
        "global_test",
        np.full((2, 3, 3), 2, dtype=np.int64),
        "but its confusion matrices give",
    ),
    "no classes": ("partition.npz", "class_sizes", np.zeros(0, dtype=np.int64), "has shape [0]"),
    "other classes": ("partition.npz", "class_sizes", np.ones(7, dtype=np.int64), "has shape [7]"),
    "no sizes": ("partition.npz", "class_sizes", np.zeros(3, dtype=np.int64), "class sizes"),
    "other sizes": ("partition.npz", "class_sizes", np.array([1, 50, 2]), "'tiers' are not those"),
    "clients of other classes": (
        "partition.npz",
        "client_class",
        np.ones((2, 9), dtype=np.int64),
        "has shape [2, 9]",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_do_not_fit_are_named(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name, value, says = ARRAYS[case]
    with np.load(folder / file) as found:
        arrays = dict(found)
    np.savez(folder / file, **{**arrays, name: value})
    assert says in refusal(capsys, folder.parent, "report", str(folder))


def _without(name: str) -> Put:
    def put(path: Path) -> None:
        with np.load(path) as found:
            arrays = {key: value for key, value in found.items() if key != name}
        np.savez(path, **arrays)

    return put


def test_a_missing_array_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _without("personal_test")(folder / "confusion.npz")
    assert "has no array 'personal_test'" in refusal(capsys, folder.parent, "report", str(folder))


def test_python_objects_are_not_loaded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(folder / "confusion.npz") as found:
        arrays = dict(found)
    np.savez(folder / "confusion.npz", **{**arrays, "personal_val": np.array([{"a": 1}], dtype=object)})
    assert "holds Python objects" in refusal(capsys, folder.parent, "report", str(folder))


def test_weights_that_are_not_the_runs_are_not_exported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    final = load_file(folder / "final.safetensors")
    save_file({name: value + 1 for name, value in final.items()}, folder / "final.safetensors")
    said = refusal(capsys, folder.parent, "export", str(folder), "-o", str(folder.parent / "model"))
    assert "'run/final.safetensors' is not what the run ended with" in said


def test_a_changed_model_of_the_last_round_is_not_exported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = read_run(folder).summary["best_round"]
    model = load_file(folder / "model.safetensors")
    save_file({**model, "classifier.bias": torch.tensor([-1e3, 1e3, 0.0])}, folder / "model.safetensors")
    said = refusal(capsys, folder.parent, "export", str(folder), "-o", str(folder.parent / "model"))
    assert ("is not the last round's model" if best == 4 else "gets other predictions") in said


@pytest.mark.parametrize("case", ANY_FILE)
@pytest.mark.parametrize("file", ["model.safetensors", "final.safetensors"])
def test_export_refuses_what_is_no_file_of_weights(
    folder: Path, file: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ANY_FILE[case](folder / file)
    assert f"'run/{file}'" in refusal(
        capsys, folder.parent, "export", str(folder), "-o", str(folder.parent / "model")
    )


@pytest.mark.parametrize("case", ["text", "list", "unknown", "zero", "twice", "huge"])
def test_export_refuses_settings_that_are_none(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes: dict[str, dict[str, Any]] = {
        "text": {"experiment__training__lr": "fast"},
        "list": {"experiment__protocol__rounds": [1]},
        "unknown": {"experiment__model__widht": 4},
        "zero": {"experiment__protocol__rounds": 0},
        "twice": {"experiment__model__method": "fedavg"},
        "huge": {"experiment__training__lr": 10**400},
    }
    edited(folder / "config.json", **changes[case])
    refusal(capsys, folder.parent, "export", str(folder), "-o", str(folder.parent / "model"))


def test_calibration_that_is_none_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, says in (
        ([], "is a list, not a table"),
        ({"temperatures": {}}, "'temperatures' has no 'head'"),
        ({"temperatures": {"head": 0, "medium": 1, "tail": 1}}, "'temperatures.head' is 0"),
        (
            {"temperatures": dict.fromkeys(("head", "medium", "tail"), 1), "before": {"all": 3}},
            "'before.all' is 3, not a table",
        ),
    ):
        (folder / "calibration.json").write_text(json.dumps(content))
        assert says in refusal(capsys, folder.parent, "report", str(folder))


def test_half_of_a_surrogate_pair_is_shown_as_a_sign(folder: Path) -> None:
    """Python's JSON reads "\\ud800", and UTF-8 has no bytes for it."""
    from fedepd.cli import main

    for file in ("summary.json", "config.json"):
        edited(folder / file, method_label="Fed\ud800Avg")
    assert main(["report", str(folder)]) == 0
    assert "Fed?Avg" in (folder / "report.html").read_text()


def test_weights_by_their_hash(finished: Path) -> None:
    assert (
        weights_sha256(load_file(finished / "final.safetensors"))
        == read_run(finished).summary["weights_sha256"]
    )
