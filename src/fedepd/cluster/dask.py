"""Dask as we use it: imported late, without web pages, and listening only where it was told to."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fedepd.errors import BadConfig


def distributed() -> Any:
    """The package, or one sentence on how to get it."""
    try:
        import distributed as found
    except ImportError as cause:
        raise BadConfig(
            "a cluster needs the package distributed; install it with: pip install 'fedepd[cluster]'"
        ) from cause
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong, we say
    return found


class _NoPages:
    """In place of the web server that Dask starts beside every scheduler and worker."""

    address, port = "", 0

    def stop(self) -> None:
        pass


@cache
def quiet_classes() -> tuple[type, type]:
    """Dask's scheduler and worker without a web server. They have one open port each."""
    package = distributed()

    def start_http_server(self: Any, *_: Any, **__: Any) -> None:
        self.http_server = _NoPages()

    scheduler = type("QuietScheduler", (package.Scheduler,), {"start_http_server": start_http_server})
    worker = type("QuietWorker", (package.Worker,), {"start_http_server": start_http_server})
    return scheduler, worker
