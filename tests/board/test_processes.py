"""Processes that the board starts. Where words and signals are all that counts, a small program is run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedepd.board import processes
from fedepd.board.processes import Processes, word
from fedepd.errors import BadConfig

PROGRAM = """#!{python} -S
import json, signal, sys, time
json.dump(sys.argv[1:], open({words!r}, "w"))
if "--fail=yes" in sys.argv:
    sys.exit("fedepd: rounds is -1; give at least 1")
slow = 0.5 if "--slow=yes" in sys.argv else 0
signal.signal(signal.SIGINT, lambda *_: time.sleep(slow) or sys.exit(130))
open({ready!r}, "w").close()
time.sleep(60)
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    (tmp_path / "runs").mkdir()
    program = tmp_path / "program"
    names = {"words": str(tmp_path / "words"), "ready": str(tmp_path / "ready")}
    program.write_text(PROGRAM.format(python=sys.executable, **names))
    program.chmod(0o700)
    monkeypatch.setattr("fedepd.board.processes.sys.executable", str(program))
    found = Processes(tmp_path / "runs")
    yield found
    found.close()


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_is_a_list_of_words(started: Processes, tmp_path: Path) -> None:
    started.start("a", "fedavg", ["--rounds=3", "--data=; rm -rf ~"])
    wait((tmp_path / "ready").exists)
    out = f"--out={tmp_path / 'runs' / 'a'}"
    assert json.loads((tmp_path / "words").read_text()) == [
        "-m", "fedepd", "run", "fedavg", out, "--quiet", "--rounds=3", "--data=; rm -rf ~"
    ]  # fmt: skip
    assert started.is_ours("a")
    assert started.is_starting("a")


def test_stop_is_an_interrupt_and_no_failure(started: Processes, tmp_path: Path) -> None:
    started.resume("a")
    wait((tmp_path / "ready").exists)
    assert json.loads((tmp_path / "words").read_text())[2:4] == ["resume", str(tmp_path / "runs" / "a")]
    with pytest.raises(BadConfig, match="is running already"):
        started.resume("a")
    started.stop("a")
    wait(lambda: not started.is_ours("a"))
    assert started.failures() == {}


def test_a_run_that_is_about_to_end_is_waited_for(started: Processes, tmp_path: Path) -> None:
    """A run lets go of its folder before its process ends. Who resumes it then gets no refusal."""
    started.start("a", "fedavg", ["--slow=yes"])
    wait((tmp_path / "ready").exists)
    assert not started.is_ending("a")
    (tmp_path / "ready").unlink()
    started.stop("a")
    assert started.is_ending("a")
    started.resume("a")
    assert started.is_ours("a")
    assert not started.is_ending("a")
    wait((tmp_path / "ready").exists)  # in a shell's background it does not hear before that


def test_what_the_board_did_not_start_is_not_stopped(started: Processes) -> None:
    with pytest.raises(BadConfig, match="did not start 'b'"):
        started.stop("b")


def test_a_mistake_is_told_in_the_words_of_the_run(started: Processes) -> None:
    started.start("a", "fedavg", ["--fail=yes"])
    wait(lambda: not started.is_ours("a"))
    assert started.failures() == {"a": "fedepd: rounds is -1; give at least 1"}


def test_only_a_few_at_a_time(started: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST", 1)
    started.start("a", "fedavg", [])
    wait((tmp_path / "ready").exists)  # before that it does not hear that it should end
    with pytest.raises(BadConfig, match="1 runs of this board are running"):
        started.start("b", "fedavg", [])


def test_nothing_is_left_behind(started: Processes, tmp_path: Path) -> None:
    started.start("a", "fedavg", [])
    wait((tmp_path / "ready").exists)
    started.close()
    assert not started.is_ours("a")


@pytest.mark.hostile
@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-x", ".x", "a b", "a\n", "é", "x" * 81, "a\x00", "~"]
)
def test_names_that_could_lead_elsewhere_are_refused(started: Processes, name: str) -> None:
    with pytest.raises(BadConfig, match="cannot be the name of a run"):
        started.start(name, "fedavg", [])


def test_a_name_that_is_taken_is_refused(started: Processes, tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").symlink_to("nowhere")
    with pytest.raises(BadConfig, match="give the run another name"):
        started.start("a", "fedavg", [])


def test_words_of_options() -> None:
    assert word("evaluate_every", "5") == "--evaluate-every=5"
    assert word("robust", "off") == "--robust=off"
    assert word("guard", "on", True) == "--guard"
    assert word("guard", "off", True) == "--no-guard"
    assert word("data", "--out=/etc") == "--data=--out=/etc"
    with pytest.raises(BadConfig, match="choose on or off"):
        word("guard", "maybe", True)


@pytest.mark.hostile
@pytest.mark.parametrize("value", ["a\nb", "\x00", "x" * 301, "\u202e"])
def test_values_that_no_setting_has(value: str) -> None:
    with pytest.raises(BadConfig, match="printable"):
        word("data", value)
