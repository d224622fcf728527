"""What a job may hold: two configuration files of a known form, with classes listed by their full names.

NVFlare has a list of allowed classes too. But it matches by prefix, does not check that a name is a class,
and does not apply to jobs that bring code. So there are two checks of our own, and each would suffice alone.
``JobForm`` checks a job's folder where it arrives, before NVFlare's worker reads any of it. ``ExactClasses``
checks each component just before it is built.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.impl.controller import Controller

from fedepd import plugins
from fedepd.deploy.contents import entries
from fedepd.deploy.task import MAX_TASK, FederationTask
from fedepd.deploy.templates import CONTROLLER, EXECUTOR, FILTERS, job
from fedepd.errors import BadConfig, BadMessage, FedEPDError
from fedepd.files import read_json
from fedepd.shapes import TEXT, expect
from fedepd.shown import shown

CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
BASES: dict[str, tuple[type, ...]] = {"client": (Executor, Filter), "server": (Controller,)}
ARGUMENTS: dict[str, dict[str, type]] = {
    EXECUTOR: {"task": str},
    CONTROLLER: {"task": str, "resume": bool},
    FILTERS[0]: {"k": int},
}
"""The arguments of our own classes.

Other classes that an owner allowed may have any arguments of plain values.
"""
PLAIN = (str, int, float, bool, type(None))
JOB_FILES = ("config/config_fed_client.json", "config/config_fed_server.json")
SIGNATURES = (".__nvfl_sig.json", ".__nvfl_submitter.crt")
"""The submitter's signature of a job's folder. NVFlare checks it before our checks begin."""
PARTS = {
    "client": {"format_version", "executors", "task_data_filters", "task_result_filters", "components"},
    "server": {
        "format_version",
        "server",
        "workflows",
        "task_data_filters",
        "task_result_filters",
        "components",
    },
}
MAX_LIST = 100
RESOURCES, MAX_RESOURCES = "resources.json", 2**20


def named_class(path: object, bases: tuple[type, ...]) -> type:
    """The class with this full name.

    Call it only with a name that is allowed, because it imports the module.
    """
    if not isinstance(path, str) or not CLASS.fullmatch(path) or len(path) > 500:
        raise BadConfig(f"'{shown(path)}' is not the full name of a class; give package.module.Class")
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as cause:
        raise BadConfig(
            f"there is no class '{shown(path)}' on this machine ({type(cause).__name__}); "
            f"install it or correct its name"
        ) from cause
    if not isinstance(found, type) or not issubclass(found, bases):
        kinds = " or ".join(base.__name__ for base in bases)
        raise BadConfig(f"'{shown(path)}' is not derived from {kinds}; name a class that is")
    return found


def check_component(config: object, allowed: Collection[str], bases: tuple[type, ...]) -> None:
    """Check that a component has an allowed name, a class of the right kind and plain values as arguments."""
    if not isinstance(config, dict) or not set(config) <= {"id", "path", "args"} or "path" not in config:
        raise BadMessage(
            "a component of the job is not a table of 'id', 'path' and 'args'; "
            "submit with the same fedepd version"
        )
    path, arguments = config["path"], config.get("args", {})
    if not isinstance(path, str) or path not in allowed:
        raise BadMessage(
            f"the job names '{shown(path)}', which is not allowed here; "
            f"an owner allows a class with 'join --allow'"
        )
    named_class(path, bases)
    if not isinstance(arguments, dict) or not all(isinstance(value, PLAIN) for value in arguments.values()):
        raise BadMessage(
            f"the job gives '{shown(path)}' arguments that are not plain values; "
            f"submit with the same fedepd version"
        )
    known = ARGUMENTS.get(path)
    if known is not None and not all(
        name in known and type(value) is known[name] for name, value in arguments.items()
    ):
        raise BadMessage(
            f"the job gives '{shown(path)}' arguments that it does not take; "
            f"submit with the same fedepd version"
        )


class ExactClasses(FLComponent):  # type: ignore[misc]
    """A part of ``local/resources.json`` that stops a job before any other component is built.

    A component that cannot be checked is stopped too.
    """

    def __init__(self, side: str, allowed: list[str]) -> None:
        super().__init__()
        self.side, self.allowed = side, tuple(allowed)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type != EventType.BEFORE_BUILD_COMPONENT:
            return
        try:
            check_component(fl_ctx.get_prop(FLContextKey.COMPONENT_CONFIG), self.allowed, BASES[self.side])
        except Exception as fault:
            raise UnsafeComponentError(str(fault) or type(fault).__name__) from fault


class JobForm(AppValidator):  # type: ignore[misc]
    """A part of ``local/resources.json`` that checks a job's folder where it arrives, server or site."""

    def __init__(self, side: str, allowed: list[str]) -> None:
        super().__init__()
        self.side, self.allowed = side, tuple(allowed)

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        try:
            check_job(Path(app_folder), self.side, self.allowed)
        except Exception as fault:
            return str(fault) or type(fault).__name__, {}
        return "", {}


