"""Shapes of JSON files: the types and ranges that a file must have, checked before it is used.

``runs.folder`` gives the shapes of the files in run folders.

A shape is one of four things:

- a ``Kind``: a type with its range;
- a dict of shapes by key, where a key "name?" may be missing and ``EVERY`` stands for all other keys;
- a list of one shape: a list whose entries all have it;
- a tuple of one shape: a value that has it, or null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fedepd.errors import BadData
from fedepd.shown import shown

EVERY = "*"
Table = dict[str, Any]
"""A shape for each key."""
DAMAGED = "the folder is damaged, so remove it and run it again"
EXPORT_AGAIN = "the model folder is damaged, so export the run again"
SPLIT_AGAIN = "remove the folder and split the graph again"


class Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def whole(least: int = 0, most: int = 2**63 - 1) -> Kind:
    words = f"a whole number of at least {least}"
    if most < 2**63 - 1:
        words = f"a whole number from {least} to {most}"
    return Kind(
        words,
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def number(least: float = -1e300, most: float = 1e300) -> Kind:
    """A finite number in a range."""
    bounded = f" from {least:g} to {most:g}" if (least, most) != (-1e300, 1e300) else ""
    return Kind(
        f"a finite number{bounded}",
        lambda value: (
            isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
        ),
    )


TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TABLE = Kind("a table", lambda value: isinstance(value, dict))
LEAF = Kind("a text or a number", lambda value: value is None or isinstance(value, str | int | float))
SCORE = Kind("a number, or NaN", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
WHOLE, NUMBER, SHARE = whole(), number(), number(0, 1)
SHA256 = Kind("a sha256", lambda value: isinstance(value, str) and len(value) == 64)


def expect(content: Any, shape: Any, where: str, cure: str = DAMAGED) -> None:
    """Refuse ``content`` that does not have a shape.

    The error reads "'x/summary.json': 'metrics' is a list, not a table; ...".
    """
    found = _problem(content, shape)
    if found is not None:
        path, what = found
        place = f": '{shown('.'.join(path))}'" if path else ""
        raise BadData(f"{where}{place} {what}; {cure}")


def _problem(content: Any, shape: Any) -> tuple[list[str], str] | None:
    """The path to the first part that is wrong, and what is wrong with it; None if all is right.

    The path is built only for a wrong part, because nearly all files are right.
    """
    if isinstance(shape, Kind):
        return None if shape.fits(content) else ([], f"is {_spelled(content)}, not {shape.words}")
    if isinstance(shape, tuple):
        return None if content is None else _problem(content, shape[0])
    if isinstance(shape, list):
        if not isinstance(content, list):
            return [], f"is {_spelled(content)}, not a list"
        if isinstance(shape[0], Kind) and all(map(shape[0].fits, content)):  # frequent, too
            return None
        for place, each in enumerate(content):
            if found := _problem(each, shape[0]):
                return _below(str(place), found)
        return None
    if not isinstance(content, dict):
        return [], f"is {_spelled(content)}, not a table"
    return _problem_in_table(content, shape)


def _problem_in_table(content: dict[str, Any], shape: dict[str, Any]) -> tuple[list[str], str] | None:
    for key, inner in shape.items():
        known = key[:-1] if key[-1] == "?" else key
        if known in content:
            value = content[known]
            plain = inner[0] if isinstance(inner, tuple) and value is not None else inner
            if isinstance(plain, Kind) and plain.fits(value):  # the most frequent case; saves calls
                continue
            if found := _problem(value, inner):
                return _below(known, found)
        elif key == EVERY:
            for other, value in content.items():
                if other not in shape and f"{other}?" not in shape and (found := _problem(value, inner)):
                    return _below(other, found)
        elif known == key:
            return [], f"has no '{known}'"
    return None


def _below(name: str, found: tuple[list[str], str]) -> tuple[list[str], str]:
    return [name, *found[0]], found[1]


def _spelled(content: Any) -> str:
    if isinstance(content, dict | list):
        return "a table" if isinstance(content, dict) else "a list"
    if isinstance(content, str):
        return f"the text '{shown(content, 40)}'"
    if content is None or isinstance(content, bool):
        return {None: "null", True: "true", False: "false"}[content]
    if isinstance(content, float):
        return f"{content:g}"
    if not isinstance(content, int):  # TOML has dates and times
        return f"a {type(content).__name__}"
    return "a number of many digits" if abs(content) >= 2**63 else str(content)


# --- what run folders and model folders share ---------------------------------------------------------------

TIERS = ("head", "medium", "tail")
CLASSES_OF_TIERS: Table = {tier: [WHOLE] for tier in TIERS}
ROUND_NUMBER = whole(1)
EXPERIMENT: Table = {"method": TABLE, EVERY: TABLE}
TEMPERATURE = number(1e-3, 1e3)
"""The fit tries 0.05 to 20. With 0, NaN or infinity there are no probabilities."""
TEMPERATURES: Table = dict.fromkeys(TIERS, TEMPERATURE)

# --- the model folder ---------------------------------------------------------------------------------------

MODEL_FOLDER = {
    "config": "config.json",
    "weights": "model.safetensors",
    "labels": "labels.json",
    "schema": "schema.json",
}
"""The files that a model is made of. The others tell about it."""

KINDS_OF_MODELS = ("global", "personal", "adapted")
"""The model of all clients, a client's own one, and the global one after further training at a client."""

OPERATING: Table = {
    "usual": WHOLE,
    "rules": [{"classes": [WHOLE], "threshold": NUMBER, "chance?": {"slope": NUMBER, "intercept": NUMBER}}],
    "costs?": [[number(0, 1e12)]],
    "shifts?": [number(-1e6, 1e6)],
    "alerted?": {"share": number(0, 1), "nodes": whole(1)},
}
"""How a model's probabilities become decisions (``model.operating``)."""

MODEL_CONFIG: Table = {
    "weights_sha256": SHA256,
    "data_sha256?": [SHA256],
    "experiment": EXPERIMENT,
    "info": {
        "num_features": whole(1),
        "num_classes": whole(1),
        "num_clients": whole(1),
        "weighting": Kind("'nodes' or 'train'", lambda value: value in ("nodes", "train")),
    },
    "tiers": CLASSES_OF_TIERS,
    "temperatures": TEMPERATURES,
    "operating?": OPERATING,
    "distilled?": FLAG,
    "edge_weights?": FLAG,
    "client?": TEXT,
    "kind?": Kind("'global', 'personal' or 'adapted'", lambda value: value in KINDS_OF_MODELS),
}
LABELS_FIELDS: Table = {"labels": [TEXT]}
SCHEMA_FIELDS: Table = {
    "features?": WHOLE,
    "columns?": ([{"name": TEXT, "mean?": NUMBER, "std?": number(1e-300), "categories": ([TEXT],)}],),
    "tables?": {
        **dict.fromkeys(("decimal?", "unknown_ends?", "edge_weight?", "edge_weight_as?"), TEXT),
        "missing?": [TEXT],
    },
    "roles?": {EVERY: TEXT},
}

MANIFEST: Table = {"complete": FLAG, "files": {EVERY: {"bytes": WHOLE, "sha256": SHA256}}}
