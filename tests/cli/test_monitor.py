"""fedepd monitor: exit codes, the page and the file that grows."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets import write_npz


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    graph = fedepd.load("synthetic")
    write_npz(graph, folder / "old.npz")
    x = graph.x.to_dense().clone()
    x[:, 5] += 4 * x[:, 5].std()
    write_npz(replace(graph, x=x), folder / "moved.npz")
    fedepd.run(folder / "old.npz", "fedavg", rounds=2, clients=2, hidden=8, out=folder / "run")
    fedepd.export(folder / "run", folder / "model")
    lines = [f"{i},{int(c)}" for i, c in enumerate(graph.y.tolist()[:200])]
    (folder / "later.csv").write_text("\n".join(["id,label", *lines]) + "\n")
    return folder


def test_a_quiet_month_and_a_drifted_one(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = str(made / "model"), ["-o", str(tmp_path / "mon")]
    wide = ["--limits", "ece=0.9"]
    labels = ["--labels", str(made / "later.csv")]
    assert main(["monitor", model, "--data", str(made / "old.npz"), *out, *labels, *wide]) == 0
    assert "no limit is passed" in capsys.readouterr().out
    assert main(["monitor", model, "--data", str(made / "moved.npz"), *out, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "feature 5" in found["passed"]
    lines = [json.loads(text) for text in (tmp_path / "mon" / "monitor.jsonl").read_text().splitlines()]
    assert [each["when"] for each in lines] == ["old", "moved"]
    assert lines[0]["labelled"]["nodes"] == 200
    assert 'data-name="trends"' in (tmp_path / "mon" / "monitor.html").read_text()
    assert main(["monitor", model, "--data", str(made / "old.npz"), *out]) == 2
    assert "has 'old' already" in capsys.readouterr().err


def test_the_pages_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/over-time.md, from top to bottom, on small tables. Only the drift of a month may have a limit
    passed."""
    page = (Path(__file__).parents[2] / "docs" / "over-time.md").read_text().replace("\\\n", "")
    commands = [line.removeprefix("$ fedepd ") for line in page.splitlines() if line.startswith("$ fedepd ")]
    assert len(commands) == 9
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for name, first, count in (("nodes", 0, 150), ("new", 150, 40)):
        header = "account,fraud,branch,age,segment" if name == "nodes" else "account,age,segment"
        lines = [header]
        for i in range(first, first + count):
            fraud = "mule" if i % 5 == 0 else "clean"
            known = f"{fraud},{('north', 'west')[i % 2]}," if name == "nodes" else ""
            age = draws.normal(40, 5) + 15 * (fraud == "mule")
            lines.append(f"A{i:04d},{known}{age:.1f},{('retail', 'sme')[i % 2]}")
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    for name, first, count in (("edges", 0, 450), ("new_edges", 150, 120)):
        starts = draws.integers(first, first + count // 3, count)
        ends = draws.integers(0, 150, count)
        pairs = [f"A{a:04d},A{b:04d}" for a, b in zip(starts, ends, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    for command in commands:
        assert main(shlex.split(command)) in ((0, 1) if command.startswith("monitor") else (0,)), command
    assert len(Path("new-predictions.csv").read_text().splitlines()) == 41
    assert Path("why.html").read_text().count('data-name="why"') == 5


def test_a_model_without_a_reference_needs_one(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in (made / "model").iterdir():
        if file.name != "reference.json":
            (model / file.name).write_bytes(file.read_bytes())
    asked = ["monitor", str(model), "--data", str(made / "moved.npz"), "-o", str(tmp_path / "mon")]
    assert main(asked) == 2
    assert "keeps no shares of its training rows" in capsys.readouterr().err
    assert not (tmp_path / "mon").exists()
    assert main([*asked, "--reference", str(made / "moved.npz")]) == 0
