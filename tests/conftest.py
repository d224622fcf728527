"""No test reads or writes the user's cache, and torch has one thread, as in a run.

More threads would change bits and slow small tests down. No property fails for being slow: that says
something of the machine alone.
"""

import gc
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["FEDEPD_CACHE"] = "off"
os.environ["OMP_NUM_THREADS"] = "1"
settings.register_profile("fedepd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedepd")


def memory_for_files(folder: Path = Path("/dev/shm")) -> Path | None:
    """A file system in memory with room for the files of all tests, from which programs can be started.

    Every file of a run is flushed to disk, which takes milliseconds on a real one. No test can tell.
    """
    if not folder.is_dir() or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 4 * 2**30 else None


if place := memory_for_files():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collection makes stays to the end. No later collection of garbage looks at it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under ``--dist loadgroup``, the tests of a file share a worker, so that its fixtures are made once.

    Files with tests in a browser share one worker and one browser. Files with slow tests come first, so that
    no worker is left with one of them at the end. Heavy tests are few and long, and each goes where there is
    room.
    """
    browsing = {item.path for item in items if item.get_closest_marker("browser")}
    for item in items:
        if not item.get_closest_marker("xdist_group") and not item.get_closest_marker("heavy"):
            group = "browser" if item.path in browsing else f"{item.path.parent.name}/{item.path.stem}"
            item.add_marker(pytest.mark.xdist_group(group))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def threads_for_small_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no test with workers would have any."""
    from fedepd.rounds import in_process as simulate  # after the environment is set

    monkeypatch.setattr(simulate, "THREADED_FROM", 0)


@pytest.fixture(scope="session", autouse=True)
def keys_read_once() -> Iterator[None]:
    """OpenSSL checks a private key's numbers when it reads them, which takes longer than most tests of kits.

    Tests read the keys of the same few kits hundreds of times. Each is read and checked once by each worker.
    """
    if importlib.util.find_spec("cryptography") is None:
        yield
        return
    from cryptography.hazmat.primitives import serialization

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialization, "load_pem_private_key", cache(serialization.load_pem_private_key))
        yield


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is most of a report's time, and some tests do not look. Those of tests/report do."""
    from fedepd.report import drawing

    nothing = drawing.Drawing("<svg></svg>")
    monkeypatch.setattr(drawing.Drawing, "narrow", lambda self: self)
    monkeypatch.setattr(drawing, "svg_of", lambda *_: nothing)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all pages, because its start takes longer than a visit. Tests ``visit`` a page with it."""
    from chromium import opened

    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


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
def five_kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kits of the sites a to e, with their client files. Tests that change one copy it first."""
    pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    from deploy.office import furnish
    from fedepd.deploy.kits import provision

    folder, sites = tmp_path_factory.mktemp("five") / "fed", ["a", "b", "c", "d", "e"]
    provision(folder, sites, "localhost", 8002, {})
    furnish(folder, sites)
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
