from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedepd.clients.rounded import LARGEST, ROWS, in_float16
from fedepd.clients.scaling import with_features
from fedepd.datasets import graph_sha256
from fedepd.errors import BadData
from fedepd.types import Graph


def graph(x: Tensor) -> Graph:
    return Graph(x, torch.empty(2, 0, dtype=torch.int64), torch.arange(len(x)) % 2, 2)


def test_numbers_are_rounded_to_the_nearest_of_float16() -> None:
    # float16 has 11 binary digits: between 1 and 2 its steps are 2^-10.
    x = torch.tensor([[1 + 0.6 * 2**-10, LARGEST], [1 + 0.4 * 2**-10, -LARGEST], [-3.0, 0.0]])
    found = in_float16(graph(x)).x
    assert found.dtype == torch.float16
    assert found.tolist() == [[1 + 2**-10, LARGEST], [1.0, -LARGEST], [-3.0, 0.0]]


def test_what_is_in_float16_already_stays_and_is_no_copy() -> None:
    once = in_float16(graph(torch.eye(3)))
    assert in_float16(once) is once


def test_features_come_as_float32_and_stay_float16_where_that_is_wanted() -> None:
    one = graph(torch.tensor([[1 + 0.6 * 2**-10, 0.0], [0.0, 1.0]]))
    wide, narrow = with_features(one, "float16"), with_features(one, "float16", compact=True)
    assert (wide.x.dtype, narrow.x.dtype) == (torch.float32, torch.float16)
    assert torch.equal(wide.x, narrow.x.to(torch.float32))
    assert graph_sha256(wide) == graph_sha256(narrow) != graph_sha256(one)
    assert with_features(narrow, "raw", compact=True) is narrow
    # [1 + 2^-10, 0] and [0, 1]: divided in float32, each row's sum is 1.
    assert with_features(narrow, "row_normalised", compact=True).x.tolist() == [[1, 0], [0, 1]]


def test_the_hash_of_many_rows_is_that_of_their_float32_form() -> None:
    many = graph(torch.arange(3 * 2**16, dtype=torch.float32).remainder(100).reshape(-1, 2))
    assert graph_sha256(in_float16(many)) == graph_sha256(many)


def test_a_number_beyond_float16_is_named_with_its_place() -> None:
    x = torch.zeros(ROWS + 3, 2)
    x[ROWS + 1, 1] = -65520  # the first that would be rounded to infinity
    place = f"feature 1 of node {ROWS + 1} is -65520, and float16 ends at 65504; scale the column"
    with pytest.raises(BadData, match=place):
        in_float16(graph(x))


@pytest.mark.parametrize(
    "column",
    [
        torch.linspace(20_000, 20_100, 101),  # days: steps of 16 between numbers whose deviation is 29
        torch.linspace(0, 1e-6, 101),  # steps of 2^-24 = 6e-8
        torch.cat([torch.zeros(100), torch.tensor([1e-8])]),  # becomes 0
    ],
)
def test_a_column_that_would_lose_what_tells_nodes_apart_is_refused(column: Tensor) -> None:
    x = torch.stack([torch.zeros(101), column], 1)
    with pytest.raises(BadData, match="float16 would move feature 1 by"):
        in_float16(graph(x))


def test_standardised_numbers_a_constant_and_long_tails_pass() -> None:
    draws = torch.Generator().manual_seed(0)
    normal = torch.randn(5000, generator=draws)
    # A constant tells no nodes apart, so nothing is lost with its last digits.
    x = torch.stack([normal, torch.full((5000,), 20_001.0), (3 * normal).exp().clamp(max=60_000)], 1)
    assert in_float16(graph(x)).x[0, 1] == 20_000


def test_sparse_features_are_refused() -> None:
    sparse = replace(graph(torch.eye(3)), x=torch.eye(3).to_sparse_csr())
    with pytest.raises(BadData, match="has sparse features, which float16 would not make much smaller"):
        in_float16(sparse)
