"""What class numbers and feature columns mean: read from files, compared in one place, the differences said in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadData
from fedepd.files import parse_json
from fedepd.shown import shown
from fedepd.types import Graph

MAX_CLASSES, MAX_NAME = 100_000, 200
MORE = 2
"""Differences named after the first; the rest is counted."""


class Agreement(NamedTuple):
    """What one side calls the classes, and how it made its features; what is empty is not known and not compared."""

    label_names: tuple[str, ...] = ()
    schema: str = ""
    """``FeatureSchema`` as JSON, in the form that ``to_json`` writes."""


NOTHING_AGREED = Agreement()


def agreement_of(graph: Graph) -> Agreement:
    return Agreement(tuple(graph.label_names), canonical(graph.schema))


def canonical(schema: str) -> str:
    """The same columns always give the same text."""
    return FeatureSchema(_rules(schema)).to_json() if schema else ""


def _rules(schema: str) -> tuple[FeatureRule, ...]:
    if not isinstance(parse_json(schema, "the feature schema"), list):  # bounds its depth, too
        raise BadData("the feature schema is not a list of columns; import the tables again")
    try:
        return FeatureSchema.from_json(schema).rules
    except (OverflowError, AttributeError) as cause:
        raise BadData(
            f"the feature schema is damaged ({type(cause).__name__}); import the tables again"
        ) from cause


def schema_sha256(schema: str) -> str:
    return hashlib.sha256(canonical(schema).encode()).hexdigest() if schema else ""


def check_label_names(names: Sequence[object], where: str) -> tuple[str, ...]:
    """Class names as they may be agreed on: texts, each once, of a sane length, without control characters."""
    if len(names) > MAX_CLASSES:
        raise BadData(f"{where} names {len(names):,} classes; at most {MAX_CLASSES:,} can be used")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or shown(name, MAX_NAME) != name:
            raise BadData(
                f"{where} has the class name '{shown(name)}'; give 1 to {MAX_NAME} characters that can be shown"
            )
    if len(set(names)) != len(names):
        seen: set[object] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadData(f"{where} has the class name '{shown(twice)}' twice; give every class its own name")
    return tuple(str(name) for name in names)


def check_agrees(graph: Graph, path: str | Path, agreed: Agreement) -> None:
    """Refuse a file whose classes or columns mean something else than the federation's."""
    if said := differences(agreement_of(graph), agreed):
        raise BadData(f"file '{shown(path, 300)}' {said}")


def differences(mine: tuple[Sequence[str], str], theirs: tuple[Sequence[str], str]) -> str | None:
    """How ``mine`` differs from ``theirs``, the federation's, to be read after the name of a file or site; None if it does not.

    Mine may know fewer classes, if they are the federation's first ones: their numbers then mean the same.
    """
    (names, schema), (agreed, columns) = mine, theirs
    return _class_differences(names, agreed) or _schema_differences(schema, columns)


def _class_differences(mine: Sequence[str], theirs: Sequence[str]) -> str | None:
    cure = "import it with the federation's class names"
    if not theirs:
        return None
    if not mine:
        return f"has no class names, the federation calls class 0 '{shown(theirs[0])}'; {cure}"
    wrong = [c for c, name in enumerate(mine) if c >= len(theirs) or name != theirs[c]]
    if not wrong:
        return None
    said = [_class_difference(c, mine, theirs) for c in wrong[: 1 + MORE]]
    return "; ".join([*said, *_rest(wrong), cure])


def _class_difference(c: int, mine: Sequence[str], theirs: Sequence[str]) -> str:
    if c >= len(theirs):
        return f"has class {c} '{shown(mine[c])}', the federation has only {len(theirs)} classes"
    return f"calls class {c} '{shown(mine[c])}', the federation calls it '{shown(theirs[c])}'"


def _rest(wrong: Sequence[object]) -> list[str]:
    return [f"{len(wrong) - 1 - MORE} more differ"] if len(wrong) > 1 + MORE else []


def _schema_differences(mine: str, theirs: str) -> str | None:
    cure = "import it with the federation's schema"
    if not theirs:
        return None
    if not mine:
        return f"does not say how its features were made, the federation has {len(_rules(theirs))} columns; {cure}"
    own, agreed = _rules(mine), _rules(theirs)
    said = [_rule_difference(c, a, b) for c, (a, b) in enumerate(zip(own, agreed, strict=False), 1) if a != b]
    if len(own) != len(agreed):
        said.append(f"has {len(own)} columns, the federation {len(agreed)}")
    return "; ".join([*said[: 1 + MORE], *_rest(said), cure]) if said else None


def _rule_difference(number: int, mine: FeatureRule, theirs: FeatureRule) -> str:
    if mine.name != theirs.name:
        return f"has column {number} '{shown(mine.name)}', the federation has '{shown(theirs.name)}' there"
    column = f"column '{shown(mine.name)}'"
    if (mine.categories is None) != (theirs.categories is None):
        kinds = {True: "numbers", False: "categories"}
        return f"has {kinds[mine.categories is None]} in {column}, the federation has {kinds[theirs.categories is None]}"
    if mine.categories is not None and theirs.categories is not None:
        return f"has the categories {_some(mine.categories)} in {column}, the federation has {_some(theirs.categories)}"
    return f"scales {column} by mean {mine.mean:g} and deviation {mine.std:g}, the federation by {theirs.mean:g} and {theirs.std:g}"


def _some(categories: tuple[str, ...]) -> str:
    return ", ".join(shown(each, 20) for each in categories[:4]) + (
        f", ... ({len(categories)})" if len(categories) > 4 else ""
    )
