"""Kits: one folder per party, with its certificate and the configuration that it writes for itself.

The parties of a federation are its server, its sites and its admin.

What is read from a kit: certificates and a key, the server's address, names, and what the federation agreed
on. The signed manifest covers all of it, and all of it is checked before use. Every other file that NVFlare
reads is written here from templates at each start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedepd import plugins
from fedepd.deploy import templates
from fedepd.deploy.about import check_about, check_holder
from fedepd.deploy.agreement import NOTHING_AGREED, Agreement, check_agrees
from fedepd.deploy.contents import (
    PLAN,
    SIGNED,
    SITE_DATA,
    check_components,
    check_contents,
    component_paths,
    entries,
)
from fedepd.deploy.credentials import check_credentials, fingerprint, root_certificate
from fedepd.deploy.limits import check_limits, ensure_limits
from fedepd.deploy.manifest import MANIFEST, MAX_FILE, check_files, read_manifest, write_manifest
from fedepd.deploy.owner import check_allowed, check_privacy
from fedepd.deploy.plan import Plan, parse_plan, read_plan
from fedepd.deploy.plan_task import plan_task
from fedepd.deploy.signing import public_key
from fedepd.deploy.task import check_columns, check_fit
from fedepd.deploy.templates import ORG, PROJECT
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json, write_bytes, write_json
from fedepd.runs.folder import check_new_run
from fedepd.shown import shown

ADMIN = "coordinator@fedepd.local"
ABOUT = "federation.json"
"""A file in every kit's ``local`` folder: the server's address, the sites, the agreed classes and columns."""
SITE_FILE = "fedepd.json"
"""A file in a site's ``local`` folder that says where the owner's graph is.

``fedepd federation join`` writes it. It is never part of a job.
"""
ROOT_DAYS = 3650
KINDS = ("server", "client", "admin")


@dataclass(frozen=True)
class Kit:
    """What was read from a kit, after all checks."""

    folder: Path
    kind: str
    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    features: int | None
    classes: int | None
    agreed: Agreement
    keys: dict[str, str]
    """The sites' public keys, by name; empty in a kit of an older version."""
    fingerprint: str
    """SHA-256 of the federation's root certificate."""
    plan: Plan | None = None
    """What the federation agreed on; None in a kit that was made without a plan."""


def provision(
    out: Path,
    sites: Sequence[str],
    host: str,
    port: int,
    sizes: dict[str, int],
    agreed: Agreement = NOTHING_AGREED,
    plan: bytes | None = None,
) -> dict[str, Path]:
    """Make the kits ``out/server``, ``out/admin`` and ``out/SITE``.

    The certificate authority is ``out/authority``. ``plan`` is the content of a plan's file. Sizes and
    agreement are then the plan's.
    """
    if plan is not None:
        planned = parse_plan(plan, Path(PLAN))
        plan_task(planned, planned.task, sites)
        sizes = {"features": planned.num_features, "classes": len(planned.classes)}
        agreed = planned.agreed
    about = {
        "host": host,
        "port": port,
        "sites": list(sites),
        **sizes,
        "label_names": list(agreed.label_names),
        "schema": agreed.schema,
        **({"weighted": True} if agreed.weighted else {}),
    }
    check_about(about, "the federation")
    for site in sites:
        if site in ("server", "admin", "authority", host):
            raise BadConfig(
                f"site '{site}' has the name of another part of the federation; choose another name"
            )
    check_new_run(out)
    authority = out / "authority"
    authority.mkdir(parents=True, mode=0o700)
    project = authority / "project.yml"
    write_json(project, _project(sites, host, port))  # JSON is YAML
    program = [sys.executable, "-P", "-m", "nvflare.cli", "provision"]
    options = ["-p", str(project), "-w", str(authority), "--force"]
    done = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    made = authority / PROJECT / "prod_00"
    if done.returncode or not made.is_dir():
        why = shown(" ".join((done.stderr or done.stdout).split())[-300:], 300)
        raise BadConfig(f"NVFlare could not make the kits: {why}; check --host")
    kits = {"server": out / "server", "admin": out / "admin", **{site: out / site for site in sites}}
    about["keys"] = {site: public_key(made / site) for site in sites}
    for name, kit in kits.items():
        kind = name if name in ("server", "admin") else "client"
        make_kit(kit, kind, {"server": host, "admin": ADMIN}.get(name, name), about, authority, plan)
    for name in (host, ADMIN, *sites):
        shutil.rmtree(made / name)
    return kits


