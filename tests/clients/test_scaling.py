from __future__ import annotations

import random
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedepd.clients.client_file import Unscaled, read_file, write_client_file
from fedepd.clients.clients_dir import FILE, read_clients, read_files
from fedepd.clients.scaling import (
    NOTHING,
    ColumnSums,
    added,
    column_sums,
    deviation_of,
    mean_of,
    scaled_graph,
    scaled_together,
    scaling_of,
    with_features,
)
from fedepd.datasets.columns import Column, Table
from fedepd.datasets.fitting import fitted
from fedepd.datasets.tables import Roles
from fedepd.errors import BadData
from fedepd.network.sparse import csr_tensor
from fedepd.types import Graph
from toy import toy_client, toy_clients

NUMBERS = st.one_of(
    st.floats(-1e3, 1e3),
    st.floats(-1e-9, 1e-9),
    st.floats(-3.4e38, 3.4e38),
    st.sampled_from([0.0, -0.0, 1e15, -1e15, 1e-9, 2.0**-129, 2.0**-130, 5e-324, 3.4028234663852886e38]),
)


def slowly(values: list[float]) -> ColumnSums:
    """The definition: every number as the nearest multiple of 2^-128, added up as Python's whole numbers."""
    steps = [round(Fraction(value) * 2**128) for value in values]  # a half goes to the even one
    return ColumnSums(len(steps), sum(steps), sum(step * step for step in steps))


@settings(deadline=None, max_examples=300)
@given(st.lists(NUMBERS, max_size=40))
def test_sums_are_exact(values: list[float]) -> None:
    assert column_sums(np.array(values, dtype=np.float64)) == slowly(values)


@settings(deadline=None, max_examples=200)
@given(st.lists(NUMBERS, min_size=1, max_size=40), st.integers(0, 2**32))
def test_any_grouping_and_order_of_rows_gives_the_same_bits(values: list[float], seed: int) -> None:
    draw = random.Random(seed)
    whole = scaling_of([column_sums(np.array(values))])
    mixed = draw.sample(values, len(values))
    cuts = sorted(draw.choices(range(len(values) + 1), k=draw.randrange(5)))
    groups = [mixed[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    sums = [column_sums(np.array(group, dtype=np.float64)) for group in draw.sample(groups, len(groups))]
    assert scaling_of([added(sums)]).tobytes() == whole.tobytes()


@settings(deadline=None, max_examples=200)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_the_deviation_is_the_float_nearest_to_the_root(values: list[float]) -> None:
    """No float64 is nearer: the squares of the points halfway to its neighbours enclose the variance."""
    sums = slowly(values)
    mean = Fraction(sums.total, sums.rows * 2**128)
    variance = Fraction(sums.squares, sums.rows * 2**256) - mean**2
    assert mean_of(sums) == float(mean)
    found = deviation_of(sums)
    if variance == 0:
        assert found == 1.0
        return
    below, above = (Fraction(float(np.nextafter(found, to))) for to in (0.0, np.inf))
    assert ((below + Fraction(found)) / 2) ** 2 <= variance <= ((above + Fraction(found)) / 2) ** 2


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(40, 12, 5000),
        np.random.default_rng(1).lognormal(3, 2, 5000),
        np.random.default_rng(2).uniform(-1e15, 1e15, 1000),
        np.random.default_rng(3).uniform(1e-9, 2e-9, 1000),
        np.concatenate([np.full(500, 1e15), np.full(500, 1e-9)]),
        np.random.default_rng(4).integers(18, 90, 3000).astype(float),
    ],
    ids=["normal", "skewed", "large", "small", "mixed", "whole"],
)
def test_means_and_deviations_are_numpys(values: NDArray[np.float64]) -> None:
    (mean,), (deviation,) = scaling_of([column_sums(values)])
    assert mean == pytest.approx(float(np.mean(values)), rel=1e-12, abs=1e-12 * float(np.std(values)))
    assert deviation == pytest.approx(float(np.std(values)), rel=1e-12)


def test_a_large_offset_costs_no_digits() -> None:
    """1e9 + 1/8, 2/8, 3/8: mean 1e9 + 1/4, variance 2/3 / 64. Squares as floats would lose all of it."""
    values = 1e9 + np.array([1, 2, 3]) / 8
    assert scaling_of([column_sums(values)])[:, 0].tolist() == [1e9 + 0.25, sqrt(2 / 3) / 8]


def test_a_constant_column_and_one_without_rows() -> None:
    """numpy's deviation of 0.1 ten times is 1.4e-17, not 0. Here it is 0, and so 1 is used."""
    assert scaling_of([column_sums(np.full(10, 0.1)), NOTHING]).tolist() == [[0.1, 0.0], [1.0, 1.0]]


def test_more_rows_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=100)
    whole = column_sums(values)
    monkeypatch.setattr("fedepd.clients.scaling.BLOCK", 7)
    assert column_sums(values) == whole


