"""Which runs are below a folder, how far each is, and which of them belong together.

Only a short entry is kept of each run. Files are read again only after they have changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedepd.runs.folder as run_folder
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.files import absolute
from fedepd.folders import is_held
from fedepd.report.runs import Run, read_run
from fedepd.runs.follow import Counted, counted
from fedepd.runs.frames import settings_of
from fedepd.shown import shown

DEPTH = 3
"""Levels below the folder that are searched: STUDY/cells/RUN, and KIT/runs/RUN of a coordinator."""
MOST_FOLDERS, MOST_RUNS = 20_000, 5_000
MOST_BYTES = 4 * 2**20
"""Largest settings or summary of a run on the board. They have some 15 kB each."""
READ = (
    run_folder.CONFIG, run_folder.ENV, run_folder.CLIENTS, run_folder.ROUNDS, run_folder.PARTITION,
    run_folder.CONFUSION, run_folder.FINAL, run_folder.SUMMARY, run_folder.RANKING,
)  # fmt: skip
"""What the board reads of a run. None of it may be a link, which could lead out of the folder."""
MOST_SETTINGS = 20_000
"""Most characters of a run's settings. They have some two thousand."""
SCORES = ("acc", "bacc", "macro_f1")
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the list shows of one run. Every text is fit to be shown."""

    id: str
    """The path below the folder, by which pages name the run."""
    state: str
    """finished, running, stopped (it can be resumed) or refused (its files cannot be used)."""
    method: str = ""
    preset: str = ""
    data: str = ""
    seed: int = 0
    done: int = 0
    rounds: int = 0
    scores: tuple[float | None, ...] = ()
    """The headline model's pooled test scores; empty before the end."""
    sites: int = 0
    """How many sites a federation has; 0 for a simulated run."""
    why: str = ""
    """Why a run is refused."""
    settings: str = ""
    """All settings but the seed, as JSON. Runs with the same ones share one text."""

    @property
    def name(self) -> str:
        return shown(self.id, 200)

    @property
    def study(self) -> str:
        """The folder that the run is in, below the board's folder."""
        return self.id.rpartition("/")[0]


class Catalogue:
    """The runs below a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.root = absolute(folder)
        if not self.root.is_dir():
            raise BadConfig(f"'{shown(folder, 300)}' is not a folder; name one that holds runs")
        self._known: dict[str, tuple[Stamp, Entry, Counted]] = {}

    def entries(self) -> list[Entry]:
        """All runs, as they are now, by name."""
        known: dict[str, tuple[Stamp, Entry, Counted]] = {}
        for path in self._paths():
            name = str(path.relative_to(self.root))
            stamp = _stamp(path)
            before, entry, done = self._known.get(name, (None, None, Counted()))
            if entry is None or before != stamp:
                entry = _entry(path, name)
            if entry.state != "refused":
                done = counted(path, done)
            known[name] = stamp, entry, done
        self._known = known
        return [
            replace(entry, state=entry.state or self.state_of(entry), done=done.rounds)
            for _, (_, entry, done) in sorted(known.items())
        ]

    def state_of(self, entry: Entry) -> str:
        """Whether a run goes on is asked every time: no file says so."""
        path = self.path(entry)
        if entry.state == "refused" or not run_folder.is_begun(path):
            return "refused"
        if run_folder.is_finished(path):
            return "finished"
        return "running" if is_held(path) else "stopped"

    def entry(self, name: str) -> Entry:
        """One run by its name. Only a name of the list is one, so no other path is ever opened."""
        for each in self.entries():
            if each.id == name:
                return each
        raise BadData(f"there is no run '{shown(name)}' here; go back to the list")

    def path(self, entry: Entry) -> Path:
        return self.root / entry.id

    def run_of(self, entry: Entry) -> Run:
        """The run. Of one that is not finished, the summary is empty."""
        if entry.state == "refused":
            raise BadData(entry.why)
        path = self.path(entry)
        if entry.state == "finished":
            return read_run(path)
        return Run(path, {}, run_folder.read(path, run_folder.CONFIG))

    def _paths(self) -> Iterator[Path]:
        waiting, seen, found = [(self.root, 0)], 0, 0
        while waiting and seen < MOST_FOLDERS and found < MOST_RUNS:
            folder, depth = waiting.pop(0)
            seen += 1
            if depth and (os.path.lexists(folder / run_folder.CONFIG)):
                found += 1
                yield folder
            elif depth < DEPTH:
                waiting += [(child, depth + 1) for child in _folders(folder)]


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder. Links are left out: they may lead anywhere."""
    try:
        with os.scandir(folder) as listing:
            inside = [each for each in listing if not each.name.startswith(".")]
            return sorted(Path(each.path) for each in inside if each.is_dir(follow_symlinks=False))
    except OSError:  # gone, or not ours to read
        return []


def _stamp(path: Path) -> Stamp:
    """What changes whenever a file of the run does that its entry depends on."""
    out = []
    for file in (run_folder.CONFIG, run_folder.SUMMARY):
        try:
            status = os.lstat(path / file)
            out.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            out.append((0, 0, 0))
    return tuple(out)


def _entry(path: Path, name: str) -> Entry:
    try:
        _check(path)
        config = run_folder.read(path, run_folder.CONFIG)
        finished = run_folder.is_finished(path)
        summary = run_folder.read(path, run_folder.SUMMARY) if finished else {}
    except FedEPDError as mistake:
        return Entry(name, "refused", why=shown(mistake, 400))
    about: dict[str, Any] = {**config, **summary}
    pooled = summary["metrics"].get(summary["headline"], {}).get("pooled", {}) if finished else {}
    return Entry(
        name,
        "finished" if finished else "",
        shown(about.get("method_label") or about.get("method", "")),
        shown(about.get("preset", "")),
        shown(config["dataset"]["name"]),
        int(about["seed"]) if isinstance(about.get("seed"), int) else 0,
        rounds=int(about.get("rounds", 0)),
        scores=tuple(pooled.get(score) for score in SCORES) if finished else (),
        sites=len(config.get("sites", ())),
        settings=_settings(config),
    )


def _settings(config: dict[str, Any]) -> str:
    """Pairs of names and values."""
    text = json.dumps([pair for pair in settings_of(config) if pair[0].rpartition(".")[2] != "seed"])
    return sys.intern(text) if len(text) <= MOST_SETTINGS else ""


def _check(path: Path) -> None:
    """Refuse links out of the folder, and files that are too large for a page."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BadData(f"the name '{shown(path.name)}' is not UTF-8; rename the folder") from None
    for file in READ:
        if os.path.islink(path / file):
            raise BadData(
                f"'{run_folder.called(path, file)}' is a link; copy the file itself into the folder"
            )
    for file in (run_folder.CONFIG, run_folder.SUMMARY):
        if os.path.exists(path / file) and os.stat(path / file).st_size > MOST_BYTES:
            name = run_folder.called(path, file)
            raise BadData(f"'{name}' has more than {MOST_BYTES:,} bytes; fedepd did not write it")