def make_kit(
    kit: Path, kind: str, name: str, about: dict[str, Any], authority: Path, plan: bytes | None = None
) -> None:
    """Write a party's kit: certificates and key from NVFlare, agreement, plan and the signed manifest."""
    made = authority / PROJECT / "prod_00" / name
    for path in SIGNED[kind]:
        (kit / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path != f"local/{ABOUT}":
            shutil.copyfile(made / path, kit / path)
            (kit / path).chmod(0o600 if path.endswith(".key") else 0o644)
    kit.chmod(0o700)
    write_json(kit / "local" / ABOUT, about)
    signed = list(SIGNED[kind])
    if plan is not None:
        write_bytes(kit / PLAN, plan)
        signed.append(PLAN)
    root_key = read_json(authority / PROJECT / "state" / "cert.json")["root_pri_key"].encode()
    write_manifest(kit, kind, name, signed, root_key)


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
            {
                "path": f"{impl}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{impl}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "http"},
            },
            {"path": f"{impl}.cert.CertBuilder", "args": {"root_valid_days": ROOT_DAYS}},
            {"path": f"{impl}.signature.SignatureBuilder"},
        ],
    }


# --- reading a kit ------------------------------------------------------------------------------------------


def open_kit(folder: Path, kind: str) -> Kit:
    """Read a kit and verify all of it. ``kind`` is server, client or admin. Writes nothing."""
    if not (folder / MANIFEST).is_file():
        raise BadData(
            f"'{shown(folder, 300)}' is not a kit, because it has no {MANIFEST}; "
            f"give the kit of kind '{kind}' that 'fedepd federation init' made"
        )
    found = entries(folder)
    root = root_certificate(folder)
    manifest = read_manifest(folder, root.public_key())
    if manifest.kind != kind:
        what = shown(manifest.kind)
        raise BadData(
            f"'{shown(folder, 300)}' is a kit of kind '{what}', but kind '{kind}' is needed here; "
            f"give that kit"
        )
    check_contents(folder, kind, manifest.files, found)
    check_files(folder, manifest)
    about = read_json(folder / "local" / ABOUT, MAX_FILE)
    check_about(about, f"local/{ABOUT} of '{shown(folder, 300)}'")
    check_holder(manifest.name, kind, about)
    check_credentials(folder, root, "server" if kind == "server" else "client", manifest.name)
    check_components(folder, kind, _our_components())
    said = tuple(about.get("label_names", [])), about.get("schema", ""), about.get("weighted", False)
    agreed = Agreement(*said)
    sizes = about.get("features"), about.get("classes")
    return Kit(
        folder,
        kind,
        manifest.name,
        about["host"],
        about["port"],
        tuple(about["sites"]),
        *sizes,
        agreed,
        about.get("keys", {}),
        fingerprint(root),
        _plan_of(folder, agreed, sizes),
    )


def plan_in(kit: Path) -> Plan | None:
    """The plan in the kit of a running party. ``open_kit`` checked its signature at the start."""
    return read_plan(kit / PLAN) if os.path.lexists(kit / PLAN) else None


def feature_names_in(kit: Path) -> tuple[str, ...]:
    """What the plan in the kit of a running party calls the features; empty if there is no plan."""
    plan = plan_in(kit)
    return () if plan is None else plan.schema.feature_names


def _plan_of(kit: Path, agreed: Agreement, sizes: tuple[int | None, int | None]) -> Plan | None:
    plan = plan_in(kit)
    if plan is not None and (agreed, sizes) != (plan.agreed, (plan.num_features, len(plan.classes))):
        raise BadData(
            f"{PLAN} of '{shown(kit, 300)}' does not fit local/{ABOUT} beside it; ask for the kit again"
        )
    return plan


def site_keys(kit: Path) -> dict[str, str]:
    """The public keys of all sites, from the kit of a running party. ``open_kit`` checked it at the start."""
    about = read_json(kit / "local" / ABOUT, MAX_FILE)
    check_about(about, f"local/{ABOUT} of '{shown(kit, 300)}'")
    found: dict[str, str] = about.get("keys", {})
    return found


@cache
def _our_components() -> frozenset[str]:
    """The full names of all classes in our templates."""
    here = Path()
    built = [templates.resources(kind, here) for kind in KINDS]
    return frozenset(component_paths([*built, templates.log_config()]))


