"""Features are shown as the columns that they were made from."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch

from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.model.columns import MISSING, OTHER, columns_of
from fedepd.network.sparse import csr_tensor
from fedepd.types import Graph

SCHEMA = FeatureSchema((FeatureRule("age", 40.0, 10.0), FeatureRule("kind", categories=("a", "b"))))
X = torch.tensor([[-1.0, 1, 0], [2.3, 0, 1], [0.0, 0, 0], [-4.0, 0, 1]])


def graph(x: torch.Tensor) -> Graph:
    return Graph(x, torch.empty(2, 0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), 2)


def test_values_are_those_of_the_table() -> None:
    """40 - 10, 40 + 23, 40, and 40 - 40 without the rounding of float32."""
    age, kind = columns_of(SCHEMA, graph(X))
    assert [age.value(i) for i in range(4)] == [30.0, 63.0, 40.0, 0.0]
    assert [kind.value(i) for i in range(4)] == ["a", "b", OTHER, "b"]
    assert kind.usual == "b"
    assert age.usual == pytest.approx(40 + 10 * (-1 + 2.3 - 4) / 4, abs=1e-3)
    assert [column.at.tolist() for column in (age, kind)] == [[0], [1, 2]]


def test_what_was_put_into_a_gap_is_no_value() -> None:
    """The second feature of a column with gaps marks them. Its mean over the graph stays a number."""
    rule = FeatureRule("income", 100.0, 50.0, impute="median", fill=90.0, marked=True)
    x = torch.tensor([[-0.2, 1.0], [1.0, 0.0], [-0.2, 1.0], [0.0, 0.0]])
    (income,) = columns_of(FeatureSchema((rule,)), graph(x))
    assert [income.value(i) for i in range(4)] == [MISSING, 150.0, MISSING, 100.0]
    assert income.usual == pytest.approx(100 + 50 * 0.6 / 4, abs=1e-3)


def test_a_category_of_missing_cells_is_called_so() -> None:
    schema = FeatureSchema((FeatureRule("kind", categories=("a", "")),))
    (kind,) = columns_of(schema, graph(torch.tensor([[1.0, 0], [0, 1.0], [0, 1.0], [0, 0]])))
    assert [kind.value(i) for i in range(4)] == ["a", MISSING, MISSING, OTHER]
    assert kind.usual == MISSING


def test_without_tables_every_feature_is_a_column() -> None:
    dense = columns_of(None, graph(X))
    assert [column.name for column in dense] == ["feature 0", "feature 1", "feature 2"]
    sparse = columns_of(None, graph(csr_tensor(sp.csr_matrix(X.numpy()))))
    assert [c.value(1) for c in sparse] == [c.value(1) for c in dense] == pytest.approx([2.3, 0, 1])
    assert sparse[0].usual == pytest.approx(float(X[:, 0].mean()))
