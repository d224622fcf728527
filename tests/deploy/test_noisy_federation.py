"""Noise in a federation: real executors add it under the masks, and everybody counts what was spent."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

import fedepd
from deploy.office import Change, Office, furnish, unchanged
from deploy.test_sums import losing
from fedepd.cli import main
from fedepd.deploy.controller import spent
from fedepd.deploy.ledger import UNSCORED, Ledger
from fedepd.deploy.limits import Limits
from fedepd.deploy.line import QuorumLost
from fedepd.deploy.preview import CONSTANT, WITH_NOISE, preview
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import KEYS, MASKED, OPENED, Sum, sum_record
from fedepd.errors import BadConfig
from fedepd.model.model import load_model
from fedepd.report.runs import read_run
from fedepd.rounds.noise import ONE
from fedepd.rounds.sums import Vector
from fedepd.runs.drive import first_fields
from fedepd.runs.folder import RELEASES
from toy import CLASSES, FEATURES, toy_client

SITES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def kits(five_kits: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(five_kits, tmp_path / "fed"))
    furnish(folder, SITES)
    return folder


def make_task(method: str = "fedavg", sites: int = 5, **more: Any) -> FederationTask:
    settings = {"rounds": 3, "evaluate_every": 2, "hidden": 4, "select": "last", "dp_epsilon": 8.0, **more}
    names = tuple(SITES[:sites])
    return FederationTask(
        "r", method, "default", settings, FEATURES, CLASSES, names, min(3, sites), deadline=60
    )


def answers(kits: Path, site: str) -> int:
    found = json.loads((kits / site / "state" / "answers" / "r.json").read_text())
    return int(found["rounds"])


# --- how much noise there is --------------------------------------------------------------------------------


def first_sums(office: Office, count: int) -> list[tuple[Vector, tuple[int, ...]]]:
    """The sum of round 1, again and again: a server that was restarted each time."""
    _, tensors = first_fields(office.task.experiment(), office.task.server())
    message = office.task.experiment().method.message(tensors, 0)
    office.exchange.sum_sizes(range(5))
    declared, sums = office.exchange.summed, []
    assert declared is not None
    for _ in range(count):
        office.connect(declared)
        sums.append(office.exchange.sum_steps(1, dict.fromkeys(declared[1], message)))
    return sums


LATER = [("d", MASKED, time) for time in range(2, 20)]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("change", "members", "share"),
    [(unchanged, 5, 5 / 3), (losing(("e", MASKED, 1), *LATER), 3, 3 / 2)],
    ids=["nobody is lost", "one site is lost from the run and one from every sum"],
)
def test_the_sum_has_the_noise_that_was_promised(
    kits: Path, change: Change, members: int, share: float
) -> None:
    """Of n sites in a sum, each adds variance (multiplier * clip)^2 / (2n // 3): 5/3 and 3/2 of it in all.

    So one site fewer than finish the sum add at least all of it. A site that is lost from the run is not one
    of the n. If it were, 3 of 4 would add 3/3 only, and each of them, who knows its own, would see 2/3.

    The updates are the same every time, so the difference of two sums is twice the noise. With h = 64 there
    are 643 parameters, with 6 differences 3,858 numbers. The mean square of v normal numbers is right to
    sqrt(2 / v): six such deviations either way, which is 14 %.
    """
    task = make_task(hidden=64, rounds=12)
    sums = first_sums(Office(kits, task, change), 12)
    assert [len(who) for _, who in sums] == [members] * 12
    totals = np.stack([total for total, _ in sums])
    differences = (totals[::2] - totals[1::2]).astype(np.float64).reshape(-1)
    differences = differences[differences != 0]  # constants differ by 0
    assert len(differences) > 0.99 * 6 * 643
    budget = task.experiment().privacy.budget(12)
    assert budget is not None
    wanted = 2 * share * (budget.multiplier * budget.clip * ONE) ** 2
    assert abs((differences**2).mean() / wanted - 1) < 6 * math.sqrt(2 / len(differences))


# --- who counts ---------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_site_gives_no_more_than_its_budget_also_after_a_restart(kits: Path) -> None:
    """Three rounds are three sums. The server asks for round 1 twice, the site restarts, and again twice."""
    office = Office(kits, make_task())
    first_sums(office, 2)
    office.sites = {site: office.start(site) for site in SITES}
    assert answers(kits, "a") == 2
    with pytest.raises(QuorumLost):
        first_sums(office, 2)
    assert all("the privacy budget is spent: 3 of 3 sums were made" in log[-1] for log in office.log.values())


def test_the_count_is_on_disk_before_an_answer_leaves(kits: Path) -> None:
    seen: list[int] = []

    def change(site: str, name: str, answer: Any) -> Any:
        if site == "a" and name == MASKED:
            path = kits / "a" / "state" / "answers" / "r.json"
            seen.append(answers(kits, "a") if path.exists() else 0)
        return answer

    Office(kits, make_task(), change).run()
    assert seen == [0, 1, 2, 3, 3]  # sizes, three steps, and zeros in answer to the final model


def finished(kits: Path, folder: Path) -> Ledger:
    """A run whose server lost round 2 and was resumed, in ``folder``."""
    folder.mkdir()
    office = Office(kits, make_task(), losing(("c", MASKED, 3), ("d", MASKED, 3)))
    with pytest.raises(QuorumLost):
        office.run(folder=folder)
    again = Ledger(office.task)
    again.load(folder)
    office.connect(again.together, again.progress.lines)
    office.run(again, folder)
    again.finish(folder)
    return again


@pytest.mark.heavy
def test_a_lost_round_costs_a_sum_and_the_resumed_job_stops_early(kits: Path, tmp_path: Path) -> None:
    """Round 1, round 2 that was lost, and round 2 again are the three sums of the budget."""
    finished(kits, tmp_path / "run")
    assert json.loads((tmp_path / "run" / RELEASES).read_text()) == {"releases": 3}
    summary = read_run(tmp_path / "run").summary
    assert summary["privacy"]["releases"] == 3
    assert summary["privacy"]["stopped_after"] == summary["best_round"] == 2
    assert summary["privacy"]["epsilon_spent"] == pytest.approx(8.0)
    assert "the privacy budget was spent after round 2 of 3" in summary["warnings"][-1]
    assert answers(kits, "a") == 3


# --- a run without scores -----------------------------------------------------------------------------------


def test_no_site_is_asked_for_scores_and_none_would_give_them(kits: Path) -> None:
    office = Office(kits, make_task("fedepd"))
    ledger = office.run()
    asked = [name for site, name in office.asked if site == "a"]
    assert (asked.count(KEYS), asked.count(OPENED)) == (1, 1 + 3 + 1)  # sizes, three steps, the final model
    assert all(not log for log in office.log.values())
    assert all(not line.get("refused") for line in ledger.progress.lines)
    office.ask("a", KEYS, sum_record(Sum("evaluate", 2), {}, {}))
    assert "which the run does not have" in office.log["a"][-1]


def test_folder_report_and_model_of_a_run_without_scores(kits: Path, tmp_path: Path) -> None:
    """No score is known anywhere, and none is 0. Sizes were not sent, so there are no tiers."""
    ledger = finished(kits, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert not run.scored
    scores = [score for model in run.summary["metrics"].values() for each in model.values() for score in each]
    assert scores
    assert all(math.isnan(run.metric(name)) for name in scores)
    assert run.summary["warnings"][0] == UNSCORED
    assert run.dataset["nodes"] == 0
    assert run.dataset["imbalance_ratio"] is None
    assert run.rounds[-1]["val"]["global"] == {"acc": None, "bacc": None, "macro_f1": None}
    assert all(line["loss"] is None for line in run.rounds)
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No node was scored" in page
    assert "spent: epsilon 8.00 at delta 1e-05 in 3 sums" in page
    model = load_model(fedepd.export(tmp_path / "run", tmp_path / "model"))
    assert {*model.predict(toy_client(0).graph).labels} <= {str(k) for k in range(CLASSES)}
    card = (tmp_path / "model" / "README.md").read_text()
    assert "the last; it was not scored" in card
    assert "epsilon 8.00 at delta 1e-05" in card
    assert ledger.progress.tensors.keys() >= model.tensors.keys()


def test_the_status_says_what_was_spent(kits: Path) -> None:
    lines = Office(kits, make_task()).run().progress.lines
    assert spent(lines[-1], 8.0) == "epsilon 8.00 of 8 spent in 3 sums"
    assert spent({}, None) is None


# --- before a run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"select": "val_acc"}, "give select = last"),
        ({"guard": True}, "dp_epsilon is given with guard"),
        ({"secure": False}, "dp_epsilon is given without secure"),
        ({"sites": 2}, "dp_epsilon is given without secure"),
        ({"participation": 0.4}, "secure is on with 2 clients in a round"),
        ({"method": "fedgta"}, "secure is on, but"),
        ({"method": "fedproto"}, "is not sent under noise"),
    ],
)
def test_what_noise_cannot_keep_is_refused_at_submit(more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        make_task(**more)


def test_an_owner_who_wants_the_guard_lets_a_noisy_run_in() -> None:
    """Nothing is sent by class, and no evaluation either."""
    task = make_task(rounds=300, evaluate_every=1, epochs=3)
    assert not task.experiment().privacy.guard
    assert Limits().guard
    assert Limits().refusal(task) is None
    off = FederationTask("r", "fedavg", "default", {"guard": False}, FEATURES, CLASSES, ("a", "b", "c"))
    assert "guard = true" in str(Limits().refusal(off))


def test_the_preview_says_what_noise_costs_and_what_carries_it(kits: Path) -> None:
    found = preview(make_task("fedepd"), "a", kits / "a.npz")
    assert found.noise is not None
    assert found.noise.startswith("5 sites, 3 rounds, epsilon 8 at delta 1e-05: noise 1.0 times")
    seen = {each.field: each.seen for each in found.fields}
    assert {name for name, who in seen.items() if who == WITH_NOISE} == {
        "encoder.weight",
        "encoder.bias",
        "classifier.weight",
        "classifier.bias",
    }
    assert {seen["prototype.count"], seen["class_sizes.train"], seen["num_nodes"]} == {CONSTANT}
    assert not [name for name in seen if name.startswith(("global_", "personal_"))]
    assert (found.counts, found.withheld) == ({}, [])


def test_the_commands_say_it(kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--method",
        "fedavg",
        "--rounds",
        "2",
        "--select",
        "last",
        "--dp-epsilon",
        "8",
        "--hidden",
        "4",
    ]
    assert main(["federation", "preview", str(kits / "a"), "--data", str(kits / "a.npz"), *options]) == 0
    assert "noise: 5 sites, 2 rounds, epsilon 8" in capsys.readouterr().out
    assert main(["federation", "rehearse", *(str(kits / f"{site}.npz") for site in SITES), *options]) == 0
    said = capsys.readouterr().out
    assert said == "2 rounds ran; the federation draws other noise, so there is no digest to compare\n"
