"""MLflow's own client finds what was logged, in a database of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedepd.trackers.contract import Results
from fedepd.trackers.mlflow import AT_ONCE, PRIVATE, MLflow
from fedepd.trackers.target import set_where_unset


def test_mlflow_reports_nothing_unless_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    set_where_unset(PRIVATE)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"


@pytest.mark.slow
def test_mlflow_reads_what_was_logged(
    tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_where_unset(PRIVATE)
    pytest.importorskip("mlflow", reason="needs the extra 'mlflow', which is too large for 'dev'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    settings = {"long": "x" * 9000, "none": None, **{f"s{n}": n for n in range(AT_ONCE)}}
    tracker = MLflow("sqlite:///m.db")
    run = tracker.begin("study/one", settings)
    run.log({"round/loss": 1.0}, 1)
    run.log({"round/loss": 0.5}, 2)
    run.conclude(results)
    run.close(True)
    tracker.begin("study/one", {}).close(False)
    experiment = tracker.client.get_experiment_by_name("mine")
    runs = tracker.client.search_runs([experiment.experiment_id], order_by=["start_time"])
    assert [(each.info.run_name, each.info.status) for each in runs] == [
        ("study/one", "FINISHED"),
        ("study/one", "KILLED"),
    ]
    data, name = runs[0].data, runs[0].info.run_id
    assert data.params["s99"] == "99"
    assert len(data.params["long"]) == 6000
    assert len(data.params) == len(settings)
    assert results.numbers.items() <= data.metrics.items()
    history = tracker.client.get_metric_history(name, "round/loss")
    assert [(each.step, each.value) for each in history] == [(1, 1.0), (2, 0.5)]
    assert data.tags == {"mlflow.runName": "study/one"}  # no user, no script, no commit
    files = {each.path for each in tracker.client.list_artifacts(name)}
    assert files == {"config.json", "summary.json", "figures"}
    figures = {each.path for each in tracker.client.list_artifacts(name, "figures")}
    assert figures == {f"figures/{each}.png" for each in results.figures}
