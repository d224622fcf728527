"""A cell of a search: one setting of one method on one graph with one seed, and its validation scores.

Only validation scores are written down. So nothing that a search leaves behind holds a test score, and the
labels of the vault are not at the clients of its runs at all (``clients.vault``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedepd.errors import BadConfig
from fedepd.files import read_json, write_json
from fedepd.runs.experiment import Experiment
from fedepd.runs.jobs import FileJob
from fedepd.runs.selection import HEADLINE_SCORES
from fedepd.shapes import ROUND_NUMBER, SHARE, Table, expect, number
from fedepd.shown import shown

FIRST_SEED = 100
"""Tables have the seeds from 0 on. A search has others."""
CELL: Table = {
    "round": ROUND_NUMBER,
    "val": dict.fromkeys(HEADLINE_SCORES, (SHARE,)),
    "seconds": number(0),
}
AGAIN = "remove the file and run the search again"


@dataclass(frozen=True)
class Cell(FileJob):
    """One run, of which only validation scores are kept."""

    def work(self) -> None:
        """Run it, and write down what validation says of the selected round."""
        from fedepd.runs.run import execute
        from fedepd.runs.source import Source

        experiment = developed(self.method, self.preset, self.settings)
        source = Source.make(self.data, self.data_dir)
        result = execute(experiment, source.load(experiment.protocol.features))
        summary = result.summary
        line = next(line for line in result.rounds if line["round"] == summary["best_round"])
        found = {
            "round": summary["best_round"],
            "val": line["val"][summary["headline"]],
            "seconds": summary["seconds"],
        }
        write_json(self.out, found)

    @property
    def score(self) -> float:
        """The mean of the three headline scores on validation nodes, in the selected round.

        Choice: all three that the tables judge by, because a method can buy one at the expense of another. A
        first search left accuracy out, and its best settings had lost some. The round
        is selected as in every run.
        """
        content = read_json(self.out, cure=AGAIN)
        expect(content, CELL, f"'{shown(self.out, 300)}'", AGAIN)
        scores = [content["val"][name] for name in HEADLINE_SCORES]
        if None in scores:
            raise BadConfig(
                f"'{shown(self.data)}' has no validation nodes to search by; give a val_share above 0"
            )
        return float(sum(scores)) / len(scores)


def developed(method: str, preset: str, settings: Mapping[str, Any]) -> Experiment:
    """The experiment of a cell, if it is one that a search may run."""
    experiment = Experiment.recorded(method, preset, settings)
    if experiment.split.score_on != "test":
        raise BadConfig("score_on is vault, but a search may not see the vault; leave score_on out")
    if experiment.protocol.seed < FIRST_SEED:
        raise BadConfig(
            f"seed is {experiment.protocol.seed}, but seeds below {FIRST_SEED} are for tables; "
            f"give {FIRST_SEED} or more"
        )
    return experiment


def cells_of(
    where: tuple[Path, str | None],
    method: tuple[str, str],
    data: tuple[str, str],
    settings: Mapping[str, Any],
    seeds: Sequence[int],
) -> list[Cell]:
    """The cells of one setting on one graph, named by their content.

    ``where``: the folder of the cells and the folder of the datasets. ``method``: its name and preset.
    ``data``: a graph's name and hash.
    """
    (folder, data_dir), (name, sha256) = where, data
    found = []
    for seed in seeds:
        own = {**settings, "seed": seed}
        identity = json.dumps([developed(*method, own).config_hash(sha256), "validation"])
        file = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        found.append(Cell(*method, name, file, data_dir, own))
    return found
