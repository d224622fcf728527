"""Kept scores: a text file with the numbers of finished cells, one cell per line.

It outlives the run folders, which are large. So a study can be published, and go on on another machine.

A line is a table from column to text, checked when it is read and otherwise left as it is. So a file that is
read and written again has the same bytes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from fedepd.errors import BadData
from fedepd.files import read_bytes, write_text
from fedepd.folders import Busy, claimed
from fedepd.metrics import METRICS
from fedepd.runs.folder import MODELS
from fedepd.shown import shown

FORMAT = 1
"""Of the file. Another one is refused."""
MAX_BYTES = 32 * 2**20
MAX_CELLS = 50_000
MAX_LINE = 4000
"""Most characters of a line. Ours have about 600."""
PATIENCE = 60.0
"""Seconds to wait for another program that writes the file."""
CURE = "restore the file, or keep the scores in another one"
OTHER = "other."
"""How the names of the columns begin that are about the rounds which the other score selects."""
AVERAGES = ("pooled", "client_mean")
EXACT = ("bacc", "macro_f1")
"""Metrics that are kept to the last bit, because tests look for ties.

So is accuracy, as a number of nodes that are right. No test uses the accuracy of a tier.
"""
TIER_DIGITS = 7
"""Digits after the point of a tier's accuracy. Tables print four."""
MEANS = tuple(name for name in METRICS if name != "acc")
"""Metrics with a column of their own in every average. Accuracy is the same in both averages."""
BLOCKS = {
    prefix + model: AVERAGES[:1] if model == "adapted" else AVERAGES
    for prefix, models in (("", MODELS), (OTHER, MODELS[:2]))
    for model in models
}
"""The models that may be scored, under both selections, with their averages."""

Line = Mapping[str, str]
"""Column -> text. Empty where there is nothing."""


class Kind(NamedTuple):
    """What a column may hold."""

    words: str
    fits: re.Pattern[str]
    optional: bool = False


_HASH = Kind("12 hexadecimal digits", re.compile("[0-9a-f]{12}"))
_NAME = Kind("a name", re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"))
_COUNT = Kind("a whole number", re.compile("0|[1-9][0-9]{0,17}"))
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,6})?")
_ROUND = Kind("the number of a round", re.compile("[1-9][0-9]{0,8}"), True)
SHARE = Kind("a share from 0 to 1, or nan", re.compile(r"0|1|nan|\.[0-9]{1,40}"), True)
RIGHT = Kind("a whole number", _COUNT.fits, True)

COSTS = ("seconds", "cpu_seconds", "peak_rss_mb", "bytes_up", "bytes_down")
COLUMNS: dict[str, Kind] = {
    "cell": _HASH,
    **dict.fromkeys(("method", "preset", "dataset"), _NAME),
    **dict.fromkeys(("seed", "clients", "tested"), _COUNT),
    **dict.fromkeys(COSTS[:3], Kind("a number with at most six digits after the point", _NUMBER, True)),
    **dict.fromkeys(COSTS[3:], RIGHT),
    "weights_sha256": Kind("16 hexadecimal digits", re.compile("[0-9a-f]{16}"), True),
    "adapted_used": Kind("yes or no", re.compile("yes|no"), True),
    "preferred": Kind(f"one of {', '.join(MODELS)}", re.compile("|".join(MODELS))),
}
"""All columns in their order. ``tested``: how many test nodes were scored."""
for _block, _averages in BLOCKS.items():
    COLUMNS |= {f"{_block}.round": _ROUND, f"{_block}.right": RIGHT}
    COLUMNS |= {f"{_block}.{average}.{metric}": SHARE for average in _averages for metric in MEANS}

_HEADER = re.compile(r"# fedepd scores, format ([0-9]{1,4}), of fedepd ([0-9A-Za-z.+!-]{1,40})")


def this_version() -> str:
    return version("fedepd")


def column(block: str, average: str, metric: str) -> str:
    return f"{block}.{average}.{metric}"


def read_scores(path: Path) -> dict[str, Line]:
    """The lines of a file, by cell. Empty if there is no file.

    Raises:
        BadData: It is no such file, a line is damaged, or the scores are of another version of the package.
    """
    if not path.exists():
        return {}
    where = f"'{shown(path, 300)}'"
    try:
        text = read_bytes(path, MAX_BYTES, CURE).decode("ascii")
    except UnicodeDecodeError as cause:
        number = cause.object.count(b"\n", 0, cause.start) + 1
        raise BadData(f"line {number} of {where} holds bytes that are no plain text; {CURE}") from None
    rows = text.removesuffix("\n").split("\n", MAX_CELLS + 2)
    _check_header(rows[0], where)
    if rows[1:2] != [",".join(COLUMNS)]:
        raise BadData(f"line 2 of {where} does not name the columns of kept scores; {CURE}")
    if len(rows) > MAX_CELLS + 2:
        raise BadData(f"{where} has more than {MAX_CELLS:,} cells; {CURE}")
    found: dict[str, Line] = {}
    for number, row in enumerate(rows[2:], start=3):
        line = _line(row, f"line {number} of {where}")
        if line["cell"] in found:
            raise BadData(
                f"line {number} of {where} has the cell {line['cell']} again; remove one of the two"
            )
        found[line["cell"]] = line
    return found


