"""The last message of a run, between real sites: what each keeps, and what leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from deploy.test_sums import SITES, files_of, kits, losing, make_task, permissive
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.sent import read_sent
from fedepd.deploy.state import read_final
from fedepd.deploy.wire import ASK, KEYS, SHARES, Refused, Sum, answer_record, read_answer, sum_record
from fedepd.rounds.final import CLASS_TIERS, SELECTED
from fedepd.rounds.guard import OPEN
from fedepd.rounds.questions import FINAL
from fedepd.runs.folder import weights_sha256

__all__ = ["kits"]


@pytest.mark.parametrize("method", ["fedepd", "fedproto"])
def test_every_site_has_the_coordinators_model(kits: Path, method: str) -> None:
    permissive(kits)
    task = make_task(method, sites=3)
    ledger = Office(kits, task).run()
    best = ledger.progress.best
    tensors = best["global"].tensors if "global" in best else ledger.progress.tensors
    for site in task.sites:
        found = read_final(kits / site / "state" / "r", task.identity())
        own = {n: v for n, v in found.model.items() if n not in (OPEN, SELECTED, CLASS_TIERS)}
        expected = ledger.experiment.method.message(tensors, task.client_id(site))
        assert weights_sha256(own) == weights_sha256(expected)
        assert found.model[SELECTED].tolist() == [
            best[kind].round if kind in best else 0 for kind in ("global", "personal")
        ]
        assert found.about["task"] == task.to_json()
        assert not [path for path in (kits / site / "state" / "r").iterdir() if "evaluated" in path.name]
    assert ledger.progress.answers == rehearse(task, files_of(kits, 3)).progress.answers


def test_the_personal_model_is_that_of_its_selected_round(kits: Path) -> None:
    """Three rounds, evaluated after the second and the third: a site keeps both until one is selected."""
    permissive(kits)
    task = make_task("fedproto", sites=3)
    kept: dict[int, Any] = {}

    def change(site: str, name: str, answer: Any) -> Any:
        if site == "a":
            for path in (kits / "a" / "state" / "r").glob("evaluated-*"):
                kept[int(path.name[-6:])] = office.sites["a"]._admitted.states.evaluated(int(path.name[-6:]))  # type: ignore[union-attr]
        return answer

    office = Office(kits, task)
    office.change = change
    ledger = office.run()
    found = read_final(kits / "a" / "state" / "r", task.identity())
    assert sorted(kept) == [2, 3]
    assert found.personal is not None
    assert weights_sha256(found.personal) == weights_sha256(kept[ledger.progress.best["personal"].round])


def test_a_site_that_is_away_at_the_end_has_no_model_and_the_others_have(kits: Path) -> None:
    permissive(kits)
    task = make_task(sites=5)  # sums: sizes, 3 steps, 2 evaluations; the seventh is the last message
    ledger = Office(kits, task, losing(("b", SHARES, 7))).run()
    assert ledger.progress.answers[FINAL]["clients"] == [0, 2, 3, 4]
    assert (kits / "a" / "state" / "r" / "final").exists()
    again = rehearse(task, files_of(kits), answered={FINAL: [0, 2, 3, 4]})
    assert ledger.progress.answers[FINAL]["temperatures"] == again.progress.answers[FINAL]["temperatures"]


def test_the_site_knows_what_left_round_by_round(kits: Path) -> None:
    permissive(kits)
    task = make_task(sites=3)
    ledger = Office(kits, task).run()
    lines = read_sent(kits / "a" / "state" / "r")
    vectors = [line for line in lines if line["masked"] and "masks" not in line["fields"]]
    assert [(line["what"], line["round"]) for line in vectors] == [
        *[("sizes", 0), ("step", 1), ("step", 2), ("evaluate", 2), ("step", 3), ("evaluate", 3)],
        (FINAL, 3),
    ]
    counted = {n: b // 3 for n, b in ledger.progress.lines[0]["bytes_up"].items() if n != "masks"}
    assert vectors[1]["fields"] == counted  # the server counts the same, over three sites


@pytest.mark.hostile
@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({SELECTED: torch.tensor([9, 0])}, "selects round"),
        ({"more": torch.zeros(1)}, "holds 'more'"),
        ({CLASS_TIERS: torch.zeros(2)}, "is torch.float32"),
        ({OPEN: torch.full((3,), 0.5)}, ""),
    ],
    ids=str,
)
def test_a_last_message_that_cannot_be_is_refused(
    kits: Path, secure: bool, changes: dict[str, torch.Tensor], said: str
) -> None:
    permissive(kits)
    limits = "min_count = 1\nmin_holders = 1\nsecure = false\n"
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(limits)
    task = make_task(sites=3, secure=secure)
    office = Office(kits, task)
    site, which = office.sites["a"], Sum(FINAL, 3)
    assert site._admitted is not None
    message = {**site._admitted.expected, SELECTED: torch.tensor([1, 1]), CLASS_TIERS: torch.zeros(3).long()}
    message |= changes
    if secure:
        site._admitted.sums._book.remember(str(Sum("sizes", 0)), [0, 1, 2])  # type: ignore[union-attr]
        office.ask("a", KEYS, sum_record(which, {}, {}))
        parts = {"used": np.array([0])}
        answer = office.ask("a", SHARES, sum_record(which, parts, message))
    else:
        answer = office.ask("a", ASK, sum_record(which, {}, message))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert said in office.log["a"][-1]
    assert not (kits / "a" / "state" / "r" / "final").exists()


@pytest.mark.hostile
def test_an_unknown_question_and_one_in_another_round_are_not_answered(kits: Path) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text("min_count = 1\nmin_holders = 1\nsecure = false\n")
    office = Office(kits, make_task(sites=3, secure=False))
    assert office.ask("a", ASK, sum_record(Sum("step", 3), {}, {})).get_return_code() == "TASK_UNKNOWN"
    answer = office.ask("a", ASK, sum_record(Sum(FINAL, 1), {}, {}))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "which the run does not have" in office.log["a"][-1]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "answer",
    [np.zeros(4, np.int64), np.zeros(5), np.zeros((5, 1), np.int64), np.full(5, 101, np.int64)],
    ids=str,
)
def test_an_answer_of_another_form_is_refused(answer: Any) -> None:
    which = Sum(FINAL, 3)
    assert read_answer(answer_record(which, np.full(5, 100, np.int64)), which, 5, 100).sum() == 500
    with pytest.raises(Refused):
        read_answer(answer_record(which, answer), which, 5, 100)
