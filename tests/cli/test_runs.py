"""What ``fedepd compare`` is about to run, before anything runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from fedepd.cli.runs import _jobs, _value_of
from fedepd.errors import BadConfig, UnknownName


def typed(tmp_path: Path, *methods: str, **more: Any) -> argparse.Namespace:
    values = {
        "methods": list(methods),
        "seeds": 2,
        "out": str(tmp_path / "out"),
        "config": None,
        "tuned": None,
        "data_dir": None,
    }
    return argparse.Namespace(**values | more)


def test_a_run_for_every_method_and_seed(tmp_path: Path) -> None:
    cells, rounds = _jobs(typed(tmp_path, "fedavg", "fedepd:printed", rounds="7", seed="3"))
    assert rounds == 7
    assert [cell.out.name for cell in cells] == [
        "fedavg-seed3",
        "fedavg-seed4",
        "fedepd-printed-seed3",
        "fedepd-printed-seed4",
    ]
    assert not (tmp_path / "out").exists()


def test_mistakes_are_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="'fedavg:default' is named twice"):
        _jobs(typed(tmp_path, "fedavg", "fedavg"))
    with pytest.raises(BadConfig, match="seeds is 0"):
        _jobs(typed(tmp_path, "fedavg", seeds=0))
    with pytest.raises(UnknownName, match="did you mean 'printed'"):
        _jobs(typed(tmp_path, "fedepd:printd"))


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--config", "a.toml"], "a.toml"), (["--config=a.toml"], "a.toml"), (["--config"], None), ([], None)],
)
def test_an_option_is_read_before_its_parser_exists(arguments: list[str], value: str | None) -> None:
    assert _value_of(arguments, "--config") == value
