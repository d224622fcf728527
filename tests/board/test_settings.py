"""The form has the settings of the command line, and no others."""

from __future__ import annotations

import json

import pytest

from fedepd.board import settings
from fedepd.board.settings import Settings, described, main
from fedepd.cli.runs import _run_parser
from fedepd.errors import BadConfig


@pytest.mark.parametrize("method", ["fedepd", "fedavg"])
def test_every_setting_has_its_option(method: str) -> None:
    parser = _run_parser(method)
    shown = {action.dest: action for group in parser._action_groups[2:] for action in group._group_actions}
    found = {each["name"]: each for group in described(method)["groups"] for each in group["settings"]}
    assert found.keys() == shown.keys()
    for name, each in found.items():
        assert (shown[name].help or "").replace("%%", "%") == f"{each['help']} (default: {each['default']})"
        if each["choices"]:
            assert shown[name].metavar == "|".join(each["choices"])


def test_methods_and_presets() -> None:
    found = described("fedepd")
    assert {"fedepd", "fedavg"} <= set(found["methods"])
    assert "printed" in found["presets"]


def test_it_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fedavg"]) == 0
    assert json.loads(capsys.readouterr().out) == described("fedavg")
    assert main(["fedavgg"]) == 2
    assert "fedavgg" in capsys.readouterr().err


@pytest.mark.heavy
def test_the_board_asks_a_process_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Settings()
    assert known.of("fedavg") == described("fedavg")
    monkeypatch.setattr("fedepd.board.settings.subprocess.run", None)
    assert known.of("fedavg") == described("fedavg")


def test_an_answer_that_does_not_come_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PATIENCE", 0.0)
    with pytest.raises(BadConfig, match="try again"):
        Settings().of("fedavg")
