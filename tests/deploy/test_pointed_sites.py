"""An operating point between real sites: the rehearsal's bits, and what neither side can send."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from deploy.test_sums import SITES, files_of, kits, make_task, permissive
from fedepd.cli import main
from fedepd.datasets.npz import write_npz
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.sent import read_sent
from fedepd.deploy.state import read_final
from fedepd.deploy.task import site_data
from fedepd.deploy.wire import ASK, Sum, answer_record, sum_record
from fedepd.errors import BadConfig, UnknownName
from fedepd.model.model import load_model
from fedepd.rounds.final import CLASS_TIERS, SELECTED, THRESHOLDS, USUAL
from fedepd.rounds.guard import OPEN
from fedepd.rounds.point import NEVER
from fedepd.rounds.pointing import Pointing
from fedepd.rounds.questions import POINT, QUESTIONS
from toy import CLASSES

__all__ = ["kits"]
AIM = "recall 1=0.8"
ALONE = "min_count = 1\nmin_holders = 1\nsecure = false\n"


def model_of(kit: Path, out: Path) -> Path:
    assert main(["federation", "model", str(kit), "-o", str(out)]) == 0
    return out


@pytest.mark.parametrize("aim", [AIM, "cost 1=50:1"])
def test_every_owner_gets_the_point_of_a_rehearsal(kits: Path, tmp_path: Path, aim: str) -> None:
    permissive(kits)
    task = make_task(sites=3, aim=aim)
    ledger, again = Office(kits, task).run(), rehearse(task, files_of(kits, 3))
    found = ledger.progress.answers[POINT]
    assert found == again.progress.answers[POINT]
    assert found["clients"] == [0, 1, 2]
    assert found["reasons"] == []
    (threshold,) = found["thresholds"]
    validation = [site_data(task, site, file) for site, file in zip(SITES, files_of(kits, 3), strict=False)]
    total = sum(int((data.val_mask & (data.graph.y >= 0)).sum()) for data in validation)
    assert found["counts"][0][3] == total
    for site in task.sites:
        final = read_final(kits / site / "state" / "r", task.identity())
        assert final.model[THRESHOLDS].tolist() == [threshold]
        assert "point" in {line["what"] for line in read_sent(kits / site / "state" / "r")}
    folder = model_of(kits / "a", tmp_path / "model")
    model = load_model(folder)
    assert model.operating is not None
    assert [(rule.classes, rule.threshold) for rule in model.operating.rules] == [((1,), threshold)]
    card = (folder / "README.md").read_text()
    assert "All sites chose the point together" in card
    graph = validation[0].graph
    write_npz(graph, tmp_path / "g.npz")
    words = ["predict", str(folder), "--data", str(tmp_path / "g.npz"), "-o", str(tmp_path / "p.csv")]
    assert main(words) == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert all((row["alert"] == "yes") == (float(row["p(1)"]) >= threshold) for row in rows)


def test_the_point_is_reached_where_it_was_counted(kits: Path, tmp_path: Path) -> None:
    """The owners' folders, taken together, find what the sums say they find on validation nodes."""
    permissive(kits)
    task = make_task(sites=3, aim=AIM)
    ledger = Office(kits, task).run()
    found, cases = 0, 0
    for site, file in zip(task.sites, files_of(kits, 3), strict=True):
        model, data = load_model(model_of(kits / site, tmp_path / site)), site_data(task, site, file)
        own = data.val_mask & (data.graph.y == 1)
        said = model.predict(data.graph)
        assert said.alerts is not None
        found, cases = found + int(said.alerts[own.numpy()].sum()), cases + int(own.sum())
    assert ledger.progress.answers[POINT]["counts"][0][::2] == [found, cases]
    assert found >= 0.8 * cases


