"""Runs by a plan: sites with tables of another order, a site that only evaluates, a run against the plan."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from deploy.plans import GAPS, MADE, UNSCALED, WEIGHTS, add_made, write_plan, write_tables
from fedepd import run
from fedepd.cli import main
from fedepd.clients.scaling import scaled_together
from fedepd.datasets.tables import FeatureSchema, Roles, import_files
from fedepd.deploy.kits import open_kit, provision
from fedepd.deploy.plan import Plan, read_plan
from fedepd.deploy.plan_task import plan_task
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.site_import import import_tables
from fedepd.deploy.task import FederationTask, site_data
from fedepd.methods import METHODS
from fedepd.model.model import load_model
from fedepd.report.runs import group, read_runs
from fedepd.report.tables import classes
from fedepd.runs.record import add_round
from fedepd.types import HIDDEN

SITES = ("a", "b", "c", "d")
ROLES = Roles(id="account", label="fraud")


def files(folder: Path, plan: Plan, unlabelled: str = "") -> list[Path]:
    """Each site's graph, imported into a folder of its own; every second table in another order."""
    out = []
    for number, site in enumerate(SITES):
        order = 1 if number % 2 else -1
        tables = write_tables(folder / site, number, order, labels=site != unlabelled)
        out.append(import_tables(plan, *tables, ROLES).write(folder / site))
    return out


def planned(folder: Path, *changes: tuple[str, str]) -> tuple[Plan, FederationTask]:
    plan = read_plan(write_plan(folder / "task.toml", *changes))
    return plan, plan_task(plan, "r", SITES)


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if not each.merges_clients])
def test_a_site_without_a_training_node_takes_part(tmp_path: Path, method: str) -> None:
    """It trains nothing, and the others' model is not its own."""
    secure = METHODS[method]().needs_single_replies is None
    off = () if secure else (("secure = true", "secure = false"),)
    plan, task = planned(tmp_path, *UNSCALED, ('"fedavg"', f'"{method}"'), *off)
    graphs = files(tmp_path, plan, unlabelled="d")
    ledger = rehearse(task, graphs)
    assert len(ledger.progress.lines) == 3
    last = ledger.progress.lines[-1]
    assert tuple(last["clients"]) == (0, 1, 2, 3)
    assert last["loss"] is None or last["loss"] > 0
    assert ledger.digest() == rehearse(task, graphs).digest()


def test_what_an_evaluator_holds(tmp_path: Path) -> None:
    plan, task = planned(tmp_path, *UNSCALED)
    data = site_data(task, "d", files(tmp_path, plan, unlabelled="d")[3])
    assert not bool((data.train_mask | data.val_mask | data.test_mask).any())
    assert set(data.graph.y.tolist()) == {HIDDEN}
    assert task.participant(data).sizes.num_train == 0


# --- over records, with guard and secure sums ---------------------------------------------------------------


@pytest.fixture
def kits(planned_kits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planned_kits, tmp_path / "fed"))


def furnished(kits: Path, plan: Plan, unlabelled: str = "") -> list[Path]:
    graphs = files(kits.parent / "tables", plan, unlabelled)
    out = []
    for site, graph in zip(SITES, graphs, strict=True):
        (kits / site / "data").mkdir()
        out.append(Path(shutil.copyfile(graph, kits / site / "data" / "site.npz")))
        (kits / site / "local" / "fedepd.json").write_text(json.dumps({"data": str(out[-1])}))
    return out


