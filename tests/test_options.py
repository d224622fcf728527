"""A setting's default and its sentence travel together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from fedepd.errors import BadConfig
from fedepd.methods import METHODS
from fedepd.options import is_plain, ladder, option
from fedepd.runs.experiment import GROUPS, Experiment


@dataclass(frozen=True)
class Settings:
    size: int = option(3, "how large")


def test_a_field_has_its_default_and_its_sentence() -> None:
    assert Settings().size == 3
    assert fields(Settings)[0].metadata["help"] == "how large"


def test_every_setting_of_every_group_explains_itself() -> None:
    silent = [
        f"{group}.{f.name}"
        for group, cls in GROUPS.items()
        for f in fields(cls)
        if not f.metadata.get("help")
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("kind", "plain"),
    [(bool, True), (int | None, True), (Literal["a", 1], True), (str, False), (list[int], False)],
)
def test_what_a_text_can_set(kind: Any, plain: bool) -> None:
    assert is_plain(kind) is plain


def test_a_ladder_has_one_step_beyond_either_end() -> None:
    found = ladder(1, 3, 5, above=10)
    assert [found.at(rung) for rung in range(-1, 4)] == [None, 1, 3, 5, 10]
    assert [found.beyond(rung) for rung in range(-1, 4)] == [True, False, False, False, True]


@pytest.mark.parametrize("values", [(1,), (), (2, 1), (1, 1)])
def test_a_ladder_has_two_values_or_more_in_order(values: tuple[int, ...]) -> None:
    with pytest.raises(BadConfig, match="give two values or more, in ascending order"):
        ladder(*values)


def test_the_step_beyond_is_beyond() -> None:
    for ends in ({"below": 2}, {"above": 2}):
        with pytest.raises(BadConfig, match="ascending order"):
            ladder(1, 3, **ends)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_searched_can_be_run_and_acts(method: str) -> None:
    """The default is among the values, every value is allowed, and no setting is idle beside the defaults."""
    plain = Experiment.make(method)
    for group in (*GROUPS, "method"):
        part = getattr(plain, group)
        for f in fields(part):
            search = f.metadata.get("search")
            if search is None:
                continue
            assert getattr(part, f.name) in search.values, f.name
            for rung in range(-1, len(search.values) + 1):
                value = search.at(rung)
                if value is not None and value != getattr(part, f.name):
                    assert type(value) is type(getattr(part, f.name)), f.name
                    Experiment.make(method, **{f.name: value})


def test_every_method_with_numbers_of_its_own_has_a_search() -> None:
    """Else it would be tuned with less care than FedEPD. Five have nothing of their own to search."""
    without = [
        name for name, cls in METHODS.items() if not any(f.metadata.get("search") for f in fields(cls))
    ]
    assert without == ["fedavg", "scaffold", "fedper", "isolated", "centralised"]
