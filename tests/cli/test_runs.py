"""What ``fedepd compare`` is about to run, before anything runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from fedepd.cli.runs import _comparison, _value_of, common_settings
from fedepd.errors import BadConfig


def test_a_comparison_is_what_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("rounds = 9\nlr = 0.5\n")
    values = argparse.Namespace(
        methods=["fedavg"],
        seeds=2,
        out="o",
        config=str(file),
        tuned=None,
        data_dir=None,
        lr="0.1",
        quiet=True,
    )
    found = _comparison(values)
    assert (found.methods, found.seeds, found.out, found.data) == (["fedavg"], 2, Path("o"), "synthetic")
    assert found.settings == {"rounds": 9, "lr": "0.1"}  # the command line overrides the file


def test_a_method_in_the_file_of_a_comparison_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('method = "fedavg"\n')
    with pytest.raises(BadConfig, match=r"'method' in .* has no meaning in a comparison"):
        common_settings(argparse.Namespace(config=str(file)), ())


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--config", "a.toml"], "a.toml"), (["--config=a.toml"], "a.toml"), (["--config"], None), ([], None)],
)
def test_an_option_is_read_before_its_parser_exists(arguments: list[str], value: str | None) -> None:
    assert _value_of(arguments, "--config") == value
