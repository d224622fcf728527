"""A plan as a TOML file in which every line is explained, and the draft of one from an example table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fedepd.datasets.columns import Column, Table
from fedepd.datasets.dates import day_of, is_dates
from fedepd.datasets.roles import UNKNOWN
from fedepd.datasets.tables import MISSING, class_names
from fedepd.deploy.plan import GUARDED, MAX_TASK_NAME, VERSION, Plan, PlanColumn, check_names
from fedepd.deploy.plan_columns import FILLED, SCALABLE
from fedepd.errors import BadConfig, BadData
from fedepd.rounds.guard import Privacy
from fedepd.runs.settings import in_words
from fedepd.shown import shown

FEW_VALUES = 50
"""Most different texts of a column that is taken for a category. The coordinator may list more by hand."""
PURPOSE = "Find accounts that are used for fraud, so that they can be looked at."
SETTINGS = {
    "rounds": (200, "Communication rounds."),
    "backbone": ("gcn", "The network: gcn, sage, gat, sgc, mlp or h2gcn."),
    "hidden": (64, "Units of its hidden layer."),
}
"""The settings that a draft writes out, each with its explanation. Others may be added."""
PRIVACY = tuple(f.name for f in fields(Privacy))
SPLIT = {"split": "floor", "train_share": 0.6, "val_share": 0.2}
EXAMPLE = Plan(
    task="account-fraud",
    purpose=PURPOSE,
    classes=("honest", "mule", "fraud"),
    columns=(
        PlanColumn("balance", "number", scaled=True),
        PlanColumn("logins_per_day", "number", scaled=False),
        PlanColumn("country", "category", values=("AT", "DE", "FR", "other")),
        PlanColumn("is_business", "flag"),
    ),
    method="fedepd",
    preset="default",
    settings={**{name: value for name, (value, _) in SETTINGS.items()}, **SPLIT, **GUARDED},
    min_sites=3,
)
"""What a template says that is made from nothing."""
HEAD = """\
# The plan of a federation. Change it until it says what all sites agree on. Then
#   fedepd federation init --plan {file} ...
# puts it into every kit. Nobody can change it afterwards, because the kits' signature covers it.
"""
FIXED = """\
# The form of this file.
version = {version}

# A short name: lower-case letters, digits and hyphens. Runs are named after it.
task = {task}

# What is to be learnt, in one sentence. Every owner reads it.
purpose = {purpose}

# The classes by name, in order. Every site's table must use these names, and no other.
# A site need not have every class. {check}
classes = [{classes}]

# Fewest sites that must answer in every round. With fewer, the run waits.
min_sites = {min_sites}

# What every site gets at the end: the trained model.
site_gets = "model"

# --- columns of every site's table of nodes ---
# Their order here is the order of the features. A site's table may have another order, and more columns.
# kind = "number":   one number in every cell. scaled = true: the sites compute mean and deviation together
#                    before the first round, as sums, and every site scales by them. scaled = false: as it is.
# kind = "category": one of the listed values in every cell. Each value becomes a feature of 0 or 1.
# kind = "flag":     0 or 1 in every cell.
# kind = "date":     a date such as 2025-03-31 in every cell. It becomes its age in days before the given day.
# missing = "mean"   (numbers and dates that are scaled): cells may be empty. The mean over all sites takes
#                    their place, from the same sums, and one more feature marks them.
# kind = "edges":    not a column of nodes, but what the site's table of edges says about each node.
#                    made = "out sum" and of = "amount": the sum of the amounts that go out. out or in, and
#                    count (without of), sum, mean or max.
# Text cannot be a feature. Turn it into numbers or categories first, in the same way at every site.
"""
EDGES = """
# --- how much an edge counts: by this column of every site's table of edges, summed over its rows ---
# weight_as = "log1p": log(1 + sum), so that one large amount does not outweigh all others. "none": the sum.
[edges]
weight = {weight}
weight_as = {weight_as}
"""
NO_WEIGHTS = """
# --- edges: all count alike. With these lines they would count by the amounts in the table of edges ---
# [edges]
# weight = "amount"
"""
TAIL = """
# --- how it is learnt ---
[run]
# The method: 'fedepd methods' lists them. Other settings of 'fedepd run METHOD --help' may be added below.
method = {method}
# Named settings of the method.
preset = {preset}
{settings}
# --- how each site splits its labelled nodes, class by class; the shares add up to 1 ---
[split]
# floor: round down, so that a class with one node is only tested. keep_one: every class is trained.
rule = {rule}
# The share that is trained on, the share by which the best round is chosen, and the share that is tested.
train = {train}
val = {val}
test = {test}

