"""Configurations of NVFlare: what they allow is named in full.

No name leads to a class that is not there.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.deploy.templates import (
    CONTROLLER,
    EXECUTOR,
    NO_RIGHTS,
    authorization,
    job,
    log_config,
    resources,
    startup,
)


def paths(content: Any) -> list[str]:
    """Every class that a configuration names."""
    if isinstance(content, dict):
        own = [content["path"]] if isinstance(content.get("path"), str) else []
        return own + [path for value in content.values() for path in paths(value)]
    return [path for value in content for path in paths(value)] if isinstance(content, list) else []


@pytest.mark.parametrize("kind", ["client", "server"])
def test_every_class_that_is_named_exists(kind: str, tmp_path: Path) -> None:
    named = paths(resources(kind, tmp_path)) + paths(job("{}", False))
    assert len(named) >= 5
    for path in named:
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path


def test_a_site_builds_our_classes_and_its_owner_s(tmp_path: Path) -> None:
    made = resources("client", tmp_path, ["house.filters.Noise"])
    assert made["class_list_enforcement_mode"] == "enforce"
    assert set(made["class_allow_list"]) == {
        EXECUTOR,
        "fedepd.deploy.filters.MinCount",
        "house.filters.Noise",
    }
    assert made["app_validator"]["args"]["allowed"] == made["class_allow_list"]


def test_a_server_builds_the_controller_alone(tmp_path: Path) -> None:
    assert resources("server", tmp_path)["class_allow_list"] == [CONTROLLER]


@pytest.mark.parametrize("kind", ["client", "server", "admin"])
def test_connections_are_mutual_tls(kind: str) -> None:
    assert '"connection_security": "mtls"' in json.dumps(startup(kind, "bank-a", "host", 8002))


def test_a_site_tells_the_server_nothing_of_its_resources() -> None:
    assert startup("client", "bank-a", "host", 8002)["client"]["site_config"] == {}


@pytest.mark.parametrize("may_operate", [True, False])
def test_nobody_may_ship_code_or_use_the_shell(may_operate: bool) -> None:
    rights = authorization(may_operate)["permissions"]
    assert {rights["project_admin"][name] for name in NO_RIGHTS} == {"none"}
    assert rights["project_admin"]["operate"] == ("any" if may_operate else "none")
    assert rights["member"] == {"view": "any"}


def test_a_job_carries_its_task_as_text() -> None:
    """NVFlare takes a nested table for a component and would build it."""
    made = job('{"run": "a"}', True)
    assert made["config_fed_server.json"]["workflows"][0]["args"] == {"task": '{"run": "a"}', "resume": True}
    assert made["config_fed_client.json"]["executors"][0]["executor"]["args"] == {"task": '{"run": "a"}'}


def test_log_files_are_turned_over() -> None:
    files = [each for each in log_config()["handlers"].values() if "filename" in each]
    assert [each["filename"] for each in files] == ["log.txt", "error_log.txt"]
    assert all(each["maxBytes"] * (1 + each["backupCount"]) <= 2**28 for each in files)
