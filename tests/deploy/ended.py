"""Kits of sites after a run: real executors, no network. Tests copy what they change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from deploy.office import Office, furnish
from deploy.test_sums import make_task
from fedepd.deploy.ledger import Ledger

SITES = ["a", "b", "c"]


def ended(kits: Path, folder: Path, method: str = "fedepd", data: Any = None, **settings: Any) -> Ledger:
    """Copy three kits to ``folder``, run a task there, and return the coordinator's book.

    ``data``: settings of the toy graphs.
    """
    for site in SITES:
        shutil.copytree(kits / site, folder / site)
        (folder / site / "local" / "limits.toml").write_text("min_count = 1\nmin_holders = 1\n")
    furnish(folder, SITES, **(data or {}))
    return Office(folder, make_task(method, sites=3, **settings)).run()


def own_copy(over: Path, folder: Path, site: str = "a") -> Path:
    """One site's kit and its data, to change."""
    kit = Path(shutil.copytree(over / site, folder / site))
    file = Path(shutil.copyfile(over / f"{site}.npz", folder / f"{site}.npz"))
    (kit / "local" / "fedepd.json").write_text(json.dumps({"data": str(file)}))
    return kit
