"""Rounds are read once each, while they are written and after the file was written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedepd.errors import BadData
from fedepd.runs import record
from fedepd.runs.follow import PART, Counted, Follower, counted


def numbers(follower: Follower) -> list[int]:
    return [line["round"] for line in follower.more()]


def line(number: int) -> dict[str, object]:
    return {"round": number, "loss": 1.0, "bytes_up": {"w": 4}, "bytes_down": {}}


def test_each_round_is_given_once_as_it_comes(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert numbers(follower) == []  # no file yet
    for number in (1, 2):
        record.add_round(tmp_path, line(number))
    assert numbers(follower) == [1, 2]
    assert numbers(follower) == []
    record.add_round(tmp_path, line(3))
    assert numbers(follower) == [3]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    follower, text = Follower(tmp_path), json.dumps(line(1))
    (tmp_path / "rounds.jsonl").write_text(text[:10])
    assert numbers(follower) == []
    (tmp_path / "rounds.jsonl").write_text(text + "\n")
    assert numbers(follower) == [1]


def test_who_was_cut_off_goes_on_after_the_last_round_that_it_has(tmp_path: Path) -> None:
    record.write_rounds(tmp_path, map(line, range(1, 6)))
    assert numbers(Follower(tmp_path, after=3)) == [4, 5]
    assert numbers(Follower(tmp_path, after=5)) == []


def test_a_resumed_run_repeats_rounds_that_are_not_given_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    record.write_rounds(tmp_path, map(line, range(1, 6)))
    assert numbers(follower) == [1, 2, 3, 4, 5]
    record.write_rounds(tmp_path, map(line, range(1, 4)))  # from the checkpoint of round 3
    assert numbers(follower) == []
    for number in (4, 5, 6):
        record.add_round(tmp_path, line(number))
    assert numbers(follower) == [6]


def test_a_long_file_comes_in_parts_without_gap(tmp_path: Path) -> None:
    wide = {"round": 0, "bytes_up": {"w" * 900: 1}, "bytes_down": {}}
    record.write_rounds(tmp_path, ({**wide, "round": number} for number in range(1, 2501)))
    assert (tmp_path / "rounds.jsonl").stat().st_size > 2 * PART
    follower, seen = Follower(tmp_path, after=1500), list[int]()
    while found := numbers(follower):
        seen += found
    assert seen == list(range(1501, 2501))


@pytest.mark.hostile
@pytest.mark.parametrize("text", ["{}\n", "[1]\n", "x\n", '{"round": -1}\n', '{"round": 1, "loss": "<b>"}\n'])
def test_a_line_that_no_run_writes_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rounds.jsonl").write_text(text)
    with pytest.raises(BadData, match=r"rounds\.jsonl"):
        Follower(tmp_path).more()


@pytest.mark.hostile
def test_an_endless_line_and_a_pipe_are_refused(tmp_path: Path) -> None:
    import os

    (tmp_path / "rounds.jsonl").write_bytes(b" " * (PART + 1))
    with pytest.raises(BadData, match="a line of more than"):
        Follower(tmp_path).more()
    (tmp_path / "rounds.jsonl").unlink()
    os.mkfifo(tmp_path / "rounds.jsonl")
    with pytest.raises(BadData, match="not a regular file"):
        Follower(tmp_path).more()


def test_only_what_is_new_is_counted(tmp_path: Path) -> None:
    assert counted(tmp_path, Counted()) == Counted()
    record.write_rounds(tmp_path, map(line, range(1, 4)))
    first = counted(tmp_path, Counted())
    assert first.rounds == 3
    record.add_round(tmp_path, line(4))
    # A wrong count of the part before stays wrong: that part was not read again.
    assert counted(tmp_path, first._replace(rounds=100)).rounds == 101
    record.write_rounds(tmp_path, map(line, range(1, 3)))  # another file
    assert counted(tmp_path, first).rounds == 2
