"""``examples/`` as a reader runs them: FedProx through its entry point, the scripts, the notebook."""

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
import torch.nn.functional as F

from fedepd.cli import main
from fedepd.methods import METHODS
from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.testing import Check, method_checks
from fedepd.types import TaskInfo, Tensors
from toy import (
    assert_near,
    assert_same,
    initial,
    make_client,
    make_server,
    run_rounds,
    toy_client,
    toy_clients,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = ["--rounds", "2", "--hidden", "4", "--clients", "2", "--mu", "0.5", "--quiet", "--json"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip put the package, without a network and beside nobody's own packages."""
    folder = tmp_path_factory.mktemp("installed")
    source = Path(
        shutil.copytree(EXAMPLES / "fedprox", folder / "fedprox")
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
def fedprox(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class behind the entry point."""
    monkeypatch.syspath_prepend(str(site))
    METHODS.refresh()
    yield METHODS["fedprox"]
    monkeypatch.undo()
    METHODS.refresh()
    del sys.modules["fedprox_example"]


def test_the_list_says_where_it_is_from(
    fedprox: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "FedProx" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["fedprox", "FedProx", "global", "default", "mu", "fedprox-example 0.1.0"]


@pytest.mark.heavy
def test_the_command_runs_it_by_name(site: Path) -> None:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "fedepd", "run", "fedprox", *SETTINGS]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["method"] == "fedprox"


@pytest.mark.heavy
def test_it_keeps_the_contract(fedprox: Any) -> None:
    checks: list[Check] = method_checks(fedprox)
    for check in checks:
        check()


def test_two_steps_by_hand(fedprox: Any) -> None:
    """Plain gradient descent, no dropout, no decay. The penalty's gradient mu (w - w0) is 0 at w0, so that

    w1 = w0 - lr g(w0),   w2 = w1 - lr (g(w1) + mu (w1 - w0)),

    where g is the gradient of the mean cross-entropy, here by autograd.
    """
    mu, lr = 0.7, 0.5
    model = Backbone(hidden=8, dropout=0.0)
    training = Training(epochs=2, optimizer="sgd", lr=lr, weight_decay=0.0)
    data = toy_client()
    client = make_client(fedprox(mu=mu), data, model, training)
    sent = initial(FedAvg(), make_server([data], model, training))

    def gradient(params: Tensors) -> Tensors:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        logits = model.logits(leaves, model.encode(leaves, client.prepared), client.prepared, train_only=True)
        F.cross_entropy(logits, client.prepared.labels).backward()  # type: ignore[no-untyped-call]
        return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}

    first = {name: sent[name] - lr * grad for name, grad in gradient(sent).items()}
    plain = {name: first[name] - lr * grad for name, grad in gradient(first).items()}
    penalty = {name: lr * mu * (first[name] - sent[name]) for name in sent}
    reply, _ = fedprox(mu=mu).client_step(client, sent, {})
    assert_near(reply.tensors, {name: plain[name] - penalty[name] for name in sent})
    assert max(float(value.abs().max()) for value in penalty.values()) > 1e-3  # far above rounding


def test_without_its_penalty_it_is_fedavg_bit_for_bit(fedprox: Any) -> None:
    theirs, ours, held = (
        run_rounds(m, toy_clients())[0][-1].tensors for m in (fedprox(mu=0.0), FedAvg(), fedprox(mu=5.0))
    )
    assert_same(theirs, ours)
    assert not torch.equal(held["classifier.weight"], ours["classifier.weight"])


def test_it_is_forty_lines() -> None:
    """Of the class; what the example promises."""
    text = (EXAMPLES / "fedprox" / "src" / "fedprox_example.py").read_text(encoding="utf-8")
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
