"""``fedepd examples``, and the tutorial about a bank as it is written."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from fedepd.cli import main
from fedepd.cli.examples import EXAMPLES

PAGE = Path(__file__).parents[2] / "docs" / "tutorial-bank.md"


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [*EXAMPLES]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bnak", "x"], "unknown example 'bnak'; did you mean 'bank'?"),
        (["bank"], "no folder is given for the example 'bank'; add one, as in 'fedepd examples bank bank'"),
        (["bank", "x", "--seed", "-1"], "--seed is -1; give 0 to 2147483647"),
        (["bank", "full"], "the output folder 'full' is not empty"),
        (["bank", "full/file"], "the output 'full/file' is a file"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["examples", *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]


def commands() -> list[list[str]]:
    """The lines of the page's console blocks, without the program's name."""
    page = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")  # a command may go on in the next line
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    words = [shlex.split(line.removeprefix("$ ")) for line in lines]
    assert all(each[0] == "fedepd" for each in words)
    return [each[1:] for each in words]


def test_the_tutorial_begins_with_what_the_example_says_next() -> None:
    """What 'fedepd examples bank bank' prints is the page's second command."""
    first, second = commands()[:2]
    assert first == ["examples", "bank", "bank"]
    assert ["fedepd", *second] == shlex.split(EXAMPLES["bank"].next.format("bank"))
    assert len(commands()) <= 10


@pytest.mark.heavy
def test_the_tutorial_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """About a minute of CPU. The later month has drifted, so that the last command exits with 1."""
    pytest.importorskip("sklearn", reason="needs the extra 'baselines'")
    monkeypatch.chdir(tmp_path)
    for words in commands():
        assert main(words) == (words[0] == "monitor"), (words, capsys.readouterr().err)
    for page in ("runs/worth/report.html", "why.html", "monitor/monitor.html"):
        assert "<html" in (tmp_path / page).read_text(encoding="utf-8")[:300]
    with (tmp_path / "alerts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    alerts = {row["id"] for row in rows if row["alert"] == "yes"}
    with (tmp_path / "bank" / "new_labels.csv").open(newline="") as file:
        truth = {row["account_id"]: row["fraud"] for row in csv.DictReader(file)}
    assert [row["id"] for row in rows] == [*truth]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    mules = {name for name, fraud in truth.items() if fraud == "mule"}
    clean = {name for name, fraud in truth.items() if fraud == "clean"}
    assert f"{len(alerts)} of the {len(rows)} new accounts are alerts" in page
    assert f"{len(mules & alerts)} of {len(mules)} mules and both takeovers" in page
    assert f"and {len(clean & alerts)} clean accounts" in page
