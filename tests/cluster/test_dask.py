"""Dask without web pages, and one sentence where it is not installed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fedepd.cluster.dask import distributed, quiet_classes
from fedepd.errors import BadConfig


def test_without_the_package_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadConfig, match=r"pip install 'fedepd\[cluster\]'"):
        distributed()


def test_no_part_has_a_web_server() -> None:
    package = pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    scheduler, worker = quiet_classes()
    assert issubclass(scheduler, package.Scheduler)
    assert issubclass(worker, package.Worker)
    part: Any = object.__new__(worker)
    part.start_http_server([], ":8787")
    assert part.http_server.port == 0
