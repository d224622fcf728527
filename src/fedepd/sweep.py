"""Many runs over worker processes, one thread each: seeds, methods, settings."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedepd.errors import BadConfig, FedEPDError


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, in plain values that any process can read."""

    method: str
    preset: str
    data: str
    out: Path
    data_dir: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rounds_done(self) -> int:
        """Read from the run folder, so that a watcher needs no channel to the worker."""
        lines = self.out / "rounds.jsonl"
        return lines.read_bytes().count(b"\n") if lines.exists() else 0


def run_cells(cells: Sequence[Cell], workers: int = 1, watch: Callable[[], None] | None = None) -> None:
    """Run all cells; ``watch`` is called a few times a second. The first failure stops what has not begun and is raised."""
    if workers < 1:
        raise BadConfig(f"workers is {workers}; give at least 1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedepd.runner"])
    with ProcessPoolExecutor(min(workers, max(len(cells), 1)), mp_context=context) as pool:
        pending: set[Future[None]] = {pool.submit(run_cell, cell) for cell in cells}
        try:
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when="FIRST_COMPLETED")
                if watch is not None:
                    watch()
                for future in done:
                    future.result()
        except BrokenProcessPool as cause:
            raise FedEPDError("a worker process was killed, perhaps for want of memory; give fewer --workers") from cause
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def run_cell(cell: Cell) -> None:
    from fedepd.runner import run

    try:
        run(cell.data, cell.method, preset=cell.preset, out=cell.out, data_dir=cell.data_dir, **cell.settings)
    except FedEPDError as mistake:
        # The sentence alone travels between processes: an error class whose arguments are not its message does not survive the way.
        raise FedEPDError(str(mistake)) from None
