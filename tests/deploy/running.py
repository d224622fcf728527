"""A real server and two real sites on this machine, mutual TLS, separate processes.

All tests that need a federation share them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedepd.clients.client_file import write_client_file
from fedepd.deploy import kits
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.task import FederationTask
from fedepd.deploy.templates import ORG
from toy import CLASSES, FEATURES, toy_clients

MARKS = [
    pytest.mark.slow,
    pytest.mark.xdist_group("federation"),
    pytest.mark.skipif(
        not Path("/proc/self").exists(), reason="finds the processes it started through /proc"
    ),
]
MEMBER = "member@fedepd.local"
SITES = ("bank-a", "bank-b")
PRIVACY = {
    "scopes": [
        {"name": "open"},
        {
            "name": "strict",
            "task_result_filters": [{"path": "fedepd.deploy.filters.MinCount", "args": {"k": 1000}}],
        },
    ],
    "default_scope": "open",
}
"""The owners' own; k is more than any class has, so nothing about classes may leave."""


def make_task(run: str, method: str, rounds: int = 4, **more: Any) -> FederationTask:
    settings = {"rounds": rounds, "evaluate_every": rounds // 2, "hidden": 4}
    return FederationTask(
        run, method, "default", settings, FEATURES, CLASSES, SITES, **{"min_sites": 2, **more}
    )


@contextmanager
def running_federation(folder: Path) -> Iterator[Loopback]:
    files = {site: folder / f"{site}.npz" for site in SITES}
    for client, file in zip(toy_clients(2), files.values(), strict=True):
        write_client_file(client, file)
    project = kits._project
    with pytest.MonkeyPatch.context() as patch:
        extra = {"name": MEMBER, "type": "admin", "org": ORG, "role": "member"}
        patch.setattr(
            kits,
            "_project",
            lambda *a: {**project(*a), "participants": [*project(*a)["participants"], extra]},
        )
        made = Loopback(folder / "fed", files)
    about = json.loads((made.admin / "local" / kits.ABOUT).read_bytes())
    kits.make_kit(folder / "fed" / "member", "admin", MEMBER, about, folder / "fed" / "authority")
    for site in SITES:
        (made.kits[site] / "local" / "privacy.json").write_text(json.dumps(PRIVACY))
    with made:
        made.wait()
        yield made
    assert all(made.members(name) == [] for name in made.kits)
