"""Other packages' methods, datasets, partitions and backbones: found by name, checked, left out if unfit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fedepd import plugins
from fedepd.cli import main
from fedepd.clients.partition import PARTITIONS, PartitionConfig, partition
from fedepd.datasets import DATASETS, available, load
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.methods import METHODS
from fedepd.model.model import load_model
from fedepd.network.backbones import BACKBONES, Backbone
from fedepd.plugins import Registry
from fedepd.runs.experiment import Experiment
from plugin_code import METHOD, NETWORK

Install = Callable[..., Path]
QUICK = ["--rounds", "1", "--hidden", "4", "--clients", "2", "--quiet", "--json"]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fedepd.plugins"]


@pytest.mark.parametrize("fault", [AssertionError, AttributeError, ValueError])
def test_an_entry_point_of_another_form_names_nothing(
    fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python raises depends on its version: 3.13 asserts where 3.11 has no attribute."""

    def module(entry: EntryPoint) -> str:
        raise fault

    monkeypatch.setattr(EntryPoint, "module", property(module))
    plugin = plugins.Plugin.of(EntryPoint("mine", "the irs!:x", "fedepd.methods"))
    assert (plugin.name, plugin.module, plugin.attribute) == ("mine", "", "")


def test_a_registry_is_a_mapping_like_the_dict_it_was() -> None:
    numbers: Registry[int] = Registry(
        "fedepd.no-such-group", "number", {"one": 1, "two": 2}, lambda name, found: 3
    )
    assert dict(numbers) == {"one": 1, "two": 2} == numbers.built_in
    assert len(numbers) == 2
    assert "three" not in numbers
    assert numbers.get("three") is None
    with pytest.raises(KeyError):
        numbers["three"]


def test_a_method_is_found_by_name_and_says_where_it_is_from(
    plugged: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plugged("theirs", METHOD, methods={"mine": "theirs:Mine"})
    assert METHODS["mine"].label == "Mine"
    assert list(METHODS)[-1] == "mine"
    assert METHODS.origin("mine") == "theirs 1.0"
    assert METHODS.origin("fedavg") == "fedepd"
    assert Experiment.make("mine", tau="2").method.tau == 2.0  # type: ignore[attr-defined]
    assert main(["methods"]) == 0
    assert "theirs 1.0" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "mine", "--tau", "2", *QUICK]) == 0


def test_an_object_of_a_registered_class_is_called_by_its_name(plugged: Install) -> None:
    """Also where the entry point names it through another module than its own."""
    plugged("theirs", METHOD + "\nInner = Mine\n", methods={"mine": "theirs:Inner"})
    by_name = Experiment.make("mine", tau=2)
    by_object = Experiment.make(METHODS["mine"](tau=2.0))  # type: ignore[call-arg]
    assert by_object == by_name
    assert by_object.config_hash("data") == by_name.config_hash("data")


def test_nothing_is_imported_before_it_is_asked_for(plugged: Install) -> None:
    plugged("theirs", METHOD, methods={"mine": "theirs:Mine"})
    assert METHODS["fedavg"]
    assert METHODS.names()[-1] == "mine"
    assert "theirs" not in sys.modules
    assert "mine" in METHODS
    assert "theirs" in sys.modules


