"""The board listens on this machine's own address, and on no other."""

from __future__ import annotations

import socket

import pytest

from fedepd.board import serve
from fedepd.errors import BadConfig


def test_it_is_bound_to_this_machine_alone() -> None:
    with serve.bound(0) as found:
        host, port = found.getsockname()
        assert host == "127.0.0.1"
        assert port > 0


def test_a_port_that_is_taken_is_said() -> None:
    with serve.bound(0) as found:
        found.listen()
        with pytest.raises(BadConfig, match="give another --port"):
            serve.bound(found.getsockname()[1])


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(BadConfig, match="from 0 to 65535"):
        serve.bound(port)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadConfig, match=r"needs the package starlette; run: pip install 'fedepd\[board\]'"):
        serve.check_installed()


def test_sockets_are_closed_after_a_refusal() -> None:
    """A warning of a socket that was left open would fail this test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadConfig):
            serve.bound(taken.getsockname()[1])
