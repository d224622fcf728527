"""Federated statistics in whole runs: real executors and the server's exchange, secure and not.

The digest is the rehearsal's, whoever is lost.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office, furnish, raw_columns
from deploy.test_sums import SITES, Server, files_of, losing, permissive
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.limits import expected_message
from fedepd.deploy.line import QuorumLost
from fedepd.deploy.measured import Measured, measured_in_words, read_measured
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.state import read_final
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import ASK, KEYS, MASKED, OPENED, STEP, Sum, message_record, sum_record
from fedepd.errors import BadData, BadMessage
from fedepd.report.runs import read_run
from fedepd.rounds.questions import STATISTICS
from fedepd.rounds.statistics import SCALING, Statistics
from toy import CLASSES, FEATURES, toy_client, toy_clients

SCALED = (1, 3)


@pytest.fixture
def kits(five_kits: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(five_kits, tmp_path / "fed"))
    furnish(folder, SITES, SCALED)
    permissive(folder)
    return folder


def make_task(secure: bool = True, sites: int = 5, rounds: int = 3, **more: Any) -> FederationTask:
    settings = {"rounds": rounds, "evaluate_every": 2, "hidden": 4, "min_count": 2, "secure": secure, **more}
    task = FederationTask(
        "r", "fedepd", "default", settings, FEATURES, CLASSES, tuple(SITES[:sites]), 3, deadline=20.0
    )
    return replace(task, scaled=SCALED, counted=(0,))


def told(ledger: Ledger) -> Statistics:
    return Statistics.read(ledger.progress.answers[STATISTICS], "it")


def rows_of(clients: list[int]) -> Any:
    """The raw numbers of these sites together, [n, 2]."""
    every = toy_clients(5)
    return np.concatenate([raw_columns(every[k], SCALED).values for k in clients])


@pytest.mark.parametrize("secure", [True, False])
def test_a_federation_scales_by_all_rows_and_reaches_the_rehearsals_digest(kits: Path, secure: bool) -> None:
    permit_alone(kits)
    task = make_task(secure)
    office = Office(kits, task)
    ledger = office.run()
    assert [log for log in office.log.values() if log] == []
    rehearsed = rehearse(task, files_of(kits))
    assert ledger.digest() == rehearsed.digest()
    assert told(ledger) == told(rehearsed)
    values = rows_of([0, 1, 2, 3, 4])
    expected = np.stack([values.mean(0), values.std(0)])
    assert np.allclose(told(ledger).scaling, expected, rtol=1e-12, atol=0)
    assert told(ledger).columns[0].rows == len(values) == 20 + 24 + 28 + 32 + 36
    for site in SITES:
        kept = read_measured(kits / site / "state" / "r")
        assert kept is not None
        assert [each["mean"] for each in kept["columns"]] == told(ledger).scaling[0].tolist()
    home = read_final(kits / "a" / "state" / "r", task.identity())
    assert torch.equal(home.model[SCALING], torch.from_numpy(told(ledger).scaling))


def permit_alone(kits: Path) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(
            "min_count = 1\nmin_holders = 1\nsecure = false\n", encoding="utf-8"
        )


def test_the_same_numbers_scaled_in_the_tables_before_give_the_same_weights(kits: Path) -> None:
    """The digest is that of a run over files that were scaled by the same means and deviations."""
    task = make_task()
    ledger = rehearse(task, files_of(kits))
    mean, deviation = told(ledger).scaling
    files = []
    for client in toy_clients(5):
        x = client.graph.x.clone()
        x[:, list(SCALED)] = torch.from_numpy(
            ((raw_columns(client, SCALED).values - mean) / deviation).astype(np.float32)
        )
        files.append(kits / f"{client.client_id}.npz")
        write_client_file(replace(client, graph=replace(client.graph, x=x)), files[-1])
    assert rehearse(replace(task, scaled=(), counted=()), files).digest() == ledger.digest()


@pytest.mark.heavy
def test_features_are_divided_by_their_sum_after_they_are_scaled(kits: Path) -> None:
    task = make_task(features="row_normalised")
    assert Office(kits, task).run().digest() == rehearse(task, files_of(kits)).digest()
    participant = task.participant(site_data(task, "a", kits / "a.npz"))
    participant.scale(torch.tensor([[40.0, 40.0], [7.0, 7.0]], dtype=torch.float64))
    sums = participant._true.graph.x.abs().sum(1)
    assert torch.allclose(sums, torch.ones_like(sums))


# --- who is not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trip", "clients"),
    [
        (MASKED, 4),
        pytest.param(KEYS, 4, marks=pytest.mark.heavy),
        pytest.param(OPENED, 5, marks=pytest.mark.heavy),
    ],
)
def test_a_site_that_dies_during_statistics_is_in_the_run_all_the_same(
    kits: Path, trip: str, clients: int
) -> None:
    """Statistics are the first sum. The site is back for the second, of sizes, and uses what was found."""
    task = make_task(rounds=2)
    office = Office(kits, task, losing(("c", trip, 1)))
    ledger = office.run()
    here = told(ledger).clients
    assert len(here) == clients
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2, 3, 4)] * 2
    assert np.allclose(told(ledger).scaling[0], rows_of(list(here)).mean(0), rtol=1e-12)
    assert ledger.digest() == rehearse(task, files_of(kits), answered={STATISTICS: here}).digest()
    assert read_measured(kits / "c" / "state" / "r") == read_measured(kits / "a" / "state" / "r")


def test_a_site_that_dies_where_answers_are_seen_alone(kits: Path) -> None:
    permit_alone(kits)
    task = make_task(secure=False, rounds=2)
    ledger = Office(kits, task, losing(("b", ASK, 1))).run()
    assert told(ledger).clients == (0, 2, 3, 4)
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2, 3, 4)] * 2
    assert ledger.digest() == rehearse(task, files_of(kits), answered={STATISTICS: (0, 2, 3, 4)}).digest()


@pytest.mark.parametrize("secure", [True, False])
def test_too_few_sites_end_the_job(kits: Path, secure: bool) -> None:
    permit_alone(kits)
    lost = [(site, MASKED if secure else ASK, 1) for site in "cde"]
    with pytest.raises(QuorumLost, match=r"(masked|statistics) in round 0: 2 instead of at least [34] .*c: "):
        Office(kits, make_task(secure), losing(*lost)).run()


def test_nobody_answers(kits: Path) -> None:
    """Not even what their columns mean."""
    permit_alone(kits)
    with pytest.raises(QuorumLost, match=r"statistics in round 0: 0 instead of at least 3 .*a: reply"):
        Office(kits, make_task(secure=False), lambda *_: None).run()


@pytest.mark.heavy
def test_a_site_that_is_started_again_uses_the_same_scaling(kits: Path) -> None:
    task = make_task(rounds=4)
    office = Office(kits, task)
    opened: list[int] = []

    def change(site: str, name: str, answer: Any) -> Any:
        if (site, name) == ("e", OPENED):
            opened.append(1)
            if len(opened) == 3:  # statistics, sizes, step 1
                office.sites["e"] = office.start("e")
                return None
        return answer

    office.change = change
    ledger = office.run()
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2, 3, 4)] * 4
    assert ledger.digest() == rehearse(task, files_of(kits)).digest()


def test_a_server_that_is_started_again_keeps_the_first_statistics(kits: Path, tmp_path: Path) -> None:
    """It dies right after the statistics. Another sum, without site c, would be another scaling."""
    task, folder = make_task(rounds=2), tmp_path / "run"
    folder.mkdir()
    office = Office(kits, task)
    first = Ledger(task)
    first.measure(office.exchange, folder)
    office.exchange.close()
    second = Ledger(task)
    second.load(folder)
    assert second.progress.answers == first.progress.answers
    assert second.progress.next_round == 1
    office.connect(None)
    office.asked.clear()
    office.run(second, folder)
    assert second.digest() == rehearse(task, files_of(kits)).digest()
    assert told(second) == told(first)
    second.finish(folder)
    assert read_run(folder).summary["statistics"]["clients"] == [0, 1, 2, 3, 4]


def test_statistics_over_other_sites_are_refused_by_every_site(kits: Path) -> None:
    """The server forgets them and asks again without c. The difference would be c's sums."""
    office = Office(kits, make_task())
    Ledger(office.task).measure(office.exchange)
    office.exchange.close()
    office.connect(None)
    office.change = losing(("c", MASKED, 1))
    with pytest.raises(QuorumLost, match="fedepd_sum_opened in round 0"):
        office.run()
    assert "was summed before, over other sites" in office.log["a"][-1]


