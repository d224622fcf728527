"""No test reads or writes the user's cache, and torch has one thread, as in a run.

More threads would change bits and slow small tests down. No property fails for being slow: that says
something of the machine alone.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["FEDEPD_CACHE"] = "off"
os.environ["OMP_NUM_THREADS"] = "1"
settings.register_profile("fedepd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedepd")


@pytest.fixture(autouse=True)
def threads_for_small_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no test with workers would have any."""
    from fedepd.rounds import in_process as simulate  # after the environment is set

    monkeypatch.setattr(simulate, "THREADED_FROM", 0)


def registries() -> list:  # type: ignore[type-arg]
    from fedepd.clients.partition import PARTITIONS
    from fedepd.datasets import DATASETS
    from fedepd.methods import METHODS
    from fedepd.network.backbones import BACKBONES

    return [METHODS, DATASETS, PARTITIONS, BACKBONES]


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Installs packages of one module: ``plugged("package", code, methods={"name": "package:Class"})``."""
    folder, before = tmp_path / "site", set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))

    def install(package: str, code: str, **groups: dict[str, str]) -> Path:
        about = folder / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = []
        for group, entries in groups.items():
            lines += [f"[fedepd.{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (folder / f"{package}.py").write_text(code)
        for registry in registries():
            registry.refresh()
        return folder

    yield install
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    monkeypatch.undo()
    for registry in registries():
        registry.refresh()


@pytest.fixture(scope="session")
def made_kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kits ``fed/...`` and a client file ``a.npz``.

    Tests that change something copy a kit first.
    """
    pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    from fedepd.clients.client_file import write_client_file
    from fedepd.deploy import kits
    from toy import CLASSES, FEATURES, toy_client

    folder = tmp_path_factory.mktemp("kits")
    write_client_file(toy_client(one_node_class=True), folder / "a.npz")
    kits.provision(
        folder / "fed", ["bank-a", "bank-b"], "localhost", 8002, {"features": FEATURES, "classes": CLASSES}
    )
    return folder


@pytest.fixture(scope="session")
def planned_kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of kits with a plan, for the sites a to d. Tests that change one copy it first."""
    pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    from deploy.plans import PLAN
    from fedepd.deploy import kits

    folder = tmp_path_factory.mktemp("planned") / "fed"
    kits.provision(folder, ["a", "b", "c", "d"], "localhost", 8002, {}, plan=PLAN.encode())
    return folder
