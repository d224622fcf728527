"""A scheduler and workers on this machine, or workers that join a scheduler elsewhere."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedepd.cluster.certificates import security_of
from fedepd.cluster.dask import quiet_classes
from fedepd.cluster.work import stop_all
from fedepd.errors import BadConfig
from fedepd.shown import shown


def start(
    certificates: Path,
    workers: int,
    host: str = "127.0.0.1",
    port: int = 8786,
    join: str | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Run until SIGINT or SIGTERM.

    Args:
        certificates: The folder that ``make_certificates`` wrote.
        workers: How many jobs run here at a time.
        host: The address of this machine that scheduler and workers listen on, and no other.
        port: The scheduler's port, 0 for a free one.
        join: A scheduler's address. Without one, a scheduler is started here.
        ready: Called with the scheduler's address once all are there.

    Raises:
        BadConfig: The host or the port cannot be used, or no scheduler answers.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError as cause:
        raise BadConfig(f"host is '{shown(host)}'; give an IP address of this machine") from cause
    if ipaddress.ip_address(host).is_unspecified:
        raise BadConfig(f"host is {host}, which means every network; give one address of this machine")
    if not 0 <= port <= 65535 or workers < 0 or (workers == 0 and join is not None):
        raise BadConfig(f"port is {port} and workers is {workers}; give a port and at least one worker")
    security = security_of(certificates)
    asyncio.run(_serve(security, workers, host, port, join, ready))


async def _serve(
    security: Any, workers: int, host: str, port: int, join: str | None, ready: Callable[[str], None]
) -> None:
    scheduler_class, worker_class = quiet_classes()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parts: list[Any] = []
    try:
        if join is None:
            scheduler = scheduler_class(host=host, port=port, protocol="tls", security=security)
            parts.append(await _started(scheduler, f"{host}:{port}"))
            join = scheduler.address
        for _ in range(workers):
            worker = worker_class(join, nthreads=1, host=host, protocol="tls", security=security)
            parts.append(await _started(worker, join))
        ready(join)
        await stop.wait()
    finally:
        stop_all()
        for part in reversed(parts):
            await part.close()


async def _started(part: Any, where: str) -> Any:
    try:
        return await asyncio.wait_for(part, timeout=30)
    except (OSError, TimeoutError, RuntimeError) as cause:
        why = shown(str(cause.__cause__ or cause), 200)
        raise BadConfig(
            f"cannot use or reach '{shown(where)}' ({why}); give another address or port"
        ) from cause