BROKEN = {
    "fails on import": ("import no_such_module_at_all", "theirs:Mine", "No module named"),
    "ends the program": ("raise SystemExit(3)", "theirs:Mine", "SystemExit: 3"),
    "lacks it": ("", "theirs:Mine", "has no attribute 'Mine'"),
    "is no class": ("Mine = 3", "theirs:Mine", "'3' is not derived from fedepd.methods.Method"),
    "is no method": ("class Mine: pass", "theirs:Mine", "'Mine' is not derived from fedepd.methods.Method"),
    "is not frozen": (
        METHOD.replace("frozen=True", "").replace("(Method)", "(Method)"),
        "theirs:Mine",
        "frozen",
    ),
    "lacks a half": (METHOD.replace("def predict", "def guess"), "theirs:Mine", "does not define predict"),
    "has no label": (
        METHOD.replace('label: ClassVar[str] = "Mine"', ""),
        "theirs:Mine",
        "has no label for tables",
    ),
    "has a hostile label": (
        METHOD.replace('= "Mine"', '= "a\\x1b[31mb"'),
        "theirs:Mine",
        "has no label for tables",
    ),
    "has no help": (
        METHOD.replace('option(1.0, "what the loss is divided by")', "1.0"),
        "theirs:Mine",
        "no help text",
    ),
    "has no default": (
        METHOD.replace(' = option(1.0, "what the loss is divided by")', ""),
        "theirs:Mine",
        "no default",
    ),
    "has an odd field": (METHOD.replace("tau: float", "tau: list"), "theirs:Mine", "use bool, int, float"),
    "has an odd preset": (
        METHOD + "\nMine.presets = {'default': {'rho': 1}}",
        "theirs:Mine",
        "sets what is no field",
    ),
    "is a module": (METHOD, "theirs", "names no object"),
    "has an odd value": (METHOD, "the irs!:x", "names no object"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_method_is_named_once_and_left_out(
    case: str, plugged: Install, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    code, value, reason = BROKEN[case]
    plugged("theirs", code, methods={"mine": value})
    with pytest.raises(UnknownName):
        Experiment.make("mine")
    assert main(["methods"]) == 0
    assert "theirs" not in capsys.readouterr().out
    assert dict(METHODS) == METHODS.built_in
    told = warned(caplog)
    assert len(told) == 1
    assert told[0].startswith("fedepd: method 'mine' of the package theirs 1.0 is left out: ")
    assert reason in told[0]
    assert told[0].isprintable()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedavg", "fedepd has a method of that name"),
        ("../up", "rename"),
        ("a:b", "rename"),
        ("\x1b[31mred", "rename"),
        ("Upper", "rename"),
        ("a" * 41, "rename"),
        ("-rf", "rename"),
        ("a b", "rename"),
    ],
)
def test_a_name_that_is_taken_or_hostile_is_left_out(
    name: str, reason: str, plugged: Install, caplog: pytest.LogCaptureFixture
) -> None:
    ours = METHODS["fedavg"]
    plugged("theirs", METHOD, methods={name: "theirs:Mine"})
    assert dict(METHODS) == METHODS.built_in
    assert METHODS["fedavg"] is ours
    told = warned(caplog)
    assert len(told) == 1
    assert reason in told[0]
    assert told[0].isprintable()


def test_a_name_that_two_packages_bring_is_nobodys(
    plugged: Install, caplog: pytest.LogCaptureFixture
) -> None:
    plugged("first", METHOD, methods={"mine": "first:Mine"})
    plugged("second", METHOD, methods={"mine": "second:Mine", "other": "second:Mine"})
    assert set(METHODS) - METHODS.built_in.keys() == {"other"}
    first, second = warned(caplog)
    assert "of the package first 1.0 is left out: another package brings one of that name" in first
    assert "of the package second 1.0 is left out: another package brings one of that name" in second


def test_what_is_not_allowed_is_neither_used_nor_imported(plugged: Install) -> None:
    plugged("theirs", METHOD, methods={"mine": "theirs:Mine"})
    for allowed in ((), ("theirs",), ("theirs.M",), ("theirs.Mine.x",), ("mine",)):
        with plugins.only(allowed):
            with pytest.raises(
                BadConfig, match=r"not allowed here; its owner allows it by .*--allow theirs.Mine"
            ):
                Experiment.make("mine")
            assert dict(METHODS) == METHODS.built_in
        assert "theirs" not in sys.modules
    with plugins.only(["theirs.Mine"]):
        assert Experiment.make("mine").method_name == "mine"
    with plugins.only(()), pytest.raises(BadConfig, match="not allowed here"):
        Experiment.make("mine")  # also once it is imported
    assert METHODS.allowed(["theirs.Mine", "theirs.Other"]) == ["mine"]


def test_the_command_line_says_one_sentence_and_goes_on(plugged: Install) -> None:
    """In a process of its own: the warning is on stderr, and what a plug-in prints is no result."""
    folder = plugged("theirs", "print('hello'); 1/0", methods={"mine": "theirs:Mine"})
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); from fedepd.cli import main; "
    code = start + "sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "methods"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "fedavg" in done.stdout
    assert "hello" not in done.stdout
    told = "fedepd: method 'mine' of the package theirs 1.0 is left out: ZeroDivisionError: division by zero;"
    assert done.stderr == f"hello\n{told} repair or remove that package\n"
    loaded = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from fedepd.cli import main; main(['--help']);"
    )
    loaded += "print([m for m in ('torch', 'theirs', 'importlib.metadata') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]"


