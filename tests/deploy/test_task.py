from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedepd.datasets.client_file import write_client_file
from fedepd.defence import Defence
from fedepd.deploy.task import FederationTask, site_data
from fedepd.errors import BadConfig, BadData, BadMessage, FedEPDError, UnknownName
from toy import CLASSES, FEATURES, toy_client


def task(**more: Any) -> FederationTask:
    given = {"run": "r", "method": "fedavg", "preset": "default", "settings": {"rounds": "2"}, "sites": ("a", "b")}
    return FederationTask(**{**given, "num_features": FEATURES, "num_classes": CLASSES, **more})


def test_json_and_back() -> None:
    assert FederationTask.from_json(task(min_sites=2, deadline=3.5).to_json()) == task(min_sites=2, deadline=3.5)


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"run": "r"}'])
def test_text_that_is_no_task(text: str) -> None:
    with pytest.raises(BadMessage, match="same fedepd version"):
        FederationTask.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../evil"},
        {"run": "/etc"},
        {"run": ""},
        {"run": 3},
        {"sites": ["a", "../b"]},
        {"sites": ["a", "a"]},
        {"sites": []},
        {"min_sites": 0},
        {"min_sites": 3},
        {"deadline": 0},
        {"num_classes": 1},
        {"num_features": 0},
        {"method": "fedepp"},
        {"method": "centralised"},
        {"settings": {"learning": 1}},
        {"preset": "none"},
    ],
)
def test_a_task_that_cannot_be_used_is_refused_where_it_arrives(change: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(task().to_json()), **change})
    with pytest.raises(FedEPDError):
        FederationTask.from_json(text)


def test_a_site_is_numbered_by_its_place() -> None:
    assert task().client_id("b") == 1
    with pytest.raises(UnknownName, match="'c'"):
        task().client_id("c")


def test_data_that_fits(tmp_path: Path) -> None:
    write_client_file(toy_client(1), tmp_path / "b.npz")
    data = site_data(task(num_classes=CLASSES + 2), "b", tmp_path / "b.npz")
    assert (data.client_id, data.graph.num_classes) == (1, CLASSES + 2)


@pytest.mark.parametrize(
    ("client", "change", "says"),
    [
        ({}, {"num_features": FEATURES + 1}, "6 features, the federation 7"),
        ({}, {"num_classes": CLASSES - 1}, "3 classes, the federation 2"),
        ({"train": False}, {}, "no training node"),
    ],
)
def test_data_that_does_not_fit(tmp_path: Path, client: dict[str, Any], change: dict[str, Any], says: str) -> None:
    write_client_file(toy_client(**client), tmp_path / "a.npz")
    with pytest.raises(BadData, match=says):
        site_data(task(**change), "a", tmp_path / "a.npz")


def test_a_federation_is_defended_unless_told_otherwise() -> None:
    assert task().experiment().defence == Defence("clip", 1, True)
    assert task(settings={"robust": "off", "cap_weights": False}).experiment().defence == Defence()


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": {"robust": "multi-krum"}}, "needs at least 5 clients to tolerate 1, but a round has 2"),
        ({"settings": {"robust": "trimmed"}}, "needs at least 3 clients"),
        ({"settings": {"robust": "median"}, "method": "fedgta"}, "FedGTA makes no common model"),
        ({"max_nodes": 0}, "max_nodes is 0"),
        ({"max_nodes": 10**400}, "max_nodes is"),
    ],
)
def test_defences_and_bounds_that_cannot_be(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        task(**change)


def test_clients_cannot_be_cut_by_a_setting() -> None:
    """The sites are the clients: their number wins over the setting."""
    assert task(settings={"clients": 7}).experiment().partition.clients == 2


def test_bad_config_is_one_sentence() -> None:
    with pytest.raises(BadConfig, match=r"run 'A b' is not a usable name; .*"):
        task(run="A b")
