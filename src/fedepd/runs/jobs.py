"""Many runs, each in a process of its own with one thread: seeds, methods, settings."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from fedepd.errors import BadConfig, FedEPDError
from fedepd.files import MAX_JSON_BYTES, encoded, regular_content

STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, in plain values that any process can read."""

    method: str
    preset: str
    data: str
    out: Path
    data_dir: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 1

    @property
    def rounds_done(self) -> int:
        """Read from the run folder, so that a watcher needs no channel to the worker."""
        try:
            return regular_content(self.out / "rounds.jsonl", MAX_JSON_BYTES).count(b"\n")
        except OSError:  # not there yet, or nothing to count
            return 0

    @property
    def is_finished(self) -> bool:
        return (self.out / "summary.json").is_file()


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: ``failure`` is a sentence, empty where it finished."""

    cell: Cell
    failure: str


def run_cells(cells: Sequence[Cell], workers: int = 1, watch: Callable[[], None] | None = None) -> None:
    """Run all cells; ``watch`` is called a few times a second. The first failure stops the others and is raised."""
    with closing(outcomes(cells, workers, watch)) as ended:
        for outcome in ended:
            if outcome.failure:
                raise FedEPDError(outcome.failure)


def outcomes(
    cells: Sequence[Cell], workers: int = 1, watch: Callable[[], None] | None = None
) -> Generator[Outcome, None, None]:
    """Each cell as it ends, failed or not; closing the iterator stops those that run.

    A process per cell: one that the system kills for want of memory takes no other with it, and a peak of memory is a cell's own.
    """
    if workers < 1:
        raise BadConfig(f"workers is {workers}; give at least 1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["fedepd.runs.run", "sknetwork.clustering"]
    )  # else every process pays for its own imports
    waiting, running = deque(cells), dict[Any, tuple[Cell, connection.Connection]]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                cell = waiting.popleft()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(cell, theirs), daemon=True)
                with _signals_held():  # one that arrives here would leave a process that nobody stops
                    process.start()
                    running[process] = cell, ours
                theirs.close()
            connection.wait([process.sentinel for process in running], timeout=0.2)
            if watch is not None:
                watch()
            for process in [process for process in running if process.exitcode is not None]:
                cell, ours = running.pop(process)
                with ours:
                    yield Outcome(cell, _failure(process.exitcode, ours))
    finally:
        for process in running:
            process.terminate()
        for process, (_, ours) in running.items():
            process.join()
            ours.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """What would stop us waits until the end of this."""
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
    try:
        return pipe.recv_bytes().decode()
    except EOFError:
        return f"its process ended with exit code {exitcode} before the run did; run it alone with 'fedepd run' to see why"


def _work(cell: Cell, pipe: connection.Connection) -> None:
    """The sentence alone travels between processes: not every error survives the way."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; who asked for the cells stops them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # held when this process was made
    failure = ""
    try:
        run_cell(cell)
    except FedEPDError as mistake:
        failure = str(mistake)
    except Exception as mistake:  # one cell's defect must not end the others
        place = traceback.extract_tb(mistake.__traceback__)[-1]
        failure = f"{type(mistake).__name__}: {mistake} ({Path(place.filename).name}, line {place.lineno})"
    pipe.send_bytes(encoded(failure[:2000]))


def run_cell(cell: Cell) -> None:
    """From the start, or from where an interrupted one was saved."""
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.resume import resume
    from fedepd.runs.run import execute
    from fedepd.runs.source import Source

    if (cell.out / "config.json").is_file():
        resume(cell.out, cell.data, data_dir=cell.data_dir, checkpoint_every=cell.checkpoint_every)
        return
    # A setting for all rows of a study need not act in each of them, so the cell is not asked whether it does.
    experiment = Experiment.recorded(cell.method, cell.preset, cell.settings)
    source = Source.make(cell.data, cell.data_dir)
    data = source.load(experiment)
    execute(experiment, data, cell.out, checkpoint_every=cell.checkpoint_every, source=source)
