"""A setting's default and its sentence travel together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from fedepd.options import is_plain, option
from fedepd.runs.experiment import GROUPS


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
