"""What each address answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from board.asking import Asker
from fedepd.board import live
from hostile_names import MARKUP

WriteRun = Callable[..., Path]
Ask = Callable[[], Asker]
hostile = pytest.mark.hostile


def test_the_list_and_a_run(write_run: WriteRun, ask: Ask) -> None:
    write_run("a")
    asker = ask()
    assert 'href="/run?run=a"' in asker.get("/").text
    page = asker.get("/run?run=a")
    assert page.status == 200
    assert "client 2 is small" in page.text  # a warning of the run
    assert 'data-events="/events?run=a"' in page.text
    figures = json.loads(asker.get("/figures?run=a").text)["figures"]
    assert [each["name"] for each in figures] == ["classes", "confusion", "partition", "pruned", "left"]


def test_a_run_that_goes_on(write_run: WriteRun, ask: Ask) -> None:
    (write_run("a") / "summary.json").unlink()
    asker = ask()
    assert 'data-state="stopped"' in asker.get("/run?run=a").text
    assert "Resume" in asker.get("/run?run=a").text
    assert len(json.loads(asker.get("/figures?run=a").text)["figures"]) == 2


def test_runs_are_compared(write_run: WriteRun, ask: Ask) -> None:
    for seed in range(3):
        write_run(f"s/a{seed}", seed=seed, skill=0.9)
        write_run(f"s/b{seed}", method="fedavg", label="FedAvg", seed=seed, skill=0.3)
    asker = ask()
    page = asker.get("/compare?study=s").text
    assert "FedAvg is behind FedEPD" in page
    assert "over 3 seeds" in page
    two = asker.get("/compare?run=s/a0&run=s/b0").text
    assert "Whether that is chance takes 3 seeds to tell, and they share 1." in two
    assert "No two of these runs" in asker.get("/compare?run=s/a0&run=s/a1").text
    figures = json.loads(asker.get("/figures?compare=s/a0&compare=s/b0").text)["figures"]
    assert [each["name"] for each in figures] == ["validation", "classes"]


@pytest.mark.parametrize("query", ["", "?run=a", "?run=a&run=b", "?run=a&run=c", "?run=a&run=../a"])
def test_only_finished_runs_are_compared(write_run: WriteRun, ask: Ask, query: str) -> None:
    write_run("a")
    (write_run("b") / "summary.json").unlink()
    assert ask().get(f"/compare{query}").status in (400, 404)


def test_a_study_and_its_csv(write_run: WriteRun, ask: Ask) -> None:
    write_run("s/a")
    write_run("s/b", seed=1)
    asker = ask()
    assert "2 of 2 begun runs are finished" in asker.get("/study?folder=s").text
    assert asker.get("/study?folder=..").status == 404
    answer = asker.get("/table.csv?study=s&table=grid")
    assert answer.text.splitlines()[0] == "Method,seed 0,seed 1"
    assert answer.headers["content-type"].startswith("text/csv")


def test_every_table_of_a_page_can_be_taken_away(write_run: WriteRun, ask: Ask) -> None:
    import html
    import re

    write_run("a")
    write_run("b", method="fedavg", label="FedAvg")
    asker = ask()
    for page in ("/", "/run?run=a", "/compare?run=a&run=b"):
        links = re.findall(r'href="(/table\.csv[^"]+)"', asker.get(page).text)
        assert links
        for link in links:
            answer = asker.get(html.unescape(link))
            assert answer.status == 200
            assert len(answer.text.splitlines()) > 1
    assert asker.get("/table.csv?table=x").status == 404


@hostile
@pytest.mark.parametrize("path", ["/run", "/figures", "/table.csv", "/events"])
@pytest.mark.parametrize("name", ["..", "../../etc", "%2e%2e", "/etc/passwd", "a%00", "a/../../x", "%ff"])
def test_no_name_leads_out_of_the_folder(write_run: WriteRun, ask: Ask, path: str, name: str) -> None:
    write_run("a")
    answer = ask().get(f"{path}?run={name}&table=clients")
    assert answer.status == (200 if path == "/figures" else 404)
    assert "there is no run" in answer.text


@hostile
@pytest.mark.parametrize("path", ["/../etc/passwd", "/board.js/..", "/%2e%2e/x", "/plotly.js/../../x", "//x"])
def test_there_are_no_files_but_ours(ask: Ask, path: str) -> None:
    assert ask().get(path).status == 404


@hostile
@pytest.mark.parametrize(
    "payload", [each for each in MARKUP.values() if "/" not in each and 0 < len(each) < 200]
)
def test_a_folder_with_tags_in_its_name_is_text(write_run: WriteRun, ask: Ask, payload: str) -> None:
    from urllib.parse import quote

    write_run(payload)
    asker = ask()
    for page in ("/", f"/run?run={quote(payload)}"):
        answer = asker.get(page)
        assert answer.status == 200
        assert answer.text.count("<script") == 3
        assert "<img" not in answer.text


@hostile
def test_numbers_that_do_not_follow_are_said_and_not_shown(write_run: WriteRun, ask: Ask) -> None:
    folder = write_run("a")
    summary = json.loads((folder / "summary.json").read_text())
    summary["metrics"]["global"]["pooled"]["acc"] = 0.999
    (folder / "summary.json").write_text(json.dumps(summary))
    page = ask().get("/run?run=a").text
    assert "99.9" not in page
    assert 'class="warned"' in page


@pytest.mark.parametrize("last", ["x", "-1", "1" * 13, "²"])
def test_a_last_round_that_is_none_is_said(write_run: WriteRun, ask: Ask, last: str) -> None:
    write_run("a")
    assert ask().get("/events?run=a", last_event_id=last).status == 400


def test_a_browser_that_was_cut_off_goes_on(write_run: WriteRun, ask: Ask) -> None:
    write_run("a", rounds=9)
    text = ask().get("/events?run=a", last_event_id="7").text
    assert [line for line in text.splitlines() if line.startswith("id")] == ["id: 8", "id: 9"]


def test_streams_are_counted(write_run: WriteRun, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run("a")
    asker = ask()
    asker.get("/events?run=a")
    assert asker.board.streams == 0
    monkeypatch.setattr(live, "MOST_STREAMS", 0)
    assert asker.get("/events?run=a").status == 400


def test_the_charts_come_from_the_installed_package(ask: Ask) -> None:
    answer = ask().get("/plotly.js")
    assert answer.text.startswith("/**\n* plotly.js")
    assert answer.headers["cache-control"] == "private, max-age=86400"


def test_the_board_loads_no_training_code() -> None:
    code = (
        "import sys, fedepd.board.app, fedepd.board.serve; "
        "print(sorted({'torch', 'plotly', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
