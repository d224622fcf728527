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

from fedepd.deploy import templates
from fedepd.deploy.agreement import NOTHING_AGREED, Agreement, canonical, check_agrees, check_label_names
from fedepd.deploy.contents import SIGNED, check_components, check_contents, component_paths, entries
from fedepd.deploy.credentials import check_credentials, fingerprint, root_certificate
from fedepd.deploy.limits import check_limits, ensure_limits
from fedepd.deploy.manifest import MANIFEST, MAX_FILE, check_files, read_manifest, write_manifest
from fedepd.deploy.owner import check_allowed, check_privacy
from fedepd.deploy.signing import public_key, read_public
from fedepd.deploy.task import MAX_CLASSES, MAX_FEATURES, MAX_SITES, check_fit, check_name
from fedepd.deploy.templates import ORG, PROJECT
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json, write_json
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
HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
USER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9.-]{0,62}")
KEYS = ("host", "port", "sites", "keys", "features", "classes", "label_names", "schema")


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


def provision(
    out: Path,
    sites: Sequence[str],
    host: str,
    port: int,
    sizes: dict[str, int],
    agreed: Agreement = NOTHING_AGREED,
) -> dict[str, Path]:
    """Make the kits ``out/server``, ``out/admin`` and ``out/SITE``.

    The certificate authority is ``out/authority``.
    """
    about = {
        "host": host,
        "port": port,
        "sites": list(sites),
        **sizes,
        "label_names": list(agreed.label_names),
        "schema": agreed.schema,
    }
    _check_about(about, "the federation")
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
        make_kit(kit, kind, {"server": host, "admin": ADMIN}.get(name, name), about, authority)
    for name in (host, ADMIN, *sites):
        shutil.rmtree(made / name)
    return kits


def make_kit(kit: Path, kind: str, name: str, about: dict[str, Any], authority: Path) -> None:
    """Write a party's kit: certificates and key from NVFlare, the agreement, the signed manifest."""
    made = authority / PROJECT / "prod_00" / name
    for path in SIGNED[kind]:
        (kit / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path != f"local/{ABOUT}":
            shutil.copyfile(made / path, kit / path)
            (kit / path).chmod(0o600 if path.endswith(".key") else 0o644)
    kit.chmod(0o700)
    write_json(kit / "local" / ABOUT, about)
    root_key = read_json(authority / PROJECT / "state" / "cert.json")["root_pri_key"].encode()
    write_manifest(kit, kind, name, list(SIGNED[kind]), root_key)


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
    _check_about(about, f"local/{ABOUT} of '{shown(folder, 300)}'")
    _check_holder(manifest.name, kind, about)
    check_credentials(folder, root, "server" if kind == "server" else "client", manifest.name)
    check_components(folder, kind, _our_components())
    agreed = Agreement(tuple(about.get("label_names", [])), about.get("schema", ""))
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
    )


def _check_about(about: Any, where: str) -> None:
    """Check names, addresses and sizes. Any other field is refused."""
    if not isinstance(about, dict) or not {"host", "port", "sites"} <= set(about) <= set(KEYS):
        raise BadData(
            f"{where} must hold host, port and sites, and may hold {', '.join(KEYS[3:])}, but nothing else; "
            f"ask for a kit made by this version of fedepd"
        )
    host, port, sites, schema = about["host"], about["port"], about["sites"], about.get("schema", "")
    if not isinstance(host, str) or not HOST.fullmatch(host) or len(host) > 253:
        raise BadConfig(
            f"{where} has the host '{shown(host)}'; give a name of letters, digits, hyphens and dots"
        )
    if type(port) is not int or not 0 < port < 65536:
        raise BadConfig(f"port is {shown(port)}; give 1..65535")
    if not isinstance(sites, list) or not 0 < len(sites) <= MAX_SITES:
        raise BadConfig(f"{where} has no list of 1 to {MAX_SITES} sites; name each once")
    for site in sites:
        check_name("site", site)
    if len(set(sites)) != len(sites):
        raise BadConfig(f"the sites are {shown(', '.join(sites))}; name each once")
    keys = about.get("keys", {})
    if not isinstance(keys, dict) or (keys and set(keys) != set(sites)):
        raise BadData(f"{where} does not hold one key for each site; ask for the kit again")
    for site, key in keys.items():
        read_public(key, site)
    for what, most in (("features", MAX_FEATURES), ("classes", MAX_CLASSES)):
        if type(about.get(what, 1)) is not int or not 0 < about.get(what, 1) <= most:
            raise BadConfig(f"{where} has {shown(about[what])} {what}; give a whole number, 1..{most}")
    names = about.get("label_names", [])
    if not isinstance(names, list) or (names and len(names) != about.get("classes")):
        raise BadConfig(
            f"{where} does not name each of its classes; "
            f"make it again with 'fedepd federation init --example FILE.npz'"
        )
    check_label_names(names, where)
    if not isinstance(schema, str) or (schema and canonical(schema) != schema):
        raise BadConfig(
            f"{where} has a damaged feature schema; "
            f"make it again with 'fedepd federation init --example FILE.npz'"
        )


def site_keys(kit: Path) -> dict[str, str]:
    """The public keys of all sites, from the kit of a running party. ``open_kit`` checked it at the start."""
    about = read_json(kit / "local" / ABOUT, MAX_FILE)
    _check_about(about, f"local/{ABOUT} of '{shown(kit, 300)}'")
    found: dict[str, str] = about.get("keys", {})
    return found


def _check_holder(name: str, kind: str, about: dict[str, Any]) -> None:
    """Check that the manifest's name fits the kind of kit.

    ``check_credentials`` compares the certificate with it.
    """
    if kind == "client":
        check_name("site", name)
        fits = name in about["sites"]
    else:
        fits = name == about["host"] if kind == "server" else USER.fullmatch(name) is not None
    if not fits:
        raise BadData(
            f"the kit was made for '{shown(name)}', which is not the name of this federation's {kind}; "
            f"ask for the kit again"
        )


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


def prepare_site(folder: Path, data: Path, allow: Sequence[str] = (), looser: bool = False) -> Kit:
    """Write a site's configuration.

    Its policy: jobs bring no code, only this package's executor and filters run, the server gets no shell and
    no logs.

    ``allow`` lists further classes, by full name, that the owner trusts. ``looser`` accepts a
    ``local/limits.toml`` that permits more than the safe limits. The owner gives both at every start, because
    whoever made the kit may have written what is already in it.
    """
    from fedepd.clients.client_file import read_client_file
    from fedepd.clients.split import SplitConfig

    kit = open_kit(folder, "client")
    allowed = check_allowed(allow)
    check_privacy(folder, allowed)
    check_limits(folder, looser)
    client = read_client_file(data, 0, SplitConfig(), 0)
    check_fit(client, data, kit.features, kit.classes)
    check_agrees(client.graph, data, kit.agreed)
    _write(kit, allowed)
    ensure_limits(folder)
    write_json(folder / "local" / SITE_FILE, {"data": str(data.resolve()), "allow": allowed})
    return kit


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
