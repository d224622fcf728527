"""``fedepd data`` as users meet it.

The page on own data is followed to the letter, and no damaged file gets a traceback.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.cli import main
from fedepd.cli.data_check import import_notes
from fedepd.clients.clients_dir import folder_names, joined, read_clients
from fedepd.datasets import load, read_npz, write_npz
from fedepd.datasets.synthetic import synthetic
from fedepd.runs.run import run
from fedepd.types import Graph
from hostile_names import PAYLOADS, cases, check_lines

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
QUICK = ["--rounds", "2", "--hidden", "8", "--quiet", "--json"]


def bank_tables(folder: Path, nodes: int = 90) -> None:
    """Accounts of three branches; every 7th a phisher, every 10th a mule, every 11th unknown."""
    rng = np.random.default_rng(0)
    lines = ["account,fraud,branch,age,balance,segment"]
    for i in range(nodes):
        fraud = "mule" if i % 10 == 0 else "phish" if i % 7 == 0 else "" if i % 11 == 0 else "clean"
        age, balance = rng.normal(40, 9) + 10 * (fraud == "mule"), rng.normal(1000, 300)
        branch, segment = ("north", "south", "west")[i % 3], ("retail", "sme")[i % 2]
        lines.append(f"A{i:04d},{fraud},{branch},{age:.1f},{balance:.2f},{segment}")
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    pairs = rng.integers(nodes, size=(3 * nodes, 2))
    (folder / "edges.csv").write_text(
        "source,target,amount\n" + "".join(f"A{a:04d},A{b:04d},5\n" for a, b in pairs)
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bank_tables(tmp_path)
    return tmp_path


IMPORT = [
    "data", "import", "--nodes", "nodes.csv", "--edges", "edges.csv", "--id", "account", "--label", "fraud",
    "--owner", "branch", "--one-hot", "--scale", "-o", "bank.npz",
]  # fmt: skip


def summary(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["run", "fedavg", *arguments, *QUICK]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.heavy
@pytest.mark.usefixtures("no_figures")
def test_the_page_on_own_data_works_as_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")  # a command may go on in the next line
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    commands = [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]
    assert len(commands) >= 7
    for command in commands:
        program, *arguments = shlex.split(command.replace("--rounds 20", "--rounds 2"))
        assert program == "fedepd"
        assert main(arguments) in ((0, 1) if arguments[:2] == ["data", "check"] else (0,)), (
            command,
            capsys.readouterr().err,
        )
    assert (here / "runs" / "comparison" / "report.html").is_file()
    first, again = (
        json.loads((here / "runs" / run / "summary.json").read_text()) for run in ("first", "from-files")
    )
    assert first["weights_sha256"] == again["weights_sha256"]
    assert first["metrics"] == again["metrics"]


def test_import_says_what_it_did(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(IMPORT) == 0
    out, err = capsys.readouterr()
    assert "clean, mule, phish" in out
    assert "north, south, west" in out
    assert all(line.startswith("fedepd: note: ") for line in err.splitlines())
    assert "these edge columns are not used: amount" in err
    graph = read_npz(here / "bank.npz")
    assert graph.num_features == 4
    assert graph.node_ids is not None
    assert graph.node_ids[0] == "A0000"


def test_an_owner_column_is_the_partition_unless_another_is_chosen(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(IMPORT)
    assert summary(capsys, "--data", "bank.npz")["protocol"].startswith("3 clients (owner)")
    chosen = summary(capsys, "--data", "bank.npz", "--partition", "openfgl", "--clients", "4")
    assert chosen["protocol"].startswith("4 clients (openfgl)")
    write_npz(replace(read_npz("bank.npz"), owner=None, owner_names=()), "plain.npz")
    plain = summary(capsys, "--data", "plain.npz", "--clients", "4")
    assert plain["protocol"].startswith("4 clients (openfgl)")
    assert plain["weights_sha256"] == chosen["weights_sha256"]
    assert (
        plain["config_hash"]
        == summary(capsys, "--data", "plain.npz", "--clients", "4", "--partition", "openfgl")["config_hash"]
    )


def test_other_sources(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import networkx as nx

    graph = nx.cycle_graph(6)
    for node in graph:
        graph.nodes[node].update(label=f"c{node % 2}", f=float(node))
    nx.write_graphml(graph, here / "g.graphml")
    torch.save(
        {"x": torch.eye(6), "edge_index": torch.tensor([[0], [1]]), "y": torch.arange(6) % 2}, here / "g.pt"
    )
    np.savez(here / "a.npz", x=nx.to_numpy_array(graph))
    np.save(here / "y.npy", np.arange(6) % 2)
    for source in (
        ["g.graphml"],
        ["g.pt"],
        ["--adjacency", "a.npz", "--features-npz", "a.npz", "--labels", "y.npy"],
    ):
        assert main(["data", "import", *source, "-o", "out.npz"]) == 0, capsys.readouterr().err
        assert read_npz("out.npz").num_nodes == 6


def test_check_has_exit_codes_and_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 2) % 60])
    fine = Graph.make(torch.from_numpy(rng.standard_normal((60, 3))).float(), ring, torch.arange(60) % 2)
    leaky = replace(fine, x=torch.cat([fine.x, fine.y.reshape(-1, 1).float()], 1))
    useless = Graph.make(fine.x[:2], ring[:, :0], torch.tensor([0, 1]))
    for code, graph in enumerate((fine, leaky, useless)):
        write_npz(graph, "g.npz")
        assert main(["data", "check", "g.npz", "--json"]) == code
        said = json.loads(capsys.readouterr().out)
        assert said["verdict"] == ("fine", "usable, with warnings", "not usable")[code]
        assert main(["data", "check", "g.npz"]) == code
        assert said["verdict"] in capsys.readouterr().out
    assert main(["data", "check", "none.npz"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "a.npz"], "give exactly one graph"),
        (["g.pt", "--nodes", "nodes.csv", "-o", "a.npz"], "give exactly one graph"),
        (["--nodes", "nodes.csv", "-o", "a.npz"], "--edges is missing"),
        (["--nodes", "nodes.csv", "--edges", "edges.csv"], "-o/--out"),
        (["--nodes", "nodes.csv", "--edges", "edges.csv", "-o", "a.csv"], "must end in .npz"),
        (["--nodes", "nodes.csv", "--edges", "edges.csv", "-o", "a.npz"], "no column 'id'"),
        (["--adjacency", "a.npz", "-o", "b.npz"], "give all three"),
        (["nodes.xlsx", "-o", "a.npz"], "has an unknown ending"),
        (["none.pt", "-o", "a.npz"], "does not exist"),
        ([*IMPORT[2:-1], "no/such/folder.npz"], "cannot write"),
        ([*IMPORT[2:], "--features", "age", "--features-npz", "x.npz"], "give one of them"),
    ],
)
def test_mistakes_of_an_import(
    arguments: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.iterdir())
    assert main(["data", "import", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert without_advice(err).count("\n") == 1
    assert says in err
    assert sorted(here.iterdir()) == before


# --- one folder per client ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"owner": torch.arange(200) % 3, "owner_names": ("b/c", "a", "..")}, ["--by", "owner"]),
        ({}, ["--by", "openfgl", "--clients", "11", "--seed", "3"]),
        ({}, ["--by", "dirichlet", "--dirichlet-alpha", "0.05", "--clients", "4", "--train-share", "0.5",
              "--split", "keep_one"]),
    ],
    ids=["owners whose names are no folder names", "eleven clients", "clients with a single class"],
)  # fmt: skip
@pytest.mark.parametrize("sparse", [False, True])
def test_a_run_from_folders_has_the_bits_of_a_run_on_the_whole(
    change: dict[str, Any], options: list[str], sparse: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = synthetic(nodes=200, edges=600, classes=5, imbalance=8, features=20, sparse=sparse)
    write_npz(replace(graph, **change), "g.npz")
    assert main(["data", "split", "g.npz", *options, "-o", "clients"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list((here / "clients").glob("*/graph.npz")))
    settings = ["--partition" if option == "--by" else option for option in options]
    # A folder of clients is cut already, so it refuses what only a partition reads.
    after_cutting = settings[4:] if "--dirichlet-alpha" in settings else settings[2:]
    whole, parts = (
        summary(capsys, "--data", "g.npz", *settings),
        summary(capsys, "--clients-dir", "clients", *after_cutting),
    )
    for name in (
        "weights_sha256",
        "partition_sha256",
        "metrics",
        "tiers",
        "bytes_up",
        "test_without_local_train",
    ):
        assert parts[name] == whole[name], name


def test_python_runs_from_folders_too_and_sites_may_number_on_their_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sites with files of their own, without split and numbers.

    The first site's nodes become 0..n-1, the second's n..n+m-1.
    """
    for name, seed in (("one", 0), ("two", 1)):
        (here / "sites" / name).mkdir(parents=True)
        write_npz(
            synthetic(nodes=60, edges=150, classes=3, imbalance=3, smallest=None, seed=seed),
            here / "sites" / name / "graph.npz",
        )
    clients = read_clients("sites")
    assert joined(clients).num_nodes == 120
    assert torch.equal(torch.cat([client.global_ids for client in clients]), torch.arange(120))
    result = run(clients, "fedavg", rounds=2, hidden=8)
    assert result.summary["weights_sha256"] == summary(capsys, "--clients-dir", "sites")["weights_sha256"]


