from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.files import clean
from fedepd.longtail import Tiers
from fedepd.rounds.admission import Refusal
from fedepd.rounds.loop import Round
from fedepd.runs.selection import Progress, stack
from fedepd.types import Tensors
from toy import assert_same

TIERS = Tiers(head=(0,), medium=(), tail=(1,))


def matrix(right: int, of: int = 4) -> torch.Tensor:
    """So many of each class's nodes are right."""
    return torch.tensor([[right, of - right], [of - right, right]])


def round_of(
    number: int, val: int | None, test: int = 2, personal_val: int | None = None, of: int = 4
) -> Round:
    """Two clients with the same matrices; None: the round was not evaluated."""
    confusions: Any = None
    if val is not None:
        each = {"global_val": matrix(val, of), "global_test": matrix(test)}
        personal = val if personal_val is None else personal_val
        confusions = {
            k: {**each, "personal_val": matrix(personal, of), "personal_test": matrix(test)} for k in (1, 0)
        }
    return Round(
        number,
        {"w": torch.tensor([float(number)])},
        (0, 1),
        0.5,
        {"w": 4},
        {"w": 8},
        0.1,
        0.2,
        [],
        confusions,
    )


def progress(select: str = "val_macro_f1") -> Progress:
    return Progress({"w": torch.zeros(1)}, select, TIERS)


def own(number: int) -> Tensors:
    return {"client0.w": torch.tensor([100.0 + number])}


def follow(validation: list[int | None], select: str = "val_macro_f1", **more: Any) -> Progress:
    out = progress(select)
    for number, val in enumerate(validation, start=1):
        out.add(round_of(number, val, test=number % 5, **more), lambda number=number: own(number))  # type: ignore[misc]
    return out


@pytest.mark.parametrize("select", ["val_macro_f1", "val_acc"])
def test_the_best_validation_round_is_selected_the_earliest_on_a_tie(select: str) -> None:
    """Validation 1, 3, 2, 3 right: round 2, though round 4 is as good.

    Its tensors and its test matrix are kept.
    """
    done = follow([1, 3, 2, 3], select)
    for kind in ("global", "personal"):
        assert done.best[kind].round == 2
        assert done.best[kind].score == 0.75
        assert done.best[kind].confusions[f"{kind}_test"].tolist() == [matrix(2).tolist()] * 2
    assert done.best["global"].tensors["w"].tolist() == [2.0]
    assert done.best["personal"].tensors["client0.w"].tolist() == [102.0]


RARE = torch.tensor([[5, 3], [0, 2]])
"""Accuracy 0.7. F1 is 10/13 and 4/7, so macro-F1 is 0.670."""
FREQUENT = torch.tensor([[8, 0], [2, 0]])
"""Accuracy 0.8. F1 is 16/18 and 0, so macro-F1 is 0.444."""


def two_tastes(select: str) -> Progress:
    """Round 1 has the better macro-F1, round 2 the better accuracy. Their test scores are 0.25 and 0.75."""
    out = progress(select)
    for number, val, right in ((1, RARE, 1), (2, FREQUENT, 3)):
        each = {"global_val": val, "global_test": matrix(right)}
        each |= {"personal_val": val, "personal_test": matrix(right)}
        out.add(replace(round_of(number, 1), confusions={0: each}), partial(own, number))
    return out


@pytest.mark.parametrize(("select", "other"), [("val_macro_f1", "val_acc"), ("val_acc", "val_macro_f1")])
def test_the_other_score_selects_too_and_one_run_has_both(select: str, other: str) -> None:
    mine, theirs = (1, 2) if select == "val_macro_f1" else (2, 1)
    acc = {1: 0.25, 2: 0.75}
    found = two_tastes(select)
    assert {kind: best.round for kind, best in found.best.items()} == {"global": mine, "personal": mine}
    said = found.other_selection()
    assert said["select"] == other
    assert said["best_rounds"] == {"global": theirs, "personal": theirs}
    assert found.metrics()["global"]["pooled"]["acc"] == acc[mine]
    assert said["metrics"]["global"]["pooled"]["acc"] == acc[theirs]
    by = other.removeprefix("val_")
    assert found.other_confusions()[f"global_test_by_{by}"].tolist() == [matrix(2 * theirs - 1).tolist()]
    again = progress(select)
    again.restore(*found.packed())
    assert clean(again.other_selection()) == clean(said)


def test_a_checkpoint_from_before_leaves_the_other_selection_out() -> None:
    tensors, about = two_tastes("val_acc").packed()
    del about["otherwise"]
    again = progress("val_acc")
    again.restore(tensors, about)
    again.add(round_of(3, 1), partial(own, 3))
    assert again.otherwise is None
    assert again.other_confusions() == {}
    assert two_tastes("last").otherwise == {}


def test_the_last_round_may_be_asked_for() -> None:
    assert follow([4, 1, 2], "last").best["global"].round == 3


def test_each_model_has_its_own_round() -> None:
    done = progress()
    done.add(round_of(1, 3, personal_val=1), lambda: own(1))
    done.add(round_of(2, 1, personal_val=4), lambda: own(2))
    assert (done.best["global"].round, done.best["personal"].round) == (1, 2)