# --- who may see what ---
[privacy]
# Nothing is sent about a class with few training nodes or few sites that have it.
guard = {guard}
# Fewest training nodes of a class over all sites, if it is sent.
min_count = {min_count}
# Fewest sites that have a class, if it is sent.
min_holders = {min_holders}
# The coordinator sees sums over all sites only. It needs three sites or more.
secure = {secure}
"""


@dataclass(frozen=True)
class Draft:
    """A first plan from an example table."""

    plan: Plan
    left_out: list[str]
    """Columns that are not in it, one sentence each."""
    doubts: list[str]
    """What the coordinator has to check, one sentence each."""


def plan_text(plan: Plan, file: str, left_out: Sequence[str] = (), doubts: Sequence[str] = ()) -> str:
    """The plan as a commented TOML file, which ``read_plan`` reads back."""
    known = {**SPLIT, **GUARDED, **plan.settings}
    own = [name for name in plan.settings if name not in SPLIT and name not in GUARDED]
    noise = "".join(_setting(name, plan.settings[name]) for name in own if name in PRIVACY)
    settings = "".join(_setting(name, plan.settings[name]) for name in own if name not in PRIVACY)
    train, val = known.pop("train_share"), known.pop("val_share")
    head = FIXED.format(
        version=VERSION,
        task=quoted(plan.task),
        purpose=quoted(plan.purpose),
        check="Check their order and that none is missing." if doubts else "Their order gives their numbers.",
        classes=", ".join(map(quoted, plan.classes)),
        min_sites=plan.min_sites,
    )
    tail = TAIL.format(
        method=quoted(plan.method),
        preset=quoted(plan.preset),
        settings=settings,
        rule=quoted(known["split"]),
        train=train,
        val=val,
        test=round(1 - train - val, 12),
        **{name: in_words(known[name]) for name in GUARDED},
    )
    notes = [*(f"# Check: {each}\n" for each in doubts), *(f"# Left out: {each}\n" for each in left_out)]
    columns = "".join(map(_column, plan.columns))
    first = [HEAD.format(file=shown(file)), "\n", head, *notes, "\n", columns.rstrip(), "\n"]
    return "".join([*first, _edges(plan), tail, noise])


def _edges(plan: Plan) -> str:
    if plan.edges is None:
        return NO_WEIGHTS
    weight, way = plan.edges.edge_weight or "", plan.edges.edge_weight_as
    return EDGES.format(weight=quoted(weight), weight_as=quoted(way))


def quoted(text: str) -> str:
    """A text as TOML writes it. Only printable text gets here, and JSON writes that in the same way."""
    return json.dumps(text, ensure_ascii=False)


def _setting(name: str, value: object) -> str:
    said = f"# {SETTINGS[name][1]}\n" if name in SETTINGS else ""
    return f"{said}{name} = {quoted(value) if isinstance(value, str) else in_words(value)}\n"


def _column(column: PlanColumn) -> str:
    lines = ["[[column]]", f"name = {quoted(column.name)}", f"kind = {quoted(column.kind)}"]
    if column.kind in SCALABLE:
        lines.append(f"scaled = {in_words(column.scaled)}")
    given = {"day": column.day, "missing": column.missing, "made": column.made, "of": column.of}
    lines += [f"{key} = {quoted(text)}" for key, text in given.items() if text]
    if column.kind == "category":
        lines.append(f"values = [{', '.join(map(quoted, column.values))}]")
    return "\n".join(lines) + "\n\n"


# --- from an example table ----------------------------------------------------------------------------------


def drafted(nodes: Table, id: str, label: str) -> Draft:
    """A plan as a table of nodes suggests it. ``id`` and ``label`` name its columns of ids and of classes."""
    nodes.column(id, "name the column of node ids with --id")
    nodes.column(label, "name the column of classes with --label")
    if nodes.rows == 0:
        raise BadData(f"{nodes.name} has no rows after its line 1; give one row per node")
    columns, left_out, doubts = [], [], ["the classes are those of one table; other sites may have more"]
    for name, column in nodes.columns.items():
        if name in (id, label):
            continue
        found = guessed(name, column)
        if isinstance(found, str):
            left_out.append(f"column '{shown(name)}' {found}")
            continue
        columns.append(found)
        if found.kind == "category":
            doubts.append(f"the values of '{shown(name)}' are those of one table; other sites may have more")
        if found.kind == "flag" and (empty := int(np.isnan(column.numbers).sum())):
            doubts.append(f"'{shown(name)}' has {empty:,} empty cells here; every site has to fill them in")
        if found.missing:
            doubts.append(f"'{shown(name)}' has empty cells here; the mean of all sites takes their place")
        if found.kind == "date":
            doubts.append(f"the day of '{shown(name)}' is the latest of one table; choose it for all sites")
    if not columns:
        raise BadData(
            f"{nodes.name} has no column that can be a feature "
            f"({left_out[0] if left_out else 'only ids and classes'}); add one, or write the plan by hand"
        )
    try:
        plan = Plan(
            task_name(label),
            f"Tell the {shown(label)} of a node from its columns and its neighbours.",
            class_names(nodes, label),
            tuple(columns),
            EXAMPLE.method,
            EXAMPLE.preset,
            EXAMPLE.settings,
            EXAMPLE.min_sites,
        )
    except BadConfig as cause:
        raise BadData(f"{nodes.name} gives no plan: {cause}") from cause
    return Draft(plan, left_out, doubts)


def task_name(label: str) -> str:
    """A task's name from that of a column."""
    short = re.sub(r"[^a-z0-9]+", "-", label.lower())[:MAX_TASK_NAME].strip("-")
    return short or EXAMPLE.task


