"""A graph in the order that others agreed on. ``tests/deploy/test_site_import.py`` reads whole files so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.datasets.conform import conformed_classes, conformed_features
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadData
from fedepd.types import HIDDEN, Graph

OWN = FeatureSchema((FeatureRule("age"), FeatureRule("kind", categories=("z", "x"))))
AGREED = FeatureSchema((FeatureRule("kind", categories=("x", "y", "z")), FeatureRule("age")))


def graph(**more: Any) -> Graph:
    """Four nodes: ages 1 to 4, kinds z, x, x and z, classes b, a, unknown, b."""
    x = torch.tensor([[1.0, 1, 0], [2, 0, 1], [3, 0, 1], [4, 1, 0]])
    made = Graph.make(x, torch.tensor([[0], [1]]), torch.tensor([1, 0, HIDDEN, 1]), 2, label_names=("a", "b"))
    return replace(made, **{"schema": OWN.to_json(), **more})


def test_columns_categories_and_classes_take_the_agreed_order() -> None:
    x, notes = conformed_features(graph(), AGREED)
    assert x.tolist() == [[0, 0, 1, 1], [1, 0, 0, 2], [1, 0, 0, 3], [0, 0, 1, 4]]
    assert notes == []
    assert conformed_classes(graph(), ["b", "c", "a"]).tolist() == [0, 2, HIDDEN, 0]


def test_sparse_features_are_read_too() -> None:
    dense = conformed_features(graph(), AGREED)[0]
    assert (conformed_features(graph(x=graph().x.to_sparse_csr()), AGREED)[0] == dense).all()


def test_a_class_without_nodes_need_not_be_agreed_on() -> None:
    assert conformed_classes(graph(y=torch.tensor([1, 1, 1, 1])), ["b"]).tolist() == [0, 0, 0, 0]


def test_an_unknown_category_becomes_zeros_on_request() -> None:
    fewer = FeatureSchema((FeatureRule("kind", categories=("x",)),))
    with pytest.raises(BadData, match=r"2 rows have no known value in column 'kind' \(z\), the first"):
        conformed_features(graph(), fewer)
    x, notes = conformed_features(graph(), fewer, ignore_unknown=True)
    assert x.tolist() == [[0], [1], [1], [0]]
    assert notes[0] == "2 of 4 rows have no known value in column 'kind' (z): their features are 0"
    assert notes[1] == "these columns were not agreed on and are left out: age"


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": ""}, "does not say how its features were made; give your tables instead"),
        ({"schema": "[]"}, "it has 3 features, but names 0"),
        ({"schema": "[{"}, "the feature schema is damaged"),
        ({"x": torch.ones(4, 3)}, "row 1: column 'kind' has several categories at once"),
        ({"label_names": ()}, "its classes have no names"),
        ({"label_names": ("a", "q")}, "it has 2 nodes of the class 'q', which was not agreed on"),
    ],
)
def test_graphs_that_cannot_be_conformed(change: dict[str, Any], says: str) -> None:
    def conform() -> None:
        conformed_features(graph(**change), AGREED)
        conformed_classes(graph(**change), ["a", "b"])

    with pytest.raises(BadData, match=says):
        conform()
