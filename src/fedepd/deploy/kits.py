"""Kits: one folder per participant with its certificate, made by NVFlare's own tool, and the policy each participant writes for itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedepd.deploy.task import check_fit, check_name
from fedepd.errors import BadConfig, BadData
from fedepd.record import check_new_folder, write_json

ORG, PROJECT = "fedepd", "federation"
ADMIN = "coordinator@fedepd.local"
ABOUT = "federation.json"
"""In every kit's ``local`` folder: the sites, and the task's sizes where the coordinator gave them."""
SITE_FILE = "fedepd.json"
"""In a site's ``local`` folder, written by ``fedepd federation join``: where the owner's graph is. Never part of a job."""
ROOT_DAYS = 3650

RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc", "app_command")


def provision(out: Path, sites: Sequence[str], host: str, port: int, sizes: dict[str, int]) -> dict[str, Path]:
    """New kits ``out/server``, ``out/admin``, ``out/SITE``; the certificate authority stays in ``out/authority``."""
    for site in sites:
        check_name("site", site)
        if site in ("server", "admin", "authority", host):
            raise BadConfig(f"site '{site}' has the name of another part of the federation; choose another name")
    if len(set(sites)) != len(sites):
        raise BadConfig(f"the sites are {', '.join(sites)}; name each once")
    if not 0 < port < 65536:
        raise BadConfig(f"port is {port}; give 1..65535")
    check_new_folder(out)
    authority = out / "authority"
    authority.mkdir(parents=True, mode=0o700)
    project = authority / "project.yml"
    write_json(project, _project(sites, host, port))  # JSON is YAML
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(authority), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = authority / PROJECT / "prod_00"
    if done.returncode or not made.is_dir():
        raise BadConfig(f"NVFlare could not make the kits: {' '.join((done.stderr or done.stdout).split())[-300:]}; check --host")
    kits = {"server": out / "server", "admin": out / "admin", **{site: out / site for site in sites}}
    for name, kit in kits.items():
        shutil.move(made / {"server": host, "admin": ADMIN}.get(name, name), kit)
        kit.chmod(0o700)
        write_json(kit / "local" / ABOUT, {"sites": list(sites), **sizes})
    return kits


def _project(sites: Sequence[str], host: str, port: int) -> dict[str, Any]:
    impl = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "fedepd",
        "participants": [
            {"name": host, "type": "server", "org": ORG, "fed_learn_port": port},
            *({"name": site, "type": "client", "org": ORG} for site in sites),
            {"name": ADMIN, "type": "admin", "org": ORG, "role": "project_admin"},
        ],
        "builders": [
            {"path": f"{impl}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{impl}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "http"}},
            {"path": f"{impl}.cert.CertBuilder", "args": {"root_valid_days": ROOT_DAYS}},
            {"path": f"{impl}.signature.SignatureBuilder"},
        ],
    }


def about(kit: Path) -> dict[str, Any]:
    return _read(kit, Path("local") / ABOUT)


def kit_name(kit: Path, kind: str) -> str:
    """The name in a kit's certificate; refuses a folder that is no kit of this kind (server, client or admin)."""
    settings = _read(kit, Path("startup") / f"fed_{kind}.json")
    if kind == "admin":
        return str(settings["admin"]["username"])
    return str(settings["servers"][0]["name"] if kind == "server" else settings["client"]["fqsn"])


def prepare_server(kit: Path) -> None:
    """The server's policy: no shipped code, this package's controller only, jobs kept in the kit and not in the temporary folder."""
    resources = _default_resources(kit, "fedepd.deploy.controller.", ("log_receiver",))
    resources["servers"][0]["heart_beat_timeout"] = 30
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.resolve() / "snapshots")
    next(c for c in resources["components"] if c["id"] == "job_manager")["args"]["uri_root"] = str(kit.resolve() / "jobs")
    _write_policy(kit, resources, may_operate=True)


def prepare_site(kit: Path, data: Path) -> None:
    """The owner's policy: no shipped code, this package's executor and filters only, no shell, no logs to the server."""
    from fedepd.datasets.client_file import read_client_file
    from fedepd.split import SplitConfig

    known = about(kit)
    check_fit(read_client_file(data, 0, SplitConfig(), 0), data, known.get("features"), known.get("classes"))
    resources = _default_resources(kit, "fedepd.deploy.", ("site_log_streamer",))
    resources["allow_log_streaming"] = False
    _write_policy(kit, resources, may_operate=False)
    write_json(kit / "local" / SITE_FILE, {"data": str(data.resolve())})


def _default_resources(kit: Path, allowed: str, dropped: tuple[str, ...]) -> dict[str, Any]:
    resources = _read(kit, Path("local") / "resources.json.default")
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [allowed]
    resources["components"] = [c for c in resources["components"] if c["id"] not in dropped]
    return resources


def _write_policy(kit: Path, resources: dict[str, Any], may_operate: bool) -> None:
    coordinator = dict.fromkeys(RIGHTS, "any") | {"byoc": "none", "shell_commands": "none", "clone_job": "none"}
    if not may_operate:
        coordinator["operate"] = "none"
    permissions = {"project_admin": coordinator, "member": {"view": "any"}}
    write_json(kit / "local" / "resources.json", resources)
    write_json(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": permissions})


def launch_command(kit: Path, kind: str) -> list[str]:
    """What runs a server or a client in the foreground."""
    (kit / "transfer").mkdir(exist_ok=True)
    module = {"server": "nvflare.private.fed.app.server.server_train", "client": "nvflare.private.fed.app.client.client_train"}[kind]
    uid = [f"uid={kit_name(kit, kind)}"] if kind == "client" else []
    options = ["secure_train=true", *uid, f"org={ORG}", "config_folder=config"]
    return [sys.executable, "-u", "-m", module, "-m", str(kit.resolve()), "-s", f"fed_{kind}.json", "--set", *options]


def launch_environment() -> dict[str, str]:
    # Two memory arenas: NVFlare's worker otherwise grows with every round.
    return {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", **os.environ}


def _read(kit: Path, name: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((kit / name).read_bytes())
    except (OSError, ValueError) as cause:
        raise BadData(f"'{kit}' is not such a kit: it has no usable {name}; give a folder made by 'fedepd federation init'") from cause
    return content
