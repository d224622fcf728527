"""Starts the board on this machine's own address, which no other machine can reach."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from fedepd.errors import BadConfig


def check_installed() -> None:
    """One sentence where the extra is missing."""
    from importlib.util import find_spec

    for name in ("starlette", "uvicorn", "plotly"):
        if find_spec(name) is None:
            raise BadConfig(f"'fedepd board' needs the package {name}; run: pip install 'fedepd[board]'")


def bound(port: int) -> socket.socket:
    """A socket of 127.0.0.1. Port 0 is any that is free."""
    if not 0 <= port <= 65535:
        raise BadConfig(f"--port is {port}; give a number from 0 to 65535")
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
    except OSError as cause:
        found.close()
        raise BadConfig(f"port {port} cannot be used ({cause.strerror}); give another --port") from cause
    return found


def serve(folder: str | Path, port: int, ready: Callable[[str], None]) -> None:
    """Answer until the process is interrupted. ``ready`` gets the address, with its secret, once."""
    check_installed()
    import uvicorn

    from fedepd.board.app import Board, make_app
    from fedepd.board.catalogue import Catalogue
    from fedepd.board.guard import Secret

    catalogue = Catalogue(folder)
    with closing(bound(port)) as listening:
        secret = Secret(listening.getsockname()[1])
        board = Board(catalogue, secret)
        config = uvicorn.Config(
            make_app(board),
            log_level="error",
            access_log=False,  # it would write the token down
            server_header=False,
            timeout_graceful_shutdown=3,  # streams look once a second whether they shall end
            lifespan="off",
        )
        server = uvicorn.Server(config)
        board.closing = lambda: server.should_exit
        listening.listen(64)
        ready(secret.url)
        before = signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again when it has ended
        try:
            server.run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)
            board.actions.processes.close()


def _leave(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
