"""What class numbers and feature columns mean. Two sides are compared, and differences are told in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedepd.datasets.tables import FeatureRule, FeatureSchema, Roles
from fedepd.errors import BadData
from fedepd.files import parse_json
from fedepd.shown import shown
from fedepd.types import Graph

MAX_CLASSES, MAX_NAME = 100_000, 200
WEIGHING = ("edge_weight", "edge_weight_as")
"""What a schema remembers of its tables that sites must agree on."""
MORE = 2
"""Number of differences named after the first one. The remaining ones are only counted."""


class Agreement(NamedTuple):
    """One side's class names and the way it made its features.

    An empty field is unknown and is not compared.
    """

    label_names: tuple[str, ...] = ()
    schema: str = ""
    """The ``FeatureSchema`` as JSON, exactly as ``canonical`` writes it."""
    weighted: bool = False
    """Whether edges have weights. This is always compared."""


NOTHING_AGREED = Agreement()


def agreement_of(graph: Graph) -> Agreement:
    return Agreement(tuple(graph.label_names), canonical(graph.schema), graph.edge_weight is not None)


def canonical(schema: str) -> str:
    """The schema in one fixed form, so that equal columns always give equal text.

    Of how tables were read, only what edges weigh belongs to it. The rest may differ from site to site.
    """
    if not schema:
        return ""
    read = _read(schema)
    return FeatureSchema(read.rules, Roles(**weighing(read))).to_json()


def weighing(schema: FeatureSchema) -> dict[str, Any]:
    """Which column edges count by, and how. Empty if nobody has said."""
    tables = schema.tables or Roles()
    return {name: getattr(tables, name) for name in WEIGHING} if tables.edge_weight else {}


def _read(schema: str) -> FeatureSchema:
    if not isinstance(parse_json(schema, "the feature schema"), list):  # parse_json also limits the depth
        raise BadData("the feature schema is not a list of columns; import the tables again")
    try:
        return FeatureSchema.from_json(schema)
    except (OverflowError, AttributeError) as cause:
        raise BadData(
            f"the feature schema is damaged ({type(cause).__name__}); import the tables again"
        ) from cause


def schema_sha256(schema: str) -> str:
    return hashlib.sha256(canonical(schema).encode()).hexdigest() if schema else ""


def check_label_names(names: Sequence[object], where: str) -> tuple[str, ...]:
    """Class names that sites can agree on: distinct, of a sane length and without control characters."""
    if len(names) > MAX_CLASSES:
        raise BadData(f"{where} names {len(names):,} classes; at most {MAX_CLASSES:,} can be used")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or shown(name, MAX_NAME) != name:
            raise BadData(
                f"{where} has the class name '{shown(name)}'; give 1 to {MAX_NAME} printable characters"
            )
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise BadData(f"{where} has the class name '{shown(name)}' twice; give every class its own name")
        seen.add(name)
    return tuple(str(name) for name in names)


def check_agrees(graph: Graph, path: str | Path, agreed: Agreement) -> None:
    """Refuse a file whose classes, columns or weights of edges differ in meaning from the federation's."""
    mine, file = agreement_of(graph), f"file '{shown(path, 300)}'"
    if mine.weighted and not agreed.weighted:
        raise BadData(
            f"{file} has weights of edges, on which this federation has not agreed; import it without "
            "--edge-weight, or ask for kits whose plan has weights ([edges]) or whose --example has them"
        )
    if agreed.weighted and not mine.weighted:
        raise BadData(
            f"{file} has no weights of edges, but the federation's edges have some; import the tables by the "
            "federation's plan, or with the --edge-weight of its example"
        )
    if said := differences(mine, agreed):
        raise BadData(f"{file} {said}")


def hashed_names(names: Sequence[str], run: str) -> tuple[str, ...]:
    """A hash of each class name, so that sites are compared without saying what their classes are called.

    Whoever guesses a name can check the guess. The hash of a name differs from run to run and from class to
    class.
    """
    texts = (json.dumps([run, number, name]).encode() for number, name in enumerate(names))
    return tuple(hashlib.sha256(text).hexdigest() for text in texts)