def check_pin(kit: Kit, pin: str) -> None:
    """Compare the kit's fingerprint with the one that the owner got over another channel.

    Colons, spaces and case do not matter.
    """
    wanted, found = (re.sub(r"[^0-9A-F]", "", text.upper()) for text in (pin, kit.fingerprint))
    if wanted != found:
        raise BadData(
            f"the kit's root certificate has the fingerprint SHA-256 {kit.fingerprint}, "
            f"which is not the one pinned; ask the coordinator which is right"
        )


# --- writing a kit's configuration --------------------------------------------------------------------------


def prepare_admin(folder: Path) -> Kit:
    kit = open_kit(folder, "admin")
    _write(kit, ())
    return kit


def prepare_server(folder: Path, allow: Sequence[str] = ()) -> Kit:
    """Write the server's configuration.

    Its policy: jobs bring no code, only this package's controller runs, and jobs are kept in the kit instead
    of the temporary folder. ``allow`` are methods of other packages, by full name, which whoever starts the
    server trusts. They are given anew at every start.
    """
    kit = open_kit(folder, "server")
    _write(kit, check_allowed(allow, "server"))
    return kit


def prepare_site(
    folder: Path, data: Path | None = None, allow: Sequence[str] = (), looser: bool = False
) -> Kit:
    """Write a site's configuration.

    Its policy: jobs bring no code, only this package's executor and filters run, the server gets no shell and
    no logs. Without ``data``, the graph is the one that ``import`` put into the kit.

    ``allow`` lists further classes, by full name, that the owner trusts. ``looser`` accepts a
    ``local/limits.toml`` that permits more than the safe limits. The owner gives both at every start, because
    whoever made the kit may have written what is already in it.
    """
    kit = open_kit(folder, "client")
    allowed = check_allowed(allow)
    check_privacy(folder, allowed)
    check_limits(folder, looser)
    data = graph_in(folder) if data is None else data
    with plugins.only(allowed):
        _check_data(kit, data)
    _write(kit, allowed)
    ensure_limits(folder)
    write_json(folder / "local" / SITE_FILE, {"data": str(data.resolve()), "allow": allowed})
    return kit


def graph_in(kit: Path) -> Path:
    """The graph that ``import`` put into a site's kit."""
    if not os.path.lexists(kit / SITE_DATA):
        raise BadConfig(
            f"'{shown(kit, 300)}' has no {SITE_DATA} yet; make it of your tables with "
            f"'fedepd federation import', or give --data FILE.npz"
        )
    return kit / SITE_DATA


def _check_data(kit: Kit, path: Path) -> None:
    """Refuse a graph that does not fit the kit."""
    from fedepd.clients.client_file import read_file
    from fedepd.clients.split import SplitConfig

    split = SplitConfig()
    if kit.plan is not None:
        split = plan_task(kit.plan, kit.plan.task, kit.sites).experiment().split
    client = read_file(path).client(0, split, 0)
    check_fit(client, path, kit.features, kit.classes, may_only_evaluate=kit.plan is not None)
    check_agrees(client.graph, path, kit.agreed)
    if kit.plan is not None:
        check_columns(client, path, kit.plan.scaled)


def _write(kit: Kit, allowed: Sequence[str]) -> None:
    folder = kit.folder
    write_json(
        folder / "startup" / f"fed_{kit.kind}.json", templates.startup(kit.kind, kit.name, kit.host, kit.port)
    )
    write_json(folder / "local" / "resources.json", templates.resources(kit.kind, folder.resolve(), allowed))
    (folder / "transfer").mkdir(exist_ok=True, mode=0o700)
    if kit.kind != "admin":
        write_json(
            folder / "local" / "authorization.json", templates.authorization(may_operate=kit.kind == "server")
        )
        write_json(folder / "local" / "log_config.json", templates.log_config())


def launch_command(folder: Path, kind: str, name: str) -> list[str]:
    """The command that runs a server or a client in the foreground, once its configuration is written."""
    uid = [f"uid={name}"] if kind == "client" else []
    options = ["secure_train=true", *uid, f"org={ORG}", "config_folder=config"]
    program = [sys.executable, "-P", "-u", "-m", "fedepd.deploy.launch", kind]
    return [*program, "-m", str(folder.resolve()), "-s", f"fed_{kind}.json", "--set", *options]


def launch_environment() -> dict[str, str]:
    # With more than two memory arenas, NVFlare's worker grows with every round.
    return {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", **os.environ}
