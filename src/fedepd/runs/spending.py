"""How much of its privacy budget a run has spent, counted so that a crash cannot make it less.

A sum is counted before it is asked for. A round that is repeated after a crash has noise of its own, so it is
one more sum. The count is in the run folder, beside the rounds and not among them.
"""

from __future__ import annotations

from pathlib import Path

from fedepd.rounds.budget import Budget
from fedepd.runs.folder import Json, releases_made
from fedepd.runs.record import write_releases


class Spending:
    """The sums that a run has made and may still make. Without a ``folder`` nothing is written."""

    def __init__(self, budget: Budget, folder: Path | None = None) -> None:
        self.budget, self._folder = budget, folder
        self.made = 0 if folder is None else releases_made(folder)

    def count(self) -> None:
        """Count a sum that is about to be made. One that is not in the budget is refused."""
        self.budget.check_left(self.made)
        if self._folder is not None:
            write_releases(self._folder, self.made + 1)
        self.made += 1

    def last_round(self, next_round: int, wanted: int) -> int:
        """The last round that the budget allows."""
        return min(wanted, next_round - 1 + self.budget.releases - self.made)

    def so_far(self, last: int, wanted: int) -> Json:
        """What was spent, as a round's line and the summary say it."""
        stopped = {"stopped_after": last} if last < wanted else {}
        return {**self.budget.spent(self.made), **stopped}