def differences(mine: Agreement, theirs: Agreement) -> str | None:
    """How ``mine`` differs from ``theirs``, which the federation agreed on; None if they agree.

    The text continues a sentence that begins with the name of a file or site. ``mine`` may have fewer classes
    if they are the federation's first ones, because their numbers then mean the same.
    """
    return _class_differences(mine.label_names, theirs.label_names) or _schema_differences(
        mine.schema, theirs.schema
    )


def _class_differences(mine: Sequence[str], theirs: Sequence[str]) -> str | None:
    cure = "import it with the federation's class names"
    if not theirs:
        return None
    if not mine:
        return f"has no class names, but the federation calls class 0 '{shown(theirs[0])}'; {cure}"
    wrong = [c for c, name in enumerate(mine) if c >= len(theirs) or name != theirs[c]]
    if not wrong:
        return None
    said = [_class_difference(c, mine, theirs) for c in wrong[: 1 + MORE]]
    return "; ".join([*said, *_rest(wrong), cure])


def _class_difference(c: int, mine: Sequence[str], theirs: Sequence[str]) -> str:
    if c >= len(theirs):
        return f"has class {c} '{shown(mine[c])}', but the federation has only {len(theirs)} classes"
    return f"calls class {c} '{shown(mine[c])}', but the federation calls it '{shown(theirs[c])}'"


def _rest(wrong: Sequence[object]) -> list[str]:
    return [f"{len(wrong) - 1 - MORE} more differ"] if len(wrong) > 1 + MORE else []


def _schema_differences(mine: str, theirs: str) -> str | None:
    cure = "import it with the federation's schema"
    if not theirs:
        return None
    if not mine:
        count = len(_read(theirs).rules)
        return (
            f"does not say how its features were made, but the federation agreed on {count} columns; {cure}"
        )
    here, there = _read(mine), _read(theirs)
    own, agreed = here.rules, there.rules
    said = [_rule_difference(c, a, b) for c, (a, b) in enumerate(zip(own, agreed, strict=False), 1) if a != b]
    if len(own) != len(agreed):
        said.append(f"has {len(own)} columns, but the federation has {len(agreed)}")
    if weighing(here) != weighing(there):
        own_way, agreed_way = weighing_in_words(here), weighing_in_words(there)
        said.append(f"weighs edges by {own_way}, but the federation by {agreed_way}")
    return "; ".join([*said[: 1 + MORE], *_rest(said), cure]) if said else None


def _rule_difference(number: int, mine: FeatureRule, theirs: FeatureRule) -> str:
    if mine.name != theirs.name:
        return (
            f"has column {number} '{shown(mine.name)}', but the federation has '{shown(theirs.name)}' there"
        )
    column = f"column '{shown(mine.name)}'"
    if mine.categories is None and theirs.categories is not None:
        return f"has numbers in {column}, but the federation has categories"
    if mine.categories is not None and theirs.categories is None:
        return f"has categories in {column}, but the federation has numbers"
    if mine.categories is not None and theirs.categories is not None:
        own, agreed = _some(mine.categories), _some(theirs.categories)
        return f"has the categories {own} in {column}, but the federation has {agreed}"
    own, agreed = _scaling(mine), _scaling(theirs)
    return f"scales {column} by {own}, but the federation by {agreed}"


def weighing_in_words(schema: FeatureSchema) -> str:
    """What an edge counts by: ``log(1 + amount)``, ``amount``, or nothing that is known."""
    tables = schema.tables or Roles()
    if tables.edge_weight is None:
        return "what nobody has said"
    name = shown(tables.edge_weight)
    return f"log(1 + {name})" if tables.edge_weight_as == "log1p" else name


def _scaling(rule: FeatureRule) -> str:
    return f"mean {rule.mean:g} and deviation {rule.std:g}"


def _some(categories: tuple[str, ...]) -> str:
    """The first few categories and, if there are more, how many there are in all."""
    first = ", ".join(shown(each, 20) for each in categories[:4])
    return f"{first}, ... ({len(categories)})" if len(categories) > 4 else first
