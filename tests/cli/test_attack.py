from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedepd.cli import main


def test_a_table_of_attacks_and_defences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["attack", "--attack", "scale", "--robust", "off,clip", "--attackers", "1", "--seeds", "2"]
    command += ["--rounds", "2", "--clients", "4", "--hidden", "4", "--quiet", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "synthetic: balanced accuracy" in said
    assert "synthetic: tail accuracy" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("│ ")] == ["honest", "scale"] * 4
    with (tmp_path / "out" / "attack" / "attack.csv").open() as f:
        lines = list(csv.DictReader(f))
    assert {line["row"] for line in lines} == {
        f"{rule}, attack {name}" for rule in ("off", "clip") for name in ("honest", "scale")
    }
    assert {line["seed"] for line in lines} == {"0", "1"}
    before = sorted((tmp_path / "out" / "cells").iterdir())
    assert main(command) == 0
    assert sorted((tmp_path / "out" / "cells").iterdir()) == before  # nothing is run twice


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--attack", "bribe"], "unknown attack 'bribe'"),
        (["--robust", "krum"], "unknown value of robust 'krum'"),
        (["--method", "fedpdd"], "did you mean 'fedepd'"),
        (["--seeds", "0"], "seeds is 0"),
        (["--attackers", "0"], "attackers is 0"),
        (["--robust", "multi-krum", "--attackers", "4"], "needs at least 11 clients"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    assert main(["attack", "--rounds", "1", "--quiet", "--out", str(tmp_path / "out"), *more]) != 0
    assert says in capsys.readouterr().err
