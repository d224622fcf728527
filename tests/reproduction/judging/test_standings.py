"""Where rows stand over datasets: ranks with and without disputed rows, and FedEPD against each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedepd.files import clean
from fedepd.reproduction.judging.bayes import signed_rank_posterior
from fedepd.reproduction.judging.standings import standings, standings_json, standings_table
from fedepd.reproduction.study.results import ADAPTED, HEADLINE, Entry, Results

MakeResults = Callable[..., Results]

SCORES = {
    ("fedepd", "a"): [60.0],
    ("fedepd", "b"): [70.0],
    ("fedepd", "c"): [80.0],
    ("fedavg", "a"): [50.0],
    ("fedavg", "b"): [66.0],
    ("fedavg", "c"): [79.5],
    ("fedgac", "a"): [61.0],
    ("fedgac", "b"): [60.0],
    ("fedgac", "c"): [70.0],
}


def disputed(results: Results, key: str) -> Results:
    """The same results, with one disputed row."""

    def row_of(entry: Entry) -> Entry:
        return replace(entry, row=replace(entry.row, disputed=entry.row.key == key))

    rows = tuple(replace(row, disputed=row.key == key) for row in results.target.rows)
    return Results(replace(results.target, rows=rows), [row_of(entry) for entry in results.entries])


def test_ranks_differences_and_probabilities(make_results: MakeResults) -> None:
    """Ranks: FedEPD 2, 1, 1; FedAvg 3, 2, 2; FedGAC 1, 3, 3. Without FedGAC FedEPD is always first.

    FedEPD minus FedAvg: 10, 4, 0.5, mean 29 / 6. FedEPD minus FedGAC: -1, 10, 10, mean 19 / 3.
    """
    found = standings(disputed(make_results(SCORES), "fedgac"), "acc", HEADLINE)
    assert found is not None
    by = {row.row: row for row in found.rows}
    assert {key: row.mean_rank for key, row in by.items()} == pytest.approx(
        {"fedepd": 4 / 3, "fedavg": 7 / 3, "fedgac": 7 / 3}
    )
    assert (by["fedepd"].rank_undisputed, by["fedavg"].rank_undisputed) == (1, 2)
    assert math.isnan(by["fedgac"].rank_undisputed)
    assert by["fedavg"].difference == pytest.approx(29 / 6)
    assert by["fedgac"].difference == pytest.approx(19 / 3)
    assert by["fedavg"].posterior == signed_rank_posterior([10, 4, 0.5])
    assert math.isnan(by["fedepd"].difference)
    assert math.isnan(by["fedepd"].posterior.better)
    assert found.rows[0].row == "fedepd"


def test_the_table_and_the_json_say_the_same(make_results: MakeResults) -> None:
    results = disputed(make_results(SCORES), "fedgac")
    found = standings(results, "acc", HEADLINE)
    assert found is not None
    table = standings_table(results, found)
    assert table.headers == [
        "Method", "Rank", "Rank *", "Difference", "Wilcoxon p", "P worse", "P level", "P better",
    ]  # fmt: skip
    assert "Rank *: without FEDGAC." in table.note
    assert [cell.text for cell in table.sections[0][0]] == ["FEDEPD", "1.33", "1.00", *["–"] * 5]
    assert "Benavoli et al. 2017" in table.note
    assert "within 1 point" in table.note
    (stated,) = json.loads(json.dumps(clean(standings_json([found])), allow_nan=False))
    assert (stated["scoring"], stated["metric"], stated["rope_points"]) == ("headline", "acc", 1.0)
    rows = {row["row"]: row for row in stated["rows"]}
    assert f"{rows['fedavg']['posterior']['better']:.3f}" == table.sections[0][1][-1].text
    assert rows["fedgac"]["rank_undisputed"] is None


def test_without_disputed_rows_there_is_no_second_rank(make_results: MakeResults) -> None:
    results = make_results(SCORES)
    found = standings(results, "acc", HEADLINE)
    assert found is not None
    assert "Rank *" not in standings_table(results, found).headers


def test_one_dataset_or_no_score_has_no_standings(make_results: MakeResults) -> None:
    assert standings(make_results({("fedepd", "a"): [1.0]}), "acc", HEADLINE) is None
    assert standings(make_results(SCORES), "acc", ADAPTED) is None  # nothing was adapted
