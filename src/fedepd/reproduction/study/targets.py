"""Targets: a target says what a table or figure of the paper is made from.

Ours are TOML files in ``fedepd/experiments``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from fedepd.clients.corruption import Corruption
from fedepd.errors import BadConfig, UnknownName
from fedepd.files import read_toml
from fedepd.methods import METHODS
from fedepd.shown import shown, slug

Kind = Literal[
    "comparison",
    "ablation",
    "distribution",
    "per_class",
    "tiers",
    "sensitivity",
    "convergence",
    "efficiency",
    "robustness",
    "noise",
]
NOT_THE_PAPERS = ("equal", "guard", "noise", "pruning-control", "related", "robustness")
"""Targets that are about other questions than the paper's."""
Types = dict[str, tuple[Any, str]]
"""Key -> the type its value must have, and that type in words."""

TEXT, TABLE = (str, "a text in quotes"), (dict, "a table, as { name = value }")
TARGET_KEYS: Types = {
    "title": TEXT,
    "kind": TEXT,
    "settings": TABLE,
    "grid": TABLE,
    "seeds": (int, "a whole number, 1 or more"),
    "small": (dict, "a table, as { nodes = 3000, seeds = 10 }"),
}
TARGET_KEYS |= {
    "datasets": (list, 'a list of names, as ["email"]'),
    "rows": (list | str, "[[rows]], or a target's name"),
    "ours": (str, 'a row, as "my_method" or "my_method:preset"'),
}
ROW_KEYS: Types = {
    "method": TEXT,
    "preset": TEXT,
    "label": TEXT,
    "settings": TABLE,
    "reference": (bool, "true or false"),
    "disputed": (bool, "true or false"),
    "new": (bool, "true or false"),
    "model": (str, '"personal"'),
}


@dataclass(frozen=True)
class Row:
    """One line of a table: a method with its settings."""

    method: str
    preset: str = "default"
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: bool = False
    """True for a row that is shown below the others and never marked as best."""
    disputed: bool = False
    """True for a row without which ranks are shown as well."""
    new: bool = False
    """True for a rival that came later. The page then says where it beats FedEPD, and ranks without it."""
    model: Literal["", "personal"] = ""
    """The model that this row is about, if it is not the one that a table scores."""

    @property
    def key(self) -> str:
        """The row's name in the statistics and among the paper's numbers, e.g. ``fedepd:printed``."""
        parts = [
            self.method,
            *([self.preset] if self.preset != "default" else []),
            *(f"{k}={v}" for k, v in self.settings.items()),
            *([f"model={self.model}"] if self.model else []),
        ]
        return ":".join(parts)


