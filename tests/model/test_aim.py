"""What an operating point shall reach: words of the command line, and the file of costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.model.aim import ALL, Aim, aim_of_words, class_number, in_words, read_costs

NAMES = ("clean", "mule", "takeover")


def test_words_of_the_command_line() -> None:
    assert aim_of_words(None, [], []) is None
    assert aim_of_words(None, ["takeover=0.8", "a=b=1"], []) == Aim(recall={"takeover": 0.8, "a=b": 1.0})
    assert aim_of_words(None, [], ["50"]) == Aim(alerts=50)
    assert aim_of_words(None, [], ["takeover=50", "mule=9"], 1000) == Aim(
        alerts={"takeover": 50, "mule": 9}, per=1000
    )
    assert Aim(alerts=50).budgets == {ALL: 50}
    assert in_words(Aim(alerts={"mule": 9}), 4000) == {"alerts": {"mule": 9}, "per": 4000}
    assert in_words(Aim(cost="/somewhere/costs.csv"), 10) == {"cost": "costs.csv"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((None, ["takeover"], []), "write CLASS=NUMBER"),
        ((None, ["takeover=much"], []), "not a number"),
        ((None, ["takeover=1.2"], []), "at most 1"),
        ((None, ["takeover=nan"], []), "at most 1"),
        ((None, ["takeover=0"], []), "above 0"),
        ((None, ["a=0.5", "a=0.6"], []), "twice"),
        ((None, [], ["0"]), "at least 1"),
        ((None, [], ["mule=-3"]), "at least 1"),
        ((None, [], ["mule=2.5"]), "whole number"),
        ((None, [], ["9", "mule=2"]), "write CLASS=NUMBER"),
        (("costs.csv", ["a=0.5"], []), "--cost and --recall are given"),
        ((None, [], [], 100), "none is given"),
        ((None, ["a=0.5"], [], 100), "--per says"),
        ((None, [], ["5"], 0), "--per says"),
    ],
)
def test_bad_words_are_refused(words: tuple[Any, ...], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        aim_of_words(*words)


def test_an_unknown_class_is_named() -> None:
    assert class_number("mule", NAMES) == 1
    with pytest.raises(UnknownName, match="takover"):
        class_number("takover", NAMES)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_costs_are_read_in_any_order(tmp_path: Path) -> None:
    """Rows are what a node is called, columns what it is."""
    file = written(
        tmp_path / "c.csv",
        "\ufeffcalled,takeover,clean,mule\nmule,900,20,0\n\nclean,1000,0,200\ntakeover,0,20.5,150\n",
    )
    np.testing.assert_array_equal(read_costs(file, NAMES), [[0, 200, 1000], [20, 0, 900], [20.5, 150, 0]])


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("called,clean,mule\nclean,0,1\nmule,1,0\n", "'takeover' is not there"),
        ("called,clean,mule,takeover\nclean,0,1,1\nmule,1,0,1\n", "first column: the class 'takeover'"),
        ("c,clean,mule,takeover,x\nclean,0,1,1,1\nmule,1,0,1,1\ntakeover,1,1,0,1\n", "'x' is no class"),
        ("c,clean,clean,mule,takeover\n", "'clean' is there 2 times"),
        ("c,clean,mule,takeover\nclean,0,1\nmule,1,0,1\ntakeover,1,1,0\n", "has 2 costs, not 3"),
        ("c,clean,mule,takeover\nclean,0,1,a\x1bb\nmule,1,0,1\ntakeover,1,1,0\n", "not a number"),
        ("c,clean,mule,takeover\nclean,0,1,nan\nmule,1,0,1\ntakeover,1,1,0\n", "from 0 to"),
        ("c,clean,mule,takeover\nclean,0,1,-1\nmule,1,0,1\ntakeover,1,1,0\n", "from 0 to"),
        ("c,clean,mule,takeover\nclean,0,1,1e400\nmule,1,0,1\ntakeover,1,1,0\n", "from 0 to"),
    ],
)
def test_bad_costs_are_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=said) as error:
        read_costs(written(tmp_path / "c.csv", text), NAMES)
    assert "\x1b" not in str(error.value)


@pytest.mark.hostile
def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "none.csv", tmp_path / "b.csv", Path("/dev/zero")):
        with pytest.raises(BadData, match="cannot be read"):
            read_costs(path, NAMES)