def allowed_at(workspace: Any) -> list[str]:
    """The classes that the owner allowed, from the file that this start wrote; none where it is missing."""
    path = workspace.get_file_path_in_site_config(RESOURCES)
    if not os.path.lexists(path):
        return []
    content = read_json(Path(path), MAX_RESOURCES)
    expect(content, {"app_validator": {"args": {"allowed": [TEXT]}}}, f"'{shown(path, 200)}'", "start again")
    allowed: list[str] = content["app_validator"]["args"]["allowed"]
    return allowed


def check_job(folder: Path, side: str, allowed: Collection[str]) -> None:
    """Check that a job is exactly the two files, with only known parts and allowed classes in this side's."""
    check_job_files(folder)
    config = read_json(folder / f"config/config_fed_{side}.json", 2 * MAX_TASK)
    if not isinstance(config, dict) or set(config) != PARTS[side] or config["format_version"] != 2:
        raise BadMessage(
            "the job's configuration does not hold exactly the expected parts; "
            "submit with the same fedepd version"
        )
    for place in ("task_data_filters", "task_result_filters"):
        for chain in _tables(config[place], {"tasks", "filters", "direction"}):
            for each in _tables(chain.get("filters"), {"id", "path", "args"}):
                check_component(each, allowed, (Filter,))
    for each in _tables(config["components"], {"id", "path", "args"}):
        check_component(each, allowed, BASES[side])
    if side == "server":
        _check_workflows(config, allowed)
    else:
        _check_executors(config, allowed)


def check_job_files(folder: Path) -> None:
    """Check that a job is two configuration files and nothing else.

    A folder 'custom' beside them would be on the Python path of the job's process.
    """
    found = [
        path
        for path, is_folder in entries(folder).items()
        if not is_folder and path.rpartition("/")[2] not in SIGNATURES
    ]
    for path in sorted(found):
        if path not in JOB_FILES:
            raise BadMessage(
                f"BYOC not permitted: the job brings '{shown(path)}', "
                f"but a job may hold only its two configuration files"
            )


def _check_executors(config: Mapping[str, Any], allowed: Collection[str]) -> None:
    for each in _tables(config["executors"], {"tasks", "executor"}):
        check_component(each.get("executor"), allowed, (Executor,))
        if each["executor"]["path"] == EXECUTOR:
            _check_task(each["executor"].get("args", {}).get("task"), allowed)


def _check_workflows(config: Mapping[str, Any], allowed: Collection[str]) -> None:
    expected = job("", False)["config_fed_server.json"]["server"]
    if config["server"] != expected:
        raise BadMessage("the job changes the server's own settings; submit with the same fedepd version")
    workflows = _tables(config["workflows"], {"id", "path", "args"})
    if len(workflows) != 1:
        raise BadMessage(
            f"the job has {len(workflows)} workflows instead of one; submit with the same fedepd version"
        )
    check_component(workflows[0], allowed, BASES["server"])
    _check_task(workflows[0].get("args", {}).get("task"), allowed)


def _check_task(text: object, allowed: Collection[str]) -> None:
    try:
        with plugins.only(allowed):
            FederationTask.from_json(text)
    except FedEPDError as fault:
        raise BadMessage(f"the job's task cannot be used: {fault}") from fault


def _tables(content: object, keys: set[str]) -> list[dict[str, Any]]:
    if not isinstance(content, list) or len(content) > MAX_LIST:
        raise BadMessage(
            f"a part of the job is not a list of at most {MAX_LIST} entries; "
            f"submit with the same fedepd version"
        )
    for each in content:
        if not isinstance(each, dict) or not set(each) <= keys:
            raise BadMessage(
                f"a part of the job is not a table of {', '.join(sorted(keys))}; "
                f"submit with the same fedepd version"
            )
    return content
