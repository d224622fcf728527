"""A run as a line of text, and back: tested scores to the last bit, the others rounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.errors import BadData
from fedepd.report.runs import Run
from fedepd.reproduction.study.kept_run import difference, kept_run, line_of, name_of, rounded
from fedepd.reproduction.study.measures import measure_run
from fedepd.reproduction.study.scores_file import COLUMNS, Line, as_text

MakeLine = Callable[..., Line]
CELL = "0123456789ab"


def scores(right: int, tested: int = 7) -> dict[str, Any]:
    return {
        "acc": right / tested,
        "bacc": 1 / 3,
        "macro_f1": 2e-06 / 3,
        "head_acc": 2 / 3,
        "medium_acc": 1.0,
        "tail_acc": None,
    }


def made_up(has_global: bool = True, adapted: bool = True) -> Run:
    """Of 7 test nodes, 5 are right in one selection and 4 in the other."""
    models = ["global", "personal"] if has_global else ["personal"]
    both = {"pooled": scores(5), "client_mean": scores(5)}
    metrics: dict[str, Any] = dict.fromkeys(models, both)
    config = {
        "config_hash": CELL,
        "method": "fedavg",
        "method_label": "FedAvg",
        "preset": "default",
        "seed": 3,
        "rounds": 20,
        "protocol": "in words",
        "has_global": has_global,
        "dataset": {"name": "my graph.v2", "proxy_features": True},
        "experiment": {"protocol": {"select": "val_macro_f1"}},
    }
    shared = ("config_hash", "method", "method_label", "preset", "seed", "rounds", "protocol")
    summary: dict[str, Any] = {name: config[name] for name in shared} | {
        "dataset": "my graph.v2",
        "proxy_features": True,
        "headline": models[0],
        "best_round": 10,
        "best_rounds": dict.fromkeys(models, 10),
        "metrics": metrics | ({"adapted": {"pooled": scores(6)}} if adapted else {}),
        "other_selection": {
            "select": "val_acc",
            "best_rounds": dict.fromkeys(models, 15),
            "metrics": {model: {"pooled": scores(4), "client_mean": scores(4)} for model in models},
        },
        "seconds": 12.34560004,
        "cpu_seconds": 0.125,
        "bytes_up": 1_000_000,
        "bytes_down": 2_500_000,
        "peak_rss_mb": 235.203125,
        "weights_sha256": "ab" * 32,
    }
    if adapted:
        summary["adapted"] = {"used": False}
        summary["best_rounds"]["adapted"] = 10
    run = Run(Path(CELL), summary, config)
    matrix = np.zeros((3, 2, 2), dtype=np.int64)
    matrix[0, 0, 0], matrix[2, 0, 1] = 5, 2
    good, bad = np.diag([3, 3])[None], np.ones((1, 2, 2), dtype=np.int64)
    values = {"global_val": bad, "personal_val": good, "adapted_val": bad}
    run.__dict__.update({"confusions": {f"{models[0]}_test": matrix, **values}, "clients": [{}] * 3})
    return run


def test_a_line_by_hand() -> None:
    line = line_of(made_up())
    assert list(line) == list(COLUMNS)
    assert ",".join(line.values()).startswith(
        f"{CELL},fedavg,default,my-graph.v2,3,3,7,12.3456,0.125,235.203125,1000000,2500000,abababababababab,no,personal,10,5,"
        ".3333333333333333,.0000006666666666666666,.6666667,1,nan,"
    )
    assert len(as_text({CELL: line}).splitlines()[2]) < 700


@pytest.mark.parametrize("has_global", [True, False])
def test_a_run_comes_back(has_global: bool) -> None:
    """With all scores that are tested to the last bit, and those of tiers to seven digits."""
    run = made_up(has_global, adapted=has_global)
    found = kept_run(line_of(run), Path("cells") / CELL, run.config, "kept.csv")
    assert (found.kept_in, found.num_clients, found.path.name) == ("kept.csv", 3, CELL)
    for name in (
        "dataset",
        "protocol",
        "headline",
        "best_round",
        "best_rounds",
        "proxy_features",
        "bytes_up",
    ):
        assert found.summary[name] == run.summary[name]
    for select in ("val_macro_f1", "val_acc"):
        for model in (*run.summary["metrics"], "headline"):
            for average in ("pooled", "client_mean"):
                both = [
                    [each.metric(name, model, average, select) for name in ("acc", "bacc", "macro_f1")]
                    for each in (run, found)
                ]
                assert str(both[0]) == str(both[1])
    assert found.metric("head_acc") == 0.6666667
    assert str(found.metric("tail_acc")) == "nan"
    assert found.adapted == has_global
    assert found.summary["seconds"] == 12.3456
    assert list(found.env) == ["fedepd"]
    assert list(found.summary["metrics"]) == list(run.summary["metrics"])
    assert run.preferred == found.preferred == rounded(run, line_of(run)).preferred == "personal"
    assert rounded(run, line_of(run)).summary["metrics"] == found.summary["metrics"]
    assert rounded(run, line_of(run)).summary["other_selection"] == found.summary["other_selection"]


def test_a_round_that_both_selections_have_is_said_once() -> None:
    run = made_up(adapted=False)
    other = run.summary["other_selection"]
    other["best_rounds"]["personal"] = 10
    other["metrics"]["personal"] = run.summary["metrics"]["personal"]
    line = line_of(run)
    given = {name for name, text in line.items() if text and name.startswith("other.personal")}
    assert given == {"other.personal.round"}
    assert line["other.global.right"] == "4"
    found = kept_run(line, Path(CELL), run.config, "kept.csv")
    assert found.metric("bacc", "personal", "client_mean", "val_acc") == 1 / 3
    assert found.summary["other_selection"]["best_rounds"] == {"global": 15, "personal": 10}


def test_measures_that_need_curves_are_unknown() -> None:
    run = made_up()
    found = measure_run(kept_run(line_of(run), Path(CELL), run.config, "kept.csv"))
    assert found["megabytes"] == 3.5
    assert found["acc"] == 100 * 5 / 7
    assert str([found["plateau"], found["fluctuation"]]) == "[nan, nan]"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"method": "fedlc"}, "method"),
        ({"seed": "4"}, "seed"),
        ({"personal.round": "21"}, "round"),
        (dict.fromkeys([name for name in COLUMNS if name.startswith("global.")], ""), "global.round"),
    ],
)
def test_a_line_of_another_cell(change: dict[str, str], name: str) -> None:
    run = made_up()
    with pytest.raises(BadData, match=f"the cell {CELL} of 'kept.csv' does not fit its '{name}'"):
        kept_run({**line_of(run), **change}, Path(CELL), run.config, "kept.csv")


def test_another_selection_where_there_is_none() -> None:
    run = made_up()
    config = {**run.config, "experiment": {"protocol": {"select": "last"}}}
    with pytest.raises(BadData, match=r"does not fit its 'other\.personal\.round'"):
        kept_run(line_of(run), Path(CELL), config, "kept.csv")


@pytest.mark.parametrize("part", ["metrics", "best_rounds"])
def test_scores_that_no_line_can_hold(part: str) -> None:
    run = made_up()
    if part == "metrics":
        run.summary["metrics"]["global"] = {"pooled": {**scores(5), "auc": 0.5}}
    else:
        del run.summary["best_rounds"]
    with pytest.raises(BadData, match="has scores of 'global' that --scores cannot keep"):
        line_of(run)
    run.summary["metrics"] = {"global": {"pooled": {**scores(5), "acc": 0.7}}}
    run.summary["best_rounds"] = {"global": 1}
    with pytest.raises(BadData, match="has an accuracy that is no share of 7 nodes"):
        line_of(run)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (".5000000", ".5000001", False),
        (".5", ".5001", True),
        ("nan", "nan", False),
        ("nan", "0", True),
        (".5", "", True),
    ],
)
def test_where_two_lines_differ(one: str, other: str, differ: bool, make_line: MakeLine) -> None:
    name = "global.pooled.tail_acc"
    line = make_line(1)
    found = difference({**line, name: one}, {**line, name: other, "seconds": "9.00"})
    assert found == (name if differ else "")


def test_one_node_more_is_a_difference(make_line: MakeLine) -> None:
    assert difference(make_line(1), make_line(1, global__right="31")) == "global.right"


def test_another_preferred_model_is_a_difference(make_line: MakeLine) -> None:
    assert difference(make_line(1), make_line(1, preferred="personal")) == "preferred"


def test_names_for_the_reader() -> None:
    assert name_of("a b,c\n") == "a-b-c"
    assert name_of("é") == "unnamed"
    assert name_of("=x") == "x"
