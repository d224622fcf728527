"""The plan of a federation: what is to be learnt, from which columns, how, and under which privacy.

The coordinator writes it as a TOML file, and ``fedepd federation init --plan`` puts it into every kit, where
the signed manifest covers it. Every site reads its own tables by it and refuses a run that contradicts it.

Reading a plan imports no method of another package. ``plan_task`` makes a task of one, and finds settings
that do not exist.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from fedepd.clients.partition import PartitionConfig
from fedepd.clients.split import SplitConfig
from fedepd.datasets.roles import Weighing
from fedepd.datasets.tables import MAX_CATEGORIES, MAX_NAME, MISSING, FeatureSchema, Roles
from fedepd.deploy.agreement import Agreement
from fedepd.deploy.plan_columns import COLUMN, PlanColumn, column_of
from fedepd.deploy.task import MAX_SITES, NAME
from fedepd.errors import BadConfig, FedEPDError, UnknownName
from fedepd.files import MAX_TOML_BYTES, check_depth, read_bytes
from fedepd.rounds.attack import Attack
from fedepd.rounds.guard import Privacy
from fedepd.shapes import EVERY, FLAG, LEAF, SHARE, TEXT, WHOLE, Table, expect, number, whole
from fedepd.shown import shown

__all__ = ["GUARDED", "VERSION", "Plan", "PlanColumn", "check_names", "parse_plan", "plan_bytes", "read_plan"]

VERSION = 1
MAX_CLASSES, MAX_COLUMNS, MAX_FEATURES = 10_000, 10_000, 100_000
MAX_TASK_NAME, MAX_PURPOSE = 40, 300
"""Most characters. A run's name is the task's with the time behind it."""
SITE_GETS = "model"
"""What every site gets at the end: the trained model. A plan must say so, because owners read it there."""
CURE = "correct it"
GUARDED = {"guard": True, "min_count": 5, "min_holders": 3, "secure": True}
"""The privacy of a plan that does not say otherwise."""
SHAPE: Table = {
    "version": WHOLE,
    "task": TEXT,
    "purpose": TEXT,
    "classes": [TEXT],
    "min_sites": whole(1, MAX_SITES),
    "site_gets": TEXT,
    "column": [COLUMN],
    "edges?": {"weight": TEXT, "weight_as?": TEXT},
    "run": {"method": TEXT, "preset?": TEXT, EVERY: LEAF},
    "split": {"rule?": TEXT, "train": SHARE, "val": SHARE, "test": SHARE},
    "privacy?": {
        "guard?": FLAG,
        "min_count?": whole(1),
        "min_holders?": whole(1),
        "secure?": FLAG,
        "dp_epsilon?": number(),
        "dp_delta?": number(),
        "dp_clip?": number(),
    },
}
ELSEWHERE = {
    **{f.name: "belongs to [privacy]" for f in fields(Privacy)},
    **{f.name: "belongs to [split], as rule, train, val and test" for f in fields(SplitConfig)},
    **dict.fromkeys(("vault", "score_on"), "has no meaning here, because no site knows the whole graph"),
    **{f.name: "has no meaning here, because the sites are the clients" for f in fields(PartitionConfig)},
    **{f.name: "is only for simulations" for f in fields(Attack)},
    "seed": "is chosen with 'submit --seed'",
}
"""Settings that may not be in [run], each with the reason."""


@dataclass(frozen=True)
class Plan:
    """What a federation agreed on. A plan that exists has been checked."""

    task: str
    """The task's name, from which the names of runs are made."""
    purpose: str
    """What is to be learnt, in one sentence."""
    classes: tuple[str, ...]
    """The names of the classes; a class's position is its number."""
    columns: tuple[PlanColumn, ...]
    method: str
    preset: str
    settings: Mapping[str, Any]
    """All settings that the plan fixes, flat, as ``FederationTask`` takes them."""
    min_sites: int
    """Fewest sites that must answer in every round."""
    edges: Roles | None = None
    """Which column of the tables of edges has their weights, and how it is used. None: all count alike."""

    def __post_init__(self) -> None:
        _check_words(self)
        check_names(self.classes, "class")
        if not 2 <= len(self.classes) <= MAX_CLASSES:
            raise BadConfig(f"classes names {len(self.classes):,} classes; name 2 to {MAX_CLASSES:,}")
        _check_columns(self.columns)
        for name in self.settings:
            check_printable(name, "the setting")
        if self.scaled and self.settings.get("dp_epsilon") is not None:
            raise BadConfig(
                "privacy.dp_epsilon is given and columns are scaled, but the statistics that scale them are "
                "not in its budget; write scaled = false, or leave dp_epsilon out"
            )

    @cached_property
    def num_features(self) -> int:
        return sum(column.width for column in self.columns)

    @cached_property
    def scaled(self) -> tuple[int, ...]:
        """The positions of scaled columns among the features, ascending."""
        places = [at for at, _ in self.schema.places]
        return tuple(at for at, column in zip(places, self.columns, strict=True) if column.scaled)

    @cached_property
    def counted(self) -> tuple[int, ...]:
        """The positions of categories among the features, ascending: the sites count their rows together.

        None under noise, because such counts are not in its budget.
        """
        if self.settings.get("dp_epsilon") is not None:
            return ()
        return self._places(lambda column: column.kind == "category")

    def _places(self, wanted: Callable[[PlanColumn], bool]) -> tuple[int, ...]:
        out: list[int] = []
        at = 0
        for column in self.columns:
            out += range(at, at + column.width) if wanted(column) else ()
            at += column.width
        return tuple(out)

    @cached_property
    def schema(self) -> FeatureSchema:
        """How tables become features. Numbers stay as they are; statistics scale them when a run begins."""
        return FeatureSchema(tuple(column.rule for column in self.columns), self.edges)

    @cached_property
    def agreed(self) -> Agreement:
        """What every site's file must say about its classes and columns."""
        return Agreement(self.classes, self.schema.to_json(), self.edges is not None)


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file. Whether its settings exist is found by ``plan_task``."""
    return parse_plan(plan_bytes(path), path)


def plan_bytes(path: Path) -> bytes:
    return read_bytes(path, MAX_TOML_BYTES)


def parse_plan(content: bytes, path: Path) -> Plan:
    """The plan in a file's content. Every fault is one sentence that names the file, the key and the cure."""
    where = f"the plan '{shown(path, 300)}'"
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as cause:
        raise BadConfig(f"{where} is not valid TOML: {shown(cause, 200)}; correct it") from cause
    try:
        check_depth(table, "it", CURE)
        return _plan(table)
    except FedEPDError as cause:
        raise BadConfig(f"{where}: {cause}") from cause


