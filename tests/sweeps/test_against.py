"""What ``fedepd compare --against`` is about to run, and a small one from the command to its answer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedepd.cli.dispatch import main
from fedepd.datasets.npz import write_npz
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig, UnknownName
from fedepd.runs.jobs import Job
from fedepd.sweeps.against import against_jobs, against_names, left_out, unsent

JOB = Job(
    "fedepd", "printed", "email", Path("out/fedepd-printed-seed3"), None,
    {"rounds": 9, "seed": 3, "backbone": "sage", "guard": True, "adapt": True, "participation": 0.5},
    notes=("chosen",),
)  # fmt: skip


def test_every_run_has_a_twin_under_each_name() -> None:
    made = {job.out.name: job for job in against_jobs([JOB], ["alone", "pooled", "no-graph", "logistic"])}
    assert list(made) == [
        "fedepd-printed-alone-seed3",
        "fedepd-printed-pooled-seed3",
        "fedepd-printed-no-graph-seed3",
        "fedepd-printed-logistic-pooled-seed3",
        "fedepd-printed-logistic-alone-seed3",
    ]
    alone, _, plain, rows, _ = made.values()
    assert alone.settings == {"rounds": 9, "seed": 3, "backbone": "sage", "scope": "alone"}
    assert plain.settings == {**JOB.settings, "edges": False}
    assert (alone.method, alone.preset, alone.notes) == ("fedepd", "printed", ("chosen",))
    assert (rows.method, rows.preset, rows.rounds) == ("logistic", "default", 5)
    assert rows.settings["scope"] == "pooled"
    assert unsent({"lr": 1, "secure": True, "robust": "clip", "adapt": True}) == {"lr": 1}


def test_a_network_without_edges_has_no_twin_without_edges() -> None:
    names = ["alone", "no-graph"]
    jobs = [replace(JOB, settings={**JOB.settings, "backbone": "mlp"})]
    found = [*jobs, *against_jobs(jobs, names)]
    assert [job.out.name for job in found[1:]] == ["fedepd-printed-alone-seed3"]
    assert left_out(names, found) == [
        "--against no-graph is left out: the network is mlp, which reads no edges in any run"
    ]
    assert left_out(["alone"], found) == []
    assert left_out(names, [JOB, *against_jobs([JOB], names)]) == []


def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert against_names("", ["fedepd", "fedavg"]) == []
    assert against_names(" alone,alone , pooled", ["fedepd"]) == ["alone", "pooled"]
    with pytest.raises(UnknownName, match="did you mean 'boosting'"):
        against_names("bosting", ["fedepd"])
    with pytest.raises(BadConfig, match="--against is for one method, and 2 are named"):
        against_names("alone", ["fedepd", "fedavg"])
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert against_names("alone", ["fedepd"]) == ["alone"]
    with pytest.raises(BadConfig, match="scikit-learn's, which is not installed"):
        against_names("logistic", ["fedepd"])


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_from_the_command_to_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = synthetic(
        nodes=200, edges=800, classes=3, imbalance=4.0, smallest=None, features=8, communities=6
    )
    write_npz(graph, tmp_path / "g.npz")
    words = ["--rounds", "2", "--clients", "3", "--hidden", "4", "--seeds", "1", "--quiet"]
    code = main(
        ["compare", "fedavg", "--against", "alone,no-graph,logistic", "--data", str(tmp_path / "g.npz"),
         "--out", str(tmp_path / "out"), *words]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert code == 0
    assert printed.startswith("FedAvg: whether federation helps cannot be told (")
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert names == [
        "fedavg-alone-seed0", "fedavg-logistic-alone-seed0", "fedavg-logistic-pooled-seed0",
        "fedavg-no-graph-seed0", "fedavg-seed0",
    ]  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "whether federation helps cannot be told" in page