# --- the guard ----------------------------------------------------------------------------------------------


def test_a_site_with_few_rows_sends_nothing_where_answers_are_seen_alone(kits: Path) -> None:
    """Site a has 3 rows and sends zeros, because 4 are needed. It still gets the others' scaling."""
    permit_alone(kits)
    small = toy_client(0, nodes=3)
    write_client_file(small, kits / "a.npz", raw_columns(small, SCALED))
    task = make_task(secure=False, rounds=2, min_count=4)
    office = Office(kits, task)
    ledger = office.run()
    assert told(ledger).columns[0].rows == 24 + 28 + 32 + 36
    assert np.allclose(told(ledger).scaling[0], rows_of([1, 2, 3, 4]).mean(0), rtol=1e-12)
    kept = read_measured(kits / "a" / "state" / "r")
    assert kept is not None
    assert kept["withheld"] == ["this site has fewer than 4 rows here, so nothing about its columns is sent"]
    assert ledger.digest() == rehearse(task, files_of(kits)).digest()


# --- a dishonest server -------------------------------------------------------------------------------------


@pytest.fixture
def alone(kits: Path) -> Office:
    permit_alone(kits)
    office = Office(kits, make_task(secure=False))
    office.exchange.close()
    return office


def message_of(office: Office, scaling: Any = ((40.0, 50.0), (7.0, 8.0))) -> dict[str, Any]:
    message = expected_message(office.task, 0)
    return {**message, SCALING: torch.as_tensor(scaling, dtype=torch.float64)}


