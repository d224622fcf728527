"""What a tracker is: it takes runs, and of each run settings, numbers by round, and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Settings = Mapping[str, Any]
"""By dotted name: text, numbers, switches, or None."""


@dataclass(frozen=True)
class Results:
    """What is known of a finished run."""

    numbers: Mapping[str, float]
    step: int
    """The round that the numbers belong to: the selected one."""
    figures: Mapping[str, bytes]
    """PNG files by name."""
    files: Sequence[Path]
    """Of the run folder."""


class Tracked(Protocol):
    """One run at a tracker."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Take the numbers of one round."""
        ...

    def conclude(self, results: Results) -> None:
        """Take what is known after the last round."""
        ...

    def close(self, finished: bool) -> None:
        """Nothing more will come. ``finished``: whether the run ended by itself."""
        ...


class Tracker(Protocol):
    """A place that takes runs. Whatever goes wrong there is an exception of any kind."""

    def begin(self, name: str, settings: Settings) -> Tracked:
        """A new run. Nothing that is there already is changed, also where it has the same name."""
        ...
