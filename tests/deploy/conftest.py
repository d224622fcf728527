from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fedepd.deploy.loopback import Loopback


@pytest.fixture(scope="session")
def quick_login() -> Iterator[None]:
    """NVFlare's admin asks to be let in before its connection is up, always in vain.

    It asks again after 1 s; here after 0.1 s.
    """
    api = pytest.importorskip("nvflare.fuel.hci.client.api", reason="needs the extra 'federation'")
    patient = api.Authenticator

    def impatient(**settings: Any) -> Any:
        return patient(**{**settings, "retry_interval": 0.1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "Authenticator", impatient)
        yield


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory, quick_login: None) -> Iterator[Loopback]:
    from deploy.running import running_federation

    with running_federation(tmp_path_factory.mktemp("federation")) as made:
        yield made


@pytest.fixture
def kit(made_kits: Path, tmp_path: Path) -> Path:
    """A site's kit, as it came from the coordinator."""
    return Path(shutil.copytree(made_kits / "fed" / "bank-a", tmp_path / "kit"))
