"""What a job may be.

Every case here was tried against the prefix ``fedepd.deploy.`` of before, or against NVFlare's own list.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError

from deploy.running import make_task
from fedepd.cli import main
from fedepd.deploy import admin
from fedepd.deploy.kits import prepare_site
from fedepd.deploy.policy import BASES, ExactClasses, JobForm, check_component, named_class
from fedepd.deploy.templates import CONTROLLER, EXECUTOR, FILTERS
from fedepd.errors import FedEPDError

SITE = [EXECUTOR, *FILTERS]
TASK = make_task("r", "fedavg").to_json()

NAMES = [
    "fedepd.cli.federation.main",
    "fedepd.deploy.kits.prepare_site",
    "fedepd.deploy.kits.provision",
    "fedepd.deploy.launch.main",
    "fedepd.deploy.executor.SiteExecutor.execute",
    "fedepd.deploy.executor.SiteExecutorX",
    "fedepd.deploy.executor.Path",
    "fedepd.deploy.executor.json.loads",
    "fedepd.deploy.executor",
    "fedepd.deploy.filters.MinCount.process",
    "fedepd.deploy.filters.Filter",
    "fedepd.deploy.executor.SiteExecutor ",
    " fedepd.deploy.executor.SiteExecutor",
    "FEDEPD.deploy.executor.SiteExecutor",
    "fedepd.deploy.executor..SiteExecutor",
    "fedepd.deploy.executor.SiteExecutor\n",
    "fedepd.deploy.executor.SiteExecutor#x",
    CONTROLLER,
    "subprocess.Popen",
    "os.system",
    "builtins.eval",
    "nvflare.app_common.executors.client_api_launcher_executor.ClientAPILauncherExecutor",
    "SiteExecutor",
    "",
]


@pytest.mark.hostile
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_on_the_list(name: str) -> None:
    with pytest.raises(FedEPDError) as caught:
        check_component({"path": name, "args": {}}, SITE, BASES["client"])
    assert "\n" not in str(caught.value)


FORMS: dict[str, Any] = {
    "text": EXECUTOR,
    "a list": [EXECUTOR],
    "nothing": None,
    "no path": {"args": {}},
    "class_path": {"class_path": EXECUTOR},
    "two paths": {"path": EXECUTOR, "class_path": "subprocess.Popen"},
    "a name too": {"path": EXECUTOR, "name": "Popen"},
    "a type": {"path": EXECUTOR, "config_type": "dict"},
    "a path that is a list": {"path": [EXECUTOR]},
    "a path that is a table": {"path": {EXECUTOR: 1}},
    "arguments that are a list": {"path": EXECUTOR, "args": ["x"]},
    "a component in an argument": {
        "path": EXECUTOR,
        "args": {"task": {"path": "subprocess.Popen", "args": {"args": ["x"]}}},
    },
    "a list in an argument": {"path": EXECUTOR, "args": {"task": [{"path": "subprocess.Popen"}]}},
    "another argument": {"path": EXECUTOR, "args": {"task": TASK, "x": 1}},
    "class_attributes": {"path": EXECUTOR, "args": {"class_attributes": "x"}},
    "an argument of another type": {"path": EXECUTOR, "args": {"task": 3}},
    "a filter with a text": {"path": FILTERS[0], "args": {"k": "10"}},
    "a filter with true": {"path": FILTERS[0], "args": {"k": True}},
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", FORMS)
def test_a_component_of_another_form(case: str) -> None:
    with pytest.raises(FedEPDError):
        check_component(FORMS[case], SITE, BASES["client"])


@pytest.mark.hostile
@pytest.mark.parametrize("case", [*FORMS, *NAMES])
def test_the_worker_stops_the_building(case: str) -> None:
    """NVFlare looks for this exception, and goes on after any other."""
    context = FLContext()
    config = FORMS.get(case, {"path": case})
    context.set_prop(FLContextKey.COMPONENT_CONFIG, config, private=True, sticky=False)
    context.set_prop(
        FLContextKey.JOB_META, {"byoc": True}, private=True, sticky=False
    )  # NVFlare's own list is then not asked
    with pytest.raises(UnsafeComponentError):
        ExactClasses("client", SITE).handle_event(EventType.BEFORE_BUILD_COMPONENT, context)


@pytest.mark.hostile
@pytest.mark.parametrize("meta", [{}, {"byoc": True}], ids=["plain", "as if it brought code"])
@pytest.mark.parametrize("name", [EXECUTOR + ".execute", "subprocess.Popen", "os.system"])
def test_nvflare_asks_us_and_hears_a_no(kit: Path, made_kits: Path, meta: dict[str, Any], name: str) -> None:
    """As in a site's worker, with the parts of the site's own resources.json.

    A method of the executor passes NVFlare's list.
    """
    from nvflare.apis.workspace import Workspace
    from nvflare.private.fed.utils.fed_utils import authorize_build_component

    prepare_site(kit, made_kits / "a.npz")
    parts = json.loads((kit / "local" / "resources.json").read_bytes())["components"]
    exact = ExactClasses(**next(part["args"] for part in parts if part["id"] == "exact_classes"))
    answers = {}
    for path in (name, EXECUTOR):
        context = FLContext()
        for key, value in (
            (FLContextKey.WORKSPACE_OBJECT, Workspace(str(kit))),
            (FLContextKey.CURRENT_JOB_ID, "x"),
            (FLContextKey.JOB_META, meta),
        ):
            context.set_prop(key, value, private=True, sticky=False)
        answers[path] = authorize_build_component(
            {"path": path, "args": {"task": TASK}}, None, None, context, [exact]
        )
    assert answers[EXECUTOR] == ""
    assert name in answers[name]


def test_what_a_job_of_ours_names_is_built() -> None:
    check_component({"path": EXECUTOR, "args": {"task": TASK}}, SITE, BASES["client"])
    check_component({"path": FILTERS[0], "args": {"k": 10}}, SITE, BASES["client"])
    check_component(
        {"id": "c", "path": CONTROLLER, "args": {"task": TASK, "resume": False}},
        [CONTROLLER],
        BASES["server"],
    )


@pytest.mark.hostile
@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "subprocess.Popen",
        "fedepd.cli.federation.main",
        "fedepd.deploy.kits",
        "no.such.Class",
        "x",
        "",
        "..",
        "a b.c",
    ],
)
def test_an_owner_cannot_allow_what_is_no_executor_or_filter(
    name: str, kit: Path, made_kits: Path, capsys: Any
) -> None:
    assert (
        main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check", "--allow", name])
        == 2
    )
    assert "class" in capsys.readouterr().err
    assert not (kit / "local" / "resources.json").exists()


def test_an_owners_own_class(
    kit: Path, made_kits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ownplugin.py").write_text(
        "from nvflare.apis.filter import Filter\n\n\nclass Mine(Filter):\n    pass\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    command = ["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]
    privacy = {
        "scopes": [{"name": "own", "task_result_filters": [{"path": "ownplugin.Mine"}]}],
        "default_scope": "own",
    }
    (kit / "local" / "privacy.json").write_text(json.dumps(privacy))
    assert main(command) == 2
    assert main([*command, "--allow", "ownplugin.Mine"]) == 0
    resources = json.loads((kit / "local" / "resources.json").read_bytes())
    assert resources["class_allow_list"] == [*SITE, "ownplugin.Mine"]
    assert issubclass(named_class("ownplugin.Mine", (Filter,)), Filter)
    with pytest.raises(FedEPDError, match="Executor"):
        named_class("ownplugin.Mine", (Executor,))


@pytest.mark.hostile
def test_a_list_that_is_already_in_the_kit_allows_nothing(kit: Path, made_kits: Path) -> None:
    (kit / "local" / "fedepd.json").write_text(json.dumps({"data": "/etc/passwd", "allow": ["os.system"]}))
    assert main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]) == 0
    resources = (kit / "local" / "resources.json").read_text()
    assert "os.system" not in resources
    assert json.loads((kit / "local" / "fedepd.json").read_bytes())["allow"] == []


# --- the folder of a job ------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path) -> Path:
    admin.write_job(tmp_path / "job", make_task("r", "fedavg"), resume=False)
    return tmp_path / "job" / "app"


def change(app: Path, side: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = app / "config" / f"config_fed_{side}.json"
    config = json.loads(path.read_bytes())
    edit(config)
    path.write_text(json.dumps(config))


def verdict(app: Path, side: str) -> str:
    return JobForm(side, SITE if side == "client" else [CONTROLLER]).validate(str(app))[0]


@pytest.mark.parametrize("side", ["client", "server"])
def test_our_own_job_is_taken(app: Path, side: str) -> None:
    for folder in (app, app / "config"):
        (folder / ".__nvfl_sig.json").write_text("{}")
    assert verdict(app, side) == ""


BROUGHT = [
    "custom/evil.py", "custom/decomposer_module/x.py", "config/comm_config.json", "comm_config.json",
    "config/resources.json", "evil.py", "config/drivers/evil.py", "config/config_fed_client.conf",
    "config/config_fed_client.yml", "config/config_fed_client.json.default", "config/log_config.json",
    "startup/fed_client.json", "local/resources.json", "config/sub/config_fed_client.json", "\x1b[2J",
]  # fmt: skip


@pytest.mark.hostile
@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("path", BROUGHT)
def test_a_job_brings_a_file(app: Path, path: str, side: str) -> None:
    """comm_config.json names a folder with drivers, which NVFlare imports.

    It is found wherever it lies below the kit.
    """
    (app / path).parent.mkdir(parents=True, exist_ok=True)
    (app / path).write_text("{}")
    assert verdict(app, side).isprintable()
    assert verdict(app, side)


@pytest.mark.hostile
@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("kind", ["link", "pipe", "missing", "deep", "no table", "huge", "not text"])
def test_a_job_whose_file_is_none(app: Path, kind: str, side: str) -> None:
    path = app / "config" / f"config_fed_{side}.json"
    content = {"deep": b"[" * 10**5, "no table": b"[]", "not text": b"\xff\xfe"}.get(kind, b"")
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes(content)
    if kind == "huge":
        os.truncate(path, 10**12)
    assert verdict(app, side)


POPEN = {"id": "x", "path": "subprocess.Popen", "args": {"args": ["true"]}}
CHAIN = {"tasks": ["*"], "filters": [POPEN]}
CLIENT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an executor": lambda c: c["executors"][0].update(executor=POPEN),
    "a second executor": lambda c: c["executors"].append({"tasks": ["x"], "executor": POPEN}),
    "a function of ours": lambda c: c["executors"][0]["executor"].update(path="fedepd.cli.federation.main"),
    "a filter as executor": lambda c: c["executors"][0]["executor"].update(path=FILTERS[0], args={}),
    "a nested component": lambda c: c["executors"][0]["executor"]["args"].update(task=POPEN),
    "a component": lambda c: c["components"].append(POPEN),
    "a data filter": lambda c: c["task_data_filters"].append(CHAIN),
    "a result filter": lambda c: c["task_result_filters"].append(CHAIN),
    "an executor as filter": lambda c: c["task_data_filters"].append(
        {"tasks": ["x"], "filters": [{"path": EXECUTOR}]}
    ),
    "a parameterised part": lambda c: c.update({"@x": POPEN}),
    "another part": lambda c: c.update(handlers=[POPEN]),
    "an interval": lambda c: c.update(default_task_fetch_interval=1e-9),
    "another version": lambda c: c.update(format_version=1),
    "no executors": lambda c: c.pop("executors"),
    "executors as table": lambda c: c.update(executors={"x": POPEN}),
    "executors without end": lambda c: c.update(executors=c["executors"] * 1000),
    "a task of another run": lambda c: c["executors"][0]["executor"]["args"].update(task="{}"),
    "no task": lambda c: c["executors"][0]["executor"].pop("args"),
}
SERVER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a workflow": lambda c: c.update(workflows=[POPEN]),
    "two workflows": lambda c: c.update(workflows=c["workflows"] * 2),
    "no workflow": lambda c: c.update(workflows=[]),
    "an executor as workflow": lambda c: c["workflows"][0].update(path=EXECUTOR),
    "another controller": lambda c: c["workflows"][0].update(
        path="nvflare.app_common.workflows.fedavg.FedAvg", args={}
    ),
    "a component": lambda c: c["components"].append(POPEN),
    "a data filter": lambda c: c["task_data_filters"].append(CHAIN),
    "settings": lambda c: c["server"].update(heart_beat_timeout=10**9),
    "a nested component": lambda c: c["workflows"][0]["args"].update(resume=POPEN),
    "resume as number": lambda c: c["workflows"][0]["args"].update(resume=1),
}


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("side", "case"), [*(("client", name) for name in CLIENT), *(("server", name) for name in SERVER)]
)
def test_a_job_that_is_not_ours(app: Path, side: str, case: str) -> None:
    change(app, side, (CLIENT if side == "client" else SERVER)[case])
    assert verdict(app, side)
