"""Which files may be in a kit, by exact name.

A kit holds the files that its manifest lists, those that fedepd and NVFlare write, and those that the owner
may write. Nothing else.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path

from fedepd.deploy.manifest import MANIFEST, SIGNATURE
from fedepd.errors import BadData
from fedepd.files import read_json
from fedepd.shown import shown

SIGNED = {
    "server": ("startup/rootCA.pem", "startup/server.crt", "startup/server.key", "local/federation.json"),
    "client": ("startup/rootCA.pem", "startup/client.crt", "startup/client.key", "local/federation.json"),
    "admin": ("startup/rootCA.pem", "startup/client.crt", "startup/client.key", "local/federation.json"),
}
"""What ``init`` puts into a kit beside the manifest, by kind: certificates, a key and the agreement."""
PLAN = "local/plan.toml"
"""What ``init --plan`` puts into every kit as well. The manifest then lists it, too."""
SITE_DATA = "data/site.npz"
"""The graph that ``import`` makes of an owner's tables."""
WRITTEN = {
    "server": (
        "startup/fed_server.json",
        "local/resources.json",
        "local/authorization.json",
        "local/log_config.json",
    ),
    "client": (
        "startup/fed_client.json",
        "local/resources.json",
        "local/authorization.json",
        "local/log_config.json",
        "local/fedepd.json",
    ),
    "admin": ("startup/fed_admin.json", "local/resources.json", "runs.jsonl"),
}
"""Files that ``start``, ``join`` and the admin's commands write anew. What they held before is not used."""
OWNERS = {"server": (), "client": ("local/privacy.json", "local/limits.toml", SITE_DATA), "admin": ()}
"""Files that an owner may write. Each is checked where it is read."""
FOLDERS = {
    "server": ("startup", "local", "runs", "jobs", "snapshots", "transfer"),
    "client": ("startup", "local", "data", "state", "transfer"),
    "admin": ("startup", "local", "transfer"),
}
"""Folders of a kit. ``startup``, ``local`` and ``data`` hold only the files above.

The other folders fill while a federation runs. No code is loaded from them.
"""
LEFT_BEHIND = re.compile(
    r"((log|log_fl|error_log)\.txt|log\.json)(\.[0-9]{1,3})?"
    r"|audit\.log|console\.log"
    r"|(pid|daemon_pid|restart|shutdown)\.fl"
)
"""Files that a running NVFlare writes beside the folders."""
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The only form that a job's name may have. The folders of jobs are beside ``local``."""
CODE = "custom"
"""The folder inside a job's folder where NVFlare looks for code. No job of ours has one."""
PART = re.compile(r"\.[^/]*\.part")
"""A file left behind by an interrupted write."""
MAX_ENTRIES, MAX_DEPTH = 200_000, 16


def check_contents(kit: Path, kind: str, signed: Collection[str], found: Mapping[str, bool]) -> None:
    """Refuse a kit that holds an unexpected entry or lacks a required one. The error names the entry.

    ``signed`` are the files that the manifest lists, ``found`` is what ``entries`` returned for the kit.
    """
    expected = {*SIGNED[kind], *({PLAN} & set(signed))}
    if sorted(signed) != sorted(expected):
        odd = sorted(set(signed) ^ expected)[0]
        raise BadData(
            f"the manifest of '{shown(kit, 300)}' is wrong about '{shown(odd)}'; "
            f"ask for a kit made by this version of fedepd"
        )
    known = {*expected, *WRITTEN[kind], *OWNERS[kind], MANIFEST, SIGNATURE}
    for path, is_folder in found.items():
        if not _expected(path, is_folder, kind, known):
            what = "a folder" if is_folder else "a file"
            raise BadData(
                f"'{shown(kit, 300)}' holds {what} '{shown(path)}' that fedepd did not write; "
                f"remove it or ask for the kit again"
            )
    for path in sorted(expected):
        if found.get(path) is not False:
            raise BadData(f"'{shown(kit, 300)}' has no '{path}'; ask for the kit again")


def _expected(path: str, is_folder: bool, kind: str, known: Collection[str]) -> bool:
    top, _, rest = path.partition("/")
    if top in FOLDERS[kind] and top in ("startup", "local", "data"):
        if not rest:
            return is_folder
        return not is_folder and (path in known or PART.fullmatch(rest) is not None)
    if kind != "admin" and JOB.fullmatch(top):
        return is_folder if not rest else CODE not in rest.split("/")
    if rest:
        # The top folder fills while a federation runs. It was checked itself as an entry of its own.
        return True
    if is_folder:
        return top in FOLDERS[kind]
    return path in known or LEFT_BEHIND.fullmatch(top) is not None or PART.fullmatch(top) is not None


def entries(folder: Path) -> dict[str, bool]:
    """Every path below ``folder``, and whether it is a folder.

    Refuses links, pipes, devices and unprintable names.
    """
    found: dict[str, bool] = {}
    waiting = [("", 0)]
    while waiting:
        above, depth = waiting.pop()
        for entry in _scan(folder / above):
            path = f"{above}/{entry.name}" if above else entry.name
            mode = entry.stat(follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                raise BadData(f"'{shown(path)}' in '{shown(folder, 300)}' is {kind}; remove it")
            if (
                any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in entry.name)
                or "\\" in entry.name
            ):
                raise BadData(
                    f"'{shown(folder, 300)}' holds '{shown(path)}', a name with unprintable characters or a "
                    f"backslash; remove it"
                )
            found[path] = stat.S_ISDIR(mode)
            if len(found) > MAX_ENTRIES or depth > MAX_DEPTH:
                raise BadData(
                    f"'{shown(folder, 300)}' holds more than {MAX_ENTRIES:,} entries or {MAX_DEPTH} levels; "
                    f"remove what does not belong there"
                )
            if found[path]:
                waiting.append((path, depth + 1))
    return found


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except OSError as cause:
        raise BadData(
            f"cannot read '{shown(folder, 300)}': {cause.strerror}; check its name and permissions"
        ) from cause


def check_components(kit: Path, kind: str, ours: Collection[str]) -> None:
    """Refuse a configuration file that names a component which no template of ours has.

    The file would be written anew anyway. The owner is told because such a component hints at an attack.
    """
    for path in WRITTEN[kind]:
        if not path.endswith(".json") or not (kit / path).exists():
            continue
        for name in component_paths(read_json(kit / path)):
            if name not in ours:
                raise BadData(
                    f"{path} in '{shown(kit, 300)}' names the component '{shown(name)}' "
                    f"that fedepd did not write; remove the file and ask the coordinator where it comes from"
                )


def component_paths(content: object) -> list[str]:
    if isinstance(content, list):
        return [name for each in content for name in component_paths(each)]
    if not isinstance(content, dict):
        return []
    own = [str(content[key]) for key in ("path", "class_path", "()", "class") if key in content]
    return own + [name for each in content.values() for name in component_paths(each)]
