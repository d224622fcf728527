"""New rivals: sentences, ranks and costs from numbers that are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from fedepd.reproduction.judging.newcomers import cost_tables, in_words, newcomers, rank_table
from fedepd.reproduction.study.results import Results

MakeResults = Callable[..., Results]
Scores = Mapping[tuple[str, str], Sequence[float | None]]
WON: Scores = {
    ("fedavg", "email"): [50, 51, 52],
    ("fedepd", "email"): [60, 61, 62],
    ("moon", "email"): [62, 63, 64],
    ("scaffold", "email"): [40, 41, 42],
    ("fedavg", "actor"): [30, 31, 32],
    ("fedepd", "actor"): [30, 31, 32],
    ("moon", "actor"): [29, 32, 33],
    ("scaffold", "actor"): [20, 21, 22],
}


def with_new(results: Results, *keys: str) -> Results:
    """The same results, with some rows marked as new."""
    rows = tuple(replace(row, new=row.key in keys) for row in results.target.rows)
    by_key = {row.key: row for row in rows}
    entries = [replace(entry, row=by_key[entry.row.key]) for entry in results.entries]
    return Results(replace(results.target, rows=rows), entries)


@pytest.fixture
def won(make_results: MakeResults) -> Results:
    return with_new(make_results(WON), "moon", "scaffold")


def test_a_new_row_that_beats_fedepd_is_said_first_with_where_it_comes_from(won: Results) -> None:
    """MOON leads by 2 on email and by 1/3 on actor: (2 + 1/3) / 2 = 1.17. All tiers have the same scores."""
    assert [row.key for row in newcomers(won)] == ["moon", "scaffold"]
    told = in_words(won)
    assert told[0] == (
        "By balanced accuracy, MOON (+1.17 points over 2 graphs) beats FEDEPD on average. 1 other does not. "
        "MOON's accuracy is +1.17 on head, +1.17 on medium, +1.17 on tail classes."
    )
    assert (
        told[3] == "On Email FEDEPD is beaten, by balanced accuracy: MOON by 2.00; by macro-F1: MOON by 2.00."
    )
    # On actor the differences are -1, 1 and 1: 0.33, and the interval holds 0.
    assert "balanced accuracy: MOON by 0.33 (?)" in told[4]
    assert told[5].startswith("(?) marks a lead that is within")
    assert len(told) == 6


def test_where_no_new_row_is_better_the_nearest_is_named(make_results: MakeResults) -> None:
    lost = {key: [v - 10 for v in values if v] if key[0] == "moon" else values for key, values in WON.items()}
    told = in_words(with_new(make_results(lost), "moon", "scaffold"))
    assert told[0] == (
        "By balanced accuracy, no new rival beats FEDEPD on average. The nearest is MOON, 8.83 points "
        "behind over 2 graphs."
    )
    assert told[3:] == ["On Email no new rival beats FEDEPD.", "On actor no new rival beats FEDEPD."]


def test_without_new_rows_or_without_fedepd_nothing_is_said(make_results: MakeResults, won: Results) -> None:
    assert in_words(make_results(WON)) == []
    others = {key: values for key, values in WON.items() if key[0] != "fedepd"}
    assert in_words(with_new(make_results(others), "moon")) == []
    assert (
        "no new rival has a score yet" in in_words(with_new(make_results({**WON, **unfinished()}), "moon"))[0]
    )


def unfinished() -> Scores:
    return {("moon", dataset): [None, None, None] for dataset in ("email", "actor")}


def test_ranks_with_and_without_the_new_rows(won: Results) -> None:
    """Email: MOON, FedEPD, FedAvg, SCAFFOLD. Actor: MOON, then FedEPD and FedAvg level, SCAFFOLD.

    Without the new ones: FedEPD 1 and 1.5, FedAvg 2 and 1.5.
    """
    table = rank_table(won)
    assert table is not None
    assert table.headers[:4] == ["Method", "", "bAcc", "bAcc, old only"]
    assert [[cell.text for cell in row[:4]] for row in table.sections[0]] == [
        ["MOON", "new", "1.00", "–"],
        ["FEDEPD", "", "2.25", "1.25"],
        ["FEDAVG", "", "2.75", "1.75"],
        ["SCAFFOLD", "new", "4.00", "–"],
    ]


def test_one_dataset_has_no_ranks(make_results: MakeResults) -> None:
    assert rank_table(with_new(make_results({("fedavg", "a"): [1], ("moon", "a"): [2]}), "moon")) is None


def test_costs_are_multiples_of_fedavgs(won: Results) -> None:
    """MOON takes 2 and 8 times as long: the geometric mean is 4. It sends 3 times as much on email alone."""
    for entry in won.entries:
        for run in entry.runs.values():
            twice = {"email": 2.0, "actor": 8.0}[entry.dataset] if entry.row.key == "moon" else 1.0
            thrice = 3 if (entry.row.key, entry.dataset) == ("moon", "email") else 1
            run.summary.update(cpu_seconds=5 * twice, bytes_up=600 * thrice, bytes_down=400 * thrice)
    tables = cost_tables(won)
    assert list(tables) == ["CPU seconds against FedAvg", "Bytes against FedAvg"]
    cpu, sent = (
        {row[0].text: [cell.text for cell in row[1:]] for row in t.sections[0]} for t in tables.values()
    )
    assert cpu["MOON (new)"] == ["4.00", "2.00", "8.00"]
    assert sent["MOON (new)"] == ["1.73", "3.00", "1.00"]
    assert cpu["FEDAVG"] == ["1.00", "1.00", "1.00"]


def test_without_fedavg_there_is_nothing_to_compare_costs_with(make_results: MakeResults) -> None:
    assert cost_tables(with_new(make_results({("moon", "a"): [1]}), "moon")) == {}
