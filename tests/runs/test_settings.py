"""Values of settings, wherever they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedepd.errors import BadConfig
from fedepd.runs.settings import coerced, read_toml


def test_tables_of_a_file_only_group(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('method = "fedavg"\nrounds = 5\n[training]\nlr = 0.5\n[model]\nhidden = 8\n')
    assert read_toml(path) == {"method": "fedavg", "rounds": 5, "lr": 0.5, "hidden": 8}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("rounds = ", "is not valid TOML"),
        ("lr = 1.0\n[training]\nlr = 0.5\n", "'lr' is given twice"),
        (b"\xff\xfe", "is not valid TOML"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str | bytes, says: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadConfig, match=says):
        read_toml(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"cannot read the settings file .*none\.toml: No such file"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("5", int, 5), (5.0, int, 5), ("1e-2", float, 0.01), (1, float, 1.0), ("none", float | None, None),
        ("0.5", float | None, 0.5), ("yes", bool, True), ("off", bool, False), (True, bool, True),
        ("2", Literal[1, 2], 2), ("a", Literal["a", "b"], "a"),
    ],
)  # fmt: skip
def test_text_becomes_the_fields_type(value: Any, kind: Any, expected: Any) -> None:
    made = coerced("x", value, kind)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("five", int), ("1.5", int), (1.5, int), (True, int), (float("nan"), int), (float("inf"), int),
        ("", float), ("nan", float), ("inf", float), ([1], float), (None, float), (False, float),
        ("maybe", bool), ("c", Literal["a", "b"]),
    ],
)  # fmt: skip
def test_values_that_are_not_of_the_fields_type(value: Any, kind: Any) -> None:
    with pytest.raises(BadConfig, match="x"):
        coerced("x", value, kind)


@given(st.integers())
def test_any_whole_number_survives_its_text(value: int) -> None:
    assert coerced("x", str(value), int) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_number_survives_its_text(value: float) -> None:
    assert coerced("x", repr(value), float) == value
