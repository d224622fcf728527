"""What a kit says about its federation. The readers of whole kits are tested in ``test_kits.py``."""

from __future__ import annotations

from typing import Any

import pytest

from fedepd.deploy.about import check_about, check_holder
from fedepd.errors import BadData, FedEPDError

ABOUT = {"host": "fl.example.org", "port": 8002, "sites": ["a", "b"], "features": 4, "classes": 2}
NAMED = {**ABOUT, "label_names": ["x", "y"], "schema": ""}


@pytest.mark.parametrize("about", [ABOUT, NAMED, {name: ABOUT[name] for name in ("host", "port", "sites")}])
def test_what_a_kit_may_say(about: dict[str, Any]) -> None:
    check_about(about, "it")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"path": "/etc"}, "but nothing else"),
        ({"host": "a b"}, "has the host 'a b'"),
        ({"port": 0}, "port is 0"),
        ({"sites": ["a", "a"]}, "name each once"),
        ({"sites": ["../a"]}, "is not a usable name"),
        ({"features": True}, "has True features"),
        ({"label_names": ["x"]}, "does not name each of its classes"),
        ({"schema": "{}"}, "not a list of columns|damaged feature schema"),
        ({"keys": {"a": "x"}}, "one key for each site"),
    ],
)
def test_what_no_kit_may_say(change: dict[str, Any], says: str) -> None:
    with pytest.raises(FedEPDError, match=says):
        check_about({**NAMED, **change}, "it")


def test_a_kit_belongs_to_its_kind_of_party() -> None:
    check_holder("a", "client", ABOUT)
    check_holder("fl.example.org", "server", ABOUT)
    check_holder("coordinator@fedepd.local", "admin", ABOUT)
    for name, kind in (("c", "client"), ("a", "server"), ("a", "admin")):
        with pytest.raises(BadData, match=f"not the name of this federation's {kind}"):
            check_holder(name, kind, ABOUT)
