"""Checks of what an owner adds to a kit: ``local/privacy.json`` and the list of further classes.

They are checked because whoever made the kit may have put them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedepd.deploy.templates import FILTERS
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json
from fedepd.methods import Method
from fedepd.network.contract import Network
from fedepd.shown import listed, shown

PRIVACY = "local/privacy.json"
MAX_PRIVACY = 2**20
DIRECTIONS = ("in", "out", "inout")
CHAINS = ("task_result_filters", "task_data_filters")
MAX_K = 10**9


def check_allowed(classes: Sequence[str], kind: str = "client") -> list[str]:
    """The owner's list of further classes. Each must be a method or a backbone that is installed here.

    At a site, executors and filters are allowed too.
    """
    from fedepd.deploy.policy import BASES, named_class

    for path in classes:
        named_class(path, (*(BASES["client"] if kind == "client" else ()), Method, Network))
    return sorted(set(classes))


def check_privacy(kit: Path, allowed: Sequence[str]) -> list[str]:
    """The filters that ``local/privacy.json`` switches on, as short texts.

    Anything but a known filter with plain values is refused, because NVFlare would build any class or call
    any function that the file names, including those nested in arguments.
    """
    path = kit / PRIVACY
    if not path.exists():
        return []
    content, where = read_json(path, MAX_PRIVACY), f"{PRIVACY} of '{shown(kit, 300)}'"
    scopes = _table(content, {"scopes", "default_scope"}, where).get("scopes")
    if not isinstance(scopes, list) or not scopes:
        raise BadData(f"{where} has no list of scopes; see docs/federation.md for its form")
    names, filters = [], []
    for scope in scopes:
        names.append(_table(scope, {"name", *CHAINS}, where).get("name"))
        for chain in CHAINS:
            for each in _listed(scope.get(chain, []), where):
                filters.append(_filter(each, (*FILTERS, *allowed), where))
                if chain == CHAINS[0] and each.get("direction") == "in":
                    raise BadData(
                        f"{where} gives a filter of results the direction 'in', "
                        f"so it would not see what is sent; remove that direction"
                    )
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise BadData(f"{where} must give every scope its own name; see docs/federation.md for its form")
    if content.get("default_scope") not in names:
        raise BadData(
            f"{where} must name one of its scopes as default_scope; see docs/federation.md for its form"
        )
    if len(names) > 1:
        filters.append(
            f"but a job chooses its scope ({listed(names)}), so only filters in every scope are sure to run"
        )
    return filters


def _filter(config: Any, known: Sequence[str], where: str) -> str:
    from nvflare.apis.filter import Filter

    from fedepd.deploy.policy import named_class

    config = _table(config, {"path", "args", "direction"}, where)
    path, arguments = config.get("path"), config.get("args", {})
    if path not in known:
        raise BadData(
            f"{where} names '{shown(path)}', which is not a filter of fedepd; "
            f"use {known[0]}, or allow your own class with 'join --allow'"
        )
    try:
        named_class(path, (Filter,))
    except BadConfig as fault:
        raise BadData(f"{where}: {fault}") from fault
    if config.get("direction", "out") not in DIRECTIONS:
        raise BadData(
            f"{where} has the direction '{shown(config['direction'])}'; choose from {', '.join(DIRECTIONS)}"
        )
    if not isinstance(arguments, dict) or not all(
        isinstance(value, (str, int, float)) for value in arguments.values()
    ):
        raise BadData(
            f"{where} gives '{path}' arguments that are not plain values; see docs/federation.md for its form"
        )
    if path in FILTERS and not (
        set(arguments) <= {"k"} and type(arguments.get("k", 1)) is int and 0 < arguments.get("k", 1) <= MAX_K
    ):
        raise BadData(
            f"{where} gives '{path}' arguments that it does not take; give only k, a whole number above 0"
        )
    told = ", ".join(f"{shown(name)}={shown(value)}" for name, value in arguments.items())
    return f"{path.rpartition('.')[2]}({told})"


def _table(content: Any, keys: set[str], where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadData(f"{where} must be made of tables; see docs/federation.md for its form")
    if odd := sorted(set(content) - keys):
        raise BadData(f"{where} holds '{shown(odd[0])}', which is not used here; remove it")
    return content


def _listed(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list) or len(content) > 100:
        raise BadData(
            f"{where} must list its filters, at most 100 in one list; see docs/federation.md for its form"
        )
    return content
