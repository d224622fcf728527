"""The preview tells an owner what a coordinator could rebuild and which limits hold here.

It also tells whether the run would be refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import raw_columns
from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.kits import provision
from fedepd.deploy.limits import Limits
from fedepd.deploy.preview import Preview, preview
from fedepd.deploy.task import FederationTask
from toy import CLASSES, FEATURES, toy_client

TRAP = {"backbone": "sage", "hidden": 512, "dropout": 0, "optimizer": "sgd", "lr": 1e6, "epochs": 1}


@pytest.fixture
def seen(tmp_path: Path) -> Any:
    write_client_file(toy_client(0), tmp_path / "a.npz")

    def look(method: str = "fedavg", limits: Limits | None = None, **settings: Any) -> Preview:
        task = FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a",))
        return preview(task, "a", tmp_path / "a.npz", limits)

    return look


@pytest.mark.hostile
def test_a_trap_is_measured_and_refused(seen: Any) -> None:
    found = seen(**TRAP)
    assert found.recovery.share > 0.5
    assert found.refusal is not None
    assert "limits.toml says" in found.refusal


def test_the_default_settings_give_next_to_nothing_away(seen: Any) -> None:
    found = seen("fedepd")
    assert found.refusal is None
    assert found.recovery.nodes <= 1
    assert "max_hidden = 256" in found.limits


def test_looser_limits_are_a_warning(seen: Any) -> None:
    found = seen(limits=Limits(max_hidden=4096))
    assert "limits.toml permits more than the safe limits: max_hidden = 4096" in found.warnings


def test_the_command_prints_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provision(tmp_path / "fed", ["a", "b"], "localhost", 8002, {})
    write_client_file(toy_client(0, one_node_class=True), tmp_path / "a.npz")
    kit = tmp_path / "fed" / "a"
    arguments = ["federation", "preview", str(kit), "--data", str(tmp_path / "a.npz"), "--hidden", "8"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "could rebuild the features of" in said
    assert "the safe ones, which join will write" in said
    assert 'optimizers = ["adam"]' in said
    assert "this run is within the limits" in said
    assert "kept at home: class 2: fewer than 5 training nodes here" in said
    (kit / "local" / "limits.toml").write_text("max_hidden = 4\n")
    assert main(arguments) == 0
    assert "this site would refuse the run: the run asks for hidden = 8" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recovery"]["of"] == 24
    (kit / "local" / "limits.toml").write_text("max_hidden = four\n")
    assert main(arguments) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_under_secure_sums_nobody_sees_a_number_of_the_site_alone(tmp_path: Path) -> None:
    """FedEPD with h = 4 and three sites, bytes per round: 8 for each of the 58 numbers of a reply.

    Beside them 4 weights of averaged tensors, 5 facts about the reply, and 576 + 2 * 226 + 3 * 132 of masks.
    """
    write_client_file(toy_client(0), tmp_path / "a.npz")
    task = FederationTask("r", "fedepd", "default", {"hidden": 4}, FEATURES, CLASSES, ("a", "b", "c"))
    found = preview(task, "a", tmp_path / "a.npz")
    assert found.refusal is None
    assert {
        each.seen for each in found.fields if each.field not in ("masks", "label_names", "schema_sha256")
    } == {"nobody alone: only the sum over all sites"}
    assert found.bytes_per_round == 8 * (58 + 4 + 5) + 576 + 2 * 226 + 3 * 132
    assert [each.field for each in found.fields if each.when == "once"] == ["pruning.votes"]
    assert "with three sites, two that work together" in found.warnings[0]


@pytest.mark.parametrize(
    ("secure", "seen"), [(True, "only the sum over all sites"), (False, "the coordinator")]
)
def test_statistics_are_listed_before_the_first_round(tmp_path: Path, secure: bool, seen: str) -> None:
    """Two scaled columns: rows, 7 limbs of the sum and 12 of the squares each, 8 bytes a number."""
    client = toy_client(0)
    write_client_file(client, tmp_path / "a.npz", raw_columns(client, (1, 3)))
    settings = {"hidden": 4, "secure": secure, "features": "row_normalised"}
    task = FederationTask(
        "r", "fedavg", "default", settings, FEATURES, CLASSES, ("a", "b", "c"), scaled=(1, 3), counted=(0,)
    )
    found = preview(task, "a", tmp_path / "a.npz")
    fields = {each.field: each for each in found.fields if each.field.startswith("statistics.")}
    sizes = {"rows": 16, "totals": 112, "squares": 192, "categories": 8}
    assert {name.split(".")[1]: each.bytes for name, each in fields.items()} == sizes
    assert all(seen in each.seen and each.when == "before the first round" for each in fields.values())


def test_what_of_the_statistics_stays_at_home_is_told(tmp_path: Path) -> None:
    client = toy_client(0, nodes=4)
    write_client_file(client, tmp_path / "a.npz", raw_columns(client, (1,)))
    task = FederationTask("r", "fedavg", "default", {"hidden": 4}, FEATURES, CLASSES, ("a", "b"), scaled=(1,))
    found = preview(task, "a", tmp_path / "a.npz")
    assert any("fewer than 5 rows here, so nothing about its columns is sent" in w for w in found.withheld)
