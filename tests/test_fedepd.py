"""The public names: each has a home, and comes from there on first use."""

from __future__ import annotations

from importlib import import_module

import pytest

import fedepd


def test_every_public_name_has_a_home() -> None:
    assert sorted(fedepd.__all__) == sorted(fedepd._HOMES)


@pytest.mark.parametrize("name", fedepd.__all__)
def test_a_public_name_is_the_one_of_its_home(name: str) -> None:
    assert getattr(fedepd, name) is getattr(import_module(fedepd._HOMES[name]), name)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedepd.nothing  # noqa: B018
