"""The preview tells an owner what a coordinator could rebuild, which limits hold here, and whether the run would be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.datasets.client_file import write_client_file
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


def kit(folder: Path) -> list[str]:
    """As much of a kit as the preview reads."""
    for name, content in {
        "local/fedepd_kit.json": {"sites": ["a", "b"]},
        "startup/fed_client.json": {"client": {"fqsn": "a"}},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    write_client_file(toy_client(0, one_node_class=True), folder / "a.npz")
    return ["federation", "preview", str(folder), "--data", str(folder / "a.npz"), "--hidden", "8"]


def test_the_command_prints_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fedepd.deploy import kits

    monkeypatch.setattr(kits, "about", lambda kit: {"sites": ["a", "b"]})
    monkeypatch.setattr(kits, "kit_name", lambda kit, kind: "a")
    arguments = kit(tmp_path)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "could rebuild the features of" in said
    assert "the safe ones, as join will write them" in said
    assert 'optimizers = ["adam"]' in said
    assert "this run is within the limits" in said
    assert "not hide that the class is here" in said
    (tmp_path / "local" / "limits.toml").write_text("max_hidden = 4\n")
    assert main(arguments) == 0
    assert "this site would refuse the run: the run asks for hidden = 8" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recovery"]["of"] == 24
    (tmp_path / "local" / "limits.toml").write_text("max_hidden = four\n")
    assert main(arguments) == 2
    assert "cannot be used" in capsys.readouterr().err
