"""fedepd explain: JSON, a page, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets import write_npz
from fedepd.model.explain import Explainer
from fedepd.model.model import load_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("made")
    write_npz(fedepd.load("synthetic"), folder / "g.npz")
    fedepd.run(folder / "g.npz", "fedavg", rounds=2, clients=2, hidden=8, out=folder / "run")
    fedepd.export(folder / "run", folder / "model")
    return str(folder / "model"), str(folder / "g.npz")


def test_json_and_a_page(made: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = made
    assert main(["explain", model, "--data", data, "--ids", "4,7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [case["node"] for case in found] == ["4", "7"]
    assert main(["explain", model, "--data", data, "--alerts", "2", "-o", str(tmp_path / "why.html")]) == 0
    assert (tmp_path / "why.html").read_text().count('data-name="why"') == 2
    assert main(["explain", model, "--data", data, "--ids", "4", "-o", str(tmp_path / "why.json")]) == 0
    assert json.loads((tmp_path / "why.json").read_text()) == found[:1]
    assert main(["explain", model, "--data", data, "--ids", "4"]) == 0
    assert "4: " in capsys.readouterr().out


def test_predict_says_why_of_the_first_nodes(made: tuple[str, str], tmp_path: Path) -> None:
    """The nodes are those of ``explain --alerts``, and the reasons are the first two that speak for them."""
    model, data = made
    nodes = ["--data", data, "--ids", "1,2,3,4,5,6"]
    assert main(["predict", model, *nodes, "--why", "2", "-o", str(tmp_path / "p.csv")]) == 0
    rows = {row["id"]: row for row in csv.DictReader((tmp_path / "p.csv").read_text().splitlines())}
    explainer = Explainer(load_model(model), fedepd.load(data))
    chosen = explainer.alerts(2, among=list(rows))
    for node, label in chosen:
        case = explainer.case(node, label)
        speaking = [each for each in case.reasons if each.contribution > 0]
        assert rows[node]["why"] == "; ".join(each.words() for each in speaking[:2]) != ""
    assert [node for node, row in rows.items() if row["why"]] == sorted(node for node, _ in chosen)
    assert main(["predict", model, *nodes, "--why", "0", "-o", str(tmp_path / "q.csv")]) == 2
    assert not (tmp_path / "q.csv").exists()


def test_by_gnnexplainer(
    made: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_geometric", reason="needs the extra 'pyg'")
    monkeypatch.setattr("fedepd.model.gnnexplainer.STEPS", 5)
    words = ["explain", made[0], "--data", made[1], "--ids", "4", "--json"]
    assert main([*words, "--by", "gnnexplainer"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert (found["node"], found["by"]) == ("4", "gnnexplainer")
    assert all(0 < each.get("importance", 0.5) <= 1 for each in found["reasons"])
    assert main([*words, "--by", "gradients"]) == 0
    assert "by" not in json.loads(capsys.readouterr().out)[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ids", "1", "--alerts", "3"], "either with --ids or with --alerts"),
        ([], "either with --ids or with --alerts"),
        (["--ids", "1", "-o", "why.pdf"], "ends in .html or .json"),
        (["--ids", "nobody"], "there is no node 'nobody'"),
        (["--alerts", "2", "--class", "zebra"], "zebra"),
        (["--ids", "1", "--by", "magic"], "magic"),
    ],
)
def test_mistakes_are_one_sentence(
    made: tuple[str, str], words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", made[0], "--data", made[1], *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
