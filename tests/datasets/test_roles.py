"""What is said about tables, and what of it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from fedepd.datasets.roles import Roles
from fedepd.errors import BadConfig, UnknownName


def test_only_what_is_not_as_usual_is_remembered() -> None:
    assert Roles(id="account", scale=True).remembered() == {}
    roles = Roles(decimal=",", missing=("-999",), unknown_ends="drop")
    kept = roles.remembered()
    assert kept == {"decimal": ",", "missing": ["-999"], "unknown_ends": "drop"}
    assert Roles.recalled(kept) == roles


@pytest.mark.parametrize(
    "kept", [{"decimal": ";"}, {"missing": [1]}, {"missing": "x", "id": "a"}, {"unknown_ends": "keep"}]
)
def test_what_somebody_else_wrote_is_checked(kept: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tables is wrong"):
        Roles.recalled(kept)


@pytest.mark.parametrize(
    "wrong",
    [
        {"impute": "mode"},
        {"unknown_ends": "keep"},
        {"decimal": ";"},
        {"date_parts": ("year",)},
        {"day": "soon"},
        {"features": ("a",), "leave_out": ("b",)},
    ],
)
def test_wrong_roles_are_one_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises((BadConfig, UnknownName)):
        Roles(**wrong)


def test_more_words_mean_a_missing_cell() -> None:
    assert {"", "NA", "-999"} <= Roles(missing=("-999",)).absent
