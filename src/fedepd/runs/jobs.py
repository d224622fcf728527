"""Many runs, each in a process of its own with one thread: seeds, methods, settings.

Several programs, also on several machines, may work through the same jobs in one shared folder. Whoever
begins a job holds its lock file. The others go on with the next job, and look later whether it was finished.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, Protocol

from fedepd.errors import BadConfig, FedEPDError
from fedepd.files import encoded
from fedepd.folders import Busy, claimed
from fedepd.runs import folder

STOPPING = (signal.SIGINT, signal.SIGTERM)
BUSY = 75
"""The exit code of a process whose job another process works on."""
UNGUARDED = 76
"""The exit code of a process that would run the user's program once more, and so start processes itself."""
AGAIN_AFTER = 1.0
"""Seconds until jobs that others work on are looked at again, once there is nothing else to do."""


@dataclass(frozen=True)
class Job:
    """One run of a sweep, in plain values that any process can read."""

    method: str
    preset: str
    data: str
    out: Path
    data_dir: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 1
    notes: tuple[str, ...] = ()
    """Sentences for the run's summary, about what was decided before."""

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        from fedepd.runs.experiment import Protocol

        return int(self.settings.get("rounds", Protocol.rounds))

    @property
    def rounds_done(self) -> int:
        return folder.rounds_done(self.out)

    @property
    def is_finished(self) -> bool:
        return folder.is_finished(self.out)

    @property
    def lock(self) -> Path:
        """The file that is locked while a process works on the job."""
        return self.out.with_name(f"{self.out.name}.lock")

    def work(self) -> None:
        """What the job's process does: a run, from the start or from where it was interrupted."""
        run_job(self)


@dataclass(frozen=True)
class FileJob(Job):
    """A job whose ``out`` is a file, which is there once the job is finished."""

    @property
    def rounds_done(self) -> int:
        return 0

    @property
    def is_finished(self) -> bool:
        return self.out.is_file()


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``failure`` is a sentence, empty where it finished."""

    job: Job
    failure: str


class Pool(Protocol):
    """Workers elsewhere, in place of processes here."""

    def outcomes(
        self, jobs: Sequence[Job], watch: Callable[[], None] | None = None
    ) -> Generator[Outcome, None, None]:
        """Each job as it ends, failed or not; closing the iterator stops those that run."""
        ...


Workers = int | Pool
"""How many processes on this machine, or who else works."""


def run_jobs(jobs: Sequence[Job], workers: Workers = 1, watch: Callable[[], None] | None = None) -> None:
    """Run all jobs, and call ``watch`` a few times a second. The first failure stops all and is raised."""
    with closing(outcomes(jobs, workers, watch)) as ended:
        for outcome in ended:
            if outcome.failure:
                raise FedEPDError(outcome.failure)


def outcomes(
    jobs: Sequence[Job], workers: Workers = 1, watch: Callable[[], None] | None = None
) -> Generator[Outcome, None, None]:
    """Each job as it ends, failed or not; closing the iterator stops those that run.

    Every job has a process of its own. If the system kills one for want of memory, the others go on. A peak
    of memory belongs to one job. A job that another program works on ends here when it has ended there: as
    finished, or, if that program gave it up, by our own try.
    """
    if not isinstance(workers, int):
        yield from workers.outcomes(jobs, watch)
        return
    if workers < 1:
        raise BadConfig(f"workers is {workers}; give at least 1")
    # Every process imports the user's program first. Where that starts jobs anew, Python prints a page.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["fedepd.runs.run", "sknetwork.clustering"]
    )  # else every process pays for its own imports
    # The first process to start would start both, while signals are held. The tracker lets them through
    # again, and every process of the fork server would hold them for ever.
    resource_tracker.ensure_running()
    forkserver.ensure_running()
    waiting, running = deque(jobs), dict[Any, tuple[Job, connection.Connection]]()
    elsewhere: list[Job] = []
    try:
        while waiting or running or elsewhere:
            if not waiting and not running:
                time.sleep(AGAIN_AFTER)
                waiting, elsewhere = deque(elsewhere), []
            while waiting and len(running) < workers:
                job = waiting.popleft()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(job, theirs), daemon=True)
                with _signals_held():  # one that arrives here would leave a process that nobody stops
                    process.start()
                    running[process] = job, ours
                theirs.close()
            connection.wait([process.sentinel for process in running], timeout=0.2)
            if watch is not None:
                watch()
            for process in [process for process in running if process.exitcode is not None]:
                job, ours = running.pop(process)
                if process.exitcode == BUSY:
                    ours.close()
                    elsewhere.append(job)
                    continue
                with ours:
                    yield Outcome(job, _failure(process.exitcode, ours))
    finally:
        for process in running:
            process.terminate()
        for process, (_, ours) in running.items():
            process.join()
            ours.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that would stop this process wait until the block has ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _failure(exitcode: int, pipe: connection.Connection) -> str:
    if exitcode < 0:
        killer = signal.Signals(-exitcode)
        why = (
            ", as the system does for want of memory; give fewer --workers"
            if killer == signal.SIGKILL
            else "; run it again"
        )
        return f"its process was killed ({killer.name}){why}"
    if exitcode == UNGUARDED:
        return "every process runs your program anew; put its calls below 'if __name__ == \"__main__\":'"
    try:
        return pipe.recv_bytes().decode()
    except EOFError:
        ended = f"its process ended with exit code {exitcode} before the run did"
        return f"{ended}; run it alone with 'fedepd run' to see why"


def _work(job: Job, pipe: connection.Connection) -> None:
    """The sentence alone travels between processes: not every error survives the way."""
    # Ctrl-C reaches the whole group of processes. The one that asked for the jobs stops them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The program may have held them when it started the fork server. Then this process could not be stopped.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    failure = ""
    try:
        with claimed(job.lock):
            if not job.is_finished:
                job.work()
    except Busy:
        raise SystemExit(BUSY) from None
    except FedEPDError as mistake:
        failure = str(mistake)
    except Exception as mistake:  # one job's defect must not end the others
        place = traceback.extract_tb(mistake.__traceback__)[-1]
        failure = f"{type(mistake).__name__}: {mistake} ({Path(place.filename).name}, line {place.lineno})"
    pipe.send_bytes(encoded(failure[:2000]))


def run_job(job: Job) -> None:
    """From the start, or from where an interrupted one was saved."""
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.resume import resume
    from fedepd.runs.run import execute
    from fedepd.runs.source import Source

    if folder.is_begun(job.out):
        resume(job.out, job.data, data_dir=job.data_dir, checkpoint_every=job.checkpoint_every)
        return
    # A setting for all rows of a study need not act in each of them, so nobody asks here whether it does.
    experiment = Experiment.recorded(job.method, job.preset, job.settings)
    source = Source.make(job.data, job.data_dir)
    execute(
        experiment,
        source.load(experiment.protocol.features),
        job.out,
        checkpoint_every=job.checkpoint_every,
        source=source,
        notes=job.notes,
    )
