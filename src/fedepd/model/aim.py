"""What an operating point shall reach: costs, a recall, or a number of alerts. Read and checked here."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.files import regular_content
from fedepd.shown import shown

Floats = NDArray[np.float64]

MOST_BYTES = 16 * 2**20
"""Most bytes of a file of costs."""
MOST_COST = 1e12
ALL = ""
"""The name under which alerts of all classes but the largest are counted together."""


@dataclass(frozen=True)
class Aim:
    """What a model's decisions shall reach. Give one of ``cost``, ``recall`` and ``alerts``.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> folder = fedepd.export("runs/first", "model", aim=fedepd.Aim(recall={"9": 0.8}))
        >>> predictions = fedepd.load_model(folder).predict(fedepd.load("synthetic"))
        >>> list(predictions.table())[:5]
        ['id', 'label', 'probability', 'rank', 'alert']
    """

    cost: str | Path | None = None
    """A CSV file: what it costs to call a node i (row) that is j (column)."""
    recall: Mapping[str, float] = field(default_factory=dict)
    """Class -> the share of its nodes that shall be found."""
    alerts: int | Mapping[str, int] | None = None
    """How many nodes may be alerted: by class, or of all classes but the largest together."""
    per: int | None = None
    """The alerts are so many of this many nodes. By default, of the nodes of the run's graph."""

    def __post_init__(self) -> None:
        given = [name for name in ("cost", "recall", "alerts") if getattr(self, name) not in (None, {})]
        if len(given) != 1:
            found = f"{' and '.join(f'--{name}' for name in given)} are given" if given else "none is given"
            raise BadConfig(
                f"an operating point needs one of --cost, --recall and --alerts, but {found}; give one"
            )
        if self.per is not None and (given != ["alerts"] or not _whole(self.per) or self.per < 1):
            raise BadConfig(
                "--per says of how many nodes the --alerts are; give a whole number of at least 1"
            )
        for name, share in self.recall.items():
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
                raise BadConfig(
                    f"the recall of '{shown(name)}' is {shown(share)}; give a share above 0 and at most 1, "
                    "such as 0.8"
                )
        for name, count in self.budgets.items():
            if not _whole(count) or not 1 <= count <= 2**40:
                what = f"alerts of '{shown(name)}'" if name else "alerts"
                raise BadConfig(f"the number of {what} is {shown(count)}; give a whole number of at least 1")

    @property
    def budgets(self) -> dict[str, int]:
        """Alerts by class; ``ALL`` stands for all classes but the largest."""
        if self.alerts is None:
            return {}
        return dict(self.alerts) if isinstance(self.alerts, Mapping) else {ALL: self.alerts}


def aim_of_words(
    cost: str | None, recall: Sequence[str], alerts: Sequence[str], per: int | None = None
) -> Aim | None:
    """From the command line: "takeover=0.8" in ``recall``, "50" or "takeover=50" in ``alerts``.

    None if nothing was asked for.
    """
    if cost is None and not recall and not alerts and per is None:
        return None
    if len(alerts) == 1 and "=" not in alerts[0]:
        return Aim(cost, _pairs("recall", recall, float), int(_number("alerts", alerts[0], int)), per)
    wanted = {name: int(count) for name, count in _pairs("alerts", alerts, int).items()}
    return Aim(cost, _pairs("recall", recall, float), wanted or None, per)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pairs(option: str, words: Sequence[str], kind: type[int] | type[float]) -> dict[str, float]:
    out: dict[str, float] = {}
    for word in words:
        name, equals, value = word.rpartition("=")  # a name may hold a "="
        if not equals or not name:
            raise BadConfig(f"--{option} is '{shown(word)}'; write CLASS=NUMBER, such as takeover=50 or 0.8")
        if name in out:
            raise BadConfig(f"--{option} names '{shown(name)}' twice; name a class once")
        out[name] = _number(option, value, kind)
    return out


def _number(option: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise BadConfig(f"--{option} has '{shown(text)}', which is not {what}; write CLASS=NUMBER") from None


def class_number(name: str, label_names: Sequence[str]) -> int:
    """The class with this name."""
    if name not in label_names:
        raise UnknownName("class", shown(name), [shown(each) for each in label_names])
    return label_names.index(name)


def read_costs(path: str | Path, label_names: Sequence[str]) -> Floats:
    """The cost of calling a node i that is j, [C, C], from a CSV file.

    Its first line names the true classes, its first column the called ones. Every class is in both once, in
    any order.
    """
    where = f"'{shown(path, 300)}'"
    try:
        text = regular_content(Path(path), MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise BadData(f"{where} cannot be read ({shown(cause)}); give a CSV file of costs") from cause
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if any(cell.strip() for cell in row)]
    except csv.Error as cause:
        raise BadData(f"{where} is no CSV file ({shown(cause)}); give one row per called class") from cause
    if not rows:
        raise BadData(f"{where} is empty; give one row per called class and one column per true class")
    columns = _places([cell.strip() for cell in rows[0][1:]], label_names, f"{where}, the first line")
    called = _places([row[0].strip() for row in rows[1:]], label_names, f"{where}, the first column")
    costs = np.zeros((len(label_names), len(label_names)))
    for i, row in zip(called, rows[1:], strict=True):
        if len(row) != len(columns) + 1:
            raise BadData(
                f"{where}: the row of '{shown(row[0])}' has {len(row) - 1} costs, not {len(columns)}"
            )
        for j, cell in zip(columns, row[1:], strict=True):
            costs[i, j] = _cost(cell, f"{where}: calling '{shown(label_names[i])}' what is "
                                      f"'{shown(label_names[j])}'")  # fmt: skip
    return costs


def _places(names: Sequence[str], label_names: Sequence[str], where: str) -> list[int]:
    for name in label_names:
        if names.count(name) != 1:
            times = "not there" if name not in names else f"there {names.count(name)} times"
            raise BadData(
                f"{where}: the class '{shown(name)}' is {times}; name every class of the model once"
            )
    if len(names) != len(label_names):
        other = next(name for name in names if name not in label_names)
        raise BadData(f"{where}: '{shown(other)}' is no class of the model; name its classes only")
    return [label_names.index(name) for name in names]


def _cost(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise BadData(f"{where} costs '{shown(cell)}', which is not a number; write it like 12.5") from None
    if not (math.isfinite(value) and 0 <= value <= MOST_COST):
        raise BadData(f"{where} costs {shown(cell)}; give a cost from 0 to {MOST_COST:g}")
    return value


def in_words(aim: Aim, nodes: int) -> dict[str, Any]:
    """The aim as JSON, for the model folder. ``nodes``: of how many the alerts are by default."""
    out: dict[str, Any] = {}
    if aim.cost is not None:
        out["cost"] = Path(aim.cost).name
    if aim.recall:
        out["recall"] = dict(aim.recall)
    if aim.alerts is not None:
        out["alerts"] = aim.alerts if isinstance(aim.alerts, int) else dict(aim.alerts)
        out["per"] = aim.per or nodes
    return out
