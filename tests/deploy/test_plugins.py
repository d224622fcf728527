"""Methods and backbones of another package in a federation run only where their full name was allowed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.running import make_task
from deploy.test_executor import Site, stop
from fedepd.cli import main
from fedepd.deploy import executor as module
from fedepd.deploy.kits import prepare_server, prepare_site
from fedepd.deploy.limits import Limits
from fedepd.deploy.owner import check_allowed
from fedepd.deploy.policy import BASES, JobForm, check_component
from fedepd.deploy.task import FederationTask
from fedepd.deploy.templates import CONTROLLER, EXECUTOR, FILTERS, job, resources
from fedepd.errors import FedEPDError
from plugin_code import METHOD, NETWORK

Install = Callable[..., Path]
OURS = {"client": [EXECUTOR, *FILTERS], "server": [CONTROLLER]}
NOT_QUITE = [[], ["theirs"], ["theirs.Min"], ["theirs.MineX"], ["mine"], ["theirs:Mine"]]


@pytest.fixture
def theirs(plugged: Install) -> None:
    """Installed here, as at a site that uses it for something else."""
    plugged("theirs", METHOD, methods={"mine": "theirs:Mine"})


class PluggedSite(Site):
    """As ``Site``, but the task, which is made without importing anything, names the plug-in's method."""

    def __init__(self, folder: Path, allowed: list[str]) -> None:
        super().__init__(folder)
        made = resources("client", folder, allowed)
        (folder / "local" / "resources.json").write_text(json.dumps(made))
        honest = self.task
        text = honest.to_json().replace('"fedavg"', '"mine"')
        self.task = type("Text", (), {"to_json": lambda self: text})()
        self.honest = honest


@pytest.mark.hostile
@pytest.mark.parametrize("allowed", NOT_QUITE)
def test_a_site_that_did_not_allow_it_neither_runs_nor_imports_it(
    theirs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: list[str]
) -> None:
    monkeypatch.setattr(module, "site_data", lambda *a: pytest.fail("the data was read"))
    site = PluggedSite(tmp_path, allowed)
    made = site.start()
    assert made._admitted is None
    assert len(site.log) == 1
    assert "method 'mine' is of the package theirs 1.0 and not allowed here" in site.log[0]
    assert "theirs" not in sys.modules


@pytest.mark.hostile
def test_a_site_without_its_policy_allows_nothing(theirs: None, tmp_path: Path) -> None:
    site = PluggedSite(tmp_path, ["theirs.Mine"])
    (tmp_path / "local" / "resources.json").unlink()
    assert site.start()._admitted is None
    assert "theirs" not in sys.modules


def test_a_site_that_allowed_it_answers(theirs: None, tmp_path: Path) -> None:
    """Its limits.toml lists our own methods alone; the owner's word at the start is enough."""
    site = PluggedSite(tmp_path, ["theirs.Mine"])
    made = site.start()
    assert site.log == []
    site.task = site.honest  # the same tensors cross
    assert site.ask(made, round=1)["round"] == 1
    stop(made, site)


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_job_that_names_it_is_taken_only_where_it_is_allowed(
    theirs: None, tmp_path: Path, side: str
) -> None:
    text = make_task("r", "fedavg").to_json().replace('"fedavg"', '"mine"')
    (tmp_path / "app" / "config").mkdir(parents=True)
    for name, content in job(text, False).items():
        (tmp_path / "app" / "config" / name).write_text(json.dumps(content))
    for allowed in NOT_QUITE:
        said = JobForm(side, [*OURS[side], *allowed]).validate(str(tmp_path / "app"))[0]
        assert "not allowed here" in said
        assert "theirs" not in sys.modules
    assert JobForm(side, [*OURS[side], "theirs.Mine"]).validate(str(tmp_path / "app")) == ("", {})


@pytest.mark.hostile
@pytest.mark.parametrize("side", ["client", "server"])
def test_an_allowed_method_is_still_no_component_of_a_job(theirs: None, side: str) -> None:
    with pytest.raises(FedEPDError, match=r"is not derived from (Executor|Controller)"):
        check_component({"path": "theirs.Mine", "args": {}}, [*OURS[side], "theirs.Mine"], BASES[side])


def test_the_limits_list_our_own_methods_alone(theirs: None) -> None:
    task: Any = make_task("r", "mine")
    assert "mine" not in Limits().methods
    refusal = Limits().refusal(task)
    assert refusal is not None
    assert refusal.startswith('the run asks for method = "mine", but this site\'s limits.toml says')
    assert Limits().refusal(task, ["theirs.Mine"]) is None
    assert Limits(max_hidden=1).refusal(task, ["theirs.Mine"]) is not None


def test_a_backbone_runs_where_its_owner_allows_it(plugged: Install) -> None:
    plugged("nets", NETWORK, backbones={"plain": "nets:Plain"})
    settings = {"backbone": "plain", "hidden": 4}
    task = FederationTask("r", "fedavg", "default", settings, 4, 3, ("a", "b"))
    refusal = Limits().refusal(task)
    assert refusal is not None
    assert refusal.startswith('the run asks for backbone = "plain", but this site\'s limits.toml says')
    assert Limits().refusal(task, ["nets.Plain"]) is None
    assert check_allowed(["nets.Plain"]) == check_allowed(["nets.Plain"], "server") == ["nets.Plain"]


def test_owners_allow_it_at_every_start(theirs: None, kit: Path, made_kits: Path, tmp_path: Path) -> None:
    def allowed(folder: Path) -> list[str]:
        listed: list[str] = json.loads((folder / "local" / "resources.json").read_bytes())["class_allow_list"]
        return listed

    prepare_site(kit, made_kits / "a.npz", ["theirs.Mine"])
    assert allowed(kit) == [*OURS["client"], "theirs.Mine"]
    prepare_site(kit, made_kits / "a.npz")
    assert allowed(kit) == OURS["client"]
    server = Path(shutil.copytree(made_kits / "fed" / "server", tmp_path / "server"))
    prepare_server(server, ["theirs.Mine"])
    assert allowed(server) == [*OURS["server"], "theirs.Mine"]
    prepare_server(server)
    assert allowed(server) == OURS["server"]
    with pytest.raises(FedEPDError, match="is not derived from Method or Network; name a class that is"):
        prepare_server(server, [EXECUTOR])


def test_a_rehearsal_takes_it_because_whoever_types_the_name_means_it(
    theirs: None, made_kits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(made_kits / "a.npz")
    assert (
        main(["federation", "rehearse", file, file, "--method", "mine", "--rounds", "1", "--hidden", "4"])
        == 0
    )
    assert capsys.readouterr().out.startswith("digest ")
