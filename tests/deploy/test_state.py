from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedepd.datasets.client_file import write_client_file
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.state import SiteState
from fedepd.deploy.task import FederationTask, site_data
from fedepd.errors import BadData
from fedepd.loop import train
from fedepd.record import weights_sha256
from fedepd.simulate import InProcess
from toy import CLASSES, FEATURES, toy_clients


def test_a_round_that_is_asked_again_begins_with_the_state_it_began_with(tmp_path: Path) -> None:
    state = SiteState(tmp_path / "s", "id")
    assert state.before(1) == {}
    for round in (1, 2, 4):
        state.save(round, {"a": torch.tensor([float(round)])})
    for place in (state, SiteState(tmp_path / "s", "id")):
        assert place.before(4)["a"].tolist() == [2.0]
        assert place.before(5)["a"].tolist() == [4.0]
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["checkpoint-000002", "checkpoint-000004"]


def test_a_repeated_round_drops_what_came_after_it(tmp_path: Path) -> None:
    state = SiteState(tmp_path / "s", "id")
    for round, value in ((1, 1.0), (2, 2.0), (3, 3.0), (2, 9.0)):
        state.save(round, {"a": torch.tensor([value])})
    assert state.before(9)["a"].tolist() == [9.0]


def test_a_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    SiteState(tmp_path / "s", "id").save(1, {"a": torch.ones(2)})
    (tmp_path / "s" / "checkpoint-000001").write_bytes(b"no")
    with pytest.raises(BadData, match="saved state"):
        SiteState(tmp_path / "s", "id")


def test_the_state_of_another_run_is_refused(tmp_path: Path) -> None:
    SiteState(tmp_path / "s", "id").save(1, {"a": torch.ones(2)})
    with pytest.raises(BadData, match="another run"):
        SiteState(tmp_path / "s", "other")


def federation(tmp_path: Path, method: str, rounds: int = 5) -> tuple[FederationTask, list[Path]]:
    files = []
    for client in toy_clients():
        files.append(tmp_path / f"{client.client_id}.npz")
        write_client_file(client, files[-1])
    settings = {"rounds": rounds, "evaluate_every": 2, "hidden": 4}
    return FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a", "b", "c")), files


@pytest.mark.parametrize("method", ["fedavg", "fedepd"])
def test_server_and_sites_restarted_after_every_round_reach_the_same_digest(tmp_path: Path, method: str) -> None:
    task, files = federation(tmp_path, method)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    (tmp_path / "run").mkdir()
    for _ in range(5):
        ledger = Ledger(task)
        ledger.load(tmp_path / "run")
        states = [SiteState(tmp_path / "run" / site, task.identity()) for site in task.sites]
        participants = [task.participant(client) for client in clients]
        for participant, state in zip(participants, states, strict=True):
            participant.state = state.before(ledger.next_round)
        method, tensors = ledger.experiment.method, ledger.progress.tensors
        rounds = train(method, ledger.server, tensors, [0, 1, 2], InProcess(participants), 2, ledger.next_round)
        ledger.add(next(rounds), {k: (c.graph.num_nodes, int(c.train_mask.sum())) for k, c in enumerate(clients)})
        ledger.save(tmp_path / "run")
        for participant, state in zip(participants, states, strict=True):
            state.save(ledger.next_round - 1, participant.state)
    whole = rehearse(task, files)
    assert ledger.digest() == whole.digest()
    assert weights_sha256(ledger.progress.tensors) == weights_sha256(whole.progress.tensors)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    task, _ = federation(tmp_path, "fedavg")
    (tmp_path / "checkpoint-000003").write_bytes(b"no")
    with pytest.raises(BadData, match="checkpoint-000003"):
        Ledger(task).load(tmp_path)


def test_the_run_folder_is_one_that_reports_read(tmp_path: Path) -> None:
    from fedepd.report.page import build_report
    from fedepd.report.runs import read_run

    task, files = federation(tmp_path, "fedepd")
    ledger = rehearse(task, files)
    out = tmp_path / "run"
    out.mkdir()
    for line in ledger.progress.lines:
        with (out / "rounds.jsonl").open("a") as f:
            f.write(json.dumps({**line, "loss": None}) + "\n")
    ledger.finish(out)
    run = read_run(out)
    assert run.dataset["nodes"] == sum(c.graph.num_nodes for c in toy_clients())
    assert run.partition["class_sizes"].sum() == sum(int((c.val_mask | c.test_mask).sum()) for c in toy_clients())
    assert Path(build_report(out, None)).stat().st_size > 1000
