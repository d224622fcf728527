"""argparse as every command uses it: a mistake is one sentence, a setting is an option."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from fedepd.cli import main
from fedepd.cli.parser import Parser, add_settings, nearest
from fedepd.errors import BadConfig
from fedepd.options import option


@dataclass(frozen=True)
class Settings:
    learning_rate: float = option(0.1, "how far a step goes, 5 % of it")
    mode: Literal["fast", "exact"] = option("fast", "which of two")
    shuffle: bool = option(False, "in another order")


@pytest.fixture
def parser() -> Parser:
    made = Parser(prog="fedepd try", allow_abbrev=False)
    add_settings(made, "settings", Settings, but=["mode"])
    return made


def test_every_field_but_the_named_ones_is_an_option(parser: Parser) -> None:
    values = parser.parse(["--learning-rate", "0.5", "--no-shuffle"])
    assert vars(values) == {"learning_rate": "0.5", "shuffle": False}  # text: experiment.coerced reads it
    assert "how far a step goes, 5 % of it (default: 0.1)" in " ".join(parser.format_help().split())


def test_every_help_names_the_page_of_words(parser: Parser) -> None:
    assert parser.format_help().endswith("docs/glossary.md explains the words.\n")
    assert (Path(__file__).parents[2] / "docs" / "glossary.md").is_file()


def test_choices_are_shown() -> None:
    made = Parser(prog="fedepd try")
    add_settings(made, "settings", Settings)
    assert "--mode fast|exact" in made.format_help()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lerning-rate", "1"], "unknown option '--lerning-rate'; did you mean '--learning-rate'?"),
        (["--learning-rate"], "see 'fedepd try --help'"),
        (["--learning", "1"], "unknown option '--learning'; did you mean '--learning-rate'?"),
        (["--threshold", "1"], "unknown option '--threshold'; see 'fedepd try --help'"),
        (["--device", "cuda"], "unknown option '--device'; fedepd computes on the CPU only, so leave it out"),
        (["--gpus=2"], "fedepd computes on the CPU only"),
        (["stray"], "unknown argument 'stray'; see 'fedepd try --help'"),
        (["--\x1b[2J"], "unknown option '--?"),  # what steers a terminal is not repeated
    ],
)
def test_a_mistake_is_one_sentence(parser: Parser, arguments: list[str], says: str) -> None:
    with pytest.raises(BadConfig) as raised:
        parser.parse(arguments)
    assert says in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("flag", "near"),
    [("--threshold", ""), ("--roundz", "--rounds"), ("--round", "--rounds"), ("--mi", ""), ("-o", "")],
)
def test_only_near_names_are_suggested(flag: str, near: str) -> None:
    """Of '--threshold' and '--rho', six characters of sixteen are the same, two of them dashes."""
    assert nearest(flag, ["--rho", "--rounds", "--mu", "--out", "-o"]) == near


def test_a_switch_may_be_followed_by_on_or_off() -> None:
    from fedepd.rounds.guard import Privacy

    parser = Parser(prog="fedepd run")
    parser.add_argument("graph")
    add_settings(parser, "privacy", Privacy)
    for words, guard in ((["--guard", "on"], True), (["--guard", "off"], False), (["--guard"], True)):
        assert parser.parse([*words, "x"]).guard is guard
    assert parser.parse(["--guard", "off", "on"]).graph == "on"  # a graph may be called so
    assert parser.parse(["x", "--no-guard", "--secure", "on"]).secure is True


@pytest.mark.parametrize("command", [["run", "fedepd"], ["compare", "fedepd", "--out", "new"]], ids=str)
def test_real_commands_suggest_only_near_options(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """These have all settings. The letters of 'rho' are in 'threshold', and that is no reason."""
    name = " ".join(command[:2]) if command[0] == "run" else "compare"
    for words, says in (
        (["--threshold", "0.5"], f"unknown option '--threshold'; see 'fedepd {name} --help'"),
        (["--device", "cpu"], "unknown option '--device'; fedepd computes on the CPU only, so leave it out"),
        (["--rouns", "5"], "unknown option '--rouns'; did you mean '--rounds'?"),
    ):
        assert main([*command, *words]) == 2
        assert capsys.readouterr().err == f"fedepd: {says}\n"
