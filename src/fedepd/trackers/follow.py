"""Follows run folders and tells a tracker what is new in them.

Choice: the folder is read, also while the run goes on. So runs of other processes and of other machines are
tracked by the same lines as a run in this process and a run of last year, and nothing can reach a tracker
that is not in the folder. A thread of its own does it. So training waits for no tracker, and no error there
can end a run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedepd.errors import BadConfig, FedEPDError
from fedepd.report.runs import Run, read_run
from fedepd.runs import folder as run_folder
from fedepd.runs.follow import Follower
from fedepd.shown import sentence, shown
from fedepd.trackers import content
from fedepd.trackers.contract import Tracked, Tracker
from fedepd.trackers.target import tracker_of, without_password

EVERY = 0.5
"""Seconds between two looks at the folders."""
PATIENCE = 120.0
"""Seconds that a tracker may take for one thing, once training has ended."""
log = logging.getLogger("fedepd.trackers")


@dataclass(eq=False)
class Followed:
    """One run folder, and how much of it the tracker has."""

    name: str
    folder: Path
    tracked: Tracked | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        self._rounds = Follower(self.folder)

    def look(self, tracker: Tracker) -> None:
        """Tell the tracker what is new."""
        if self.closed or not run_folder.is_begun(self.folder):
            return
        if self.tracked is None:
            config = run_folder.read(self.folder, run_folder.CONFIG)
            self.tracked = tracker.begin(self.name, content.settings(config))
        finished = run_folder.is_finished(self.folder)  # asked first, so that no round is missed
        while lines := self._rounds.more():
            for line in lines:
                self.tracked.log(content.round_numbers(line), line["round"])
        if finished:
            self.tracked.conclude(content.results(read_run(self.folder)))
            self.close(True)

    def close(self, finished: bool) -> None:
        if self.tracked is not None and not self.closed:
            self.closed = True
            self.tracked.close(finished)


def followed(base: Path, folders: Iterable[Path]) -> list[Followed]:
    """Each folder by its name below the folder that ``base`` is in: ``first``, or ``study/fedavg-seed0``."""
    top = base.absolute()
    return [Followed("/".join((top.name, *each.absolute().relative_to(top).parts)), each) for each in folders]


class Thread(threading.Thread):
    """Looks at the folders until it is told to stop, and a last time then."""

    def __init__(
        self, tracker: Tracker, runs: list[Followed], target: str, warn: Callable[[str], None]
    ) -> None:
        super().__init__(name="fedepd-tracker", daemon=True)
        self.tracker, self.runs, self.place, self.warn = tracker, runs, without_password(target), warn
        self.ending = threading.Event()
        self.alive = time.monotonic()

    def run(self) -> None:
        try:
            while not self.ending.wait(EVERY):
                self._look()
            self._look()
            for each in self.runs:
                each.close(False)
        except Exception as cause:  # whatever a tracker raises, training goes on
            self.warn(f"'{self.place}' failed and gets nothing more: {reason(cause)}; {LATER}")

    def _look(self) -> None:
        for each in self.runs:
            each.look(self.tracker)
            self.alive = time.monotonic()

    def end(self) -> None:
        """Wait until the tracker has everything, or does not answer."""
        self.alive = time.monotonic()
        self.ending.set()
        while self.is_alive():
            self.join(0.2)
            if time.monotonic() - self.alive > PATIENCE:
                self.warn(f"'{self.place}' has not answered for {PATIENCE:.0f} seconds; {LATER}")
                return


LATER = "'fedepd track' can send the run later"


def reason(cause: BaseException) -> str:
    text = shown(without_password(str(cause)), 300)
    return text if isinstance(cause, FedEPDError) else f"{type(cause).__name__}: {text}"


@contextmanager
def following(
    target: str | None,
    base: Path | None,
    folders: Iterable[Path] | None = None,
    warn: Callable[[str], None] = log.warning,
) -> Iterator[None]:
    """Inside this, the tracker gets what is written into the run folders. Without a target nothing happens.

    Args:
        target: As a user writes it, such as "tensorboard:logs".
        base: The new folder that a user named, for one run or for several.
        folders: The folders of several runs, inside ``base``.
        warn: Called with one sentence if the tracker fails.

    Raises:
        BadConfig: The target cannot be used, or there is no folder.
    """
    if target is None:
        yield
        return
    tracker = tracker_of(target)
    if base is None:
        raise BadConfig("a tracker gets what the run folder holds, and there is none; give an output folder")
    run_folder.check_new_run(base)  # the run would refuse an old one, but the tracker would have it by then
    thread = Thread(tracker, followed(base, [base] if folders is None else folders), target, warn)
    thread.start()
    try:
        yield
    finally:
        thread.end()


def send(target: str, base: Path, runs: Iterable[Run]) -> int:
    """Tell a tracker about finished runs.

    Args:
        target: As a user writes it.
        base: The folder that a user named: a run folder, or a folder of run folders.
        runs: What ``report.runs.read_runs`` gave.

    Returns:
        How many runs were sent.

    Raises:
        BadConfig: The target cannot be used.
        FedEPDError: The tracker failed.
    """
    tracker = tracker_of(target)
    told = followed(base.resolve(), [run.path for run in runs])
    for done, each in enumerate(told):
        try:
            each.look(tracker)
        except FedEPDError:
            raise
        except Exception as cause:
            place = f"'{without_password(target)}' failed after {done} of {len(told)} runs"
            raise FedEPDError(sentence(f"{place}: {reason(cause)}; check it and try again")) from cause
    return len(told)
