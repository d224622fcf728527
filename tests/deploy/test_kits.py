"""Kits as NVFlare's tool makes them, and the policy that each party writes into its own."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy import kits
from fedepd.deploy.contents import SIGNED, entries
from fedepd.errors import BadConfig, BadData
from toy import toy_client


@pytest.fixture
def made(made_kits: Path) -> Path:
    return made_kits


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def test_every_participant_has_a_private_kit(made: Path) -> None:
    assert sorted(p.name for p in (made / "fed").iterdir()) == [
        "admin",
        "authority",
        "bank-a",
        "bank-b",
        "server",
    ]
    for kit in (made / "fed").iterdir():
        assert stat.S_IMODE(kit.stat().st_mode) == 0o700
    assert kits.open_kit(made / "fed" / "bank-b", "client").name == "bank-b"
    assert kits.open_kit(made / "fed" / "admin", "admin").sites == ("bank-a", "bank-b")
    assert stat.S_IMODE((made / "fed" / "bank-a" / "startup" / "client.key").stat().st_mode) == 0o600


def test_a_kit_holds_certificates_what_was_agreed_and_the_manifest(made: Path) -> None:
    found = sorted(path for path, is_folder in entries(made / "fed" / "bank-b").items() if not is_folder)
    assert found == ["local/federation.json", "manifest.json", "manifest.sig", *sorted(SIGNED["client"])[1:]]
    assert not list((made / "fed" / "authority").rglob("*.key"))


def test_an_owners_policy(made: Path, kit: Path) -> None:
    assert main(["federation", "join", str(kit), "--data", str(made / "a.npz"), "--check"]) == 0
    resources, rights = (
        read(kit / "local" / "resources.json"),
        read(kit / "local" / "authorization.json")["permissions"],
    )
    assert resources["class_allow_list"] == [
        "fedepd.deploy.executor.SiteExecutor",
        "fedepd.deploy.filters.MinCount",
    ]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert "site_log_streamer" not in [c["id"] for c in resources["components"]]
    assert {
        rights["project_admin"][right] for right in ("byoc", "shell_commands", "operate", "clone_job")
    } == {"none"}
    assert rights.keys() == {"project_admin", "member"}
    assert rights["member"] == {"view": "any"}
    assert read(kit / "local" / kits.SITE_FILE) == {"data": str((made / "a.npz").resolve()), "allow": []}
    startup = read(kit / "startup" / "fed_client.json")
    assert startup["client"]["connection_security"] == "mtls"
    assert startup["servers"][0]["service"]["target"] == "localhost:8002"
    assert startup["require_signed_jobs"] is True


def test_the_servers_policy_keeps_jobs_in_the_kit(made: Path, tmp_path: Path) -> None:
    kit = Path(shutil.copytree(made / "fed" / "server", tmp_path / "server"))
    kits.prepare_server(kit)
    text = (kit / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    assert json.loads(text)["class_allow_list"] == ["fedepd.deploy.controller.FederationController"]
    assert read(kit / "local" / "authorization.json")["permissions"]["project_admin"]["byoc"] == "none"


def test_data_that_does_not_fit_is_refused_before_anything_is_written(made: Path, tmp_path: Path) -> None:
    write_client_file(toy_client(train=False), tmp_path / "b.npz")
    with pytest.raises(BadData, match="no training node"):
        kits.prepare_site(made / "fed" / "bank-b", tmp_path / "b.npz")
    assert not (made / "fed" / "bank-b" / "local" / "resources.json").exists()


@pytest.mark.parametrize("sites", [["a", "a"], ["A"], ["server"], [""], ["../x"]])
def test_site_names_that_cannot_be_used(tmp_path: Path, sites: list[str]) -> None:
    with pytest.raises(BadConfig, match="site"):
        kits.provision(tmp_path / "fed", sites, "localhost", 8002, {})
    assert not (tmp_path / "fed").exists()


def test_a_folder_that_is_no_kit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation", "start", str(tmp_path)]) == 2
    assert "is not a kit, because it has no manifest.json" in capsys.readouterr().err


def test_preview_says_what_leaves_the_house(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FedEPD with h = 4: 232 bytes, and 4 numbers of 8.

    Encoder 6 x 4 + 4, classifier 4 x 3 + 3, prototypes 3 x 4 and 3 counts, of 4 bytes each.
    """
    arguments = [
        "federation",
        "preview",
        str(made / "fed" / "bank-a"),
        "--data",
        str(made / "a.npz"),
        "--hidden",
        "4",
    ]
    assert main([*arguments, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["bytes_per_round"] == 4 * (6 * 4 + 4 + 4 * 3 + 3 + 3 * 4 + 3) + 4 * 8
    assert {
        each["field"]
        for each in seen["fields"]
        if each["when"] not in ("every round", "before the first round")
    } == {
        "pruning.votes",
        *(f"{kind}_{split}" for kind in ("global", "personal") for split in ("val", "test")),
    }
    votes = {"field": "pruning.votes", "shape": [2], "bytes": 8, "when": "once", "seen": "the coordinator"}
    assert votes in seen["fields"]
    before = {
        each["field"]: (each["shape"], each["bytes"])
        for each in seen["fields"]
        if each["when"] == "before the first round"
    }
    sizes = {f"class_sizes.{name}": ([3], 24) for name in ("train", "val", "test")}
    numbers: dict[str, Any] = {"num_nodes": ([], 8), "num_train": ([], 8)}
    assert before == {**sizes, **numbers, "label_names": ([0], 0), "schema_sha256": ([], 0)}
    assert seen["counts"]["prototype.count"][2] == 0  # the guard keeps it at home
    assert seen["withheld"][0].startswith("class 2: fewer than 5 training nodes here")
    assert seen["warnings"] == []
    assert main(arguments) == 0
    assert "prototype.sum" in capsys.readouterr().out
    assert main([*arguments, "--guard", "no", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["counts"]["prototype.count"][2] == 1
    assert any("2" in w.split(":")[0] and "the embedding of a single node" in w for w in seen["warnings"])


def test_actions_are_listed_and_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation"]) == 2
    assert "rehearse" in capsys.readouterr().out
    assert main(["federation", "joyn"]) == 2
    assert "did you mean 'join'" in capsys.readouterr().err


@pytest.mark.hostile
def test_limits_that_came_with_the_kit_are_not_believed(made: Path, tmp_path: Path) -> None:
    """Whoever made the kit could have written local/limits.toml.

    The owner must say that it is the owner's own.
    """
    kit = tmp_path / "bank-b"
    shutil.copytree(made / "fed" / "bank-b", kit)
    (kit / "local" / "limits.toml").write_text('optimizers = ["adam", "sgd"]\nmax_hidden = 4096\n')
    with pytest.raises(BadConfig, match=r"max_hidden = 4096.*--looser-limits"):
        kits.prepare_site(kit, made / "a.npz")
    assert not (kit / "local" / "resources.json").exists()
    kits.prepare_site(kit, made / "a.npz", looser=True)


def test_joining_writes_the_safe_limits_once(made: Path, tmp_path: Path) -> None:
    kit = tmp_path / "bank-b"
    shutil.copytree(made / "fed" / "bank-b", kit)
    kits.prepare_site(kit, made / "a.npz")
    own = (kit / "local" / "limits.toml").read_text().replace("max_hidden = 256", "max_hidden = 64")
    (kit / "local" / "limits.toml").write_text(own)
    kits.prepare_site(kit, made / "a.npz")
    assert (kit / "local" / "limits.toml").read_text() == own
