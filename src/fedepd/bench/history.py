"""Figures of the benchmark per commit, and what changed beyond noise.

``history.jsonl`` has one line per run of ``fedepd bench --history``. Only runs on the same machine with the
same number of rounds are compared.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedepd.files import append_line, read_lines, without_halves
from fedepd.network import kernels
from fedepd.shapes import TEXT, Table, expect, number, whole

FILE = "history.jsonl"
CURE = "correct it, or move it away to begin a new history"
RECORD: Table = {
    "commit": TEXT,
    "when": TEXT,
    "machine": TEXT,
    "rounds": whole(1),
    "rows": [{"data": TEXT, "method": TEXT, "round": number(0), "rss_mb": number(0), "ratio?": number(0)}],
}
FEW = 3
"""With fewer earlier runs nothing is known about how much they differ."""
UNKNOWN_NOISE = 0.3
"""What runs of the same code differ by on the machine of docs/speed.md."""
LEAST_NOISE = 0.1
FIGURES = {"cost": "round", "rss_mb": "memory"}
"""Figure -> what it is called. The cost is that of a round, in rounds of the reference if it was measured."""

Record = dict[str, Any]
Key = tuple[str, str]


def machine() -> str:
    """What figures depend on beside the code: the processor, the number of cores, and our kernels."""
    return f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores, {kernels.name()} kernels"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def commit() -> str:
    """The commit of this source, with "+" behind it if files were changed since; else the version."""
    here = Path(__file__).resolve().parent
    try:
        # A repository that merely holds the environment is not ours.
        if _git(here, "ls-files", Path(__file__).name):
            changed = _git(here, "diff", "--name-only", "HEAD")
            return _git(here, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        pass
    return f"version {version('fedepd')}"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def record_of(rows: Sequence[Mapping[str, Any]], rounds: int) -> Record:
    """What is kept of a benchmark's rows. A failed measurement has no figures, so it is left out."""
    kept = [
        {
            name: row[name]
            for name in ("data", "method", "round", "rss_mb", "ratio")
            if name in row and not (isinstance(row[name], float) and math.isnan(row[name]))
        }
        for row in rows
        if "round" in row
    ]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"commit": commit(), "when": now, "machine": machine(), "rounds": rounds, "rows": kept}


def read_history(folder: Path) -> list[Record]:
    """The runs so far, the oldest first; none where there is no history yet."""
    path = folder / FILE
    if not os.path.lexists(path):
        return []
    lines = read_lines(path, cure=CURE)
    expect(lines, [RECORD], f"'{path.name}'", CURE)
    return [without_halves(line) for line in lines]


def keep(folder: Path, record: Record) -> None:
    append_line(folder / FILE, record)


def alike(earlier: Sequence[Record], now: Record) -> list[Record]:
    """The runs that can be compared with this one."""
    return [each for each in earlier if (each["machine"], each["rounds"]) == (now["machine"], now["rounds"])]


def changes(earlier: Sequence[Record], now: Record) -> list[str]:
    """A sentence for each figure that differs from the earlier ones by more than noise.

    Choice: a figure is compared with the median of the earlier runs. Noise is the largest difference of
    one of them from that median, but at least a tenth; with fewer than three of them it is 30 %, what runs
    on a busy machine of ours differ by. A round is counted in rounds of the reference in the same run,
    because a busy machine slows both.
    """
    out = []
    for figure, name in FIGURES.items():
        before: dict[Key, list[float]] = {}
        for record in alike(earlier, now):
            for key, value in _figures(record, figure).items():
                before.setdefault(key, []).append(value)
        for key, value in _figures(now, figure).items():
            if text := _change(before.get(key, []), value):
                out.append(f"{key[1]} on {key[0]}: {name} {text}")
    return out


def _figures(record: Record, figure: str) -> dict[Key, float]:
    """One figure of every row, where it is above 0."""
    found = {}
    for row in record["rows"]:
        value, method = row["round" if figure == "cost" else figure], row["method"]
        if figure == "cost" and row.get("ratio"):
            value = 1 / row["ratio"]  # the ratio is the reference's time over the method's
        elif figure == "cost":
            method += ", in seconds"
        if value > 0:
            found[row["data"], method] = float(value)
    return found


def _change(before: Sequence[float], now: float) -> str:
    """What changed, and by how much noise it was measured; empty where nothing did or is known."""
    if not before:
        return ""
    usual = statistics.median(before)
    noise = UNKNOWN_NOISE
    if len(before) >= FEW:
        noise = max(LEAST_NOISE, *(abs(math.log(each / usual)) for each in before))
    if abs(math.log(now / usual)) <= noise:
        return ""
    runs = "1 run" if len(before) == 1 else f"{len(before)} runs"
    return f"is {now / usual:.2f} times that of {runs} before (noise {noise:.0%})"
