"""The robust rules equal Flower's; clipping and caps by hand; a lying client moves the model no further
than an honest one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import average
from fedepd.rounds.defence import (
    Deeds,
    Defence,
    cap_weights,
    coordinate_median,
    defend,
    multi_krum,
    trimmed_mean,
)
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import run
from fedepd.types import Field, Reply, TaskInfo, Tensors
from toy import assert_same

FLOWER = json.loads((Path(__file__).parents[1] / "numbers" / "flower_robust.json").read_text())["cases"]
MODEL = {"w": Field((2,))}
START = {"w": torch.tensor([1.0, 1.0])}


def replies(*values: list[float], nodes: tuple[int, ...] | None = None) -> dict[int, Reply]:
    sizes = nodes or (10,) * len(values)
    return {k: Reply({"w": torch.tensor(v)}, sizes[k], sizes[k]) for k, v in enumerate(values)}


def defended(
    given: dict[int, Reply], rule: Any, tolerate: int = 1, cap: bool = False
) -> tuple[dict[int, Reply], Deeds]:
    return defend(given, dict.fromkeys(given, START), MODEL, Defence(rule, tolerate, cap))


# The rules themselves


@pytest.mark.parametrize("case", FLOWER)
def test_the_rules_are_flowers(case: dict[str, Any]) -> None:
    """Made outside this repository with flwr 1.41; its krum averages the kept ones by their sizes."""
    rows = torch.tensor(case["rows"], dtype=torch.float64)
    near: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(
        coordinate_median(rows), torch.tensor(case["median"], dtype=torch.float64), **near
    )
    torch.testing.assert_close(
        trimmed_mean(rows, case["tolerate"]), torch.tensor(case["trimmed"], dtype=torch.float64), **near
    )
    kept = multi_krum(rows, case["tolerate"])
    sizes = torch.tensor(case["sizes"], dtype=torch.float64)[kept]
    mean = (rows[kept] * sizes[:, None]).sum(0) / sizes.sum()
    torch.testing.assert_close(mean, torch.tensor(case["multi-krum"], dtype=torch.float64), **near)


def test_krum_keeps_the_earlier_of_equals() -> None:
    assert multi_krum(torch.zeros(6, 2, dtype=torch.float64), 2) == [0, 1, 2, 3]


# What they do to replies


def test_clip_by_hand() -> None:
    """From (1, 1) the updates are (3, 4), (0, 1) and (0, 2), of norms 5, 1, 2: the first is cut to 2/5,
    the others keep their bits."""
    given = replies([4.0, 5.0], [1.0, 2.0], [1.0, 3.0])
    used, deeds = defended(given, "clip")
    assert used[0].tensors["w"].tolist() == pytest.approx([1 + 3 * 0.4, 1 + 4 * 0.4])
    assert used[1] is given[1]
    assert used[2] is given[2]
    assert deeds.as_json() == {"clipped": {0: pytest.approx(0.4)}}


def test_a_large_clients_update_is_cut_until_it_pulls_like_one_and_a_half() -> None:
    """Sizes 10, 10, 10, 40 are capped to 30 (three medians); updates of norm 1 all, so the last is cut to
    1.5 / 3 = 0.5."""
    given = replies([2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1.0, 2.0], nodes=(10, 10, 10, 40))
    used, deeds = defended(given, "clip", cap=True)
    assert deeds.as_json() == {"clipped": {3: pytest.approx(0.5)}, "capped": {3: pytest.approx(0.75)}}
    assert used[3].tensors["w"].tolist() == pytest.approx([1.0, 1.5])


def test_clip_measures_only_those_who_trained() -> None:
    """Two that send back what they got would pull the median to 0, and nobody could move the model."""
    given = replies([4.0, 5.0], [1.0, 2.0], [1.0, 3.0], [1.0, 1.0], [1.0, 1.0])
    given |= {k: replace(given[k], num_train=0) for k in (3, 4)}
    assert defended(given, "clip")[1].clipped == {0: pytest.approx(0.4)}


def test_two_replies_are_not_clipped() -> None:
    given = replies([4.0, 5.0], [1.0, 2.0])
    assert defended(given, "clip") == (given, Deeds())


@pytest.mark.parametrize(("rule", "value"), [("median", [2.0, 20.0]), ("trimmed", [2.0, 20.0])])
def test_median_and_trimmed_are_what_the_methods_mean_becomes(rule: str, value: list[float]) -> None:
    """Of 1, 2, 99 and of 10, 20, 1000 the middle, whatever the clients weigh."""
    used, _ = defended(replies([1.0, 10.0], [2.0, 20.0], [99.0, 1000.0], nodes=(7, 1, 1000)), rule)
    assert average(TaskInfo(1, 2, 3), START, used)["w"].tolist() == value


def test_multi_krum_leaves_the_far_one_out_and_names_it() -> None:
    used, deeds = defended(
        replies([1.0, 1.0], [1.1, 1.0], [50.0, 50.0], [1.0, 1.1], [0.9, 1.0]), "multi-krum"
    )
    assert (sorted(used), deeds.left_out) == ([0, 1, 3, 4], [2])


def test_a_round_with_too_few_replies_is_not_used() -> None:
    used, deeds = defended(replies([1.0, 1.0], [1.0, 2.0]), "trimmed")
    assert (used, deeds.skipped) == ({}, "trimmed needs at least 3 replies, but only 2 came")


@pytest.mark.parametrize("kind", ["sum", "mean", "rows"])
def test_a_far_class_row_is_shortened_to_one_and_a_half_medians(kind: Any) -> None:
    """Rows of norm 1, 1, 1 and 10: the last becomes 1.5 long.

    A sum is measured per node, so two nodes may have 2.
    """
    fields = {"row": Field((1, 2), kind, of="count"), "count": Field((1,), "count")}
    length = 2.0 if kind == "sum" else 1.0
    rows = [[length, 0.0], [0.0, length], [length, 0.0], [0.0, 10 * length]]
    given = {
        k: Reply({"row": torch.tensor([r]), "count": torch.tensor([2.0])}, 9, 9) for k, r in enumerate(rows)
    }
    used, deeds = defend(given, {k: {} for k in given}, fields, Defence("clip"))
    assert deeds.as_json() == {"rows": {3: 1}}
    assert used[3].tensors["row"].tolist() == [[0.0, pytest.approx(1.5 * length)]]
    assert used[0].tensors["row"].tolist() == [rows[0]]


@pytest.mark.hostile
@pytest.mark.parametrize("length", [1000.0, 0.001])
def test_a_client_that_claims_every_class_does_not_outvote_the_others(length: float) -> None:
    """Five honest clients have 5 of 40 classes each, 25 rows; the liar has 40, and would be the median of
    all rows."""
    fields = {"row": Field((40, 2), "sum", of="count"), "count": Field((40,), "count")}
    given = {}
    for k, (classes, size) in enumerate(
        [*((slice(4 * k, 4 * k + 5), 1.0) for k in range(5)), (slice(0, 40), length)]
    ):
        tensors = {"row": torch.zeros(40, 2), "count": torch.zeros(40)}
        tensors["row"][classes], tensors["count"][classes] = torch.tensor([2 * size, 0.0]), 2.0
        given[k] = Reply(tensors, 100, 100)
    used, deeds = defend(given, {k: {} for k in given}, fields, Defence("clip"))
    assert float(used[5].tensors["row"].max()) <= 3.0
    assert all(torch.equal(used[k].tensors["row"], given[k].tensors["row"]) for k in range(5))
    assert deeds.rows == ({5: 40} if length > 1 else {})


# Weights


@pytest.mark.parametrize(
    ("nodes", "counted"),
    [
        ((10, 10, 10), [10, 10, 10]),
        ((10, 10, 1000), [10, 10, 20]),  # three medians are 30, all others together 20
        ((10, 10, 10, 10, 1000), [10, 10, 10, 10, 30]),
        ((100, 1000), [100, 100]),
        ((7,), [7]),
    ],
)
def test_a_weight_is_at_most_half_and_at_most_three_medians(
    nodes: tuple[int, ...], counted: list[int]
) -> None:
    used, left = cap_weights(replies(*[[0.0, 0.0]] * len(nodes), nodes=nodes), MODEL)
    assert [r.num_nodes for r in used.values()] == counted
    assert left == {k: c / n for k, (n, c) in enumerate(zip(nodes, counted, strict=True)) if c < n}


def test_a_capped_clients_counts_shrink_with_it_and_its_means_stay() -> None:
    """Client 2 counts for 20 of its 1000 training nodes: its 500 nodes of a class for 10, their sum
    likewise."""
    fields = {
        "sum": Field((1, 1), "sum", of="count"),
        "count": Field((1,), "count"),
        "say": Field((1,), "weight"),
    }
    given = {}
    for k, nodes in enumerate((10, 10, 1000)):
        tensors = {
            "sum": torch.tensor([[nodes * 2.0]]),
            "count": torch.tensor([nodes / 2]),
            "say": torch.tensor([float(nodes)]),
        }
        given[k] = Reply(tensors, nodes, nodes)
    used, left = cap_weights(given, fields)
    assert [float(r.tensors["count"]) for r in used.values()] == [5.0, 5.0, pytest.approx(10.0)]
    assert [float(r.tensors["sum"] / r.tensors["count"]) for r in used.values()] == pytest.approx(
        [4.0, 4.0, 4.0]
    )
    assert [float(r.tensors["say"]) for r in used.values()] == [10.0, 10.0, 20.0]
    assert left == {2: 0.02}


@pytest.mark.hostile
@pytest.mark.parametrize("accomplice", [10**7, 1000, 100])
def test_nodes_of_clients_that_do_not_train_raise_no_ones_weight(accomplice: int) -> None:
    """They have no say in the average, so they are none of the others that a client may not outweigh."""
    given = replies([0.0, 0.0], [0.0, 0.0], [9.0, 9.0], [9.0, 9.0], nodes=(100, 100, 10**7, accomplice))
    given[3] = replace(given[3], num_train=0)
    used, left = cap_weights(given, MODEL)
    assert [r.num_nodes for r in used.values()] == [100, 100, 200, accomplice]
    assert left == {2: 200 / 10**7}


@pytest.mark.hostile
@pytest.mark.parametrize("said", [100.0, 1e6, 3e38])
@pytest.mark.parametrize("honest", [(0.1,), (0.1, 0.1), (0.1, 0.2, 0.0)])
def test_a_weight_that_a_client_names_itself_is_at_most_half_of_all(
    honest: tuple[float, ...], said: float
) -> None:
    given = {k: Reply({"say": torch.tensor([value])}, 10, 10) for k, value in enumerate([*honest, said])}
    used, left = cap_weights(given, {"say": Field((1,), "weight")})
    weights = [float(r.tensors["say"]) for r in used.values()]
    assert weights[-1] <= sum(weights[:-1]) * (1 + 1e-6)
    assert weights[:-1] == [float(given[k].tensors["say"]) for k in range(len(honest))]
    assert list(left) == [len(honest)]


# As settings


def test_off_changes_nothing_at_all() -> None:
    given = replies([1.0, 1.0], [1e5, 0.0], [0.0, math.pi])
    assert defended(given, "off") == (given, Deeds())


def test_runs_without_defences_keep_the_identity_they_had_before_there_were_any() -> None:
    assert Experiment.make("fedavg").config_hash("x") == Experiment.make("fedavg", robust="off").config_hash(
        "x"
    )
    assert Experiment.make("fedavg").config_hash("x") != Experiment.make("fedavg", robust="clip").config_hash(
        "x"
    )
    assert Experiment.make("fedavg").config_hash("x") == "786c0f91c38e"


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        ("fedgta", {"robust": "median"}, "FedGTA does not average a common model"),
        ("fedproto", {"robust": "multi-krum"}, "FedProto does not average a common model"),
        (
            "fedavg",
            {"robust": "multi-krum", "tolerate": 4},
            "needs at least 11 clients to tolerate 4, but a round has 10",
        ),
        ("fedavg", {"robust": "trimmed", "participation": 0.2}, "but a round has 2"),
        ("fedavg", {"robust": "clip", "tolerate": 0}, "tolerate is 0"),
        ("fedavg", {"robust": "krum"}, "unknown value of robust 'krum'"),
    ],
)
def test_a_rule_that_cannot_act_is_refused(method: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        run("synthetic", method, rounds=1, **settings)


@pytest.mark.parametrize("rule", ["clip", "median", "trimmed", "multi-krum"])
@pytest.mark.parametrize("method", ["fedepd", "creff", "fedspray", "lws"])
def test_a_defended_run_trains_and_its_lines_say_what_was_done(method: str, rule: str) -> None:
    settings: dict[str, Any] = {"rounds": 3, "clients": 6, "hidden": 8, "evaluate_every": 3}
    first = run("synthetic", method, robust=rule, cap_weights=True, **settings)
    again = run("synthetic", method, robust=rule, cap_weights=True, workers=2, **settings)
    assert first.summary["weights_sha256"] == again.summary["weights_sha256"]
    assert "robust rule" in first.summary["protocol"]
    done = [line.get("defence", {}) for line in first.rounds]
    if rule == "clip":
        assert all(len(deeds["clipped"]) <= 3 for deeds in done)  # at most those above the median
    if rule == "multi-krum":
        assert [len(deeds["left_out"]) for deeds in done] == [1, 1, 1]


def test_the_median_of_one_client_is_that_client() -> None:
    tensors: Tensors = {"w": torch.tensor([0.5, -2.0])}
    used, _ = defended({0: Reply(tensors, 5, 5)}, "median")
    assert_same(used[0].tensors, tensors)
    assert FedAvg().averages
