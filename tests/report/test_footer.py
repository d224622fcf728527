"""How the runs of a page were made."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

from fedepd.report.footer import footer
from fedepd.report.runs import group, read_runs

WriteRun = Callable[..., Path]


def test_what_noise_has_spent_stands_beside_the_protocol(write_run: WriteRun) -> None:
    folder = write_run("a")
    summary = json.loads((folder / "summary.json").read_text())
    spent = {"epsilon_spent": 7.9996, "delta": 1e-5, "multiplier": 2.7, "clip": 0.3, "releases": 20}
    (folder / "summary.json").write_text(json.dumps({**summary, "privacy": spent}))
    text = unescape(footer(group(read_runs(folder))))
    assert "; spent: epsilon 8.00 at delta 1e-05 in 20 sums" in text
