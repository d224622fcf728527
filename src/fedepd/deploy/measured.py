"""What a site keeps of the federated statistics: ``state/RUN/statistics.json``, for the owner to read.

It is also the site's memory. The first scaling of a run is its only one, also after a restart. Another one
would show the same rows at another scale.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.deploy.task import FederationTask
from fedepd.errors import BadData, BadMessage
from fedepd.files import read_json, write_json
from fedepd.rounds.statistics import feature_names, withheld
from fedepd.runs.folder import NAMED_COLUMN
from fedepd.shapes import TEXT, Table, expect, number
from fedepd.shown import shown
from fedepd.types import ClientData

LOG = logging.getLogger(__name__)
MEASURED = "statistics.json"
"""The file in the folder of a run's state."""
MOST_BYTES = 64 * 2**20
CURE = "restore it from a backup, or refuse the run"
FIELDS: Table = {
    "columns": [{**NAMED_COLUMN, "mean": number(), "deviation": number(0)}],
    "withheld": [TEXT],
}


class Measured:
    """The scaling of one run, and what of the statistics stayed at home."""

    def __init__(self, folder: Path, data: ClientData, scaled: Sequence[int], stayed: list[str]) -> None:
        self._path, self._names, self._scaled = folder / MEASURED, feature_names(data.graph), tuple(scaled)
        self._stayed = stayed
        self._known = read_measured(folder)
        if self._known and [each["column"] for each in self._known["columns"]] != list(scaled):
            raise BadData(f"'{shown(self._path, 200)}' holds other columns than the run scales; {CURE}")

    @classmethod
    def of(cls, folder: Path, data: ClientData, task: FederationTask) -> Measured:
        """The memory of a task's run."""
        return cls(folder, data, task.scaled, withheld(data, task.counted, task.experiment().privacy))

    def check(self, scaling: Tensor) -> None:
        """Keep the first scaling of the run. Refuse any other."""
        if self._known is None:
            self._known = self._table(scaling)
            write_json(self._path, self._known)
            for line in measured_in_words(self._known):
                LOG.info(line)
        rows = [[each[part] for each in self._known["columns"]] for part in ("mean", "deviation")]
        if not torch.equal(torch.tensor(rows, dtype=torch.float64), scaling):
            raise BadMessage("the server changed how columns are scaled during the run; start a new run")

    def _table(self, scaling: Tensor) -> dict[str, Any]:
        columns = []
        for at, column in enumerate(self._scaled):
            name = {"name": self._names[column]} if column < len(self._names) else {}
            mean, deviation = scaling[:, at].tolist()
            columns.append({"column": column, **name, "mean": mean, "deviation": deviation})
        return {"columns": columns, "withheld": self._stayed}


def measured_in_words(known: Mapping[str, Any]) -> list[str]:
    """For the owner: how the columns are scaled, and what of the statistics stayed at home."""
    columns = [
        f"{shown(each.get('name', 'column ' + str(each['column'])))}: scaled by mean {each['mean']:.6g} "
        f"and deviation {each['deviation']:.6g}"
        for each in known["columns"]
    ]
    return [*columns, *(f"kept at home: {shown(each, 300)}" for each in known["withheld"])]


def read_measured(folder: Path) -> Mapping[str, Any] | None:
    """What a site has kept; None before it was told. Raises ``BadData`` if it is damaged."""
    path = folder / MEASURED
    if not path.exists():
        return None
    found: dict[str, Any] = read_json(path, MOST_BYTES, cure=CURE)
    expect(found, FIELDS, f"'{shown(path, 200)}'", CURE)
    return found
