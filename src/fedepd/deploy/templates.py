"""Every configuration that NVFlare reads is built here.

The only parts that come from a kit are names and addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedepd.deploy.wire import TASKS

ORG, PROJECT = "fedepd", "federation"
EXECUTOR = "fedepd.deploy.executor.SiteExecutor"
CONTROLLER = "fedepd.deploy.controller.FederationController"
FILTERS = ("fedepd.deploy.filters.MinCount",)
"""The filters that an owner's privacy.json may name, in full.

An owner adds further classes with ``join --allow``.
"""
POLL = 0.5
"""Seconds between a site's requests for work.

Only its first task waits for one. Then the server sends tasks by itself (``question``).
"""
RIGHTS = ("submit_job", "manage_job", "download_job", "view", "operate", "app_command")
NO_RIGHTS = (
    "byoc",
    "shell_commands",
    "clone_job",
    "configure_job_log",
    "configure_site_log",
    "server-predeployed-flwr",
)
"""Rights that nobody has: to ship code, to use the shell, and to change logging.

Logging settings may name any function of any package as a handler.
"""
LAUNCHERS = {"client": "fedepd.deploy.launch.SiteJobs", "server": "fedepd.deploy.launch.ServerJobs"}


def startup(kind: str, name: str, host: str, port: int) -> dict[str, Any]:
    """``startup/fed_client.json``, ``fed_server.json`` or ``fed_admin.json``."""
    service = {"target": f"{host}:{port}", "scheme": "http"}
    if kind == "admin":
        return {"format_version": 1, "admin": _admin(name, host, port)}
    stem = "client" if kind == "client" else "server"
    files = {
        "ssl_private_key": f"{stem}.key",
        "ssl_cert": f"{stem}.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    if kind == "server":
        server = {"name": PROJECT, "service": service, "admin_server": host, "admin_port": port, **files}
        return {"format_version": 2, "require_signed_jobs": True, "servers": [server]}
    # site_config is empty, because otherwise NVFlare sends the server every unknown entry of resources.json.
    client = {**files, "fqsn": name, "is_leaf": True, "site_config": {}}
    servers = [{"name": PROJECT, "service": service, "identity": host}]
    return {"format_version": 2, "require_signed_jobs": True, "servers": servers, "client": client}


def _admin(name: str, host: str, port: int) -> dict[str, Any]:
    return {
        "project_name": PROJECT,
        "username": name,
        "server_identity": host,
        "scheme": "http",
        "host": host,
        "port": port,
        "connection_security": "mtls",
        "uid_source": "user_input",
        "with_file_transfer": True,
        "upload_dir": "transfer",
        "download_dir": "transfer",
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }


def resources(kind: str, folder: Path, allowed: Sequence[str] = ()) -> dict[str, Any]:
    """The content of ``local/resources.json``. ``allowed`` are the owner's own classes.

    NVFlare enforces the list of classes by prefix, and our policy enforces it again by exact name.
    """
    if kind == "admin":
        limits = {
            "idle_timeout": 900.0,
            "login_timeout": 10.0,
            "with_debug": False,
            "authenticate_msg_timeout": 2.0,
            "prompt": "> ",
        }
        return {"format_version": 1, "admin": limits}
    classes = [*([CONTROLLER] if kind == "server" else [EXECUTOR, *FILTERS]), *allowed]
    policy = {"side": kind, "allowed": classes}
    components = [
        {"id": "exact_classes", "path": "fedepd.deploy.policy.ExactClasses", "args": policy},
        {"id": "process_launcher", "path": LAUNCHERS[kind], "args": {}},
        *(_server_parts(folder) if kind == "server" else _client_parts()),
    ]
    common = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": classes,
        "app_validator": {"path": "fedepd.deploy.policy.JobForm", "args": policy},
        "components": components,
    }
    if kind == "client":
        return {
            **common,
            "allow_log_streaming": False,
            "client": {"retry_timeout": 30, "compression": "Gzip"},
        }
    server = {
        "admin_storage": "transfer",
        "max_num_clients": 100,
        "heart_beat_timeout": 30,
        "admin_timeout": 10.0,
    }
    storage = {"path": "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"}
    kept = {**storage, "args": {"root_dir": str(folder / "snapshots"), "uri_root": "/"}}
    path = "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    return {
        **common,
        "servers": [server],
        "snapshot_persistor": {"path": path, "args": {"uri_root": "/", "storage": kept}},
    }


def _client_parts() -> list[dict[str, Any]]:
    common = "nvflare.app_common"
    gpus = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    return [
        {
            "id": "resource_manager",
            "path": f"{common}.resource_managers.gpu_resource_manager.GPUResourceManager",
            "args": gpus,
        },
        {
            "id": "resource_consumer",
            "path": f"{common}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            "args": {},
        },
    ]


def _server_parts(folder: Path) -> list[dict[str, Any]]:
    jobs = {"uri_root": str(folder / "jobs"), "job_store_id": "job_store"}
    scheduler = "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler"
    return [
        {"id": "job_scheduler", "path": scheduler, "args": {"max_jobs": 4}},
        {"id": "job_manager", "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", "args": jobs},
        {"id": "job_store", "path": "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"},
    ]


def authorization(may_operate: bool) -> dict[str, Any]:
    """The content of ``local/authorization.json``: what the coordinator may do here. Others may only look."""
    coordinator = dict.fromkeys(RIGHTS, "any") | dict.fromkeys(NO_RIGHTS, "none")
    if not may_operate:
        coordinator["operate"] = "none"
    return {"format_version": "1.0", "permissions": {"project_admin": coordinator, "member": {"view": "any"}}}


def log_config() -> dict[str, Any]:
    """The content of ``local/log_config.json``: a console and two rotating files in NVFlare's plain form."""
    utils = "nvflare.fuel.utils.log_utils"
    form = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    file = {
        "class": "logging.handlers.RotatingFileHandler",
        "formatter": "base",
        "mode": "a",
        "maxBytes": 20 * 2**20,
        "backupCount": 10,
    }
    handlers = {
        "console": {
            "class": "logging.StreamHandler",
            "level": "DEBUG",
            "formatter": "base",
            "stream": "ext://sys.stdout",
        },
        "log": {**file, "level": "DEBUG", "filename": "log.txt"},
        "errors": {**file, "level": "ERROR", "filename": "error_log.txt"},
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"base": {"()": f"{utils}.BaseFormatter", "fmt": form}},
        "handlers": handlers,
        "loggers": {"root": {"level": "INFO", "handlers": list(handlers)}},
    }


def job(text: str, resume: bool) -> dict[str, dict[str, Any]]:
    """A job's two configurations, by file name.

    ``text`` is the task as JSON text, because NVFlare would take a nested table for a component.
    """
    nothing: dict[str, Any] = {
        "format_version": 2,
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    controller = {"id": "controller", "path": CONTROLLER, "args": {"task": text, "resume": resume}}
    executor = {"path": EXECUTOR, "args": {"task": text}}
    return {
        "config_fed_server.json": {
            **nothing,
            "server": {"task_request_interval": POLL},
            "workflows": [controller],
        },
        "config_fed_client.json": {
            **nothing,
            "executors": [{"tasks": list(TASKS), "executor": executor}],
        },
    }
