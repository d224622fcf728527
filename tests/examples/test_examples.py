"""``examples/`` as a reader runs them: FedAvgM through its entry point, the scripts, the notebook."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.cli import main
from fedepd.methods import METHODS
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.testing import Check, method_checks
from fedepd.types import Reply, TaskInfo
from toy import assert_same, make_server, run_rounds, toy_client, toy_clients

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = ["--rounds", "2", "--hidden", "4", "--clients", "2", "--momentum", "0.5", "--quiet", "--json"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip put the package, without a network and beside nobody's own packages."""
    folder = tmp_path_factory.mktemp("installed")
    source = Path(
        shutil.copytree(EXAMPLES / "fedavgm", folder / "fedavgm")
    )  # pip may write beside the source
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "site"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def fedavgm(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class behind the entry point."""
    monkeypatch.syspath_prepend(str(site))
    METHODS.refresh()
    yield METHODS["fedavgm"]
    monkeypatch.undo()
    METHODS.refresh()
    del sys.modules["fedavgm_example"]


def test_the_list_says_where_it_is_from(
    fedavgm: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "FedAvgM" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["fedavgm", "FedAvgM", "global", "default", "momentum", "fedavgm-example 0.1.0"]


@pytest.mark.heavy
def test_the_command_runs_it_by_name(site: Path) -> None:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "fedepd", "run", "fedavgm", *SETTINGS]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["method"] == "fedavgm"


@pytest.mark.heavy
def test_it_keeps_the_contract(fedavgm: Any) -> None:
    checks: list[Check] = method_checks(fedavgm)
    for check in checks:
        check()


def test_two_rounds_by_hand(fedavgm: Any) -> None:
    """One number, momentum 1/2, one client.

    From 0 the client replies 2: the step is 2, the server has 2. Then it replies 3: the mean's step is 1,
    and half of the last step is 1, so the server has 4. A third reply of 4 would leave 4 + 1/2 * 2 = 5.
    """
    method, server = fedavgm(momentum=0.5), make_server([toy_client()], Backbone(hidden=8), Training())
    held = method.server_init(server, {"encoder.bias": torch.zeros(1)})
    seen = []
    for value in (2.0, 3.0, 4.0):
        held = method.server_step(server, held, {0: Reply({"encoder.bias": torch.tensor([value])}, 4, 3)})
        seen.append(float(held["encoder.bias"]))
    assert seen == [2.0, 4.0, 5.0]
    assert method.message(held, 0).keys() == {"encoder.bias"}


def test_without_its_momentum_it_is_fedavg_bit_for_bit(fedavgm: Any) -> None:
    theirs, ours, moved = (
        model_part(run_rounds(m, toy_clients())[0][-1].tensors)
        for m in (fedavgm(momentum=0.0), FedAvg(), fedavgm(momentum=0.9))
    )
    assert_same(theirs, ours)
    assert not torch.equal(moved["classifier.weight"], ours["classifier.weight"])


def test_it_is_forty_lines() -> None:
    """Of the class; what the example promises."""
    text = (EXAMPLES / "fedavgm" / "src" / "fedavgm_example.py").read_text(encoding="utf-8")
    assert len([line for line in text[text.index("@final") :].splitlines() if line.strip()]) <= 40


@pytest.mark.heavy
def test_a_dataset_of_ones_own(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "own_dataset.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"FedEPD on villages: balanced accuracy \d+\.\d %\n", done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
def test_a_backbone_of_ones_own(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "own_backbone.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = r"FedAvg with gcn: balanced accuracy \d+\.\d %\nFedAvg with Walk: balanced accuracy \d+\.\d %\n"
    assert re.fullmatch(said, done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_the_backbone_computes_its_formula() -> None:
    """Written out with dense matrices: P = D^-1/2 (A + I) D^-1/2, and two steps of the walk."""
    walk = runpy.run_path(str(EXAMPLES / "own_backbone.py"), run_name="own_backbone")["Walk"]
    model, data = Backbone(walk(steps=2, restart=0.3), hidden=5), toy_client()
    graph = data.graph
    params = model.initial(TaskInfo(graph.num_features, graph.num_classes, 1), 0)
    a = torch.eye(graph.num_nodes)
    a[tuple(graph.edge_index)] = a[tuple(graph.edge_index.flip(0))] = 1.0
    p = a / (a.sum(1)[:, None] * a.sum(0)[None, :]).sqrt()
    h = torch.relu(graph.x @ params["encoder.weight"])  # biases begin at 0
    s = 0.7 * p @ (0.7 * p @ h + 0.3 * h) + 0.3 * h
    torch.testing.assert_close(model.predict(params, model.inputs(data)), s @ params["classifier.weight"])


@pytest.mark.heavy
@pytest.mark.filterwarnings("default")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("pandas")
    notebook = nbformat.read(EXAMPLES / "from_a_table.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "600 nodes" in said
    assert "macro_f1" in said
    assert (tmp_path / "runs" / "report.html").is_file()
    assert (tmp_path / "model" / "README.md").is_file()


def test_the_notebook_in_git_was_run_and_holds_text_alone() -> None:
    content = json.loads((EXAMPLES / "from_a_table.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(cell["outputs"] for cell in code)
    assert {kind for output in outputs for kind in output.get("data", {"text/plain": ""})} == {"text/plain"}
    said = json.dumps(outputs)
    assert len(said) < 5000
    assert not re.search(r"(?<![\w.])/\w+/\w+", said)  # no path of anybody's machine
