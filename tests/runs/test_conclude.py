"""What a run asks after its last round. tests/deploy/test_final.py has it between real sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.clients.client_file import write_client_file
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.rounds.questions import FINAL
from fedepd.runs.conclude import conclude
from toy import CLASSES, FEATURES, toy_clients


def federation(folder: Path, method: str = "fedavg", **more: object) -> tuple[FederationTask, list[Path]]:
    files = []
    for client in toy_clients():
        files.append(folder / f"{client.client_id}.npz")
        write_client_file(client, files[-1])
    settings = {"rounds": 2, "hidden": 4, "min_count": 1, "min_holders": 1, **more}
    return FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a", "b", "c")), files


def test_all_sites_answer_and_bytes_are_counted(tmp_path: Path) -> None:
    task, files = federation(tmp_path)
    answer = rehearse(task, files).progress.answers[FINAL]
    assert answer["clients"] == [0, 1, 2]
    assert answer["bytes_up"] == 3 * 8 * 3 * (1 + 257)  # three sites, three tiers: nodes and 257 sums
    sent = 4 * (FEATURES * 4 + 4 + 4 * CLASSES + CLASSES)  # the model
    sent += 4 * CLASSES + 8 * (2 + CLASSES)  # open classes, selected rounds and tiers
    assert answer["bytes_down"] == 3 * sent
    assert sorted(answer["temperatures"]) == ["head", "medium", "tail"]


def test_sums_that_are_seen_alone_or_not_give_the_same_temperatures(tmp_path: Path) -> None:
    found = [
        rehearse(*federation(tmp_path, guard=False, secure=secure, robust="off", cap_weights=False))
        for secure in (False, True)
    ]
    # Secure sums round weights to 2^-24, so the two models are not the same to the last bit.
    one, other = (ledger.progress.answers[FINAL]["temperatures"] for ledger in found)
    assert one == pytest.approx(other, rel=1e-4)


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    ledger = rehearse(*federation(tmp_path))
    before = dict(ledger.progress.answers)
    conclude(ledger.course(None), ledger.progress)  # type: ignore[arg-type]
    assert ledger.progress.answers == before


def test_under_noise_and_without_a_model_for_all_there_are_no_temperatures(tmp_path: Path) -> None:
    for method, more in (("fedavg", {"dp_epsilon": 8.0, "select": "last"}), ("fedproto", {})):
        ledger = rehearse(*federation(tmp_path, method, **more))
        assert "temperatures" not in ledger.progress.answers[FINAL]
        assert ledger.progress.answers[FINAL]["clients"] == [0, 1, 2]
