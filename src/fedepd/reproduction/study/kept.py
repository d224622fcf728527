"""A study whose scores are kept in a file. Finished cells are added to it, and it stands for lost folders.

With such a file, every number of a page is the one in the file, also where the folder is there. So tables,
CSV files and standings have the same bytes with folders and without them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedepd.clients.scaling import with_features
from fedepd.datasets import graph_sha256, load
from fedepd.errors import BadData, FedEPDError
from fedepd.files import clean
from fedepd.report.runs import Run, read_run
from fedepd.reproduction.study.cells import Planned
from fedepd.reproduction.study.kept_run import difference, kept_run, line_of, rounded
from fedepd.reproduction.study.scores_file import Line, add_lines, this_version
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json
from fedepd.runs.simulation import described
from fedepd.shown import shown

EVERY = 60.0
"""Seconds between two additions to the file while cells run."""


@dataclass
class KeptStudy:
    """The planned cells of a command, and the file that keeps their scores."""

    path: Path
    planned: Sequence[Planned]
    lines: dict[str, Line] = field(default_factory=dict)
    """What the file holds, by cell. That may be more than this command has planned."""
    runs: dict[Path, Run] = field(default_factory=dict)
    """The runs that have a folder, by it, with the numbers that are kept."""
    foreign: set[str] = field(default_factory=set)
    """Cells that another version of the package has run. They are not kept."""
    _own: dict[str, Line] = field(default_factory=dict)
    _made: dict[Path, Run] = field(default_factory=dict)
    _last: float = 0.0

    def has(self, each: Planned) -> bool:
        return each.job.out.name in self.lines

    def update(self) -> None:
        """Add finished cells to the file, and read what other programs have added.

        Raises:
            BadData: The file or a folder is damaged, or both have a cell with other scores.
        """
        here = this_version()
        for folder in {each.job.out: None for each in self.planned if each.job.is_finished}:
            if folder.name not in self._own:
                run = read_run(folder)
                line = line_of(run)
                if line["cell"] != folder.name:
                    raise BadData(
                        f"'{shown(folder, 300)}' holds another run ({shown(line['cell'])}); remove it"
                    )
                self._own[folder.name], self.runs[folder] = line, rounded(run, line)
                if run.env.get("fedepd") != here:
                    self.foreign.add(folder.name)
        fresh = {cell: line for cell, line in self._own.items() if cell not in self.foreign}
        self.lines = add_lines(self.path, fresh)
        self._last = time.monotonic()
        for cell, line in self._own.items():
            if cell in self.lines and (name := difference(line, self.lines[cell])):
                raise BadData(
                    f"the folder of the cell {cell} has {name} = {line[name] or 'nothing'}, but "
                    f"'{shown(self.path, 300)}' has {self.lines[cell][name] or 'nothing'}; remove the "
                    "folder or the line, whichever is wrong"
                )

    def now_and_then(self) -> None:
        """Add finished cells if that was long ago. A mistake in the file must not stop a study: it waits."""
        if time.monotonic() - self._last > EVERY:
            with suppress(FedEPDError):
                self.update()
            self._last = time.monotonic()

    def all_runs(self) -> dict[Path, Run]:
        """Every finished run by its folder, which need not be there."""
        known = {*self.runs, *self._made}
        lost = {each.job.out: each for each in self.planned if self.has(each) and each.job.out not in known}
        for folder, config in configs_of(list(lost.values())):
            self._made[folder] = kept_run(self.lines[folder.name], folder, config, self.path.name)
        return {**self._made, **self.runs}


def configs_of(cells: Sequence[Planned]) -> Iterator[tuple[Path, Json]]:
    """The configurations that cells have in their run folders. One graph at a time is in memory."""
    for data in dict.fromkeys(each.job.data for each in cells):
        mine = [each.job for each in cells if each.job.data == data]
        graph = load(data, mine[0].data_dir)
        graphs, hashes = {}, {}
        for job in mine:
            experiment = Experiment.recorded(job.method, job.preset, job.settings)
            features = experiment.protocol.features
            if features not in graphs:
                graphs[features] = with_features(graph, features)
                hashes[features] = graph_sha256(graphs[features])
            cut = experiment.partition.resolved(graphs[features])
            made = replace(experiment, partition=cut)
            yield job.out, clean(described(made, graphs[features], hashes[features]))