def test_a_federation_by_a_plan_ends_as_its_rehearsal(kits: Path, tmp_path: Path) -> None:
    plan, task = planned(tmp_path)
    graphs = furnished(kits, plan, unlabelled="d")
    ledger = Office(kits, task).run()
    assert ledger.digest() == rehearse(task, graphs).digest()
    folder = tmp_path / "run"
    folder.mkdir()
    for line in ledger.progress.lines:
        add_round(folder, line)
    ledger.finish(folder)
    (run,) = read_runs(folder)
    assert run.dataset["label_names"] == ["honest", "mule", "fraud"]
    assert run.dataset["owner_names"] == list(SITES)
    assert "mule" in str(classes(group([run])))


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"min_count": 1}, "limits.toml says 'min_count = 5'"),
        ({"min_holders": 4}, "asks for min_holders = 4, but the plan in this kit says min_holders = 3"),
        ({"rounds": 4}, "asks for rounds = 4, but the plan in this kit says rounds = 3"),
        ({"hidden": 16}, "asks for hidden = 16, but the plan in this kit says hidden = 8"),
        ({"aim": "recall mule=0.5"}, "asks for aim = recall mule=0.5, but the plan in this kit says aim = "),
    ],
)
def test_sites_refuse_a_run_against_their_plan(
    kits: Path, tmp_path: Path, change: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before their data are read. The owner's limits still come first."""
    from fedepd.deploy import executor

    plan, task = planned(tmp_path)
    furnished(kits, plan)
    monkeypatch.setattr(executor, "site_data", lambda *a: pytest.fail("the data was read"))
    office = Office(kits, replace(task, settings={**task.settings, **change}))
    for site in SITES:
        assert len(office.log[site]) == 1
        assert says in office.log[site][0]
        assert office.log[site][0].startswith("this site takes no part in the run: ")


# --- the reference: all tables in one -----------------------------------------------------------------------


def together(folder: Path, tables: Sequence[tuple[Path, Path]]) -> tuple[Path, Path]:
    """The tables of all owners in one, with a column of owners."""
    nodes, edges = ([path.read_text().splitlines() for path in each] for each in zip(*tables, strict=True))
    rows = [f"{row},{site}" for site, lines in zip(SITES, nodes, strict=True) for row in lines[1:]]
    out = folder / "nodes.csv", folder / "edges.csv"
    out[0].write_text("\n".join([f"{nodes[0][0]},owner", *rows]) + "\n")
    out[1].write_text("\n".join([edges[0][0], *(row for lines in edges for row in lines[1:])]) + "\n")
    return out


def test_one_table_of_all_owners_gives_the_same_weights(tmp_path: Path) -> None:
    """``fedepd data import --scale`` of everybody's rows, with a column of owners, and a simulation of it.

    Means and deviations agree to about 1e-15, because one side adds exactly and the other by numpy. Features
    have 24 bits, which hides that here: all weights are equal. A feature that lies on the border of two
    numbers of 24 bits could round the other way.
    """
    roles = Roles(id="account", label="fraud", scale=True, one_hot=("country",), owner="owner")
    plan, task = planned(
        tmp_path,
        ('["honest", "mule", "fraud"]', '["fraud", "honest", "mule"]'),  # as an import sorts them
        ("scaled = false", "scaled = true"),
        ('kind = "flag"', 'kind = "number"\nscaled = true'),
    )
    tables = [write_tables(tmp_path / site, number, 1) for number, site in enumerate(SITES)]
    graphs = [import_tables(plan, *each, ROLES).write(each[0].parent) for each in tables]
    ledger = rehearse(task, graphs)
    graph, _ = import_files(*together(tmp_path, tables), roles)
    settings: dict[str, Any] = {"rounds": 3, "hidden": 8, "evaluate_every": 1, "guard": True, "secure": True}
    simulated = run(graph, "fedavg", partition="owner", **settings)
    assert all(
        torch.equal(tensor, ledger.progress.best["global"].tensors[name])
        for name, tensor in simulated.tensors.items()
    )


SORTED = ('["honest", "mule", "fraud"]', '["fraud", "honest", "mule"]')
ALL_SCALED = (("scaled = false", "scaled = true"), ('kind = "flag"', 'kind = "number"\nscaled = true'))
WITH_MADE = ("[run]", f"{MADE}[run]")


def test_dates_and_edge_features_of_all_owners_give_the_same_weights(tmp_path: Path) -> None:
    """The same for ages by the plan's day, and for counts, sums, means and maxima of amounts."""
    dates: dict[str, Any] = {"dates": ("opened",), "day": "2025-06-01", "edge_features": ("amount",)}
    roles = Roles(id="account", label="fraud", scale=True, one_hot=("country",), owner="owner", **dates)
    plan, task = planned(tmp_path, SORTED, *ALL_SCALED, WITH_MADE)
    tables = [write_tables(tmp_path / site, number, 1) for number, site in enumerate(SITES)]
    for each in tables:
        add_made(*each)
    graphs = [import_tables(plan, *each, ROLES).write(each[0].parent) for each in tables]
    ledger = rehearse(task, graphs)
    graph, _ = import_files(*together(tmp_path, tables), roles)
    assert [rule.name for rule in FeatureSchema.from_json(graph.schema).rules] == [
        rule.name for rule in plan.schema.rules
    ]
    settings: dict[str, Any] = {"rounds": 3, "hidden": 8, "evaluate_every": 1, "guard": True, "secure": True}
    simulated = run(graph, "fedavg", partition="owner", **settings)
    assert all(
        torch.equal(tensor, ledger.progress.best["global"].tensors[name])
        for name, tensor in simulated.tensors.items()
    )


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_weights_of_edges_of_all_owners_give_the_same_weights(tmp_path: Path, backbone: str) -> None:
    """The same where edges count by their amounts: FedEPD, whose central nodes and votes use them, too."""
    roles = Roles(
        id="account", label="fraud", scale=True, one_hot=("country",), owner="owner", edge_weight="amount"
    )
    chosen = ('"fedavg"', f'"fedepd"\nbackbone = "{backbone}"')
    plan, task = planned(tmp_path, SORTED, *ALL_SCALED, WEIGHTS, chosen)
    tables = [write_tables(tmp_path / site, number, 1) for number, site in enumerate(SITES)]
    for each in tables:
        add_made(*each)
    graphs = [import_tables(plan, *each, ROLES).write(each[0].parent) for each in tables]
    ledger = rehearse(task, graphs)
    both = together(tmp_path, tables)
    settings: dict[str, Any] = {"rounds": 3, "hidden": 8, "evaluate_every": 1, "guard": True, "secure": True}
    leave_out = replace(roles, leave_out=("opened",))
    graph, _ = import_files(*both, leave_out)
    simulated = run(graph, "fedepd", partition="owner", backbone=backbone, **settings)
    ours = ledger.progress.best["global"].tensors
    assert all(torch.equal(tensor, ours[name]) for name, tensor in simulated.tensors.items())
    plain, _ = import_files(*both, replace(leave_out, edge_weight=None))
    other = run(plain, "fedepd", partition="owner", backbone=backbone, **settings)
    assert not all(torch.equal(tensor, ours[name]) for name, tensor in other.tensors.items())


@pytest.mark.heavy
def test_a_federation_with_weights_of_edges_from_the_kits_to_a_model(tmp_path: Path) -> None:
    """Real executors and signed kits. The model reads new tables with the same column of weights."""
    changes = (WEIGHTS,)
    content = write_plan(tmp_path / "task.toml", *changes).read_bytes()
    plan, task = planned(tmp_path, *changes)
    kits = tmp_path / "fed"
    provision(kits, SITES, "localhost", 8002, {}, plan=content)
    for number, site in enumerate(SITES):
        tables = write_tables(tmp_path / site, number)
        add_made(*tables)
        file = import_tables(plan, *tables, ROLES).write(kits / site)
        (kits / site / "local" / "fedepd.json").write_text(json.dumps({"data": str(file)}))
        assert open_kit(kits / site, "client").agreed == plan.agreed
    ledger = Office(kits, task).run()
    graphs = [kits / site / "data" / "site.npz" for site in SITES]
    assert ledger.digest() == rehearse(task, graphs).digest()
    assert main(["federation", "model", str(kits / "a"), "-o", str(tmp_path / "model")]) == 0
    model = load_model(tmp_path / "model")
    assert model.edge_weights
    assert model.schema is not None
    assert model.schema.tables == Roles(edge_weight="amount")
    tables_of_a = ["--nodes", str(tmp_path / "a" / "nodes.csv"), "--edges", str(tmp_path / "a" / "edges.csv")]
    out = tmp_path / "predictions.csv"
    told = ["predict", str(tmp_path / "model"), *tables_of_a, "--id", "account", "-o", str(out)]
    assert main(told) == 0
    assert len(out.read_text().splitlines()) == 41


def test_gaps_get_the_mean_of_all_sites(tmp_path: Path) -> None:
    """The mean of the balances that are there, whatever the split; scaled it is 0. The mark is 1."""
    plan, task = planned(tmp_path, GAPS, WITH_MADE)
    tables = [write_tables(tmp_path / site, number, 1) for number, site in enumerate(SITES)]
    for each in tables:
        add_made(*each, gaps=True)
    graphs = [import_tables(plan, *each, ROLES).write(each[0].parent) for each in tables]
    known = [
        float(line.split(",")[3])
        for nodes, _ in tables
        for line in nodes.read_text().splitlines()[1:]
        if line.split(",")[3]
    ]
    clients = scaled_together([site_data(task, site, path) for site, path in zip(SITES, graphs, strict=True)])
    for client in clients:
        places = dict(FeatureSchema.from_json(client.graph.schema).places)
        assert places[2].fill == places[2].mean == pytest.approx(sum(known) / len(known), rel=1e-12)
        gaps = torch.arange(client.graph.num_nodes) % 9 == 4
        assert torch.equal(client.graph.x[:, 3], gaps.float())
        assert not bool(client.graph.x[gaps, 2].any())
        assert bool(client.graph.x[~gaps, 2].all())
    assert rehearse(task, graphs).digest() == rehearse(task, graphs).digest()
