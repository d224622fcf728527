from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedepd.bench import history
from fedepd.errors import BadData


def record(cost: float = 0.1, mb: float = 400.0, rounds: int = 4, **parts: Any) -> dict[str, Any]:
    """A run of fedavg that costs ``cost`` rounds of the reference; the reference takes 2 s."""
    row = {"data": "g", "method": "fedavg", "round": 2 * cost, "rss_mb": mb, "ratio": 1 / cost}
    return {"commit": "c", "when": "today", "machine": "m", "rounds": rounds, "rows": [row], **parts}


def test_what_is_kept_can_be_read_again(tmp_path: Path) -> None:
    assert history.read_history(tmp_path) == []
    first, second = record(), record(0.2)
    history.keep(tmp_path, first)
    history.keep(tmp_path, second)
    assert history.read_history(tmp_path) == [first, second]


def test_a_record_has_the_figures_and_where_they_come_from() -> None:
    rows = [
        {"data": "g", "method": "a", "round": 1.5, "rss_mb": 10.0, "ratio": math.nan, "wall": 3.0},
        {"data": "g", "method": "b", "failed": "no memory", "ratio": math.nan},
    ]
    found = history.record_of(rows, 3)
    assert found["rows"] == [{"data": "g", "method": "a", "round": 1.5, "rss_mb": 10.0}]
    assert found["rounds"] == 3
    assert found["machine"] == history.machine()
    assert re.fullmatch(r"[0-9a-f]{12}\+?|version .+", found["commit"])


# With one or two earlier runs the noise is 30 %: exp(0.3) = 1.35. With three that differ by 2 % it is 10 %,
# exp(0.1) = 1.105. With (0.08, 0.1, 0.1) it is ln(0.1 / 0.08) = 22 %, exp(0.22) = 1.25.
@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ((), 9.0, False),
        ((0.1,), 0.134, False),
        ((0.1,), 0.136, True),
        ((0.1,), 0.073, True),
        ((0.1, 0.102, 0.1), 0.109, False),
        ((0.1, 0.102, 0.1), 0.112, True),
        ((0.08, 0.1, 0.1), 0.12, False),
        ((0.08, 0.1, 0.1), 0.13, True),
    ],
)
def test_a_change_is_what_noise_does_not_explain(
    before: tuple[float, ...], now: float, changed: bool
) -> None:
    assert bool(history.changes([record(cost) for cost in before], record(now))) == changed


def test_a_change_says_what_and_how_much() -> None:
    """0.2 / 0.1 = 2; memory 800 / 400 = 2."""
    assert history.changes([record()], record(0.2, 800.0)) == [
        "fedavg on g: round is 2.00 times that of 1 run before (noise 30%)",
        "fedavg on g: memory is 2.00 times that of 1 run before (noise 30%)",
    ]


def test_a_busy_machine_that_slows_the_reference_too_changes_nothing() -> None:
    slow = record()
    slow["rows"][0]["round"] *= 5
    assert history.changes([record()], slow) == []


def test_seconds_are_compared_with_seconds_alone() -> None:
    without = record()
    del without["rows"][0]["ratio"]
    slow = record()
    del slow["rows"][0]["ratio"]
    slow["rows"][0]["round"] *= 5
    assert history.changes([record()], slow) == []
    assert history.changes([without], slow) == [
        "fedavg, in seconds on g: round is 5.00 times that of 1 run before (noise 30%)"
    ]


@pytest.mark.parametrize("other", [record(machine="another"), record(rounds=9)])
def test_runs_of_another_kind_do_not_count(other: dict[str, Any]) -> None:
    assert history.alike([other, record()], record()) == [record()]
    assert history.changes([other], record(9.0)) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nothing\n", "line 1 of"),
        ("[]\n", "is a list, not a table"),
        ('{"commit": "c", "when": "", "machine": "m", "rounds": 0, "rows": []}\n', "'0.rounds' is 0"),
        (
            '{"commit": "c", "when": "", "machine": "m", "rounds": 1,'
            ' "rows": [{"data": "g", "method": "m", "round": -1, "rss_mb": 1}]}\n',
            "'0.rows.0.round' is -1",
        ),
    ],
)
def test_a_damaged_history_is_refused(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / history.FILE).write_text(text)
    with pytest.raises(BadData, match=re.escape(word)):
        history.read_history(tmp_path)