def test_the_largest_digits_of_a_block_do_not_overflow() -> None:
    """All 53 bits are 1. Per row the products are below 2^38, so 2^24 rows stay below 2^62."""
    digits, rows = 2**53 - 1, 1000
    found = column_sums(np.full(rows, float(digits)))
    assert found == ColumnSums(rows, rows * digits << 128, rows * digits**2 << 256)
    a, b, c = digits >> 36, digits >> 18 & (2**18 - 1), digits & (2**18 - 1)
    assert max(2 * b * c, 2 * a * c + b * b, 2 * a * b, c * c, a * a) * 2**24 < 2**62


RAW = np.stack([np.arange(24.0) * 1e6, np.linspace(-1e-9, 1e-9, 24)], 1)


def test_columns_are_scaled_as_a_table_of_all_rows_would_be(tmp_path: Path) -> None:
    """Two owners with columns 0 and 2, against ``FeatureSchema`` fitted to their rows together."""
    clients = toy_clients(2)
    raw = [
        np.random.default_rng(k).normal(50 * k, 9, (client.graph.num_nodes, 2))
        for k, client in enumerate(clients)
    ]
    for k, (client, values) in enumerate(zip(clients, raw, strict=True)):
        (tmp_path / f"site{k}").mkdir()
        write_client_file(client, tmp_path / f"site{k}" / FILE, Unscaled((0, 2), values))
    found = [client.graph.x for client in read_clients(tmp_path)]
    both = np.concatenate(raw)
    table = Table("t", {name: Column(both[:, k]) for k, name in enumerate("ab")}, len(both))
    schema = fitted(table, Roles(features=("a", "b"), scale=True))[0]
    pooled = schema.apply(table)
    assert torch.allclose(torch.cat(found)[:, [0, 2]], pooled, rtol=0, atol=1e-6)
    assert torch.equal(found[1][:, 1], toy_clients(2)[1].graph.x[:, 1])  # other columns stay


def test_files_with_other_scaled_columns_are_no_folder_of_clients(tmp_path: Path) -> None:
    for k, columns in enumerate([(0, 2), (0, 1)]):
        (tmp_path / f"site{k}").mkdir()
        write_client_file(toy_client(k), tmp_path / f"site{k}" / FILE, Unscaled(columns, RAW))
    with pytest.raises(BadData, match=r"site0.*site1.*differ in the columns that are yet to be scaled"):
        read_files(tmp_path)


def test_complete_clients_are_left_alone() -> None:
    clients = toy_clients(2)
    assert scaled_together(clients) == clients


def test_scaling_is_the_expression_of_the_schema(tmp_path: Path) -> None:
    write_client_file(toy_client(), tmp_path / "a.npz", Unscaled((1, 4), RAW))
    file = read_file(tmp_path / "a.npz")
    assert file.unscaled is not None
    scaling = np.array([[3.0, 1e-10], [7.0, 1e-9]])
    x = scaled_graph(file.graph, file.unscaled, scaling).x
    assert torch.equal(x[:, 1], torch.from_numpy(((RAW[:, 0] - 3.0) / 7.0).astype(np.float32)))
    assert not bool(file.graph.x[:, 1].any())  # the file's own graph is left as it was


def test_a_number_that_cannot_be_scaled_is_named(tmp_path: Path) -> None:
    write_client_file(toy_client(), tmp_path / "a.npz", Unscaled((1, 4), RAW))
    file = read_file(tmp_path / "a.npz")
    assert file.unscaled is not None
    with pytest.raises(BadData, match=r"row 1 of column 1 is 1e\+06, which scaled .* is too large; correct"):
        scaled_graph(file.graph, file.unscaled, np.array([[0.0, 0.0], [1e-40, 1.0]]))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_features_are_row_normalised_or_binary(sparse: bool) -> None:
    """|1| + |-3| = 4; a row of zeros stays one. Binary: 1 for 1 and .5, the rest as it is."""
    x = torch.tensor([[1.0, -3.0], [0.0, 0.0], [0.0, 0.5]])
    features = csr_tensor(sp.csr_matrix(x.numpy())) if sparse else x
    graph = Graph.make(features, torch.tensor([[0], [1]]), torch.tensor([0, 1, 0]), 2)
    assert with_features(graph, "raw") is graph
    found = with_features(graph, "row_normalised")
    assert found.is_sparse == sparse
    assert found.x.to_dense().tolist() == [[0.25, -0.75], [0.0, 0.0], [0.0, 1.0]]
    found = with_features(graph, "binary")
    assert found.is_sparse == sparse
    assert found.x.dtype == torch.float32
    assert found.x.to_dense().tolist() == [[1.0, -3.0], [0.0, 0.0], [0.0, 1.0]]
    assert graph.x.to_dense().tolist() == x.tolist()
