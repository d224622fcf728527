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
    assert "toy, FedEPD, seed 0, spent: epsilon 8.00 at delta 1e-05 in 20 sums" in text


def test_a_protocol_is_said_once(write_run: WriteRun) -> None:
    """Two methods over two seeds. The second differs in the number of clients."""
    for seed in range(2):
        write_run(f"avg{seed}", method="fedavg", label="FedAvg", seed=seed)
        folder = write_run(f"epd{seed}", clients=3, seed=seed)
    text = unescape(footer(group(read_runs(folder.parent))))
    assert text.count("selection by best pooled validation macro-F1 every 5 rounds") == 2
    assert text.count("clients (openfgl)") == 2
    assert "<p>toy: 4 clients (openfgl)" in text
    assert " FedEPD: 3 clients (openfgl)" in text
