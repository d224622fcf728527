"""``fedepd cluster``, and ``--cluster`` of the commands that have many runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.cli import main


def test_certificates_are_made_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "certificates", str(tmp_path / "c"), "--days", "2"]) == 0
    assert "keep it to yourself" in capsys.readouterr().out
    assert len([*(tmp_path / "c").iterdir()]) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cluster", "tls://127.0.0.1:1"], "a cluster needs --certificates"),
        (["--certificates", "c"], "belong to --cluster"),
        (["--shared"], "belong to --cluster"),
        (["--cluster", "tcp://x:1", "--certificates", "c"], "such as tls://"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [["compare", "fedavg"], ["reproduce", "table3"], ["tune", "fedavg"], ["attack"], ["audit", "run"]],
)
def test_a_mistake_is_one_sentence(
    command: list[str],
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*command, "--out", str(tmp_path / "o"), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_join_address_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["cluster", "start", "--certificates", str(tmp_path), "--join", "http://x"]
    assert main(given) == 2
    assert "such as tls://" in capsys.readouterr().err