def _plan(table: dict[str, Any]) -> Plan:
    version = table.get("version")
    if type(version) is not int or version != VERSION:
        told = "has no version" if version is None else f"version is {shown(version)}"
        raise BadConfig(
            f"{told}, but this fedepd reads version {VERSION}; write version = {VERSION}, "
            f"or install the fedepd that wrote the plan"
        )
    _check_keys(table, SHAPE, "")
    expect(table, SHAPE, "it", CURE)
    if table["site_gets"] != SITE_GETS:
        raise BadConfig(
            f"site_gets is '{shown(table['site_gets'])}'; write site_gets = \"{SITE_GETS}\", "
            f"because every site gets the trained model at the end"
        )
    run = dict(table["run"])
    method, preset = run.pop("method"), run.pop("preset", "default")
    for name in run:
        if name in ELSEWHERE:
            raise BadConfig(f"run.{name} {ELSEWHERE[name]}; remove it from [run]")
    privacy = {**GUARDED, **table.get("privacy", {})}
    return Plan(
        task=table["task"],
        purpose=table["purpose"],
        classes=tuple(table["classes"]),
        columns=tuple(column_of(each, place) for place, each in enumerate(table["column"], 1)),
        method=method,
        preset=preset,
        settings={**run, **_split(table["split"]), **privacy},
        min_sites=table["min_sites"],
        edges=_weighing(table["edges"]) if "edges" in table else None,
    )


def _weighing(table: Mapping[str, Any]) -> Roles:
    check_names([table["weight"]], "edges.weight", cased=True)
    way = table.get("weight_as", Roles.edge_weight_as)
    if way not in get_args(Weighing):
        raise UnknownName("value of edges.weight_as", shown(way), get_args(Weighing))
    return Roles(edge_weight=table["weight"], edge_weight_as=way)


