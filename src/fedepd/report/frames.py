"""Run folders as tables of pandas."""

from __future__ import annotations

from pathlib import Path

from fedepd.report import runs
from fedepd.runs.frames import Frames


def read_runs(path: str | Path) -> Frames:
    """The finished runs of a folder as data frames.

    Args:
        path: A run folder, or a folder of run folders, such as ``fedepd compare --out`` writes.

    Returns:
        ``.scores``, ``.rounds``, ``.classes``, ``.clients`` and ``.confusions``, each a data frame.

    Raises:
        BadData: There is no finished run, or a run's numbers do not follow from its confusion matrices.
        BadConfig: pandas is not installed, on the first use of a frame.

    Examples:
        >>> import fedepd
        >>> _ = fedepd.run("synthetic", "fedavg", rounds=2, clients=3, out="runs/first")
        >>> frames = fedepd.read_runs("runs")
        >>> frames.scores[["run", "method", "model", "average"]]
             run  method     model      average
        0  first  fedavg    global       pooled
        1  first  fedavg    global  client_mean
        2  first  fedavg  personal       pooled
        3  first  fedavg  personal  client_mean
        >>> list(frames.rounds["round"])
        [1, 2]
    """
    return Frames([(each.path.name, each) for each in runs.read_runs(path)])