# Datasets

GRAPHS = '''
from pathlib import Path
import torch
from fedepd import Graph
def ring():
    """Ring: thirty nodes in a circle."""
    n = torch.arange(30)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    return Graph.make(x, torch.stack([n, (n + 1) % 30]), n % 3)
def in_folder(folder):
    assert isinstance(folder, Path)
    return ring()
def in_data_dir(size=3, data_dir=None):
    return in_folder(data_dir)
def of_two(a, b): pass
def no_graph(): return 3
def fails(): raise ValueError("gone\\x1b[31m")
def crooked():
    import dataclasses
    return dataclasses.replace(ring(), edge_index=torch.tensor([[3], [1]]))
number = 3
'''


@pytest.fixture
def graphs(plugged: Install) -> None:
    names = ("ring", "in_folder", "in_data_dir", "of_two", "no_graph", "fails", "crooked", "number")
    plugged("maps", GRAPHS, datasets={name: f"maps:{name}" for name in names})


def test_a_dataset_is_a_function_of_nothing_or_of_the_data_folder(graphs: None, tmp_path: Path) -> None:
    for name in ("ring", "in_folder", "in_data_dir"):
        assert load(name, tmp_path).num_nodes == 30


def test_a_dataset_is_listed_with_its_first_line_and_its_package(
    graphs: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    row = next(row for row in available(tmp_path) if row.name == "ring")
    assert row.present
    assert row.description == "Ring: thirty nodes in a circle. (from maps 1.0)"
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert sorted(line.split("'")[1] for line in warned(caplog)) == ["number", "of_two"]
    assert main(["run", "fedavg", "--data", "ring", *QUICK]) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_graph", "gave int, not a Graph"),
        ("fails", r"failed \(ValueError: gone\?\[31m\)"),
        ("crooked", "not in the form"),
    ],
)
def test_a_dataset_that_gives_no_graph_is_refused(
    name: str, reason: str, graphs: None, tmp_path: Path
) -> None:
    with pytest.raises(BadData, match=reason):
        load(name, tmp_path)
    assert name in DATASETS


# Partitions

RULES = """
import numpy as np
import torch
def halves(graph, clients, seed):
    return np.arange(graph.num_nodes) % clients
def drawn(graph, clients, seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(clients, size=graph.num_nodes))
def short(graph, clients, seed): return np.zeros(3, dtype=np.int64)
def floats(graph, clients, seed): return np.zeros(graph.num_nodes)
def beyond(graph, clients, seed): return np.full(graph.num_nodes, clients)
def below(graph, clients, seed): return np.full(graph.num_nodes, -1)
def texts(graph, clients, seed): return "all of them"
def fails(graph, clients, seed): return 1 / 0
"""


@pytest.fixture
def rules(plugged: Install) -> None:
    names = ("halves", "drawn", "short", "floats", "beyond", "below", "texts", "fails")
    plugged("cuts", RULES, partitions={name: f"cuts:{name}" for name in names})


def test_a_partition_is_a_function_of_graph_clients_and_seed(rules: None) -> None:
    graph = load("synthetic")
    assert partition(graph, PartitionConfig(partition="halves", clients=3), 0).owner[:4].tolist() == [
        0,
        1,
        2,
        0,
    ]
    one, same, other = (
        partition(graph, PartitionConfig(partition="drawn", clients=3), s).owner for s in (0, 0, 1)
    )
    assert one.tolist() == same.tolist() != other.tolist()
    assert main(["run", "fedavg", "--partition", "halves", *QUICK]) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("short", r"gave int64 \[3\]; return int64 \[1500\]"),
        ("floats", "gave float64"),
        ("texts", "gave str"),
        ("beyond", r"gave clients 3 to 3; number them 0\.\.2"),
        ("below", "gave clients -1 to -1"),
        ("fails", "ZeroDivisionError"),
    ],
)
def test_what_a_partition_returns_is_checked(name: str, reason: str, rules: None) -> None:
    with pytest.raises(BadConfig, match=reason):
        partition(load("synthetic"), PartitionConfig(partition=name, clients=3), 0)


def test_an_unknown_partition_is_refused_with_the_choices(rules: None) -> None:
    with pytest.raises(UnknownName, match="unknown partition rule 'halfs'; did you mean 'halves'"):
        Experiment.make("fedavg", partition="halfs")
    assert list(PARTITIONS)[:3] == ["openfgl", "balanced", "dirichlet"]


