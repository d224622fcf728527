"""A cluster in place of local workers: jobs go there, and their results come back into the folder here.

A result is in its folder before the next one is asked for. So a worker that dies takes no finished job with
it, and what it was working on is given to another worker.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedepd.cluster.certificates import security_of
from fedepd.cluster.dask import distributed
from fedepd.cluster.work import as_message, unpack, work_there
from fedepd.errors import BadConfig, FedEPDError
from fedepd.runs.jobs import Job, Outcome
from fedepd.shown import shown

ADDRESS = re.compile(r"tls://(\[[0-9a-fA-F:]{2,39}\]|[A-Za-z0-9.-]{1,253}):([0-9]{1,5})")


def check_address(address: str) -> None:
    """Refuse what is not the address of a scheduler. Without TLS, everybody on the way could run programs."""
    found = ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found[2]) <= 65535:
        raise BadConfig(
            f"the cluster is '{shown(address)}'; give the address of its scheduler, such as "
            "tls://127.0.0.1:8786"
        )


AGAIN = "start it, and then the same command again"
ANSWER = 10.0
"""Seconds that a scheduler has to answer at first."""
PATIENCE = 20.0
"""Seconds without a scheduler until a study is given up."""


@dataclass(frozen=True)
class ClusterPool:
    """The workers of a cluster, for ``runs.jobs.outcomes``."""

    address: str
    certificates: Path
    shared: bool = False
    """Whether all machines see the output folder under the same path."""

    def __post_init__(self) -> None:
        check_address(self.address)

    def outcomes(
        self, jobs: Sequence[Job], watch: Callable[[], None] | None = None
    ) -> Generator[Outcome, None, None]:
        """Each job as it ends. Closing the iterator cancels the others."""
        waiting = [job for job in jobs if not job.is_finished]
        yield from (Outcome(job, "") for job in jobs if job.is_finished)
        if not waiting:
            return
        messages = _messages(waiting, self.shared)
        with self._client() as client:
            futures = {
                client.submit(work_there, message, pure=False, key=f"fedepd-{number}-{job.out.name}"): job
                for number, (job, message) in enumerate(zip(waiting, messages, strict=True))
            }
            try:
                yield from self._ended(client, futures, watch)
            finally:
                if client.status == "running":
                    client.cancel(list(futures), force=True)

    def _ended(
        self, client: Any, futures: dict[Any, Job], watch: Callable[[], None] | None
    ) -> Generator[Outcome, None, None]:
        seen = time.monotonic()
        while futures:
            time.sleep(0.1)
            if watch is not None:
                watch()
            if client.status != "running":
                if time.monotonic() - seen > PATIENCE:
                    raise BadConfig(f"the scheduler at '{shown(self.address)}' is gone; {AGAIN}")
                continue
            seen = time.monotonic()
            if any(each.cancelled() for each in futures):
                raise BadConfig(f"the scheduler at '{shown(self.address)}' was started anew; {AGAIN}")
            for future in [each for each in futures if each.done()]:
                job = futures.pop(future)
                yield Outcome(job, self._placed(job, future))
                future.release()

    def _placed(self, job: Job, future: Any) -> str:
        """Put the result in its place. Returns why there is none."""
        try:
            failure, files = future.result()
            if not failure and not self.shared:
                unpack(files, job.out)
            if not failure and not job.is_finished:
                return "its worker says that it is finished, but its folder is not; is --shared right?"
            return str(failure)
        except FedEPDError as mistake:
            return str(mistake)
        except Exception as mistake:  # of Dask: a worker was lost too often, or the scheduler is gone
            return f"the cluster gave it up ({shown(type(mistake).__name__)}: {shown(str(mistake), 300)})"

    def _client(self) -> Any:
        try:
            return distributed().Client(
                self.address, security=security_of(self.certificates), timeout=ANSWER, set_as_default=False
            )
        except (OSError, TimeoutError) as cause:
            raise BadConfig(
                f"no scheduler answers at '{shown(self.address)}'; start one with these certificates"
            ) from cause


def _messages(jobs: Sequence[Job], shared: bool) -> list[str]:
    """The jobs as text, each with the hash of its graph."""
    from fedepd.datasets import graph_sha256, load

    hashes: dict[tuple[str, str | None], str] = {}
    for job in jobs:
        if (job.data, job.data_dir) not in hashes:
            hashes[job.data, job.data_dir] = graph_sha256(load(job.data, job.data_dir))
    return [as_message(job, hashes[job.data, job.data_dir], shared) for job in jobs]
