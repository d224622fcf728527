"""The scripts are run by the shells themselves, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedepd.cli.completion import Words, bash, fish, known, plain, quoted
from fedepd.cli.dispatch import COMMANDS, main

TYPED = {
    "fedepd re": {"resume", "reproduce", "report"},
    "fedepd run fedpr": {"fedproto", "fedprox"},
    "fedepd run fedepd --calib": {"--calibration-epochs"},  # FedEPD's own
    "fedepd run fedlc --ta": {"--tau"},  # another method's
    "fedepd data imp": {"import"},
    "fedepd data import --unk": {"--unknown-ends"},
    "fedepd run --data coraf": {"corafull"},
    "fedepd reproduce table": {"table2", "table3"},
    "fedepd completion z": {"zsh"},
}


@pytest.fixture(scope="module")
def words() -> dict[str, Words]:
    return known()


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def said_by(shell: str, command: str, folder: Path) -> str:
    found = subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout


@pytest.mark.slow
def test_bash_offers_what_may_follow(words: dict[str, Words], tmp_path: Path) -> None:
    needs("bash")
    (tmp_path / "script").write_text(bash(words))
    for typed, offered in TYPED.items():
        count = len(typed.split()) - 1
        asked = f"source ./script; COMP_WORDS=({typed}); COMP_CWORD={count}; _fedepd; echo ${{COMPREPLY[@]}}"
        found = subprocess.run(
            ["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert set(found.stdout.split()) == offered, typed


@pytest.mark.slow
def test_fish_offers_what_may_follow(words: dict[str, Words], tmp_path: Path) -> None:
    needs("fish")
    (tmp_path / "script").write_text(fish(words))
    for typed, offered in TYPED.items():
        asked = f"source ./script; complete -C'{typed}'"
        found = subprocess.run(
            ["fish", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert {line.split("\t")[0] for line in found.stdout.splitlines()} == offered, typed


@pytest.mark.slow
def test_zsh_can_read_it(words: dict[str, Words], tmp_path: Path) -> None:
    needs("zsh")
    (tmp_path / "script").write_text(bash(words, zsh=True))
    subprocess.run(["zsh", "-n", "script"], cwd=tmp_path, check=True)


def test_all_commands_are_known(words: dict[str, Words]) -> None:
    assert words.keys() == COMMANDS.keys()
    assert all(own.actions or own.options for own in words.values())


@pytest.mark.hostile
def test_a_name_that_a_shell_could_execute_is_left_out() -> None:
    assert plain(["fedepd", "a;b", "$(x)", "`x`", "a b", "x'y", "", "x\ny"]) == ["fedepd"]
    assert quoted("it's \\ a") == r"'it\'s \\ a'"


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