def test_the_settings_of_a_task_import_no_partition_either(rules: None) -> None:
    settings: dict[str, Any] = {"partition": "halves"}
    with plugins.only(()), pytest.raises(BadConfig, match="not allowed here"):
        Experiment.make("fedavg", **settings)
    assert "cuts" not in sys.modules


def test_a_rule_of_another_package_reads_no_setting_of_ours(rules: None) -> None:
    """It is given graph, clients and seed, so that a resolution given beside it would change nothing."""
    with pytest.raises(BadConfig, match=r"resolution is 2.0, but with partition = halves it changes nothing"):
        Experiment.make("fedavg", partition="halves", resolution=2)


def test_the_help_names_the_plugins_and_imports_none(
    rules: None, nets: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "fedavg", "--help"]) == 0
    said = "".join(capsys.readouterr().out.split())
    assert "|louvain+|below|beyond|drawn|fails|floats|halves|short|texts|owner" in said
    assert "|h2gcn|plain|auto" in said
    assert not {"cuts", "layers_of_mine"} & sys.modules.keys()


# Backbones


@pytest.fixture
def nets(plugged: Install) -> None:
    plugged("layers_of_mine", NETWORK, backbones={"plain": "layers_of_mine:Plain"})


def test_a_backbone_is_found_by_name_and_by_its_object(nets: None, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["run", "fedavg", "--backbone", "plain", "--out", str(out), *QUICK]) == 0
    assert json.loads((out / "config.json").read_text())["experiment"]["model"]["backbone"] == "plain"
    cls: Any = BACKBONES["plain"]
    assert BACKBONES.origin("plain") == "layers_of_mine 1.0"
    assert Experiment.make("fedavg", backbone=cls()) == Experiment.make("fedavg", backbone="plain")
    assert Experiment.make("fedavg", backbone=cls(gain=2.0)).resolved()["model"]["backbone"] == {
        "name": "plain",
        "gain": 2.0,
    }


def test_an_exported_model_has_its_backbone_by_name(nets: None, tmp_path: Path) -> None:
    """Without the package, a sentence says what is missing."""
    run, out = tmp_path / "run", tmp_path / "model"
    assert main(["run", "fedavg", "--backbone", "plain", "--out", str(run), *QUICK]) == 0
    assert main(["export", str(run), "-o", str(out)]) == 0
    assert load_model(out).predict(load("synthetic")).probabilities.shape[0] == load("synthetic").num_nodes
    with plugins.only(()), pytest.raises(BadConfig, match=r"backbone 'plain' .*not allowed here"):
        load_model(out)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("(frozen=True)", ""), "is not a frozen dataclass"),
        (("def encode", "def decode"), "does not define encode"),
        (("(Network)", ""), "'Plain' is not derived from fedepd.network.contract.Network"),
        (("gain: float = 1.0", "gain: float"), "field 'gain' of backbone Plain has no default"),
        (("gain: float = 1.0", "gain: tuple = ()"), "use bool, int, float, str"),
        (("gain: float = 1.0", "name: float = 1.0"), "field 'name' of backbone Plain cannot be a setting"),
        (("gain: float", "gain: 'Unknown'"), "the types of backbone Plain's fields cannot be read"),
    ],
)
def test_a_broken_backbone_is_named_once_and_left_out(
    change: tuple[str, str], reason: str, plugged: Install, caplog: pytest.LogCaptureFixture
) -> None:
    plugged("broken", NETWORK.replace(*change), backbones={"plain": "broken:Plain"})
    with pytest.raises(UnknownName, match="unknown value of backbone 'plain'"):
        Backbone("plain")
    assert dict(BACKBONES) == BACKBONES.built_in
    told = warned(caplog)
    assert len(told) == 1
    assert told[0].startswith("fedepd: backbone 'plain' of the package broken 1.0 is left out: ")
    assert reason in told[0]


def test_a_task_imports_no_backbone_that_its_owner_did_not_allow(nets: None) -> None:
    with plugins.only(()), pytest.raises(BadConfig, match=r"--allow layers_of_mine.Plain"):
        Experiment.make("fedavg", backbone="plain")
    assert "layers_of_mine" not in sys.modules
    with plugins.only(["layers_of_mine.Plain"]):
        assert Experiment.make("fedavg", backbone="plain").model.backbone == "plain"