def guessed(name: str, column: Column) -> PlanColumn | str:
    """What kind a column is; or why it is left out, as the end of a sentence."""
    try:
        check_names([name], "its name")
    except BadConfig:
        return "has a name that a plan cannot hold; rename it"
    numbers = column.numbers
    if isinstance(numbers, int):
        return _guessed_text(name, column)
    known = numbers[~np.isnan(numbers)]
    if not known.size:
        return "is empty"
    if np.isinf(known).any():
        return "holds infinite numbers; correct them"
    if np.isin(known, (0, 1)).all():
        return PlanColumn(name, "flag")
    distinct = np.unique(known).size == known.size
    if distinct and known.size > 1 and (known == np.round(known)).all():
        consecutive = float(known.max() - known.min()) == known.size - 1
        if consecutive or name.casefold().endswith("id"):
            return "has another whole number in every row and looks like an identifier"
    return PlanColumn(name, "number", scaled=True, missing=FILLED if known.size < numbers.size else "")


def _guessed_text(name: str, column: Column) -> PlanColumn | str:
    if is_dates(column, UNKNOWN):
        found = [day_of(text) for text in column.texts() if text not in UNKNOWN]
        latest = max(day for day in found if day is not None)
        gaps = FILLED if len(found) < len(column.texts()) else ""
        return PlanColumn(name, "date", scaled=True, missing=gaps, day=latest.isoformat())
    texts = [text for text in column.texts() if text not in MISSING]
    values = sorted(set(texts))
    if len(values) > min(FEW_VALUES, max(2, len(texts) // 2)):
        return f"has {len(values):,} different texts and looks like text or an identifier"
    try:
        check_names(values, "value")
    except BadConfig as cause:
        return f"cannot be a category: {cause}"
    return PlanColumn(name, "category", values=tuple(values))
