"""``fedepd sweep`` from the command to its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.cli.dispatch import main

QUICK = ["--rounds", "1", "--clients", "3", "--hidden", "4", "--seeds", "1", "--quiet"]


@pytest.mark.slow
def test_from_the_command_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code = main(["sweep", "fedepd", "--grid", "mu=0.5,1", "--grid", "rho=0.1,1", "--out", str(out), *QUICK])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "Validation chooses mu = " in said.out
    assert "With 1 seed no difference can be tested" in said.out
    page = (out / "sweep.html").read_text(encoding="utf-8")
    assert "FedEPD over mu and rho on synthetic" in page
    assert page.count('data-name="sweep-map"') == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no method is named"),
        (["fedavgg"], "did you mean 'fedavg'"),
        (["fedepd"], "there is nothing to sweep"),
        (["fedepd", "--grid", "mu"], "has no values"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