@dataclass(frozen=True)
class Target:
    name: str
    """Names its folder, its files and its section of the page.

    It is a slug, whatever the TOML file is called.
    """
    title: str
    kind: Kind
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    """The paper's datasets. A user may name others with --data."""
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Setting -> its values (numbers or texts). Every combination of values is a row."""
    small: Mapping[str, int] = field(default_factory=dict)
    """``nodes`` and ``seeds``: a graph of fewer nodes has so many seeds."""
    ours: str = "fedepd"
    """The key of the row that the others are compared with."""
    shipped: bool = False
    """Whether it is one of this package's own, so that the paper's claims are about it."""

    @property
    def champions(self) -> tuple[Row, ...]:
        """The rows that are held against their best rival: ``ours``, and with FedEPD its variants."""
        if self.ours == "fedepd":
            return tuple(row for row in self.rows if row.method == "fedepd" and not row.reference)
        return tuple(row for row in self.rows if row.key == self.ours)

    @property
    def champion(self) -> str:
        """What a reader calls the row that the others are compared with."""
        return next((row.label for row in self.rows if row.key == self.ours), "FedEPD")

    def seeds_on(self, nodes: int) -> int:
        """How many seeds a graph of so many nodes has."""
        return self.small["seeds"] if self.small and nodes < self.small["nodes"] else self.seeds

    def settings_of(self, row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
        """A row's own settings come first, because they define it.

        Then come the user's, then the target's.
        """
        return {**self.settings, **given, **row.settings}


def target_names() -> list[str]:
    """Our targets: tables first, then figures."""
    folder = resources.files("fedepd") / "experiments"
    return sorted(
        (Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".toml")),
        key=lambda name: (name[:3] == "fig", name),
    )


def read_targets(name: str) -> list[Target]:
    """The target of that name or in that file.

    ``all`` means every target from the paper, without the studies of attacks and of privacy.
    """
    if name != "all":
        return [read_target(name)]
    return [read_target(each) for each in target_names() if each not in NOT_THE_PAPERS]


def of_methods(target: Target, spelled: Sequence[str]) -> Target:
    """The target with other rows: those of the named METHOD[:PRESET]. A row that it has keeps its settings.

    The paper's claims are not judged then, because they are about the rows of the paper.
    """
    rows: list[Row] = []
    for each in dict.fromkeys(spelled):
        method, _, preset = each.partition(":")
        if method not in METHODS:
            raise UnknownName("method", method, METHODS)
        preset = preset or "default"
        row = Row(method, preset, _label(method, preset))
        own = [row for row in target.rows if (row.method, row.preset) == (method, preset)]
        rows += own or over_grid((row,), target.grid)
    return replace(target, rows=tuple(rows), ours=_ours(rows), shipped=False)


def read_target(name: str, for_rows: bool = False) -> Target:
    """Read one target. ``for_rows`` is True when another target takes its rows from this one."""
    if name.endswith(".toml"):
        content = read_toml(Path(name), f"the target '{shown(name, 300)}'")
        return _target(slug(Path(name).stem), content, name, for_rows)
    if name not in target_names():
        raise UnknownName("target", name, ["all", *target_names()])
    with resources.as_file(resources.files("fedepd") / "experiments" / f"{name}.toml") as path:
        found = _target(name, read_toml(path, f"the target '{name}'"), f"{name}.toml", for_rows)
        return replace(found, shipped=True)


def _target(name: str, content: dict[str, Any], place: str, for_rows: bool) -> Target:
    _check_keys(content, TARGET_KEYS, place)
    for key in ("title", "kind", "datasets"):
        if key not in content:
            raise BadConfig(f"'{place}' has no '{key}'; add it")
    if content["kind"] not in get_args(Kind):
        raise UnknownName(f"kind in '{place}'", str(content["kind"]), get_args(Kind))
    for key, fits in (
        ("seeds", content.get("seeds", 1) >= 1),
        ("datasets", all(isinstance(each, str) for each in content["datasets"])),
        ("small", _is_small(content.get("small", {}))),
    ):
        if not fits:
            raise _unfit(key, content[key], TARGET_KEYS, place)
    if for_rows and isinstance(content.get("rows"), str):
        raise BadConfig(
            f"'{place}' cannot lend its rows, because it takes them from '{content['rows']}' itself; "
            f"use rows = '{content['rows']}'"
        )
    grid = {setting: tuple(values) for setting, values in _grid(content.get("grid", {}), place).items()}
    rows = _rows(content.get("rows", []), place)
    needed = {"sensitivity": (1, 2), "robustness": (1,), "noise": (1,)}.get(content["kind"], (len(grid),))
    if len(grid) not in needed:
        wanted = "one setting" if needed == (1,) else "one or two settings"
        raise BadConfig(f"'{place}' needs a [grid] of {wanted}; it has {len(grid)}")
    if content["kind"] == "noise":
        _check_noise(grid, place)
    made = {"name": name, "rows": over_grid(rows, grid), "grid": grid, "datasets": tuple(content["datasets"])}
    target = Target(**{**content, **made})
    if not rows:
        raise BadConfig(f"'{place}' has no [[rows]]; add one for each method")
    keys = [row.key for row in target.rows]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise BadConfig(f"'{place}' has the row '{shown(twice)}' twice; remove one of them")
    if "ours" in content and target.ours not in keys:
        raise UnknownName(f"row as 'ours' in '{place}'", target.ours, keys)
    return target if "ours" in content else replace(target, ours=_ours(target.rows))


def _ours(rows: Sequence[Row]) -> str:
    """FedEPD where it is a row, else the first row."""
    return "fedepd" if any(row.method == "fedepd" for row in rows) else rows[0].key


def _check_noise(grid: Mapping[str, tuple[Any, ...]], place: str) -> None:
    """Refuse a grid that has no curves: a value is one corruption with its share, and one is none."""
    points = grid.get("corrupt", ())
    found = [sum(map(bool, Corruption.read(str(point)).shares.values())) for point in points]
    if not points or found.count(0) != 1 or max(found) > 1:
        raise BadConfig(
            f'the [grid] of \'{place}\' has no curves; give corrupt = ["none", "edges=0.5", ...], one name '
            "with its share each"
        )


def _is_small(content: dict[str, Any]) -> bool:
    """Whether a table says for which graphs there are other seeds, or is empty."""
    values = content.values()
    return content.keys() in ({"nodes", "seeds"}, set()) and all(type(n) is int and n >= 1 for n in values)


def _rows(content: Any, place: str) -> tuple[Row, ...]:
    if isinstance(content, str):
        return read_target(content, for_rows=True).rows
    for row in content:
        if not isinstance(row, dict):
            raise _unfit("rows", content, TARGET_KEYS, place)
        _check_keys(row, ROW_KEYS, place)
        if row.get("method") not in METHODS:
            raise UnknownName(f"method in '{place}'", str(row.get("method")), METHODS)
        if row.get("model", "personal") != "personal":
            raise _unfit("model", row["model"], ROW_KEYS, place)
    alike = Counter((row["method"], row.get("preset", "default")) for row in content)
    made = []
    for row in content:
        method, preset = row["method"], row.get("preset", "default")
        label = _label(method, preset)
        # Rows of one name are called by the settings that tell them apart.
        if alike[method, preset] > 1 and row.get("settings"):
            label += f", {', '.join(map(in_words, row['settings'].items()))}"
        made.append(Row(**{**row, "label": row.get("label") or label}))
    return tuple(made)


def _label(method: str, preset: str) -> str:
    return (
        METHODS[method].label
        if preset == "default"
        else f"{METHODS[method].label} ({preset.replace('_', ' ')})"
    )


def over_grid(rows: tuple[Row, ...], grid: Mapping[str, tuple[Any, ...]]) -> tuple[Row, ...]:
    if not grid:
        return rows
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return tuple(
        replace(
            row,
            label=f"{row.label}, {', '.join(map(in_words, point.items()))}",
            settings={**row.settings, **point},
        )
        for row in rows
        for point in points
    )


def in_words(setting: tuple[str, Any]) -> str:
    name, value = setting
    return f"{name} {spelled(value)}"


def spelled(value: Any) -> str:
    """A value of a setting as a person writes it."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _grid(content: dict[str, Any], place: str) -> dict[str, list[Any]]:
    for setting, values in content.items():
        kinds = (int | float, str)
        if not isinstance(values, list) or not any(
            values and all(isinstance(v, kind) for v in values) for kind in kinds
        ):
            raise BadConfig(
                f"'{shown(setting)}' in the [grid] of '{place}' is {shown(repr(values))}; give a list of "
                "numbers or of texts"
            )
    return content


def _check_keys(content: Mapping[str, Any], known: Types, place: str) -> None:
    for key, value in content.items():
        if key not in known:
            raise UnknownName(f"key in '{place}'", key, sorted(known))
        if not isinstance(value, known[key][0]):
            raise _unfit(key, value, known, place)


def _unfit(key: str, value: Any, known: Types, place: str) -> BadConfig:
    return BadConfig(f"'{shown(key)}' in '{place}' is {shown(repr(value))}; give {known[key][1]}")
