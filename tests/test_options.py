"""A setting's default and its sentence travel together."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedepd.options import option
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
