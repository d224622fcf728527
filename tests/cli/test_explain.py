"""fedepd explain: JSON, a page, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets import write_npz


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("made")
    write_npz(fedepd.load("synthetic"), folder / "g.npz")
    fedepd.run(folder / "g.npz", "fedavg", rounds=2, clients=2, hidden=8, out=folder / "run")
    fedepd.export(folder / "run", folder / "model")
    return str(folder / "model"), str(folder / "g.npz")


def test_json_and_a_page(made: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = made
    assert main(["explain", model, "--data", data, "--ids", "4,7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [case["node"] for case in found] == ["4", "7"]
    assert main(["explain", model, "--data", data, "--alerts", "2", "-o", str(tmp_path / "why.html")]) == 0
    assert (tmp_path / "why.html").read_text().count('data-name="why"') == 2
    assert main(["explain", model, "--data", data, "--ids", "4", "-o", str(tmp_path / "why.json")]) == 0
    assert json.loads((tmp_path / "why.json").read_text()) == found[:1]
    assert main(["explain", model, "--data", data, "--ids", "4"]) == 0
    assert "4: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ids", "1", "--alerts", "3"], "either with --ids or with --alerts"),
        ([], "either with --ids or with --alerts"),
        (["--ids", "1", "-o", "why.pdf"], "ends in .html or .json"),
        (["--ids", "nobody"], "there is no node 'nobody'"),
        (["--alerts", "2", "--class", "zebra"], "zebra"),
    ],
)
def test_mistakes_are_one_sentence(
    made: tuple[str, str], words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", made[0], "--data", made[1], *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