def _check_header(header: str, where: str) -> None:
    found = _HEADER.fullmatch(header)
    if found is None:
        raise BadData(f"{where} does not begin as a file of kept scores; give another --scores")
    if int(found[1]) != FORMAT:
        raise BadData(
            f"{where} has format {int(found[1])}, and this version of fedepd reads format {FORMAT}; "
            "give another --scores"
        )
    if found[2] != this_version():
        raise BadData(
            f"{where} has scores of fedepd {found[2]}, and this is fedepd {this_version()}, whose numbers "
            "may differ; give another --scores, and the cells are run again"
        )


def _line(row: str, where: str) -> Line:
    """One line, whose every text is of its column's kind."""
    if len(row) > MAX_LINE:
        raise BadData(f"{where} has more than {MAX_LINE:,} characters; {CURE}")
    parts = row.split(",")
    if len(parts) != len(COLUMNS):
        raise BadData(f"{where} has {len(parts)} columns, not {len(COLUMNS)}; {CURE}")
    line = dict(zip(COLUMNS, parts, strict=True))
    for (name, text), kind in zip(line.items(), COLUMNS.values(), strict=True):
        if not (kind.fits.fullmatch(text) or (kind.optional and not text)):
            raise BadData(f"{where}: '{name}' is '{shown(text, 40)}', not {kind.words}; {CURE}")
    _check_blocks(line, where)
    return line


def _check_blocks(line: Line, where: str) -> None:
    """Refuse a model that has some of its scores only, or more right nodes than were tested."""
    scored = scored_blocks(line)
    for block, averages in BLOCKS.items():
        right = f"{block}.right"
        needed = [f"{block}.round", right, *(column(block, averages[0], name) for name in MEANS)]
        others = [column(block, average, name) for average in averages[1:] for name in MEANS]
        if source(line, block) != block:
            if given := [name for name in (*needed[1:], *others) if line[name]]:
                raise BadData(f"{where} has '{given[0]}' beside the same round of both selections; {CURE}")
            continue
        for names in (needed, others):
            given = [name for name in names if line[name]]
            if given and (len(given) < len(names) or block not in scored):
                gap = next(name for name in (*needed, *names) if not line[name])
                raise BadData(f"{where} has '{given[0]}' but no '{gap}'; {CURE}")
        if line[right] and int(line[right]) > int(line["tested"]):
            raise BadData(f"{where}: '{right}' is more than the tested nodes; {CURE}")
    if line["preferred"] not in scored:
        raise BadData(f"{where} prefers '{line['preferred']}', of which it has no scores; {CURE}")
    if ("adapted" in scored) != bool(line["adapted_used"]):
        raise BadData(f"{where} says one thing in 'adapted_used' and another in 'adapted.round'; {CURE}")


def source(line: Line, block: str) -> str:
    """Where the scores of a block are. They are said once if both selections have selected one round."""
    own = block.removeprefix(OTHER)
    return own if line[f"{block}.round"] and line[f"{block}.round"] == line[f"{own}.round"] else block


def scored_blocks(line: Line) -> list[str]:
    """The models that a line has scores of, under both selections."""
    return [block for block in BLOCKS if line[f"{block}.round"]]


def as_text(lines: Mapping[str, Line]) -> str:
    """The whole file. It does not depend on the order of the lines."""
    head = [f"# fedepd scores, format {FORMAT}, of fedepd {this_version()}", ",".join(COLUMNS)]
    rows = sorted(lines.values(), key=_place)
    return "".join(f"{row}\n" for row in (*head, *(",".join(row[name] for name in COLUMNS) for row in rows)))


def _place(line: Line) -> tuple[object, ...]:
    """Graph by graph and row by row, so that a person finds a line."""
    return line["dataset"], line["method"], line["preset"], int(line["seed"]), line["cell"]


def add_lines(path: Path, lines: Mapping[str, Line]) -> dict[str, Line]:
    """Add lines of cells that the file does not have yet, and make it if there is none. Gives all lines.

    The file is read again under a lock, so that two programs lose nothing of each other. A line that is there
    stays as it is.
    """
    with _alone(path):
        known = read_scores(path)
        for cell, line in lines.items():
            if cell not in known:
                known[cell] = _line(",".join(line[name] for name in COLUMNS), f"the cell {cell}")
        text = as_text(known)
        if not path.exists() or read_bytes(path, MAX_BYTES, CURE) != text.encode():
            write_text(path, text)
    return known


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other program writes the file meanwhile. One that does is waited for."""
    lock, until = path.with_name(f"{path.name}.lock"), time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(claimed(lock))
                break
            except Busy:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield
