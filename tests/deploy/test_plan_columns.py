"""Columns of a plan that have gaps, hold dates, or are made from edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.plans import write_plan
from fedepd.datasets.schema import FeatureRule
from fedepd.deploy.inspection import column_in_words
from fedepd.deploy.plan import read_plan
from fedepd.deploy.plan_columns import PlanColumn, column_of
from fedepd.deploy.plan_text import plan_text
from fedepd.errors import BadConfig, UnknownName

GAPS = PlanColumn("balance", "number", scaled=True, missing="mean")
DATE = PlanColumn("opened", "date", scaled=True, day="2025-06-01")
EDGES = PlanColumn("out amount sum", "edges", scaled=True, made="out sum", of="amount")
COUNT = PlanColumn("in count", "edges", made="in count")


def test_rules_are_those_of_an_import() -> None:
    """``fedepd data import`` calls the features of a date and of edges so, too."""
    assert GAPS.rule == FeatureRule("balance", impute="mean", marked=True)
    assert GAPS.rule.feature_names == ["balance", "balance is missing"]
    assert DATE.rule == FeatureRule("opened age", made="age", of="opened", day="2025-06-01")
    assert EDGES.rule == FeatureRule("out amount sum", made="out sum", of="amount")
    assert [each.width for each in (GAPS, DATE, EDGES, COUNT)] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            {"kind": "number", "scaled": True, "missing": "median"},
            r"missing = 'median'; write missing = .mean.",
        ),
        ({"kind": "number", "scaled": False, "missing": "mean"}, "missing without scaled = true; add it"),
        ({"kind": "flag", "missing": "mean"}, "has missing, which only the kind number or date has"),
        ({"kind": "date", "scaled": True}, "is of kind date without day; add day ="),
        ({"kind": "date", "scaled": True, "day": "soon"}, "day = 'soon'; write a date such as"),
        ({"kind": "date", "scaled": True, "day": "01.06.2025"}, "write a date such as 2025-03-31"),
        ({"kind": "number", "scaled": True, "day": "2025-06-01"}, "has day, which only the kind date has"),
        ({"kind": "edges", "scaled": True}, "is of kind edges without made; add made = one of out count"),
        (
            {"kind": "edges", "scaled": True, "made": "out count", "of": "a"},
            "a count needs no column; remove",
        ),
        (
            {"kind": "edges", "scaled": True, "made": "out sum"},
            "has no of; name a column of the table of edges",
        ),
    ],
)
def test_what_no_site_could_make_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        column_of({"name": "x", **table}, 1)


def test_an_unknown_making_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="out sum"):
        column_of({"name": "x", "kind": "edges", "scaled": True, "made": "out sun", "of": "amount"}, 1)


def test_two_features_of_one_name_are_refused(tmp_path: Path) -> None:
    """The date opened becomes the feature "opened age", and so would a number of that name."""
    twice = '[[column]]\nname = "opened"\nkind = "date"\nscaled = true\nday = "2025-06-01"\n\n[run]'
    changes = ('name = "logins"', 'name = "opened age"'), ("[run]", twice)
    with pytest.raises(BadConfig, match="feature 'opened age' is there twice"):
        read_plan(write_plan(tmp_path / "task.toml", *changes))


def test_a_written_plan_is_read_back(tmp_path: Path) -> None:
    plan = replace(read_plan(write_plan(tmp_path / "task.toml")), columns=(GAPS, DATE, EDGES, COUNT))
    (tmp_path / "again.toml").write_text(plan_text(plan, "again.toml"))
    assert read_plan(tmp_path / "again.toml") == plan
    assert plan.scaled == (0, 2, 3)
    assert plan.num_features == 5


def test_owners_read_them_in_words() -> None:
    assert "may be empty: the mean of all sites takes its place" in column_in_words(GAPS)
    assert column_in_words(DATE).startswith("a date, as days before 2025-06-01, scaled")
    assert column_in_words(EDGES).startswith("from your table of edges: out sum of 'amount' at each node")
