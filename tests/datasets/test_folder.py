"""Where datasets lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.datasets.folder import data_folder


def test_a_tilde_is_the_home_and_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("FEDEPD_DATA", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_folder() == Path("/home/somebody/.cache/fedepd")
    assert data_folder("~/graphs") == Path("/home/somebody/graphs")
    monkeypatch.setenv("FEDEPD_DATA", "~/data")
    assert data_folder() == Path("/home/somebody/data")
