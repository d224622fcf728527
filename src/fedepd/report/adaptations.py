"""What was decided about adaptation, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from fedepd.report.runs import Group, Run
from fedepd.report.tables import METRIC_WORDS, Cell, Table
from fedepd.shown import shown

_NOTE = (
    "The adaptation with the largest gain over the global model, in points of the score on the validation "
    "nodes of all clients, with half of its 95 % interval. It is used only if the whole interval is above 0. "
    "Mixture: the mean of both models' log-probabilities. Own choice: clients that use another adaptation, "
    "because their own validation nodes say so."
)
_HEADERS = ["Method", "Seed", "Decision", "Steps", "Model", "Score", "Gain", "Nodes", "Clients"]


def adaptations(groups: Sequence[Group]) -> Table | None:
    """One row for each run with that stage. None if no run has it."""
    rows = [_row(each.label, run) for each in groups for run in each.runs if "adapted" in run.summary]
    return Table("adaptation", [*_HEADERS, "Own choice"], [rows], _NOTE) if rows else None


def _row(label: str, run: Run) -> list[Cell]:
    about = run.summary["adapted"]
    gain = Cell(f"{100 * about['gain']:.1f}", about["gain"], f"±{100 * about['interval']:.1f}")
    return [
        Cell(label),
        _whole(run.seed),
        Cell("adapted" if about["used"] else "global model kept"),
        _whole(about["steps"]),
        Cell("mixture" if about["weight"] < 1 else "alone"),
        Cell(shown(METRIC_WORDS.get(about["metric"], about["metric"]))),
        gain,
        *(_whole(count) for count in (about["nodes"], len(about["clients"]), about["own"])),
    ]


def _whole(value: int) -> Cell:
    return Cell(str(value), float(value))
