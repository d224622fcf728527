"""Class names and columns that mean something else at one site: said in words, before anything is trained."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.datasets.tables import FeatureRule, FeatureSchema, Roles
from fedepd.deploy.agreement import (
    Agreement,
    agreement_of,
    canonical,
    check_agrees,
    check_label_names,
    differences,
    hashed_names,
    schema_sha256,
)
from fedepd.deploy.task import FederationTask, site_data
from fedepd.errors import BadData
from fedepd.types import Graph
from toy import CLASSES, FEATURES, toy_client

NAMES = ("clean", "mule", "takeover")
RULES = (
    *(FeatureRule(f"amount {k}", float(k), 2.0) for k in range(FEATURES - 2)),
    FeatureRule("kind", categories=("in", "out")),
)
SCHEMA = FeatureSchema(RULES).to_json()


def schema(**change: Any) -> str:
    """The schema with one changed rule: the first, or the last for categories."""
    at = len(RULES) - 1 if "categories" in change else 0
    return FeatureSchema(
        tuple(replace(rule, **change) if k == at else rule for k, rule in enumerate(RULES))
    ).to_json()


def weighed(column: str, way: Any) -> str:
    """The schema of tables whose edges have weights, and that have decimal commas."""
    roles = Roles(edge_weight=column, edge_weight_as=way, decimal=",")
    return FeatureSchema(RULES, roles).to_json()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ((NAMES, SCHEMA), (NAMES, SCHEMA)),
        ((NAMES[:2], SCHEMA), (NAMES, SCHEMA)),  # the last class is not known here: all numbers mean the same
        ((NAMES, SCHEMA), ((), "")),
        (((), ""), ((), "")),
        ((list(NAMES), json.dumps(json.loads(SCHEMA), indent=3)), (NAMES, SCHEMA)),
    ],
)
def test_no_difference(mine: Any, theirs: Any) -> None:
    assert differences(Agreement(*mine), Agreement(*theirs)) is None


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ("clean", "takeover"),
            "calls class 1 'takeover', but the federation calls it 'mule'; "
            "import it with the federation's class names",
        ),
        (
            ("mule", "clean", "takeover"),
            "calls class 0 'mule', but the federation calls it 'clean'; calls class 1 'clean'",
        ),
        ((*NAMES, "other"), "has class 3 'other', but the federation has only 3 classes"),
        (("Clean", "mule"), "calls class 0 'Clean'"),
        ((), "has no class names, but the federation calls class 0 'clean'"),
        (("a", "b", "c", "d", "e"), "2 more differ"),
        (("clean\x1b[2J",), r"calls class 0 'clean?[2J'"),
    ],
)
def test_class_names(names: tuple[str, ...], says: str) -> None:
    said = differences(Agreement(names), Agreement(NAMES))
    assert said is not None
    assert says in said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            schema(name="sum"),
            "has column 1 'sum', but the federation has 'amount 0' there; "
            "import it with the federation's schema",
        ),
        (
            schema(mean=0.5),
            "scales column 'amount 0' by mean 0.5 and deviation 2, "
            "but the federation by mean 0 and deviation 2",
        ),
        (schema(std=3.0), "by mean 0 and deviation 3"),
        (
            schema(categories=("out", "in")),
            "has the categories out, in in column 'kind', but the federation has in, out",
        ),
        (schema(categories=("in",)), "has the categories in in column 'kind'"),
        (schema(categories=None), "has numbers in column 'kind', but the federation has categories"),
        (FeatureSchema(RULES[:2]).to_json(), f"has 2 columns, but the federation has {len(RULES)}"),
        (
            weighed("amount", "log1p"),
            "weighs edges by log(1 + amount), but the federation by what nobody has said",
        ),
        ("", f"does not say how its features were made, but the federation agreed on {len(RULES)} columns"),
        (schema(name="\x1b[2J"), "has column 1 '?[2J'"),
    ],
)
def test_columns(other: str, says: str) -> None:
    said = differences(Agreement(NAMES, other), Agreement(NAMES, SCHEMA))
    assert said is not None
    assert says in said
    assert said.isprintable()


@pytest.mark.hostile
@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**5,
        "3",
        "[3]",
        "{}",
        '[{"name": "a"}]',
        "[null]",
        '[{"name": "a", "mean": 1' + "0" * 400 + ', "std": 1, "categories": null}]',
    ],
    ids=range(7),
)
def test_a_schema_that_is_none(text: str) -> None:
    with pytest.raises(BadData):
        canonical(text)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "names",
    [["a", "a"], [""], ["a" * 201], ["\x07"], [3], [None], ["a\n"], ["\u202e"], ["\ud800"], ["a"] * 100_001],
    ids=range(10),
)
def test_class_names_that_cannot_be_agreed_on(names: list[Any]) -> None:
    with pytest.raises(BadData) as caught:
        check_label_names(names, "the file")
    assert str(caught.value).isprintable()


# --- in the files, the kits and the tasks -------------------------------------------------------------------


def write(path: Path, names: tuple[str, ...] = NAMES, columns: str = SCHEMA) -> Graph:
    client = toy_client()
    graph = replace(client.graph, label_names=names, schema=columns)
    write_client_file(replace(client, graph=graph), path)
    return graph


@pytest.fixture(scope="module")
def agreed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    folder = tmp_path_factory.mktemp("agreed")
    write(folder / "example.npz")
    words = [
        "federation",
        "init",
        "--sites",
        "a,b",
        "--host",
        "localhost",
        "--example",
        str(folder / "example.npz"),
        "-o",
        str(folder / "fed"),
    ]
    assert main(words) == 0
    return folder


def test_every_kit_holds_what_was_agreed(agreed: Path) -> None:
    from fedepd.deploy.kits import open_kit

    for name, kind in (("a", "client"), ("b", "client"), ("server", "server"), ("admin", "admin")):
        kit = open_kit(agreed / "fed" / name, kind)
        assert (kit.agreed, kit.features, kit.classes) == (Agreement(NAMES, SCHEMA), FEATURES, CLASSES)


@pytest.mark.parametrize("words", [["--features", "9"], ["--classes", "4"]])
def test_an_example_is_not_contradicted(
    agreed: Path, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    init = [
        "federation",
        "init",
        "--sites",
        "a",
        "--host",
        "h",
        "--example",
        str(agreed / "example.npz"),
        "-o",
        str(tmp_path / "fed"),
    ]
    assert main([*init, *words]) == 2
    assert words[0] in capsys.readouterr().err
    assert not (tmp_path / "fed").exists()
    assert main(["federation", "submit", str(agreed / "fed" / "admin"), *words]) == 2
    assert "the federation agreed on" in capsys.readouterr().err


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "without mule": (
        {"names": ("clean", "takeover", "mule")},
        "calls class 1 'takeover', but the federation calls it 'mule'",
    ),
    "another mean": ({"columns": schema(mean=1.0)}, "scales column 'amount 0'"),
    "other categories": ({"columns": schema(categories=("out", "in"))}, "has the categories"),
    "no names": ({"names": ()}, "has no class names"),
    "no columns": ({"columns": ""}, "does not say how its features were made"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("action", ["join", "preview"])
def test_a_file_that_means_something_else_is_refused(
    agreed: Path, tmp_path: Path, case: str, action: str, capsys: Any
) -> None:
    """Found by the security test: such a site trained ten rounds with exit code 0.

    Its class 1 was another's class 2.
    """
    change, says = OTHERS[case]
    write(tmp_path / "b.npz", **change)
    assert (
        main(
            [
                "federation",
                action,
                str(agreed / "fed" / "b"),
                "--data",
                str(tmp_path / "b.npz"),
                *(["--check"] * (action == "join")),
            ]
        )
        == 2
    )
    said = " ".join(capsys.readouterr().err.split())
    assert says in said
    assert "b.npz" in said
    assert not (agreed / "fed" / "b" / "local" / "resources.json").exists()


def test_a_file_that_agrees_is_taken(agreed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(agreed / "example.npz")]
    assert main(["federation", "preview", str(agreed / "fed" / "a"), *data, "--hidden", "4"]) == 0
    assert main(["federation", "join", str(agreed / "fed" / "a"), *data, "--check"]) == 0
    assert "\n" in capsys.readouterr().out


def task(**more: Any) -> FederationTask:
    return FederationTask("r", "fedavg", "default", {"rounds": 1}, FEATURES, CLASSES, ("a", "b"), **more)


@pytest.mark.hostile
@pytest.mark.parametrize("case", OTHERS)
def test_a_site_compares_again_when_a_job_starts(tmp_path: Path, case: str) -> None:
    change, _ = OTHERS[case]
    write(tmp_path / "b.npz", **change)
    agreed = task(label_names=NAMES, schema_sha256=schema_sha256(SCHEMA))
    with pytest.raises(BadData, match=r"b\.npz"):
        site_data(agreed, "b", tmp_path / "b.npz")


def test_a_job_with_what_was_agreed_starts(tmp_path: Path) -> None:
    graph = write(tmp_path / "b.npz")
    agreed = task(label_names=NAMES, schema_sha256=schema_sha256(agreement_of(graph).schema))
    assert FederationTask.from_json(agreed.to_json()) == agreed
    found = site_data(agreed, "b", tmp_path / "b.npz")
    assert np.array_equal(found.graph.y.numpy(), graph.y.numpy())
    assert agreed.identity() == task().identity()  # the hash of a run does not depend on names


def test_hashes_of_names_tell_equal_names_within_a_run_only() -> None:
    """SHA-256 of the JSON text of run, number and name."""
    names = hashed_names(("a", "b", "b"), "r")
    assert names[0] == hashlib.sha256(b'["r", 0, "a"]').hexdigest()
    assert len(set(names)) == 3
    assert hashed_names(("a",), "r") == names[:1]
    assert hashed_names(("a",), "s") != names[:1]
    assert hashed_names((), "r") == ()


def test_weights_of_edges_are_there_at_all_sites_or_at_none() -> None:
    graph = toy_client().graph
    weighted = replace(graph, edge_weight=torch.ones(graph.num_edges))
    with pytest.raises(
        BadData, match=r"file 'a\.npz' has weights of edges, on which this federation has not"
    ):
        check_agrees(weighted, "a.npz", Agreement())
    with pytest.raises(BadData, match=r"file 'a\.npz' has no weights of edges, but the federation's edges"):
        check_agrees(graph, "a.npz", agreement_of(weighted))
    check_agrees(weighted, "a.npz", agreement_of(weighted))
    check_agrees(graph, "a.npz", agreement_of(graph))


def test_sites_agree_on_what_edges_weigh_and_not_on_how_numbers_are_written() -> None:
    by_log, by_sum = weighed("amount", "log1p"), weighed("amount", "none")
    assert canonical(by_log) == FeatureSchema(RULES, Roles(edge_weight="amount")).to_json()
    assert canonical(FeatureSchema(RULES, Roles(decimal=",")).to_json()) == SCHEMA
    assert len({schema_sha256(each) for each in (SCHEMA, by_log, by_sum, weighed("sum", "log1p"))}) == 4
    said = differences(Agreement(NAMES, by_sum), Agreement(NAMES, by_log))
    assert said is not None
    assert said.startswith("weighs edges by amount, but the federation by log(1 + amount); import it")