@pytest.mark.hostile
def test_another_scaling_is_refused_also_after_a_restart(alone: Office) -> None:
    first, other = message_of(alone), message_of(alone, ((40.0, 50.0), (7.0, 8.000000000000002)))
    assert alone.ask("a", STEP, message_record(1, first)).get_return_code() == "OK"
    for again in (False, True):
        if again:
            alone.sites["a"] = alone.start("a")
        assert alone.ask("a", STEP, message_record(2, other)).get_return_code() == "EXECUTION_EXCEPTION"
        assert "the server changed how columns are scaled during the run" in alone.log["a"][-1]
    assert alone.ask("a", STEP, message_record(2, first)).get_return_code() == "OK"


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("scaling", "says"),
    [
        (None, "lacks 'features.scaling'"),
        (((1.0,), (1.0,)), "not torch.float64"),
        (((np.nan, 1.0), (1.0, 1.0)), "holds a mean that is no number"),
        (((1.0, 1.0), (0.0, 1.0)), "deviation that is not above 0"),
        (((1.0, 1.0), (-1.0, 1.0)), "deviation that is not above 0"),
        (((1.0, 1.0), (1e-300, 1.0)), "too large; correct the number"),
    ],
)
def test_a_scaling_that_no_honest_server_sends(alone: Office, scaling: Any, says: str) -> None:
    message = message_of(alone, scaling) if scaling else expected_message(alone.task, 0)
    if not scaling:
        del message[SCALING]
    assert alone.ask("a", STEP, message_record(1, message)).get_return_code() == "EXECUTION_EXCEPTION"
    assert says in alone.log["a"][-1]


