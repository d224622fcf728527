from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.clients.client_file import Unscaled, write_client_file
from fedepd.deploy.task import FederationTask, site_data
from fedepd.errors import BadConfig, BadData, BadMessage, FedEPDError, UnknownName
from fedepd.rounds.defence import Defence
from toy import CLASSES, FEATURES, toy_client


def task(**more: Any) -> FederationTask:
    given = {
        "run": "r",
        "method": "fedavg",
        "preset": "default",
        "settings": {"rounds": "2"},
        "sites": ("a", "b"),
    }
    return FederationTask(**{**given, "num_features": FEATURES, "num_classes": CLASSES, **more})


def test_json_and_back() -> None:
    assert FederationTask.from_json(task(min_sites=2, deadline=3.5).to_json()) == task(
        min_sites=2, deadline=3.5
    )


def test_a_task_of_before_a_setting_was_removed() -> None:
    """It has the identity that it had, and is refused by name where it asks for what is no longer there."""
    old = task(method="fedepd", settings={"interleave": "false", "rehearsal_weight": "1.0", "gamma": 0.3})
    again = FederationTask.from_json(old.to_json())
    assert again.identity() == task(method="fedepd", settings={"gamma": 0.3}).identity()
    with pytest.raises(BadConfig, match="interleave is 'true', but this setting was removed"):
        task(method="fedepd", settings={"interleave": "true"})


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


HUGE = 10**400
ODD: dict[str, dict[str, Any]] = {
    "settings as list": {"settings": []},
    "settings as text": {"settings": "rounds=2"},
    "settings as null": {"settings": None},
    "a setting that is a table": {"settings": {"rounds": {"path": "os.system"}}},
    "a setting of 400 digits": {"settings": {"rounds": HUGE}},
    "a setting that is NaN": {"settings": {"lr": float("nan")}},
    "a setting that is endless": {"settings": {"backbone": "x" * 10**5}},
    "settings without end": {"settings": {f"s{k}": 1 for k in range(1000)}},
    "a setting with an escape": {"settings": {"\x1b[2J": 1}},
    "a setting to an escape": {"settings": {"backbone": "\x1b[2J"}},
    "a method with an escape": {"method": "\x1b[2J"},
    "sites as text": {"sites": "ab"},
    "sites as table": {"sites": {"a": 1}},
    "sites as null": {"sites": None},
    "a site that is a number": {"sites": ["a", 3]},
    "a site that is a list": {"sites": ["a", ["b"]]},
    "a site with a line end": {"sites": ["a", "b\n"]},
    "sites without end": {"sites": [f"s{k}" for k in range(2000)]},
    "min_sites true": {"min_sites": True},
    "min_sites a fraction": {"min_sites": 1.5},
    "min_sites text": {"min_sites": "1"},
    "min_sites of 400 digits": {"min_sites": HUGE},
    "num_features true": {"num_features": True},
    "num_features text": {"num_features": "6"},
    "num_features of 400 digits": {"num_features": HUGE},
    "num_features null": {"num_features": None},
    "num_classes of 64 bits": {"num_classes": 2**64},
    "num_classes a list": {"num_classes": [3]},
    "num_classes a fraction": {"num_classes": 3.0},
    "deadline NaN": {"deadline": float("nan")},
    "deadline infinite": {"deadline": float("inf")},
    "deadline of 400 digits": {"deadline": HUGE},
    "deadline negative": {"deadline": -1},
    "deadline text": {"deadline": "600"},
    "deadline true": {"deadline": True},
    "method a number": {"method": 3},
    "method a list": {"method": ["fedavg"]},
    "preset null": {"preset": None},
    "run a list": {"run": ["r"]},
    "run with a line end": {"run": "r\n"},
    "run too long": {"run": "r" * 64},
    "weighted a number": {"weighted": 1},
    "weighted text": {"weighted": "true"},
    "weighted null": {"weighted": None},
    "class names as text": {"label_names": "abc"},
    "class names as null": {"label_names": None},
    "too few class names": {"label_names": ["a", "b"]},
    "too many class names": {"label_names": ["a", "b", "c", "d"]},
    "a class name twice": {"label_names": ["a", "b", "a"]},
    "a class name that is a number": {"label_names": ["a", "b", 3]},
    "a class name with an escape": {"label_names": ["a", "b", "\x1b]0;x\x07"]},
    "a class name too long": {"label_names": ["a", "b", "c" * 201]},
    "an empty class name": {"label_names": ["a", "b", ""]},
    "a schema hash that is short": {"schema_sha256": "ab"},
    "a schema hash that is no hash": {"schema_sha256": "x" * 64},
    "a schema hash that is a number": {"schema_sha256": 3},
    "a field more": {"extra": 1},
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", ODD)
def test_a_field_of_the_wrong_kind_is_refused_in_one_sentence(case: str) -> None:
    text = json.dumps({**json.loads(task().to_json()), **ODD[case]})
    with pytest.raises(FedEPDError) as caught:
        FederationTask.from_json(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.hostile
@pytest.mark.parametrize(
    "text",
    ["[" * 10**5, "x" * (5 * 2**20), None, 3, b"{}", "NaN", '{"run": 1' + "0" * 5000 + "}"],
    ids=range(7),
)
def test_a_task_that_is_no_text_of_a_sane_form(text: Any) -> None:
    with pytest.raises(BadMessage, match="same fedepd version"):
        FederationTask.from_json(text)


@pytest.mark.parametrize("name", [f.name for f in fields(FederationTask)])
def test_a_task_without_a_field(name: str) -> None:
    content = json.loads(task().to_json())
    del content[name]
    with pytest.raises(BadMessage, match="expected fields"):
        FederationTask.from_json(json.dumps(content))


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
        ({}, {"num_features": FEATURES + 1}, "6 features, but the federation has 7"),
        ({}, {"num_classes": CLASSES - 1}, "3 classes, but the federation has 2"),
        ({"train": False}, {}, "no training node"),
    ],
)
def test_data_that_does_not_fit(
    tmp_path: Path, client: dict[str, Any], change: dict[str, Any], says: str
) -> None:
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
        ({"settings": {"robust": "median"}, "method": "fedgta"}, "FedGTA does not average a common model"),
        ({"settings": {"vault": 0.2}}, "vault is 0.2, but no site of a federation knows the whole graph"),
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


