"""The book of a federated run: restarts, absent sites, and the folder it becomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedepd import load_model
from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.ledger import Ledger, counted, stale_classes
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.state import SiteState
from fedepd.deploy.task import FederationTask, site_data
from fedepd.errors import BadConfig, BadData
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import class_counts
from fedepd.model.export import export
from fedepd.rounds.evaluate import confusion
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round, train
from fedepd.rounds.sums import sizes_of
from fedepd.runs.drive import drive
from fedepd.runs.folder import weights_sha256
from fedepd.runs.record import write_rounds
from fedepd.types import Reply, Tensors
from toy import CLASSES, FEATURES, toy_client, toy_clients


def federation(
    tmp_path: Path, method: str, rounds: int = 5, **more: Any
) -> tuple[FederationTask, list[Path]]:
    files = []
    for client in toy_clients():
        files.append(tmp_path / f"{client.client_id}.npz")
        write_client_file(client, files[-1])
    settings = {"rounds": rounds, "evaluate_every": 2, "hidden": 4, **more}
    return FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a", "b", "c")), files


class Restarted(Exception):
    """After every round."""


def saved(ledger: Ledger, folder: Path) -> Callable[[Round, Mapping[str, Any]], None]:
    """Save a round, then end."""

    def act(each: Round, line: Mapping[str, Any]) -> None:
        ledger.save(folder)
        raise Restarted

    return act


@pytest.mark.parametrize("method", ["fedavg", "fedepd", "fedgac", "fedgta"])
def test_server_and_sites_restarted_after_every_round_reach_the_same_digest(
    tmp_path: Path, method: str
) -> None:
    single = {"secure": False} if method in ("fedgac", "fedgta") else {}
    task, files = federation(tmp_path, method, **single)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    (tmp_path / "run").mkdir()
    for _ in range(5):
        ledger = Ledger(task)
        ledger.load(tmp_path / "run")
        states = [SiteState(tmp_path / "run" / site, task.identity()) for site in task.sites]
        participants = [task.participant(client) for client in clients]
        for participant, state in zip(participants, states, strict=True):
            participant.state = state.before(ledger.progress.next_round)
        if single:
            ledger.declare({k: p.sizes for k, p in enumerate(participants)})
        elif ledger.together is None:
            total, members = InProcess(participants).sum_sizes([0, 1, 2])
            ledger.together = sizes_of(total), members
        with pytest.raises(Restarted):
            drive(
                ledger.course(InProcess(participants)),
                ledger.progress,
                ledger.add,
                saved(ledger, tmp_path / "run"),
            )
        for participant, state in zip(participants, states, strict=True):
            state.save(ledger.progress.next_round - 1, participant.state)
    again = Ledger(task)
    again.load(tmp_path / "run")
    whole = rehearse(task, files)
    assert list(again.progress.tensors) == list(whole.progress.tensors)  # sums over them depend on the order
    assert ledger.digest() == whole.digest()
    assert weights_sha256(ledger.progress.tensors) == weights_sha256(whole.progress.tensors)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]


def test_what_clients_declared_outlives_a_restart(tmp_path: Path) -> None:
    task, files = federation(tmp_path, "fedavg", rounds=1, secure=False, guard=False)
    ledger = rehearse(task, files)
    first = {client: vars(sizes) for client, sizes in ledger.declared().items()}
    ledger.save(tmp_path)
    again = Ledger(task)
    again.load(tmp_path)
    for client, sizes in again.declared().items():
        assert sizes.own_holders is None
        for name in ("num_nodes", "num_train", "train", "val", "test"):
            value = getattr(sizes, name)
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(first[client][name]))
    assert sorted(first) == [0, 1, 2]
    assert int(first[0]["train"].sum()) == first[0]["num_train"] == int(toy_clients()[0].train_mask.sum())


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    task, _ = federation(tmp_path, "fedavg")
    (tmp_path / "checkpoint-000003").write_bytes(b"no")
    with pytest.raises(BadData, match="checkpoint-000003"):
        Ledger(task).load(tmp_path)


OPEN = {"secure": False, "guard": False}


def fetched(tmp_path: Path, method: str, **more: Any) -> Path:
    """The run folder as ``fedepd federation fetch`` brings it home."""
    ledger = rehearse(*federation(tmp_path, method, **{**OPEN, **more}))
    out = tmp_path / "run"
    out.mkdir()
    write_rounds(out, ledger.progress.lines)
    ledger.finish(out)
    return out


def test_a_fetched_run_predicts_as_the_sites_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exported without any graph, the model predicts as the sites did.

    On their graphs it has the very confusion matrices that they sent.
    """
    run, model = fetched(tmp_path, "fedepd"), tmp_path / "model"
    assert main(["export", str(run), "-o", str(model)]) == 0
    network = ["classifier.bias", "classifier.weight", "encoder.bias", "encoder.weight"]
    assert sorted(load_file(model / "model.safetensors")) == [*network, "pruning.votes"]
    assert json.loads((model / "labels.json").read_bytes()) == {"labels": ["0", "1", "2"]}
    assert json.loads((model / "schema.json").read_bytes()) == {"features": FEATURES, "columns": None}
    assert set(json.loads((model / "config.json").read_bytes())["temperatures"].values()) == {1.0}
    assert not (run / "calibration.json").exists()  # else the report would draw it
    with np.load(run / "confusion.npz") as matrices:
        for client in toy_clients():
            said = load_model(model).predict(client.graph)
            assert np.allclose(said.probabilities.sum(1), 1)
            pairs = confusion(
                torch.tensor(said.probabilities).argmax(1), client.graph.y, client.test_mask, CLASSES
            )
            assert pairs.tolist() == matrices["global_test"][client.client_id].tolist()
    capsys.readouterr()
    assert main(["predict", str(model), "--data", str(tmp_path / "0.npz")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + toy_clients()[0].graph.num_nodes


def test_the_card_of_a_fetched_run_says_how_it_was_calibrated(tmp_path: Path) -> None:
    card = (export(fetched(tmp_path, "fedavg"), tmp_path / "model") / "README.md").read_text()
    assert "## Calibration\n\nThe temperatures were found from sums over the sites, on " in card
    assert "graphs of a federation stay at its sites" in card
    assert "Calibration was fitted" not in card
    assert " edges, " not in card
    assert "The data are at the sites a, b, c." in card


def test_a_fetched_run_without_a_common_model_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="keeps one model per client"):
        export(fetched(tmp_path, "fedproto"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_fetched_run_that_would_predict_otherwise_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's own class counts move its predictions; without its training labels there are none."""
    plain = FedAvg.predict
    monkeypatch.setattr(FedAvg, "predict", lambda *a: plain(*a) + class_counts(a[1].data))
    with pytest.raises(BadConfig, match="a site gets other predictions than"):
        export(fetched(tmp_path, "fedavg"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_data_for_a_fetched_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="without --data"):
        export(fetched(tmp_path, "fedavg"), tmp_path / "model", tmp_path / "0.npz")


def test_what_sites_declared_together_outlives_a_restart(tmp_path: Path) -> None:
    task, files = federation(tmp_path, "fedavg", rounds=1)
    ledger = rehearse(task, files)
    ledger.save(tmp_path)
    again = Ledger(task)
    again.load(tmp_path)
    assert ledger.together is not None
    assert again.together is not None
    (first, members), (sizes, others) = ledger.together, again.together
    assert members == others == (0, 1, 2)
    assert (sizes.num_nodes, sizes.num_train, sizes.clients) == (first.num_nodes, first.num_train, 3)
    for name in ("train", "val", "test", "holders"):
        assert torch.equal(getattr(sizes, name), getattr(first, name))
    assert again.facts == {}  # nothing about a single site


def facts_of_sites(run: Path) -> list[dict[str, str]]:
    """What the report knows of each site before training."""
    from fedepd.report.runs import group, read_run
    from fedepd.report.tables import clients

    table = clients(group([read_run(run)]))
    rows = [dict(zip(table.headers, (cell.text for cell in row), strict=True)) for row in table.sections[0]]
    scores = ("Acc", "bAcc", "F1")
    return [
        {name: text for name, text in row.items() if text != "–" and name.split()[0] not in scores}
        for row in rows
    ]


def test_the_folder_of_a_run_by_sums_is_one_that_reports_read(tmp_path: Path) -> None:
    from fedepd.report.page import build_report
    from fedepd.report.runs import read_run

    out = fetched(tmp_path, "fedepd", guard=True, secure=True, min_count=1)
    run = read_run(out)
    assert run.sums_only
    assert run.dataset["nodes"] == sum(c.graph.num_nodes for c in toy_clients())
    assert not run.partition["client_class"].any()  # the server does not know it
    page = Path(build_report(out, None)).read_text()
    assert "saw sums over the sites only" in page
    assert "does not know who has what" in page
    assert "mean over clients" not in page
    assert facts_of_sites(out) == [{"Client": str(k), "Name": name} for k, name in enumerate("abc")]
    assert "The guard was on: " in (export(out, tmp_path / "model") / "README.md").read_text()


def test_the_run_folder_is_one_that_reports_read(tmp_path: Path) -> None:
    from fedepd.report.page import build_report
    from fedepd.report.runs import read_run

    out = fetched(tmp_path, "fedepd")
    known = {"Client", "Name", "Nodes", "Train", "Val", "Test", "Classes"}
    assert all(site.keys() == known for site in facts_of_sites(out))
    run = read_run(out)
    assert run.dataset["nodes"] == sum(c.graph.num_nodes for c in toy_clients())
    assert run.partition["class_sizes"].sum() == sum(
        c.graph.num_nodes for c in toy_clients()
    )  # all of them have a part
    assert Path(build_report(out, None)).stat().st_size > 1000


class Unreliable(InProcess):
    """Each reply is lost with probability 0.3."""

    losses = np.random.default_rng(0)
    counts: dict[int, Tensors]

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = {
            client: reply
            for client, reply in super().step(round, messages).items()
            if self.losses.random() >= 0.3
        }
        self.counts = {client: counted(reply.tensors) for client, reply in replies.items()}
        return replies


def test_thirty_percent_lost_replies_over_fifty_rounds(tmp_path: Path) -> None:
    """Class 2 lives at client 0 alone.

    When its reply is lost, the prototype stays, bit for bit, and the line says so.
    """
    task, _ = federation(tmp_path, "fedepd", rounds=50, **OPEN)
    clients = [toy_client(0), toy_client(1, missing_class=True), toy_client(2, missing_class=True)]
    exchange = Unreliable([task.participant(client) for client in clients])
    ledger = Ledger(task)
    last, marked = None, 0
    for each in train(
        ledger.experiment.method,
        ledger.server,
        ledger.progress.tensors,
        [0, 1, 2],
        exchange,
        10,
        defence=ledger.experiment.defence,
    ):
        ledger.declare(exchange.declared([0, 1, 2]))
        line = ledger.add(each, exchange.counts)
        if each.clients:
            known = last is not None
            assert line.get("stale", {}) == (
                {"prototype.count": [2]} if known and 0 not in each.clients else {}
            )
        if "stale" in line:
            marked += 1
            assert last is not None
            assert torch.equal(each.tensors["prototype.mean"][2], last)
        if 0 in each.clients:
            last = each.tensors["prototype.mean"][2]
    assert ledger.progress.next_round == 51
    assert 5 < marked < 25
    assert all(bool(torch.isfinite(value).all()) for value in ledger.progress.tensors.values())


def test_stale_classes() -> None:
    """Known: 0 and 2. Held now: 0 and 1. So 2 is stale."""
    server = {"prototype.count": torch.tensor([4.0, 0.0, 3.0]), "w": torch.ones(3)}
    assert stale_classes(server, [{"prototype.count": torch.tensor([1.0, 1.0, 0.0])}]) == {
        "prototype.count": [2]
    }
    assert stale_classes(server, []) == {}


def test_a_rehearsal_like_a_fetched_run_has_its_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Client 2 was absent from round 2 and from the last evaluation."""
    task, files = federation(tmp_path, "fedepd", rounds=4, min_count=2)
    present = [{"round": 2, "clients": [0, 1]}, {"round": 4, "clients": [0, 1, 2], "evaluated": [0, 1]}]
    ledger = rehearse(task, files, present)
    assert ledger.digest() != rehearse(task, files).digest()
    out = tmp_path / "run"
    out.mkdir()
    for line in ledger.progress.lines:
        if "val" in line:
            line["evaluated"] = [0, 1] if line["round"] == 4 else [0, 1, 2]
    write_rounds(out, ledger.progress.lines)
    ledger.finish(out)
    settings = ["--rounds", "4", "--evaluate-every", "2", "--hidden", "4", "--min-count", "2"]
    words = ["federation", "rehearse", *map(str, files), *settings]
    assert main([*words, "--like", str(out)]) == 0
    assert capsys.readouterr().out == f"digest {ledger.digest()}\n"
    assert main(words) == 0
    assert capsys.readouterr().out != f"digest {ledger.digest()}\n"
