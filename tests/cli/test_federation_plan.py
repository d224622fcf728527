"""Plans on the command line, from the draft to a site's own graph, and what is refused on the way."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.plans import PLAN, write_plan
from deploy.test_site_import import ROWS, changed, write
from fedepd.cli import main
from fedepd.clients.client_file import read_file
from fedepd.deploy.kits import open_kit, plan_in
from fedepd.deploy.plan import read_plan
from fedepd.deploy.plan_text import EXAMPLE
from fedepd.deploy.task import FederationTask
from hostile import refusal

Said = pytest.CaptureFixture[str]


@pytest.fixture
def kit(planned_kits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planned_kits / "a", tmp_path / "kit"))


def federation(*words: str) -> int:
    return main(["federation", *words])


def importing(kit: Path, *more: str) -> list[str]:
    folder = kit.parent
    tables = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")]
    return ["federation", "import", str(kit), *tables, "--id", "account", "--label", "fraud", *more]


def test_a_template_from_nothing_is_never_written_over(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "task.toml"
    assert federation("plan", str(path)) == 0
    assert read_plan(path) == EXAMPLE
    assert "exists already; edit it" in refusal(capsys, tmp_path, "federation", "plan", str(path))
    said = refusal(capsys, tmp_path, "federation", "plan", str(tmp_path / "b.toml"), "--label", "x")
    assert "--label is given without --nodes" in said


def test_a_draft_from_a_table(tmp_path: Path, capsys: Said) -> None:
    nodes = write(tmp_path)
    words = ["--nodes", str(nodes), "--id", "account", "--label", "fraud"]
    assert federation("plan", str(tmp_path / "task.toml"), *words) == 0
    plan = read_plan(tmp_path / "task.toml")
    assert plan.classes == ("fraud", "honest", "mule")
    assert [(column.name, column.kind) for column in plan.columns] == [
        ("country", "category"), ("balance", "number"), ("logins", "number"), ("business", "flag"),
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert "check the classes: their order, and that no site has another one" in said
    missing = refusal(capsys, tmp_path, "federation", "plan", str(tmp_path / "b.toml"), "--nodes", str(nodes))
    assert "has no column 'id'" in missing


def test_init_with_a_plan(planned_kits: Path, tmp_path: Path, capsys: Said) -> None:
    """Every kit has it, whoever it is for."""
    for name, kind in (("a", "client"), ("server", "server"), ("admin", "admin")):
        kit = open_kit(planned_kits / name, kind)
        assert kit.plan == read_plan(write_plan(tmp_path / "task.toml"))
        assert (kit.features, kit.classes) == (5, 3)
        assert kit.agreed == kit.plan.agreed


INIT = ["federation", "init", "--sites", "a,b,c", "--host", "localhost"]


def test_what_is_against_the_plan_makes_no_kit(tmp_path: Path, capsys: Said) -> None:
    from fedepd.datasets.npz import write_npz
    from toy import toy_client

    write_npz(toy_client().graph, tmp_path / "example.npz")
    plan = str(write_plan(tmp_path / "task.toml"))
    out = ["-o", str(tmp_path / "fed")]
    for words, says in (
        (["--features", "4"], "--features is 4, but '.*task.toml' has 5; leave --features out"),
        (["--classes", "2"], "--classes is 2, but '.*task.toml' has 3; leave --classes out"),
        (
            ["--example", str(tmp_path / "example.npz")],
            "has no class names, but the federation calls class 0",
        ),
    ):
        assert re.search(says, refusal(capsys, tmp_path, *INIT, "--plan", plan, *words, *out))
    two = ["federation", "init", "--sites", "a,b", "--host", "localhost", "--plan", plan]
    assert "there are 2 sites, but the plan says min_sites = 3" in refusal(capsys, tmp_path, *two, *out)
    wrong = str(write_plan(tmp_path / "wrong.toml", ("rounds = 3", "round = 3")))
    said = refusal(capsys, tmp_path, *INIT, "--plan", wrong, *out)
    assert "wrong.toml': unknown setting 'round'; did you mean" in said


def test_two_sites_cannot_sum(tmp_path: Path, capsys: Said) -> None:
    plan = str(write_plan(tmp_path / "task.toml", ("min_sites = 3", "min_sites = 2")))
    words = ["federation", "init", "--sites", "a,b", "--host", "localhost", "--plan", plan]
    said = refusal(capsys, tmp_path, *words, "-o", str(tmp_path / "fed"))
    assert "secure is on with 2 clients" in said


def test_inspect(kit: Path, capsys: Said) -> None:
    assert federation("inspect", str(kit)) == 0
    said = capsys.readouterr().out
    assert "what is to be learnt: Find accounts that are used for fraud." in said
    assert federation("inspect", str(kit), "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["classes"] == ["honest", "mule", "fraud"]
    assert federation("inspect", str(kit), "--pin", seen["signed_by"].removeprefix("SHA-256 ")) == 0
    assert "not the one pinned" in refusal(capsys, kit, "federation", "inspect", str(kit), "--pin", "00")


@pytest.mark.hostile
@pytest.mark.parametrize("action", ["inspect", "import", "preview", "join"])
def test_an_altered_plan_is_refused_by_name(kit: Path, capsys: Said, action: str) -> None:
    write(kit.parent)
    path = kit / "local" / "plan.toml"
    path.write_text(PLAN.replace("guard = true", "guard = false"))
    words = importing(kit) if action == "import" else ["federation", action, str(kit)]
    said = refusal(capsys, kit, *words)
    assert "'local/plan.toml'" in said
    assert "was altered after the kit was made; ask for the kit again" in said
    path.unlink()
    assert "has no 'local/plan.toml'; ask for the kit again" in refusal(capsys, kit, *words)


@pytest.mark.hostile
def test_a_plan_that_nobody_signed_is_refused(made_kits: Path, tmp_path: Path, capsys: Said) -> None:
    """And so is a file beside the owner's graph, or a graph in another party's kit."""
    kit = Path(shutil.copytree(made_kits / "fed" / "bank-a", tmp_path / "kit"))
    write_plan(kit / "local" / "plan.toml")
    said = refusal(capsys, kit, "federation", "inspect", str(kit))
    assert "holds a file 'local/plan.toml' that fedepd did not write" in said
    (kit / "local" / "plan.toml").unlink()
    assert "has no plan (local/plan.toml)" in refusal(capsys, kit, "federation", "inspect", str(kit))
    assert "has no plan (local/plan.toml); make the graph" in refusal(capsys, kit, *importing(kit))
    (kit / "data").mkdir()
    (kit / "data" / "other.npz").write_bytes(b"")
    assert "'data/other.npz' that fedepd did not" in refusal(capsys, kit, "federation", "inspect", str(kit))
    server = Path(shutil.copytree(made_kits / "fed" / "server", tmp_path / "server"))
    (server / "data").mkdir()
    assert "holds a folder 'data' that" in refusal(capsys, server, "federation", "start", str(server))


def test_import_then_join(kit: Path, capsys: Said) -> None:
    write(kit.parent)
    assert main(importing(kit)) == 0
    out, err = capsys.readouterr()
    assert "class honest: 1 nodes" in out
    assert "fedepd: note: 1 of 4 rows have no class" in err
    assert read_file(kit / "data" / "site.npz").graph.num_nodes == 4
    assert federation("join", str(kit), "--check") == 0
    site = json.loads((kit / "local" / "fedepd.json").read_text())
    assert site["data"] == str((kit / "data" / "site.npz").resolve())
    assert open_kit(kit, "client").plan == plan_in(kit)  # what import and join wrote belongs there


def test_a_refused_import_leaves_the_graph_that_was_there(kit: Path, capsys: Said) -> None:
    write(kit.parent)
    assert main(importing(kit)) == 0
    write(kit.parent, changed(1, fraud="takeover"))
    assert "has the class 'takeover', which the plan does not have" in refusal(capsys, kit, *importing(kit))
    write(kit.parent, changed(1, country="FR"))
    assert "add --unknown-category ignore" in refusal(capsys, kit, *importing(kit))
    assert main(importing(kit, "--unknown-category", "ignore")) == 0
    assert "1 of 4 rows have no known value in column 'country' (FR)" in capsys.readouterr().err


def test_a_site_without_a_class_may_join(kit: Path, capsys: Said) -> None:
    write(kit.parent, [{**row, "fraud": ""} for row in ROWS])
    assert main(importing(kit)) == 0
    assert "this site only evaluates" in capsys.readouterr().err
    assert federation("join", str(kit), "--check") == 0


def test_import_needs_tables_or_a_file(kit: Path, capsys: Said) -> None:
    write(kit.parent)
    nodes = ["federation", "import", str(kit), "--nodes", str(kit.parent / "nodes.csv")]
    for words in (["federation", "import", str(kit)], nodes, [*importing(kit), "--data", "a.npz"]):
        assert "with --nodes and --edges, or one graph file with --data" in refusal(capsys, kit, *words)
    for given in ("x", "=x", "x=", "a=b"):
        more = ["--map", given, "--map", "a=c"]
        assert "give OLD=NEW, each old name once" in refusal(capsys, kit, *importing(kit, *more))
    file = ["federation", "import", str(kit), "--data", "a.npz", "--map", "a=b"]
    assert "--map is given with --data" in refusal(capsys, kit, *file)


def test_join_without_a_graph_says_how_to_make_one(kit: Path, capsys: Said) -> None:
    said = refusal(capsys, kit, "federation", "join", str(kit), "--check")
    assert "has no data/site.npz yet; make it of your tables with 'fedepd federation import'" in said


def test_join_takes_no_graph_that_the_plan_did_not_make(kit: Path, capsys: Said) -> None:
    """A raw file has the plan's columns in the plan's order, but its numbers would not be scaled."""
    from fedepd.datasets.npz import write_npz
    from fedepd.datasets.tables import Roles, import_files

    rows = [*ROWS[:1], {**ROWS[1], "fraud": "honest"}, *ROWS[2:]]
    nodes = write(kit.parent, rows)
    order = ("country", "balance", "logins", "business")
    roles = Roles(id="account", label="fraud", features=order, one_hot=True)
    graph = import_files(nodes, kit.parent / "edges.csv", roles)[0]
    write_npz(graph, kit.parent / "raw.npz")
    words = ["federation", "join", str(kit), "--check", "--data", str(kit.parent / "raw.npz")]
    assert "leaves no column to be scaled by all sites together, but the federation" in refusal(
        capsys, kit, *words
    )


def test_submit_takes_nothing_that_is_against_the_plan(
    planned_kits: Path, tmp_path: Path, capsys: Said
) -> None:
    admin = Path(shutil.copytree(planned_kits / "admin", tmp_path / "admin"))
    (tmp_path / "other.toml").write_text("rounds = 9\n")
    for words, says in (
        (["--features", "4"], "--features is 4, but the plan says 5; leave --features out"),
        (["--classes", "4"], "--classes is 4, but the plan says 3; leave --classes out"),
        (["--method", "fedlc"], "--method is fedlc, but the plan says fedavg; leave --method out"),
        (["--rounds", "9"], "--rounds is 9, but the plan says 3; leave --rounds out"),
        (
            ["--config", str(tmp_path / "other.toml")],
            "--rounds is 9, but the plan says 3; leave --rounds out",
        ),
        (["--lr", "0.5"], "--lr is 0.5, but the plan says 0.01; leave --lr out"),
        (["--guard", "false"], "--guard is false, but the plan says true; leave --guard out"),
        (["--min-sites", "2"], "min_sites is 2, but the plan says min_sites = 3; leave --min-sites out"),
        (["--seed", "x"], "seed is 'x'; give a whole number"),
    ):
        assert says in refusal(capsys, admin, "federation", "submit", str(admin), *words)


def test_submit_makes_its_task_of_the_plan(planned_kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is as the plan says may be given, and the run's name, seed and deadline are free."""
    from fedepd.deploy import admin
    from fedepd.deploy.plan_task import contradiction

    seen: list[FederationTask] = []

    def submit(kit: Path, task: FederationTask, resume: bool) -> admin.Submitted:
        seen.append(task)
        return admin.Submitted("j", task)

    monkeypatch.setattr(admin, "submit", submit)
    words = ["--seed", "5", "--deadline", "7", "--run", "mine", "--rounds", "3", "--features", "5"]
    assert federation("submit", str(planned_kits / "admin"), *words) == 0
    assert federation("submit", str(planned_kits / "admin")) == 0
    mine, bare = seen
    assert (mine.run, mine.deadline, mine.experiment().protocol.seed) == ("mine", 7.0, 5)
    assert bare.run.startswith("account-fraud-2")
    assert (mine.method, mine.min_sites, mine.scaled, mine.counted) == ("fedavg", 3, (2,), (0, 1))
    plan = plan_in(planned_kits / "admin")
    assert plan is not None
    assert contradiction(plan, mine) is None