def test_guard_and_sums_are_on_unless_switched_off() -> None:
    """Sums of three sites or more. Rules that look at single answers are on where the server sees them."""

    def settings(*sites: str, **given: Any) -> tuple[bool, bool, str, bool]:
        e = FederationTask("r", "fedavg", "default", given, 6, 3, sites).experiment()
        return e.privacy.guard, e.privacy.secure, e.defence.robust, e.defence.cap_weights

    assert settings("a", "b", "c") == (True, True, "off", False)
    assert settings("a", "b") == (True, False, "clip", True)
    assert settings("a", "b", "c", secure=False) == (True, False, "clip", True)
    assert settings("a", "b", "c", guard=False) == (False, True, "off", False)
    assert settings("a", "b", "c", secure=False, robust="median") == (True, False, "median", True)


@pytest.mark.parametrize(
    ("method", "given", "why"),
    [
        ("fedgta", {}, "FedGTA compares the clients with each other"),
        ("fedgac", {}, "FedGAC weighs each client"),
        ("graphfedmig", {"threshold": 0.5}, "secure is on, but"),
        ("fedavg", {"robust": "median"}, "robust rules and capped weights look at single replies"),
        ("fedavg", {"participation": 0.5}, "secure is on with 2 clients in a round; it needs 3"),
    ],
)
def test_what_sums_cannot_do_is_refused_with_the_reason(method: str, given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadConfig, match=why):
        FederationTask("r", method, "default", given, 6, 3, ("a", "b", "c", "d"))
    FederationTask("r", method, "default", {**given, "secure": False}, 6, 3, ("a", "b", "c", "d"))


# --- columns that the sites scale together ------------------------------------------------------------------


def test_scaled_and_counted_columns_are_part_of_the_task() -> None:
    one = task(scaled=(0, 2), counted=(1,))
    assert FederationTask.from_json(one.to_json()) == one
    assert one.measured
    assert not task().measured
    assert len({one.identity(), task().identity(), task(scaled=(0, 1), counted=(2,)).identity()}) == 3


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"scaled": [0, FEATURES]}, "scaled columns are"),
        ({"scaled": [-1]}, "scaled columns are"),
        ({"scaled": [2, 1]}, "ascending"),
        ({"scaled": [1, 1]}, "ascending"),
        ({"scaled": [True]}, "scaled columns are"),
        ({"scaled": ["0"]}, "scaled columns are"),
        ({"scaled": [[0]]}, "scaled columns are"),
        ({"scaled": [0.0]}, "scaled columns are"),
        ({"counted": [10**30]}, "counted columns are"),
        ({"counted": {"0": 1}}, "counted are not a list"),
        ({"scaled": [1], "counted": [1]}, "column 1 is both scaled and counted"),
    ],
)
def test_positions_that_no_column_has(more: dict[str, Any], says: str) -> None:
    with pytest.raises(FedEPDError, match=says):
        FederationTask.from_json(json.dumps({**json.loads(task().to_json()), **more}))


def test_noise_does_not_cover_statistics() -> None:
    noisy = {"secure": True, "dp_epsilon": 8.0, "select": "last"}
    with pytest.raises(BadConfig, match="are not in its budget; scale the columns in the tables before"):
        task(sites=("a", "b", "c"), settings=noisy, scaled=(0,))


def test_a_file_must_leave_the_federations_columns_to_be_scaled(tmp_path: Path) -> None:
    raw = Unscaled((1,), np.arange(24.0).reshape(24, 1))
    write_client_file(toy_client(), tmp_path / "a.npz", raw)
    assert site_data(task(scaled=(1,)), "a", tmp_path / "a.npz").unscaled is not None
    for scaled, says in (((), "no column"), ((0, 1), "column 0, 1")):
        with pytest.raises(
            BadData, match=f"leaves column 1 to be scaled .* federation scales {says}; import"
        ):
            site_data(task(scaled=scaled), "a", tmp_path / "a.npz")