def test_a_class_that_the_guard_closes_has_no_point_and_the_run_ends(
    kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    permissive(kits)
    task = make_task(sites=3, aim=AIM, min_count=10**6)
    ledger = Office(kits, task).run()
    found = ledger.progress.answers[POINT]
    assert found["thresholds"] == [NEVER]
    assert "no validation node of the class was counted" in found["reasons"][0]
    assert load_model(model_of(kits / "a", tmp_path / "model")).operating is None
    assert "the sites found none" in capsys.readouterr().err


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"aim": "recall burglar=0.5"}, UnknownName, "burglar"),
        ({"aim": "recall 1=2"}, BadConfig, "aim has '1=2'"),
        ({"aim": AIM, "dp_epsilon": 8.0, "guard": False, "select": "last"}, BadConfig, "not in its budget"),
        ({"aim": AIM, "method": "fedproto"}, BadConfig, "no model for all sites"),
    ],
)
def test_an_aim_that_a_run_cannot_have_is_refused(
    settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    method = settings.pop("method", "fedavg")
    with pytest.raises(error, match=said):
        make_task(method, sites=3, **settings)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v[:-1], "must be 484 whole numbers"),
        (lambda v: v.astype(np.float64) * np.nan, "must be 484 whole numbers"),
        (lambda v: v - 1, "has counts that hold a negative number"),
        (lambda v: v + 1, "validation nodes"),
        (lambda v: np.full_like(v, 2**62), "too large to be summed"),
    ],
)
def test_a_site_whose_counts_cannot_be_is_refused_and_the_others_choose(
    kits: Path, change: Any, said: str
) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(ALONE)
    task = make_task(sites=3, secure=False, aim="recall 0=0.5")
    task = replace(task, min_sites=2)

    def lie(site: str, name: str, answer: Any) -> Any:
        if site != "b" or name != ASK or answer.get("purpose") != POINT:
            return answer
        return type(answer)(answer_record(Sum(POINT, 3), change(answer["parts"]["answer"])))

    office = Office(kits, task, lie)
    found = office.run().progress.answers[POINT]
    assert found["clients"] == [0, 2]
    assert [said in each.reason for each in office.exchange.take_refusals() if each.client == 1] == [True]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("add", "said"), [(-1, "hold a negative number"), (1000, "validation nodes; find who sends them")]
)
def test_a_sum_that_cannot_be_costs_the_point_and_not_the_run(
    kits: Path, add: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under masks nobody sees whose counts they are. Site b has changed its own program."""
    permissive(kits)
    honest = Pointing.answer

    def lie(self: Pointing, participant: Any, message: Any) -> Any:
        return honest(self, participant, message) + add * (participant.client_id == 1)

    monkeypatch.setattr(Pointing, "answer", lie)
    found = Office(kits, make_task(sites=3, aim=AIM)).run().progress.answers[POINT]
    assert found["thresholds"] == [NEVER]
    assert said in found["reasons"][0]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("question", "changes", "said"),
    [
        ("point", {USUAL: torch.tensor([7])}, "largest class is 7"),
        ("point", {USUAL: torch.tensor([0, 0])}, "is torch.int64 [2], not torch.int64 [1]"),
        ("point", {THRESHOLDS: torch.zeros(1, dtype=torch.float64)}, "holds 'final.thresholds'"),
        ("final", {THRESHOLDS: torch.zeros(2, dtype=torch.float64)}, "is torch.float64 [2]"),
        ("final", {THRESHOLDS: torch.tensor([float("nan")], dtype=torch.float64)}, "NaN or infinite"),
        ("final", {THRESHOLDS: torch.tensor([1.2], dtype=torch.float64)}, "no probabilities"),
        ("final", {}, "lacks 'final.thresholds'"),
    ],
)
def test_a_message_that_an_honest_server_would_not_send_is_refused(
    kits: Path, question: str, changes: dict[str, torch.Tensor], said: str
) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(ALONE)
    office = Office(kits, make_task(sites=3, secure=False, aim=AIM))
    own = {SELECTED: torch.tensor([1, 1]), CLASS_TIERS: torch.zeros(CLASSES).long()}
    message = {**office.sites["a"]._admitted.expected, **own, USUAL: torch.tensor([0])}  # type: ignore[union-attr]
    message |= {OPEN: torch.ones(CLASSES), **changes}
    answer = office.ask("a", ASK, sum_record(Sum(question, 3), {}, message))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert said in office.log["a"][-1]


def test_a_run_without_an_aim_is_not_asked(kits: Path) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(ALONE)
    office = Office(kits, make_task(sites=3, secure=False))
    message = {**office.sites["a"]._admitted.expected}  # type: ignore[union-attr]
    answer = office.ask("a", ASK, sum_record(Sum(POINT, 3), {}, message))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "asks for the point of round 3, which the run does not have" in office.log["a"][-1]
    assert QUESTIONS[POINT].before is False
