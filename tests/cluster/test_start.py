"""What a cluster may listen on."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from fedepd.cluster.certificates import make_certificates
from fedepd.cluster.start import start
from fedepd.errors import BadConfig

pytest.importorskip("distributed", reason="needs the extra 'cluster'")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "every network"),
        ({"host": "::"}, "every network"),
        ({"host": "example.org"}, "give an IP address"),
        ({"port": -1}, "give a port"),
        ({"port": 70000}, "give a port"),
        ({"workers": -1}, "at least one worker"),
        ({"workers": 0, "join": "tls://127.0.0.1:1"}, "at least one worker"),
    ],
)
def test_what_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        start(Path("none"), **{"workers": 1, **options})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_address_of_another_machine_cannot_be_used(tmp_path: Path) -> None:
    make_certificates(tmp_path / "c", days=1)
    with pytest.raises(BadConfig, match=r"cannot use or reach '192\.0\.2\.1"):
        start(tmp_path / "c", 0, "192.0.2.1", 0)
    gc.collect()  # Dask leaves the socket that it could not bind, which would be the next test's warning
