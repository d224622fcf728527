"""Targets: what a table or a figure of the paper is made from, one TOML file each in ``fedepd/experiments``."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import METHODS

Kind = Literal["comparison", "ablation", "distribution", "per_class", "tiers", "sensitivity", "convergence", "efficiency"]


@dataclass(frozen=True)
class Row:
    """One line of a table: a method with its settings."""

    method: str
    preset: str = "default"
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: bool = False
    """Shown below the others and never marked as best."""

    @property
    def key(self) -> str:
        """How the statistics and the paper's numbers name it, e.g. ``fedepd:printed``."""
        parts = [self.method, *([self.preset] if self.preset != "default" else []), *(f"{k}={v}" for k, v in self.settings.items())]
        return ":".join(parts)


@dataclass(frozen=True)
class Target:
    name: str
    title: str
    kind: Kind
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    """Those of the paper; a user may name others."""
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Settings of which every combination is a row."""

    def settings_of(self, row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
        """A row's own settings define it, so they win over those given by the user, which win over the target's."""
        return {**self.settings, **given, **row.settings}


def target_names() -> list[str]:
    """Tables first, then figures."""
    folder = resources.files("fedepd") / "experiments"
    return sorted((Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda name: (name[:3] == "fig", name))


def read_targets(name: str) -> list[Target]:
    """The target of that name or in that file; all of them for ``all``."""
    return [read_target(each) for each in target_names()] if name == "all" else [read_target(name)]


def read_target(name: str) -> Target:
    if name.endswith(".toml"):
        return _target(Path(name).stem, _content(Path(name)), name)
    if name not in target_names():
        raise UnknownName("target", name, ["all", *target_names()])
    with resources.as_file(resources.files("fedepd") / "experiments" / f"{name}.toml") as path:
        return _target(name, _content(path), f"{name}.toml")


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise BadConfig(f"cannot read the target '{path}': {cause.strerror}; check its name") from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise BadConfig(f"the target '{path}' is not TOML: {cause}; correct it") from cause


def _target(name: str, content: dict[str, Any], place: str) -> Target:
    _check_keys(content, {f.name for f in fields(Target)} - {"name"}, place)
    for key in ("title", "kind", "datasets"):
        if key not in content:
            raise BadConfig(f"'{place}' has no '{key}'; add it")
    if content["kind"] not in get_args(Kind):
        raise UnknownName(f"kind in '{place}'", str(content["kind"]), get_args(Kind))
    grid = {setting: tuple(values) for setting, values in content.get("grid", {}).items()}
    rows = _rows(content.get("rows", []), place)
    if content["kind"] == "sensitivity" and len(grid) != 2:
        raise BadConfig(f"'{place}' needs a [grid] of two settings; it has {len(grid)}")
    made = {"name": name, "rows": _over_grid(rows, grid), "grid": grid, "datasets": tuple(content["datasets"])}
    target = Target(**{**content, **made})
    if not rows:
        raise BadConfig(f"'{place}' has no [[rows]]; add one for each method")
    keys = [row.key for row in target.rows]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise BadConfig(f"the row '{twice}' stands twice in '{place}'; remove one of them")
    return target


def _rows(content: Any, place: str) -> tuple[Row, ...]:
    if isinstance(content, str):
        return read_target(content).rows
    for row in content:
        _check_keys(row, {f.name for f in fields(Row)}, place)
        if row.get("method") not in METHODS:
            raise UnknownName(f"method in '{place}'", str(row.get("method")), METHODS)
    return tuple(Row(**{**row, "label": row.get("label") or _label(row["method"], row.get("preset", "default"))}) for row in content)


def _label(method: str, preset: str) -> str:
    return METHODS[method].label if preset == "default" else f"{METHODS[method].label} ({preset.replace('_', ' ')})"


def _over_grid(rows: tuple[Row, ...], grid: Mapping[str, tuple[float, ...]]) -> tuple[Row, ...]:
    if not grid:
        return rows
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return tuple(
        Row(row.method, row.preset, f"{row.label}, {', '.join(f'{k} {v:g}' for k, v in point.items())}", {**row.settings, **point})
        for row in rows
        for point in points
    )


def _check_keys(content: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key in content:
        if key not in known:
            raise UnknownName(f"key in '{place}'", key, sorted(known))