def _check_keys(table: Mapping[str, Any], shape: Mapping[str, Any], above: str) -> None:
    """Refuse keys that a plan does not have. A table whose keys are free is not looked into."""
    known = {key.removesuffix("?"): inner for key, inner in shape.items()}
    if EVERY in known:
        return
    for name, value in table.items():
        if name not in known:
            raise UnknownName(f"key in {above}" if above else "key", shown(name), known)
        inner = known[name]
        parts = value if isinstance(inner, list) and isinstance(value, list) else [value]
        shape_of = inner[0] if isinstance(inner, list) else inner
        for part in parts:
            if isinstance(part, dict) and isinstance(shape_of, dict):
                _check_keys(part, shape_of, f"[{name}]")


def _split(table: Mapping[str, Any]) -> dict[str, Any]:
    train, val, test = (table[name] for name in ("train", "val", "test"))
    if abs(train + val + test - 1) > 1e-9:
        raise BadConfig(
            f"split has train = {train:g}, val = {val:g} and test = {test:g}, which add up to "
            f"{train + val + test:g}; give shares that add up to 1"
        )
    return {"split": table.get("rule", "floor"), "train_share": float(train), "val_share": float(val)}


# --- names --------------------------------------------------------------------------------------------------


def _check_words(plan: Plan) -> None:
    if not NAME.fullmatch(plan.task) or len(plan.task) > MAX_TASK_NAME:
        raise BadConfig(
            f"task '{shown(plan.task)}' is not a usable name; "
            f"use at most {MAX_TASK_NAME} lower-case letters, digits and hyphens, and no hyphen first"
        )
    for what, text, most in (
        ("purpose", plan.purpose, MAX_PURPOSE),
        ("run.method", plan.method, MAX_NAME),
        ("run.preset", plan.preset, MAX_NAME),
    ):
        check_printable(text, what, most)


def _check_columns(columns: Sequence[PlanColumn]) -> None:
    if not 0 < len(columns) <= MAX_COLUMNS:
        raise BadConfig(f"there are {len(columns):,} columns; give 1 to {MAX_COLUMNS:,} [[column]] tables")
    check_names([column.name for column in columns], "column", cased=True)
    numbers = [column.rule for column in columns if column.kind != "category"]
    check_names([name for rule in numbers for name in rule.feature_names], "feature", cased=True)
    check_names(sorted({column.of for column in columns if column.of}), "column of edges", cased=True)
    for column in columns:
        if column.kind == "category":
            check_names(column.values, f"column '{shown(column.name)}': value")
            if not 0 < len(column.values) <= MAX_CATEGORIES:
                raise BadConfig(
                    f"column '{shown(column.name)}' has {len(column.values):,} values; "
                    f"a category has 1 to {MAX_CATEGORIES:,}"
                )
    if (width := sum(column.width for column in columns)) > MAX_FEATURES:
        raise BadConfig(f"the columns give {width:,} features; at most {MAX_FEATURES:,} are possible")


def check_names(names: Sequence[str], what: str, cased: bool = False) -> None:
    """Refuse names that cannot be told apart in a table, or that no cell of a table can hold.

    ``cased``: names that differ in case are different.
    """
    seen: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFKC", name).strip()
        key = key if cased else key.casefold()
        if seen.get(key) == name:
            raise BadConfig(f"{what} '{shown(name)}' is there twice; name each once")
        if key in seen:
            raise BadConfig(
                f"{what} '{shown(seen[key])}' and '{shown(name)}' differ only in blanks, case or form, "
                f"and would be mistaken for each other; rename one of them"
            )
        seen[key] = name
    for name in names:
        check_printable(name, what, MAX_NAME)
        if name != name.strip():
            raise BadConfig(
                f"{what} '{shown(name)}' begins or ends with a blank, which tables do not keep; remove it"
            )
        if name in MISSING:
            raise BadConfig(
                f"{what} '{shown(name)}' means a missing value in a table; give it another name everywhere"
            )


def check_printable(text: str, what: str, most: int = MAX_NAME) -> None:
    if not text.strip() or len(text) > most or shown(text, most) != text:
        raise BadConfig(
            f"{what} '{shown(text)}' is empty, too long or has characters that cannot be shown; "
            f"give 1 to {most} printable characters"
        )
