"""Adapted models in reports, from runs that have and have not adapted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadData
from fedepd.report.adaptations import adaptations
from fedepd.report.page import build_report
from fedepd.report.runs import group, read_run, read_runs
from fedepd.report.tables import classes, summary
from fedepd.runs import folder

POOR: dict[str, Any] = {"rounds": 2, "epochs": 1, "clients": 4, "hidden": 8, "adapt": True}
POOR |= {"train_share": 0.4, "val_share": 0.4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg adapts, trained FedAvg of another seed does not, and FedProto has nothing to adapt."""
    graph = synthetic(
        nodes=240, edges=900, classes=4, imbalance=8.0, smallest=None, features=12, communities=8
    )
    place = tmp_path_factory.mktemp("runs")
    fedepd.run(graph, "fedavg", out=place / "a", **POOR)
    fedepd.run(graph, "fedepd", out=place / "b", **{**POOR, "rounds": 60, "epochs": 3})
    fedepd.run(graph, "fedproto", out=place / "c", **POOR)
    return place


def test_a_table_says_what_was_decided(runs: Path) -> None:
    table = adaptations(group(read_runs(runs)))
    assert table is not None
    rows = {row[0].text: [cell.text for cell in row] for row in table.sections[0]}
    assert rows.keys() == {"FedAvg", "FedEPD"}
    assert rows["FedAvg"][2] == "adapted"
    assert rows["FedEPD"][2] == "global model kept"
    about = read_run(runs / "a").summary["adapted"]
    assert rows["FedAvg"][3:6] == [
        str(about["steps"]),
        "mixture" if about["weight"] < 1 else "alone",
        "macro-F1",
    ]
    assert rows["FedAvg"][6] == f"{100 * about['gain']:.1f}"
    assert rows["FedAvg"][7:] == [str(about["nodes"]), "4", "0"]
    assert adaptations(group([read_run(runs / "c")])) is None


def test_adapted_scores_stand_beside_personal_ones_of_methods_without_a_global_model(runs: Path) -> None:
    found = summary(group(read_runs(runs)), "adapted")
    rows = {row[0].text: row for row in found.sections[0]}
    assert rows.keys() == {"FedAvg", "FedEPD", "FedProto †"}
    for name, place, model in (("FedAvg", "a", "adapted"), ("FedProto †", "c", "personal")):
        score = read_run(runs / place).summary["metrics"][model]["pooled"]["acc"]
        assert rows[name][2].value == pytest.approx(100 * score)
    assert "after each client has adapted it to its own training nodes" in found.note
    assert "1 of 2 runs kept the global model." in found.note
    assert "†" in found.note


def test_classes_have_a_column_of_the_adapted_model_with_intervals(runs: Path) -> None:
    table = classes(group([read_run(runs / "a")]))
    assert table.headers[-2:] == ["FedAvg", "FedAvg, adapted"]
    counts = read_run(runs / "a").confusions["adapted_test"][0]
    for row in table.sections[0]:
        c = int(row[0].text)
        assert row[-1].value == pytest.approx(counts[c, c] / counts[c].sum())
        assert "-" in row[-1].spread


def test_the_page_has_both(runs: Path, tmp_path: Path) -> None:
    page = build_report(runs, str(tmp_path / "page.html"), read_runs(runs)).read_text(encoding="utf-8")
    assert "<summary>Adaptation</summary>" in page
    assert "<summary>Adapted models, pooled</summary>" in page
    alone = build_report(runs / "c", str(tmp_path / "c.html"), read_runs(runs / "c")).read_text(
        encoding="utf-8"
    )
    assert "Adapted models" not in alone


def changed(runs: Path, to: Path, change: Any) -> Path:
    to.mkdir()
    for path in (runs / "a").iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    content = json.loads((to / folder.SUMMARY).read_text())
    change(content)
    (to / folder.SUMMARY).write_text(json.dumps(content))
    return to


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["metrics"]["adapted"]["pooled"].update(acc=0.99),
        lambda s: s["adapted"].update(gain="much"),
        lambda s: s["adapted"].update(weight=2.0),
        lambda s: s["adapted"].pop("nodes"),
        lambda s: s.update(headline="adapted"),
    ],
)
def test_a_summary_that_was_changed_is_refused(runs: Path, tmp_path: Path, change: Any) -> None:
    with pytest.raises(BadData):
        read_run(changed(runs, tmp_path / "run", change))


@pytest.mark.hostile
def test_another_round_or_another_shape_is_refused(runs: Path, tmp_path: Path) -> None:
    other = changed(runs, tmp_path / "round", lambda s: s["best_rounds"].update(adapted=1))
    best = read_run(runs / "a").summary["best_round"]
    if best != 1:
        with pytest.raises(BadData, match="not those of its best round"):
            assert read_run(other).rounds
    run = changed(runs, tmp_path / "shape", lambda s: None)
    with np.load(run / folder.CONFUSION) as found:
        arrays = {name: found[name] for name in found.files}
    np.savez(run / folder.CONFUSION, **{**arrays, "adapted_test": arrays["global_test"]})
    with pytest.raises(BadData, match="adapted_test"):
        read_run(run)