def test_test_nodes_do_not_select() -> None:
    done = progress()
    done.add(round_of(1, 3, test=0), lambda: own(1))
    done.add(round_of(2, 2, test=4), lambda: own(2))
    assert done.best["global"].round == 1


def test_without_validation_nodes_the_last_round_is_selected() -> None:
    done = follow([0, 0, 0], of=0)
    assert done.best["global"].round == 3
    assert math.isnan(done.best["global"].score)


def test_rounds_before_a_methods_last_stage_are_not_selected() -> None:
    """Round 1 has the best validation, but the method is complete only from round 2 on.

    Its line is there all the same.
    """
    done = progress()
    done.first = 2
    for number, val in enumerate([4, 1, 3], start=1):
        done.add(round_of(number, val), dict)
    assert done.best["global"].round == 3
    assert [line["val"]["global"]["acc"] for line in done.lines] == [1.0, 0.25, 0.75]


def test_packed_and_restored_it_selects_as_before() -> None:
    whole, first = follow([1, 3, 2, 3]), follow([1, 3])
    again = progress()
    again.restore(*first.packed())
    for number, val in ((3, 2), (4, 3)):
        again.add(round_of(number, val, test=number), lambda number=number: own(number))  # type: ignore[misc]
    assert again.metrics()["global"]["pooled"]["acc"] == whole.metrics()["global"]["pooled"]["acc"]
    for kind in ("global", "personal"):
        assert again.best[kind].round == whole.best[kind].round == 2
        assert_same(again.best[kind].tensors, whole.best[kind].tensors)


def test_personal_models_are_gathered_only_when_selected() -> None:
    asked: list[int] = []
    done = progress()

    def gather(number: int) -> Tensors:
        asked.append(number)
        return own(number)

    for number, val in enumerate([2, 1, 3], start=1):
        done.add(round_of(number, val), partial(gather, number))
    assert asked == [1, 3]


def test_a_line_per_round() -> None:
    done = follow([None, 3])
    first, second = done.lines
    assert first == {
        "round": 1, "loss": 0.5, "clients": (0, 1), "seconds": 0.1, "cpu_seconds": 0.2, "bytes_up": {"w": 4},
        "bytes_down": {"w": 8},
    }  # fmt: skip
    assert second["val"] == {
        kind: {"acc": 0.75, "bacc": 0.75, "macro_f1": 0.75} for kind in ("global", "personal")
    }
    assert done.tensors["w"].tolist() == [2.0]


def test_refused_replies_are_in_the_line() -> None:
    each = round_of(1, None)
    each.refused.append(Refusal(3, "w", "is missing"))
    assert progress().add(each, dict)["refused"] == [
        {"client": 3, "field": "w", "reason": "is missing", "absent": False}
    ]


def test_a_round_without_one_accepted_reply_is_marked_empty() -> None:
    assert progress().add(replace(round_of(1, None), clients=()), dict)["empty"] is True
    assert "empty" not in progress().add(round_of(1, None), dict)


def test_test_scores_are_of_the_selected_round() -> None:
    """Round 2 was selected; its test matrices have 2 of 4 right in each class at both clients."""
    metrics = follow([1, 3, 2]).metrics()
    assert set(metrics) == {"global", "personal"}
    for kind in metrics:
        for how in ("pooled", "client_mean"):
            assert metrics[kind][how]["acc"] == metrics[kind][how]["tail_acc"] == 0.5
            assert math.isnan(metrics[kind][how]["medium_acc"])


def test_confusions_of_all_models_by_name() -> None:
    assert sorted(follow([1]).confusions()) == ["global_test", "global_val", "personal_test", "personal_val"]


def test_nothing_was_evaluated() -> None:
    done = follow([None])
    assert (done.best, done.metrics(), done.confusions()) == ({}, {}, {})


def test_matrices_are_stacked_in_ascending_order_of_client() -> None:
    stacked = stack({5: {"global_val": matrix(1)}, 2: {"global_val": matrix(3)}})
    assert np.array_equal(stacked["global_val"], np.stack([matrix(3).numpy(), matrix(1).numpy()]))


@pytest.mark.hostile
@pytest.mark.parametrize("select", ["val_macro_f1", "val_acc"])
@pytest.mark.parametrize(("capped", "selected"), [(True, 1), (False, 2)])
def test_a_client_with_many_declared_nodes_does_not_choose_the_round_alone(
    select: str, capped: bool, selected: int
) -> None:
    """Nine clients have 8 nodes each, all right in round 1 and half in round 2.

    The tenth says the opposite of ten million.
    """
    done = Progress({"w": torch.zeros(1)}, select, TIERS, cap_weights=capped)
    for number, (honest, lied) in enumerate([(4, 0), (2, 5_000_000)], start=1):
        each = {k: matrix(honest) for k in range(9)} | {9: matrix(lied, 5_000_000)}
        confusions = {
            k: {f"{kind}_{split}": m for kind in ("global", "personal") for split in ("val", "test")}
            for k, m in each.items()
        }
        done.add(replace(round_of(number, 1), confusions=confusions), dict)
    assert done.best["global"].round == selected
    assert done.best["global"].confusions["global_val"].sum() == 9 * 8 + 10_000_000
