"""The owner's privacy.json: what NVFlare builds from it without asking any list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.deploy.owner import check_privacy
from fedepd.deploy.templates import EXECUTOR, FILTERS
from fedepd.errors import FedEPDError

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
OURS = {"path": FILTERS[0], "args": {"k": 10}}
POPEN = {"path": "subprocess.Popen", "args": {"args": ["true"]}}


def policy(*filters: Any, **change: Any) -> dict[str, Any]:
    return {
        "scopes": [{"name": "own", "task_result_filters": list(filters)}],
        "default_scope": "own",
        **change,
    }


def test_the_form_of_the_page_works(kit: Path, made_kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = PAGE.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    (kit / "local" / "privacy.json").write_text(form)
    assert check_privacy(kit, ()) == ["MinCount(k=10)"]
    assert main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]) == 0
    assert "MinCount(k=10)" in capsys.readouterr().out
    assert (kit / "local" / "privacy.json").read_text() == form


def test_without_a_file_there_are_no_filters(kit: Path) -> None:
    assert check_privacy(kit, ()) == []


ODD: dict[str, Any] = {
    "popen": policy(POPEN),
    "popen after ours": policy(OURS, POPEN),
    "popen on data": {"scopes": [{"name": "own", "task_data_filters": [POPEN]}], "default_scope": "own"},
    "a function of ours": policy({"path": "fedepd.cli.federation.main"}),
    "an executor": policy({"path": EXECUTOR}),
    "a method of a filter": policy({"path": FILTERS[0] + ".process"}),
    "a filter of NVFlare": policy({"path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy"}),
    "class_path": policy({"class_path": "subprocess.Popen"}),
    "class_path beside ours": policy({**OURS, "class_path": "subprocess.Popen"}),
    "a short name": policy({"name": "MinCount"}),
    "a nested component": policy({"path": FILTERS[0], "args": {"k": POPEN}}),
    "a nested list": policy({"path": FILTERS[0], "args": {"k": [POPEN]}}),
    "class_attributes": policy({"path": FILTERS[0], "args": {"class_attributes": 1}}),
    "k is text": policy({"path": FILTERS[0], "args": {"k": "10"}}),
    "k is true": policy({"path": FILTERS[0], "args": {"k": True}}),
    "k is 0": policy({"path": FILTERS[0], "args": {"k": 0}}),
    "k is negative": policy({"path": FILTERS[0], "args": {"k": -5}}),
    "k is a fraction": policy({"path": FILTERS[0], "args": {"k": 2.5}}),
    "k has 400 digits": policy({"path": FILTERS[0], "args": {"k": 10**400}}),
    "components": policy(OURS, components=[POPEN]),
    "properties": {"scopes": [{"name": "own", "properties": {}}], "default_scope": "own"},
    "a filter that is text": policy(FILTERS[0]),
    "filters as table": {
        "scopes": [{"name": "own", "task_result_filters": {"a": POPEN}}],
        "default_scope": "own",
    },
    "a direction": policy({**OURS, "direction": "up"}),
    "a direction in which nothing leaves": policy({**OURS, "direction": "in"}),
    "scopes as table": {"scopes": {}, "default_scope": "own"},
    "no scopes": {"scopes": [], "default_scope": "own"},
    "no default": {"scopes": [{"name": "own"}]},
    "another default": {"scopes": [{"name": "own"}], "default_scope": "x"},
    "two scopes of a name": {"scopes": [{"name": "own"}, {"name": "own"}], "default_scope": "own"},
    "a scope that is a number": {"scopes": [{"name": 3}], "default_scope": 3},
    "a list": [],
    "an escape": policy({"path": "\x1b[2J"}),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", ODD)
def test_a_planted_policy(kit: Path, made_kits: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    (kit / "local" / "privacy.json").write_text(json.dumps(ODD[case]))
    with pytest.raises(FedEPDError) as caught:
        check_privacy(kit, ())
    assert str(caught.value).isprintable()
    assert main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]) == 2
    assert not (kit / "local" / "resources.json").exists()
    capsys.readouterr()
