from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedepd import cache
from fedepd.cli import help as kept
from fedepd.cli.dispatch import main
from fedepd.errors import BadConfig

ARGUMENTS = ("run", "fedavg", "--help")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own that keeps everything, and a package of one file."""
    monkeypatch.setenv("FEDEPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("one")
    monkeypatch.setattr(kept, "PACKAGE", package)
    return package


@pytest.fixture
def command() -> Callable[[], int]:
    """It says how often it ran, and ends as argparse does."""
    runs = []

    def run() -> int:
        runs.append(1)
        print(f"run {len(runs)}")
        raise SystemExit(0)

    return run


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        (["run", "--help"], True),
        (["run", "fedavg", "-h"], True),
        (["federation", "kits", "make", "--help"], True),
        (["a", "b", "c", "d", "--help"], False),
        (["--help"], False),  # that of all commands needs no import
        (["run", "fedavg"], False),
        (["run", "--config", "my.toml", "--help"], False),  # what it says depends on a file
        (["predict", "../model", "--help"], False),
    ],
)
def test_a_question_is_names_and_then_the_flag(arguments: list[str], asks: bool) -> None:
    assert kept.asks_for_help(arguments) == asks


def test_the_second_time_the_command_does_not_run(
    folder: Path, command: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [kept.show_help(ARGUMENTS, command) for _ in range(2)] == [0, 0]
    assert capsys.readouterr().out == "run 1\nrun 1\n"


def test_a_changed_file_width_or_question_asks_again(
    folder: Path,
    command: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept.show_help(ARGUMENTS, command)
    (folder / "a.py").write_text("longer")
    kept.show_help(ARGUMENTS, command)
    (folder / "inner").mkdir()
    (folder / "inner" / "b.toml").write_text("")
    kept.show_help(ARGUMENTS, command)
    monkeypatch.setenv("COLUMNS", "61")
    kept.show_help(ARGUMENTS, command)
    kept.show_help(("run", "fedepd", "--help"), command)
    assert capsys.readouterr().out.split("\n")[:-1] == [f"run {n}" for n in range(1, 6)]


def test_with_plugins_nothing_is_kept(
    folder: Path,
    command: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "_has_plugins", lambda: True)
    kept.show_help(ARGUMENTS, command)
    kept.show_help(ARGUMENTS, command)
    assert capsys.readouterr().out == "run 1\nrun 2\n"


def test_a_mistake_is_told_and_not_kept(folder: Path) -> None:
    def refuse() -> int:
        raise BadConfig("no such method")

    def fail() -> int:
        raise SystemExit(3)

    for _ in range(2):
        with pytest.raises(BadConfig, match="no such method"):
            kept.show_help(ARGUMENTS, refuse)
        with pytest.raises(SystemExit) as left:
            kept.show_help(ARGUMENTS, fail)
        assert left.value.code == 3
    assert not (folder.parent / "cache").exists()


def test_help_that_is_known_waits_for_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDEPD_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(cache, "WORTH_KEEPING", -1.0)
    assert main(list(ARGUMENTS)) == 0
    first = capsys.readouterr().out
    assert "--lr" in first
    code = (
        "import sys, time; from fedepd.cli import main; main(['run', 'fedavg', '--help']);"
        "print({'torch', 'scipy', 'rich'} & set(sys.modules), time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == first
    heavy, cpu = done.stderr.rsplit(" ", 1)
    assert heavy == "set()"
    assert float(cpu) < 0.5
