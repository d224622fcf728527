"""What ``local/federation.json`` of a kit may say: addresses, names, sizes, keys and what was agreed on."""

from __future__ import annotations

import re
from typing import Any

from fedepd.deploy.agreement import canonical, check_label_names
from fedepd.deploy.signing import read_public
from fedepd.deploy.task import MAX_CLASSES, MAX_FEATURES, MAX_SITES, check_name
from fedepd.errors import BadConfig, BadData
from fedepd.shown import shown

HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
USER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9.-]{0,62}")
KEYS = ("host", "port", "sites", "keys", "features", "classes", "label_names", "schema", "weighted")


def check_about(about: Any, where: str) -> None:
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
    if not isinstance(about.get("weighted", False), bool):
        raise BadConfig(f"{where} has weighted = {shown(about['weighted'])}; give true or false")
    if not isinstance(schema, str) or (schema and canonical(schema) != schema):
        raise BadConfig(
            f"{where} has a damaged feature schema; "
            f"make it again with 'fedepd federation init --example FILE.npz'"
        )


def check_holder(name: str, kind: str, about: dict[str, Any]) -> None:
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
