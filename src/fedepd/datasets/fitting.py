"""The rules of a table: which of its columns are numbers, categories or dates, and what fits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedepd.datasets.columns import Column, Table, listed
from fedepd.datasets.dates import MONTHS, WEEKDAYS, days, given_day, is_dates
from fedepd.datasets.edges import AMOUNTS, SIDES, Ends, number_columns
from fedepd.datasets.numbers import finite, lines, mostly_numbers, not_a_number
from fedepd.datasets.roles import UNKNOWN, Roles
from fedepd.datasets.schema import NO_CATEGORY, OUTSIDE, FeatureRule, FeatureSchema
from fedepd.errors import BadData
from fedepd.shown import shown

MAX_CATEGORIES = 1000
"""Most categories of a column.

A column with more values, or with mostly distinct ones, is text or an identifier.
"""


def fitted(table: Table, roles: Roles, ends: Ends | None = None) -> tuple[FeatureSchema, list[str]]:
    """The rules of a table's feature columns, and notes about what was decided.

    Choice: means, deviations and categories are computed over all nodes of all owners, as if the owners had
    agreed on them. A real federation must agree on them in advance. What fills gaps is computed later, over
    training rows alone.

    Args:
        table: The table of nodes.
        roles: What its columns mean.
        ends: The edges; needed where their columns become features.

    Returns:
        The rules, and one sentence for each decision.

    Raises:
        BadData: A column cannot be used.
    """
    names, notes = _features(table, roles), list[str]()
    dates = _dates(table, names, roles)
    chosen = _chosen(table, names, roles, dates)
    tables = FeatureSchema((), roles)
    rules: list[FeatureRule] = []
    for name in names:
        column = table.column(name, "correct --features")
        if name in dates:
            rules += _of_date(table, name, column, roles, notes)
        elif name in chosen or (roles.one_hot is True and _is_category(table, name, column, roles)):
            rules.append(FeatureRule(name, categories=_categories(table, name, column, roles)))
        else:
            rules.append(_number(table, name, column, roles, notes))
    if ends is not None:
        rules += _of_edges(ends, roles, notes)
    notes += _gaps(table, rules, tables)
    schema = FeatureSchema(tuple(_scaled(tables, rule, table, ends, roles) for rule in rules), roles)
    for name, times in Counter(rule.name for rule in schema.rules).items():
        if times > 1:
            raise BadData(f"{table.name}: two features are called '{shown(name)}'; rename the column")
    return schema, notes


def _gaps(table: Table, rules: Sequence[FeatureRule], tables: FeatureSchema) -> list[str]:
    """One sentence about all missing numbers."""
    marked = [rule for rule in rules if rule.marked]
    if not marked:
        return []
    found = [f"{rule.name} {int(np.isnan(tables.values(rule, table)).sum()):,}" for rule in marked]
    return [
        f"missing among {table.rows:,} rows: {listed(found)}; every run puts the {marked[0].impute} of its "
        f"training rows there, and one more feature per column marks them"
    ]


def _features(table: Table, roles: Roles) -> tuple[str, ...]:
    """The columns to make features from."""
    taken = {roles.id, roles.label, roles.owner}
    for name in roles.leave_out:
        table.column(name, "correct --leave-out")
    names = roles.features
    if names is None:
        left_out = taken | set(roles.leave_out)
        names = tuple(name for name in table.columns if name not in left_out)
    for name, times in Counter(names).items():
        if name in taken or times > 1:
            why = "named twice" if times > 1 else "the id, label or owner"
            raise BadData(f"feature '{shown(name)}' of {table.name} is {why}; remove it from --features")
    if not names and not roles.edge_features:
        raise BadData(
            f"{table.name} has no feature columns besides {sorted(filter(None, taken))}; "
            f"add some or give --features-npz"
        )
    return names


def _chosen(table: Table, names: Sequence[str], roles: Roles, dates: frozenset[str]) -> frozenset[str]:
    chosen = roles.one_hot if isinstance(roles.one_hot, tuple) else ()
    known = set(names)
    for option, given in (("--one-hot", chosen), ("--dates", sorted(dates))):
        if unknown := [name for name in given if name not in known]:
            raise BadData(
                f"'{shown(unknown[0])}' in {option} is not a feature of {table.name}; "
                f"choose from {listed(names)}"
            )
    return frozenset(chosen)


def _dates(table: Table, names: Sequence[str], roles: Roles) -> frozenset[str]:
    if isinstance(roles.dates, tuple):
        return frozenset(roles.dates)
    if not roles.dates:
        return frozenset()
    words = UNKNOWN | frozenset(roles.missing)
    return frozenset(name for name in names if name in table.columns and is_dates(table.columns[name], words))


def _of_date(table: Table, name: str, column: Column, roles: Roles, notes: list[str]) -> list[FeatureRule]:
    found = days(table, name, column, UNKNOWN | frozenset(roles.missing))
    there = [each for each in found if each is not None]
    if not there:
        raise BadData(
            f"{table.name}: column '{shown(name)}' has no date at all; leave it out with --leave-out"
        )
    rules, gaps = list[FeatureRule](), len(there) < len(found)
    for part in roles.date_parts:
        called = f"{name} {part}"
        if part == "age":
            latest = max(there)
            day = latest if roles.day is None else given_day(roles.day)
            rules.append(FeatureRule(called, made="age", of=name, day=day.isoformat()))
            why = (
                f"the latest day of column '{shown(name)}'; --day sets another"
                if roles.day is None
                else "--day"
            )
            notes.append(f"'{shown(called)}' is in days before {day.isoformat()} ({why})")
            if gaps or roles.impute:
                rules[-1] = _with_gaps(table, rules[-1], roles, [each is None for each in found])
        else:
            values = MONTHS if part == "month" else WEEKDAYS
            missing = (NO_CATEGORY,) if gaps else ()
            rules.append(FeatureRule(called, categories=(*values, *missing), made=part, of=name))
    return rules


def _with_gaps(table: Table, rule: FeatureRule, roles: Roles, gaps: Sequence[bool]) -> FeatureRule:
    """The rule where some of its dates are missing."""
    if roles.impute is None:
        row = list(gaps).index(True)
        raise BadData(
            f"{table.place(row)}: column '{shown(rule.column)}' has no date ({sum(gaps):,} such rows); "
            f"fill gaps with --impute median (or mean), or leave the column out with --leave-out"
        )
    return replace(rule, impute=roles.impute, marked=any(gaps))


def _is_category(table: Table, name: str, column: Column, roles: Roles) -> bool:
    """Whether a column holds texts. A few texts among numbers are refused, with their lines."""
    words = UNKNOWN | frozenset(roles.missing)
    if not isinstance(column.numbers_but(words), int):
        return False
    if mostly_numbers(column, words):
        raise not_a_number(table, name, column, words)
    return True


def _categories(table: Table, name: str, column: Column, roles: Roles) -> tuple[str, ...]:
    absent = roles.absent
    seen = Counter(text for text in column.texts() if text not in absent)
    if len(seen) > MAX_CATEGORIES or len(seen) > max(20, table.rows // 2):
        words = UNKNOWN | frozenset(roles.missing)
        if is_dates(column, words):
            cure = f"as dates it becomes numbers with --dates {shown(name)}"
        elif column.odd(words) and all("," in text for _, text in column.odd(words)):
            cure = "if its commas are decimal points, add --decimal ,"
        else:
            cure = (
                f"leave it out with --leave-out {shown(name)}, or turn it into numbers first "
                f"(for example a text embedding) and give these with --features-npz"
            )
        raise BadData(
            f"{table.name}: column '{shown(name)}' has {len(seen):,} different values and looks like "
            f"text or an identifier; {cure}"
        )
    missing = (NO_CATEGORY,) if sum(seen.values()) < table.rows else ()
    return (*sorted(seen), *missing)


def _number(table: Table, name: str, column: Column, roles: Roles, notes: list[str]) -> FeatureRule:
    own = frozenset(roles.missing)
    if roles.impute is None:
        finite(table, name, column, own)
        return FeatureRule(name)
    values = finite(table, name, column, UNKNOWN | own, missing=True)
    gaps = np.isnan(values)
    if gaps.all():
        raise BadData(f"{table.name}: column '{shown(name)}' has no number; leave it out with --leave-out")
    if odd := column.odd(own):
        row, text = odd[0]
        where = f"{table.place(row)}: '{shown(text)}' in column '{shown(name)}'"
        notes.append(f"{where} counts as missing{lines(table, odd)}")
    return FeatureRule(name, impute=roles.impute, marked=bool(gaps.any()))


def _of_edges(ends: Ends, roles: Roles, notes: list[str]) -> list[FeatureRule]:
    rules = list[FeatureRule]()
    if roles.edge_features:
        chosen = roles.edge_features
        names = chosen if isinstance(chosen, tuple) else number_columns(ends, frozenset(roles.missing))
        for name in names:
            ends.table.column(name, "correct --edge-features")
            if name in ends.columns:
                raise BadData(
                    f"'{shown(name)}' in --edge-features is an end of the edges of {ends.table.name}; "
                    f"name another column"
                )
        for side in SIDES:
            rules.append(FeatureRule(f"{side} count", made=f"{side} count"))
            for name in names:
                rules += [
                    FeatureRule(
                        f"{side} {name} {what}", made=f"{side} {what}", of=name, impute=roles.impute or ""
                    )
                    for what in AMOUNTS
                ]
        used = f" and of {listed(names)} their {', '.join(AMOUNTS)}" if names else ""
        notes.append(
            f"each node has the number of edges that go out and that come in{used} as features; repeated, "
            f"dropped and other owners' edges count, too"
        )
    if ends.outside:
        rules.append(FeatureRule(OUTSIDE, made=OUTSIDE))
    return rules


def _scaled(
    schema: FeatureSchema, rule: FeatureRule, table: Table, ends: Ends | None, roles: Roles
) -> FeatureRule:
    if not roles.scale or rule.categories is not None or rule.made == OUTSIDE:
        return rule
    values = schema.values(rule, table, ends)[: table.rows]
    values = values[~np.isnan(values)]
    deviation = float(values.std())
    return replace(rule, mean=float(values.mean()), std=deviation if deviation > 0 else 1.0)
