"""Figures hold the numbers of the run, and names as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedepd.board import charts
from fedepd.report.runs import Group, Run, group, read_run, read_runs

WriteRun = Callable[..., Path]


def one(folder: Path) -> Group:
    return group([read_run(folder)])[0]


def named(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in figures}


def test_all_figures_of_a_run_are_json(write_run: WriteRun) -> None:
    found = charts.of_run(one(write_run("a")))
    assert list(named(found)) == ["classes", "confusion", "partition", "pruned", "left"]
    json.dumps(found, allow_nan=False)


def test_recall_is_the_diagonal_over_the_row(write_run: WriteRun) -> None:
    run = one(write_run("a"))
    counts = run.first.confusions["global_test"].sum(0)
    recall = 100 * counts.diagonal() / counts.sum(1)
    bars = charts.per_class([run])["data"][0]
    assert bars["y"] == pytest.approx(recall.tolist(), abs=1e-3)  # the classes are in order of size already


def test_the_confusion_matrix_is_in_percent_of_the_true_class(write_run: WriteRun) -> None:
    (figure,) = charts.confusion(one(write_run("a")))
    sums = np.array(figure["data"][0]["z"]).sum(1)
    assert sums == pytest.approx(np.full(12, 100.0), abs=0.02)


def test_bytes_are_summed_over_rounds(write_run: WriteRun) -> None:
    """200,000 bytes of the model in each of 20 rounds, in MiB."""
    figure = charts.left(one(write_run("a", method="fedavg", label="FedAvg")))
    assert figure["data"][0]["x"] == pytest.approx([20 * 200_000 / 2**20])
    assert figure["layout"]["yaxis"]["ticktext"] == ["model"]


def test_a_run_that_goes_on_has_what_is_known_already(write_run: WriteRun) -> None:
    folder = write_run("a")
    whole = read_run(folder)
    run = Run(folder, {}, whole.config)
    assert list(named(charts.before_the_end(run))) == ["partition", "pruned"]
    (folder / "clients.json").unlink()
    (folder / "partition.npz").unlink()
    assert charts.before_the_end(Run(folder, {}, whole.config)) == []


def test_several_rows_share_a_figure(write_run: WriteRun) -> None:
    write_run("a", seed=0)
    write_run("b", seed=1)
    root = write_run("c", method="fedavg", label="FedAvg").parent
    found = named(charts.of_several(group(read_runs(root))))
    assert [line["name"] for line in found["validation"]["data"]] == [
        "FedAvg, seed 0",
        "FedEPD, seed 0",
        "FedEPD, seed 1",
    ]
    colours = [line["line"]["color"] for line in found["validation"]["data"]]
    assert colours[1] == colours[2] != colours[0]
    assert [bar["name"] for bar in found["classes"]["data"]] == ["FedAvg", "FedEPD"]


@pytest.mark.hostile
def test_tags_in_names_are_text(write_run: WriteRun) -> None:
    folder = write_run("a")
    config = json.loads((folder / "config.json").read_text())
    config["dataset"]["label_names"] = ["<b>x</b>", '<a href="javascript:1">y</a>', *map(str, range(10))]
    (folder / "config.json").write_text(json.dumps(config))
    names = charts.per_class([one(folder)])["layout"]["xaxis"]["ticktext"]
    assert names[:2] == ["&lt;b&gt;x&lt;/b&gt;", '&lt;a href="javascript:1"&gt;y&lt;/a&gt;']


def test_a_map_that_nobody_could_read_is_not_drawn(
    write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = one(write_run("a"))
    monkeypatch.setattr(charts, "MOST_CELLS", 47)  # 4 clients x 12 classes are 48
    assert charts.partition(run.first)["data"] == []
    assert charts.confusion(run) == []


def test_a_server_that_saw_sums_shows_no_map_of_zeros(write_run: WriteRun) -> None:
    """It does not know who has what. Zeros would say that nobody has anything."""
    run = one(write_run("a")).first
    run.partition["client_class"][:] = 0
    found = charts.partition(run)
    assert found["data"] == []
    assert "does not know" in found["caption"]


@pytest.mark.parametrize(("rows", "height"), [(9, None), (10, 310), (13, 370), (500, 900)])
def test_a_chart_of_many_names_is_higher(rows: int, height: int | None) -> None:
    """20 pixels for each name, and 110 for the axis. Chromium writes a name 12 pixels high."""
    assert charts.high_enough(rows).get("height") == height


def test_what_the_guard_keeps_is_marked_below_the_map(write_run: WriteRun) -> None:
    """12 classes, of which 0 to 4 are open. Class 4 is open and has no prototype, so it is not the guard's
    doing. The other seven are crosses below everything else."""
    folder = write_run("a")
    counts = np.array([9, 8, 7, 6] + 8 * [0], dtype=np.float32)
    means = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    save_file({"prototype.mean": means, "prototype.count": counts}, folder / "final.safetensors")
    (plain,) = charts.prototypes(read_run(folder))
    assert [trace["name"] for trace in plain["data"]] == ["sent to the server"]
    assert not plain["layout"]["showlegend"]
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "open_classes": [0, 1, 2, 3, 4]}))
    (found,) = charts.prototypes(read_run(folder))
    sent, kept = found["data"]
    assert found["layout"]["showlegend"]
    assert (sent["text"], kept["text"]) == (list("0123"), [str(c) for c in range(5, 12)])
    assert kept["name"] == "kept by the guard"
    assert kept["marker"]["symbol"] == "x"
    assert max(kept["y"]) < min(sent["y"])
    assert (min(kept["x"]), max(kept["x"])) == (min(sent["x"]), max(sent["x"]))
    assert "8 classes have none. Of these, 7 are closed by the guard, or have no training" in found["caption"]