@pytest.mark.hostile
def test_a_server_cannot_show_two_scalings_in_one_sum(kits: Path) -> None:
    """Site e is shown another deviation. What it sealed does not open at the others."""
    office = Office(kits, make_task())
    ledger = Ledger(office.task)
    ledger.measure(office.exchange)
    office.exchange.sum_sizes(range(5))
    office.exchange.close()
    honest, crafted = message_of(office), message_of(office, ((40.0, 50.0), (7.0, 1e-6)))
    server = Server(office, Sum("step", 1), SITES)
    shares = server.share(server.adverts(), lambda site: crafted if site == "e" else honest)
    for site in SITES:
        answer = server.ask(MASKED, site, **server.sealed_for(site, shares))
        assert answer.get_return_code() == "EXECUTION_EXCEPTION"
        assert "do not open: the server showed that site another model" in office.log[site][-1]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("which", "message", "says"),
    [
        (Sum(STATISTICS, 1), {}, "statistics of round 1, which the run does not have"),
        (Sum(STATISTICS, 0), {"w": torch.ones(1)}, "holds 'w'"),
    ],
)
def test_statistics_that_the_run_does_not_ask(alone: Office, which: Sum, message: Any, says: str) -> None:
    answer = alone.ask("a", ASK, sum_record(which, {}, message))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert says in alone.log["a"][-1]


@pytest.mark.hostile
@pytest.mark.parametrize("secure", [True, False])
def test_a_run_without_scaled_columns_answers_no_statistics(kits: Path, secure: bool) -> None:
    permit_alone(kits)
    furnish(kits, SITES)
    office = Office(kits, replace(make_task(secure), scaled=(), counted=()))
    office.exchange.close()
    answer = office.ask("a", KEYS if secure else ASK, sum_record(Sum(STATISTICS, 0), {}, {}))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "statistics of round 0, which the run does not have" in office.log["a"][-1]


@pytest.mark.hostile
def test_a_sites_impossible_sums_are_refused(kits: Path) -> None:
    """Site b says that it has minus a thousand rows."""
    permit_alone(kits)

    def change(site: str, name: str, answer: Any) -> Any:
        if (site, name) == ("b", ASK):
            answer["parts"]["answer"][0] = -1000
        return answer

    with pytest.raises(BadMessage, match=r"statistics cannot be used: in column 1 there are -\d+ rows"):
        Office(kits, make_task(secure=False), change).run()


# --- files that do not fit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [(), (1,)])
def test_a_site_whose_file_scales_other_columns_takes_no_part(kits: Path, columns: tuple[int, ...]) -> None:
    """So the four others do not wait for it. Its own log says why."""
    furnish(kits, SITES[:1], columns)
    office = Office(kits, make_task(rounds=1))
    ledger = office.run()
    named = "column 1" if columns else "no column"
    assert (
        f"leaves {named} to be scaled by all sites together, but the federation scales column 1, 3"
        in (office.log["a"][0])
    )
    assert told(ledger).clients == (1, 2, 3, 4)


# --- the site's own file ------------------------------------------------------------------------------------


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "cannot be read|not JSON|JSON"),
        ("[]", "is a list, not a table"),
        ('{"columns": [], "withheld": []}', "other columns than the run scales"),
        ('{"columns": [{"column": 1, "mean": "x", "deviation": 1}], "withheld": []}', "mean"),
        ('{"columns": [{"column": 1, "mean": NaN, "deviation": 1}], "withheld": []}', "mean|NaN|JSON"),
    ],
)
def test_a_damaged_memory_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "statistics.json").write_text(content)
    with pytest.raises(BadData, match=f"statistics.json.*({says})"):
        Measured(tmp_path, toy_client(), SCALED, [])


def test_what_a_site_keeps_is_readable_and_exact(tmp_path: Path) -> None:
    scaling = torch.tensor([[0.1, 1e15], [1 / 3, 2.0**-100]], dtype=torch.float64)
    Measured(tmp_path, toy_client(), SCALED, ["this"]).check(scaling)
    kept = json.loads((tmp_path / "statistics.json").read_text())
    assert kept["columns"][1] == {"column": 3, "mean": 1e15, "deviation": 2.0**-100}
    assert kept["withheld"] == ["this"]
    assert measured_in_words(kept) == [
        "column 1: scaled by mean 0.1 and deviation 0.333333",
        "column 3: scaled by mean 1e+15 and deviation 7.88861e-31",
        "kept at home: this",
    ]
    again = Measured(tmp_path, toy_client(), SCALED, [])
    again.check(scaling)
    with pytest.raises(BadMessage, match="changed how columns are scaled"):
        again.check(scaling + 1e-15)
