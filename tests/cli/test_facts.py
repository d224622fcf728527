"""Facts as a person would write them."""

from __future__ import annotations

import pytest

from fedepd.cli.facts import print_facts, spelled


def test_numbers_names_and_nothing() -> None:
    assert spelled(12345) == "12,345"
    assert spelled(0.123456) == "0.1235"
    assert (spelled(None), spelled(True), spelled(False)) == ("-", "yes", "no")
    assert spelled({"a": 1, "b": None}) == "a 1, b -"


def test_a_fact_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"num_nodes": 1000})
    out = capsys.readouterr().out
    assert "num nodes" in out
    assert "1,000" in out