def test_folders_that_cannot_be_used(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(IMPORT)
    main(["data", "split", "bank.npz", "-o", "clients"])
    write_npz(
        synthetic(nodes=60, edges=150, classes=3, imbalance=3, smallest=None),
        here / "clients" / "west" / "graph.npz",
    )
    (here / "clients" / "manifest.json").unlink()  # else the changed file is named before it is read
    (here / "empty").mkdir()
    for arguments, says in (
        (["--clients-dir", "none"], "is not a folder"),
        (["--clients-dir", "empty"], "has no NAME/graph.npz"),
        (["--clients-dir", "clients"], "differ in num_features"),
        (["--clients-dir", "clients", "--data", "bank.npz"], "give one of them"),
    ):
        capsys.readouterr()
        assert main(["run", "fedavg", *arguments, *QUICK]) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1
    assert main(["data", "split", "bank.npz", "-o", "clients"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["data", "split", "plain.npz", "--by", "ownr", "-o", "new"]) == 2
    assert "did you mean 'owner'?" in capsys.readouterr().err


def test_folder_names_keep_the_order() -> None:
    assert folder_names(["north", "south"]) == ["north", "south"]
    assert folder_names(["south", "north"]) == ["0-south", "1-north"]
    assert folder_names(["A", "a"]) == ["0-A", "1-a"]
    assert folder_names(["../x", ""]) == ["_x", "client"]


# --- damaged files ------------------------------------------------------------------------------------------


def damaged(content: bytes, rng: np.random.Generator, text: bool) -> bytes:
    """One of the ways files go wrong."""
    at = int(rng.integers(len(content)))
    lines = content.split(b"\n")
    line = int(rng.integers(len(lines) - 1))
    ways: list[Callable[[], bytes]] = [
        lambda: content[:at],
        lambda: content[:at] + b"\0" + content[at:],
        lambda: content[:at] + bytes([content[at] ^ (1 << int(rng.integers(8)))]) + content[at + 1 :],
        lambda: content[:at] + rng.bytes(20) + content[at:],
        lambda: b"",
    ]
    if text:
        edits = [b",extra", b"\r", b"", b",", b'"', b"," + b"9" * 200_000]
        ways += [
            partial(lambda edit: b"\n".join([*lines[:line], lines[line] + edit, *lines[line + 1 :]]), edit)
            for edit in edits
        ]
        ways += [
            lambda: b"\xef\xbb\xbf" + content,
            lambda: content.replace(b"\n", b"\r\n"),
            lambda: b"\n".join([*lines[: line + 1], *lines[line:]]),  # a row twice: an id twice
            lambda: b"\n".join([*lines[:-1], b"A0000,nobody,1", b""]),  # dangling, or ragged
            lambda: b"\n".join([*lines[:-1], b"A0001,A0001,1", b""]),  # a loop
            lambda: re.sub(rb",[0-9.]+", b",nan", content, count=line + 1),
            lambda: re.sub(rb",[0-9.]+", b",many", content, count=line + 1),
            lambda: b"\n".join([*lines[:line], b",".join(lines[line].split(b",")[:-1]), *lines[line + 1 :]]),
        ]
    return ways[int(rng.integers(len(ways)))]()


def without_advice(said: str) -> str:
    """What was said, without the command that may work. It stands in a line of its own."""
    advice = "fedepd: note: from what the tables look like"
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith(advice))


def tried(arguments: list[str], file: str, place: str, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether the command worked; if not, it said one sentence that names the file, the place and a cure."""
    code = main(arguments)
    err = capsys.readouterr().err
    if code == 0:
        return True
    assert code == 2
    err = without_advice(err)
    assert err.count("\n") == 1, err
    assert file in err, err
    assert re.search(place, err), err
    assert ";" in err, err
    return False


def test_two_hundred_damaged_files_get_no_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank_tables(here, nodes=40)
    assert main(IMPORT) == 0
    whole = {name: (here / name).read_bytes() for name in ("nodes.csv", "edges.csv", "bank.npz")}
    buffer = io.BytesIO()
    with np.load(io.BytesIO(whole["bank.npz"])) as arrays:
        np.savez(buffer, **arrays)  # not compressed, so that damage reaches the arrays
    whole["bank.npz"] = buffer.getvalue()
    worked = 0
    for number in range(200):
        rng = np.random.default_rng([7, number])
        name = list(whole)[number % 3]
        content = damaged(whole[name], rng, text=name.endswith(".csv"))
        (here / name).write_bytes(content)
        if name == "bank.npz":
            worked += tried(["data", "show", "bank.npz"], name, "array|damaged|empty|not an npz", capsys)
        else:
            # A sound table may still lack what the other one names, so either file may be
            # the one that is named.
            place = r"line \d+|empty|no rows|no column|single class|different values|two, the ends"
            worked += tried([*IMPORT[:-1], "out.npz"], ".csv", place, capsys)
            (here / name).write_bytes(whole[name])
    assert 10 < worked < 120  # some damage is harmless, most is not


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_no_name_in_a_file_steers_the_terminal(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Classes, owners, the columns of the schema, the file's own name.

    A file that cannot be used is refused in one line.
    """
    name = (
        text.replace("/", "_")
        .replace("\0", "_")[:60]
        .encode("utf-8", "surrogateescape" if "\udce9" in text else "replace")
    )
    path = tmp_path / "graphs" / f"x{name.decode('utf-8', 'surrogateescape')}.npz"
    path.parent.mkdir()
    graph = synthetic(nodes=60, edges=120, classes=3, imbalance=2, smallest=None, communities=3)
    names = tuple(f"{text}{number}".encode("utf-8", "replace").decode() for number in range(3))
    schema = json.dumps([{"name": text, "mean": 0.0, "scale": 1.0, "categories": None}])
    for part in (
        {"label_names": names},
        {"owner": graph.y.clamp(min=0), "owner_names": names},
        {"schema": schema},
        {},
    ):
        write_npz(replace(graph, **part), path)
        for arguments in (
            ["check", str(path)],
            ["show", str(path)],
            ["list", "--data-dir", str(tmp_path)],
            ["check", str(path), "--json"],
        ):
            code = main(["data", *arguments])
            out, err = capsys.readouterr()
            assert code in (0, 1, 2)
            check_lines(out + err)
            assert "x" * 81 not in out
            if code == 2 and err:
                assert err.startswith("fedepd: ")
                assert err.count("\n") == 1


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
@pytest.mark.parametrize("channel", ["class", "owner", "column", "category", "id"])
def test_no_name_in_a_table_steers_the_terminal(
    channel: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imported or refused: what is said of it is plain, and short."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode() or "x"
    rows: list[list[str]] = [["id", "label", "owner", "amount", "kind"]]
    rows += [[f"n{i}", "ab"[i % 2], "cd"[i % 2], str(i), "ef"[i % 2]] for i in range(20)]
    place = {"class": (1, 1), "owner": (1, 2), "column": (0, 3), "category": (1, 4), "id": (1, 0)}[channel]
    for row in rows[place[0] :: 2] if place[0] else rows[:1]:
        row[place[1]] = text if channel != "id" else f"{text}{row[3]}"
    files = {
        "nodes": rows,
        "edges": [["source", "target"], *([rows[i][0], rows[i % 20 + 1][0]] for i in range(1, 21))],
    }
    for name, lines in files.items():
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as f:
            csv.writer(f, quoting=csv.QUOTE_ALL).writerows(lines)
    given = [word for name in files for word in (f"--{name}", str(tmp_path / f"{name}.csv"))]
    code = main(["data", "import", *given, "--owner", "owner", "--one-hot", "-o", str(tmp_path / "out.npz")])
    out, err = capsys.readouterr()
    assert code in (0, 2)
    check_lines(out + err)
    assert "x" * 81 not in out
    assert all(line.startswith("fedepd: ") and len(line) <= 2010 for line in err.splitlines())


def test_show_tells_how_clients_differ(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a rule or a number of clients there is nothing about clients, as before."""
    write_npz(synthetic(nodes=200, edges=600, classes=4, smallest=None, imbalance=5), here / "g.npz")
    assert main(["data", "show", "g.npz", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(["data", "show", "g.npz", "--clients", "3", "--seed", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    clients = found.pop("clients")
    assert found == plain
    assert sum(each["nodes"] for each in clients) == 200
    assert all(0 <= each["label_divergence"] <= 1 and 0 <= each["clustering"] <= 1 for each in clients)
    assert main(["data", "show", "g.npz", "--by", "balanced", "--clients", "2"]) == 0
    said = capsys.readouterr().out
    assert "divergence" in said
    assert main(["data", "show", "g.npz", "--by", "nothing"]) == 2


def test_pack_writes_a_folder_that_is_the_same_graph(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a file holds beside its graph is packed too: here the notes of an import."""
    assert main(IMPORT) == 0
    assert main(["data", "pack", "bank.npz", "bank"]) == 0
    capsys.readouterr()
    shown = []
    for name in ("bank.npz", "bank"):
        assert main(["data", "show", name, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert import_notes("bank") == import_notes("bank.npz") != []
    assert main(["data", "pack", "bank.npz", "bank"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["data", "pack", "nothing.npz", "other"]) == 2
    assert not Path("other").exists()


def test_pack_rounds_to_float16_where_that_loses_little(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = synthetic(nodes=120, edges=300, classes=3, smallest=None, imbalance=4)
    write_npz(graph, here / "g.npz")
    assert main(["data", "pack", "g.npz", "half", "--float16"]) == 0
    assert json.loads(Path("half/graph.json").read_text())["arrays"]["x"]["dtype"] == "<f2"
    assert torch.equal(load("half").x, graph.x.to(torch.float16).to(torch.float32))
    # What is packed stays as it is when it is packed once more.
    assert main(["data", "pack", "half", "again"]) == 0
    assert Path("again/x.npy").read_bytes() == Path("half/x.npy").read_bytes()
    write_npz(replace(graph, x=1e5 * graph.x), here / "large.npz")
    capsys.readouterr()
    assert main(["data", "pack", "large.npz", "other", "--float16"]) == 2
    assert "float16 ends at 65504; scale the column" in " ".join(capsys.readouterr().err.split())
    assert not Path("other").exists()


def test_a_run_on_a_packed_graph_has_the_same_weights(here: Path) -> None:
    write_npz(synthetic(nodes=120, edges=300, classes=3, smallest=None, imbalance=4), here / "g.npz")
    assert main(["data", "pack", "g.npz", "g"]) == 0
    found = [run(name, "fedavg", rounds=1, clients=2, hidden=8).summary for name in ("g.npz", "g")]
    for name in ("weights_sha256", "config_hash"):
        assert found[0][name] == found[1][name]
