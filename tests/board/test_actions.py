"""Start, stop and resume, as the page's forms ask for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from board.asking import Asker
from board.test_form import ABOUT

WriteRun = Callable[..., Path]
Ask = Callable[[], Asker]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are at hand, so that no process is asked for them."""
    monkeypatch.setattr("fedepd.board.settings._asked", lambda method: ABOUT)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr("fedepd.board.processes.Processes._begin", lambda self, *words: found.append(words))
    return found


@pytest.mark.usefixtures("known")
def test_a_form_starts_a_run(ask: Ask, begun: list[Any], tmp_path: Path) -> None:
    asker = ask()
    assert 'value="fedavg-1"' in asker.get("/new?method=fedavg").text
    answer = asker.post("/start", f"form={asker.secret.form}&name=a&method=fedavg&mu=2&robust=")
    assert (answer.status, answer.headers["location"]) == (303, "/run?run=a")
    assert begun == [("a", ["run", "fedavg", f"--out={tmp_path / 'runs' / 'a'}", "--quiet", "--mu=2"])]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "fields",
    ["name=../a&method=fedavg", "name=a&method=--help", "name=a&method=", "name=a&method=fedavg&out=x",
     "method=fedavg", "name=a&method=fedavg&purify=x", "name=a&method=fedavg&mu=1%0a2", "&" * 600],
)  # fmt: skip
def test_a_bad_form_starts_nothing(ask: Ask, begun: list[Any], fields: str) -> None:
    asker = ask()
    answer = asker.post("/start", f"form={asker.secret.form}&{fields}")
    assert answer.status == 400
    assert 'class="warned"' in answer.text
    assert begun == []


def test_only_a_stopped_run_is_resumed(write_run: WriteRun, ask: Ask, begun: list[Any]) -> None:
    write_run("done")
    (write_run("s/half") / "summary.json").unlink()
    asker = ask()
    assert asker.post("/resume", f"form={asker.secret.form}&run=done").status == 400
    assert asker.post("/resume", f"form={asker.secret.form}&run=../x").status == 404
    assert (
        asker.post("/resume", f"form={asker.secret.form}&run=s/half").headers["location"]
        == "/run?run=s%2Fhalf"
    )
    assert [words[0] for words in begun] == ["s/half"]


def test_a_run_of_a_federation_is_not_resumed_here(write_run: WriteRun, ask: Ask) -> None:
    folder = write_run("a")
    (folder / "summary.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sites": ["a", "b", "c", "d"]}))
    asker = ask()
    assert "Resume" not in asker.get("/run?run=a").text
    assert asker.post("/resume", f"form={asker.secret.form}&run=a").status == 400


def test_what_others_started_is_not_stopped(write_run: WriteRun, ask: Ask) -> None:
    (write_run("a") / "summary.json").unlink()
    asker = ask()
    assert "Stop" not in asker.get("/run?run=a").text
    assert asker.post("/stop", f"form={asker.secret.form}&run=a").status == 400


@pytest.mark.parametrize(("ending", "offered"), [(False, "Stop"), (True, "Resume")])
def test_a_stopped_run_is_offered_to_be_resumed(
    write_run: WriteRun, ask: Ask, monkeypatch: pytest.MonkeyPatch, ending: bool, offered: str
) -> None:
    """Its process may take a second to end, but the page is made once. A run that begins can be stopped."""
    (write_run("a") / "summary.json").unlink()
    asker = ask()
    monkeypatch.setattr(asker.board.actions.processes, "is_ours", lambda name: True)
    monkeypatch.setattr(asker.board.actions.processes, "is_ending", lambda name: ending)
    page = asker.get("/run?run=a").text
    assert [word for word in ("Stop", "Resume") if f">{word}</button>" in page] == [offered]


@pytest.mark.heavy
def test_a_real_run_is_started_stopped_and_resumed(ask: Ask, tmp_path: Path) -> None:
    asker = ask()
    folder = tmp_path / "runs" / "real"

    def wait(until: Callable[[], bool]) -> None:
        end = time.monotonic() + 240
        while not until():
            assert time.monotonic() < end, asker.board.actions.processes.failures()
            time.sleep(0.1)

    def rounds() -> int:
        return (folder / "rounds.jsonl").read_text().count("\n") if (folder / "rounds.jsonl").exists() else 0

    try:
        fields = "name=real&method=fedavg&rounds=400&clients=3&evaluate_every=10"
        assert asker.post("/start", f"form={asker.secret.form}&{fields}").status == 303
        wait(lambda: rounds() >= 3)
        assert "Stop" in asker.get("/run?run=real").text
        asker.post("/stop", f"form={asker.secret.form}&run=real")
        wait(lambda: not asker.board.actions.processes.is_ours("real"))
        assert asker.board.catalogue.entry("real").state == "stopped"
        asker.post("/resume", f"form={asker.secret.form}&run=real")
        wait((folder / "summary.json").exists)
        wait(lambda: not asker.board.actions.processes.is_ours("real"))
        assert rounds() == 400
        assert asker.board.catalogue.entry("real").state == "finished"
    finally:
        asker.board.actions.processes.close()
