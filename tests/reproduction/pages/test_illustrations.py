"""Which figures a target has."""

from __future__ import annotations

from collections.abc import Callable

from fedepd.reproduction.pages.illustrations import _in_parts, figures_of, panels, points_of
from fedepd.reproduction.study.results import Results

MakeResults = Callable[..., Results]


def test_panels_are_finished_rows_without_references(make_results: MakeResults) -> None:
    scores = {
        ("fedavg", "a"): [50],
        ("isolated", "a"): [40],
        ("fedavg", "b"): [None],
        ("isolated", "b"): [40],
    }
    made = panels(make_results(scores, references=["isolated"]))
    assert {title: [group.label for group in groups] for title, groups in made.items()} == {"a": ["FEDAVG"]}


def test_more_than_four_datasets_make_a_second_figure(make_results: MakeResults) -> None:
    drawn: list[list[str]] = []
    many = make_results({("fedavg", f"graph{number}"): [50] for number in range(5)})
    stems = _in_parts(many, lambda part: drawn.append(list(part)), "tiers")  # type: ignore[arg-type,return-value]
    assert list(stems) == ["tiers-1", "tiers-2"]
    assert [len(part) for part in drawn] == [4, 1]


def test_without_a_run_there_is_no_figure(make_results: MakeResults) -> None:
    empty = make_results({("fedavg", "a"): [None]})
    assert figures_of(empty) == {}


def test_a_comparison_needs_no_points_beyond_its_numbers(make_results: MakeResults) -> None:
    assert points_of(make_results({("fedavg", "a"): [50]})) == []
