from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.errors import BadData
from fedepd.network import kernels
from fedepd.network import sparse as module
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import (
    Chosen,
    Sparse,
    adjacency,
    csr_tensor,
    factor_of,
    inverse_degrees,
    is_weighted,
    neighbour_mean,
    normalised,
    own_weights,
    row_dots,
    spmm,
    to_scipy,
    two_steps,
    weighted_adjacency,
    with_loops,
)
from fedepd.types import Graph, TaskInfo
from toy import toy_client


def random_matrix(rows: int, columns: int, seed: int = 0, density: float = 0.4) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    return sp.csr_matrix(
        rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density), dtype=np.float32
    )


@given(
    size=st.tuples(*[st.integers(1, 8)] * 3),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_products_and_their_backward_equal_dense_torch(
    size: tuple[int, int, int], density: float, seed: int
) -> None:
    rows, columns, width = size
    matrix = random_matrix(rows, columns, seed, density)
    dense, sparse = torch.tensor(matrix.toarray()), Sparse.of(matrix)
    generator = torch.Generator().manual_seed(seed)
    a, upstream = (
        torch.randn(columns, width, generator=generator),
        torch.randn(rows, width, generator=generator),
    )
    torch.testing.assert_close(sparse.times(a), dense @ a)
    torch.testing.assert_close(sparse.transposed_times(upstream), dense.t() @ upstream)
    ours, theirs = a.clone().requires_grad_(), a.clone().requires_grad_()
    spmm(sparse, ours).backward(upstream)  # type: ignore[no-untyped-call]
    (dense @ theirs).backward(upstream)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_gradient_that_is_not_contiguous() -> None:
    """``sum`` hands back an expanded gradient, ``t`` a transposed one."""
    matrix = random_matrix(4, 3)
    dense = torch.tensor(matrix.toarray())
    for reduce in (torch.Tensor.sum, lambda z: (z.t() @ torch.arange(8.0).reshape(4, 2)).sum()):
        ours, theirs = torch.ones(3, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
        reduce(spmm(Sparse.of(matrix), ours)).backward()
        reduce(dense @ theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (0, 4)])
def test_an_empty_matrix_gives_zeros(rows: int, columns: int) -> None:
    sparse = Sparse.of(sp.csr_matrix((rows, columns), dtype=np.float32))
    assert torch.equal(sparse.times(torch.ones(columns, 2)), torch.zeros(rows, 2))
    assert torch.equal(sparse.transposed_times(torch.ones(rows, 2)), torch.zeros(columns, 2))


def test_chosen_rows_in_their_order_and_none() -> None:
    matrix = random_matrix(5, 3, density=0.8)
    sparse = Sparse.of(matrix)
    assert np.array_equal(
        to_scipy(sparse.rows(torch.tensor([4, 1, 1])).matrix).toarray(), matrix.toarray()[[4, 1, 1]]
    )
    none = sparse.rows(torch.empty(0, dtype=torch.int64))
    assert none.shape == (0, 3)
    assert none.times(torch.ones(3, 2)).shape == (0, 2)
    assert torch.equal(none.transposed_times(torch.ones(0, 2)), torch.zeros(3, 2))


def test_there_and_back_and_nothing_shared() -> None:
    matrix = random_matrix(4, 6)
    tensor = csr_tensor(matrix)
    assert tensor.layout == torch.sparse_csr
    assert tensor.dtype == torch.float32
    before = matrix.toarray()
    tensor.values().zero_()
    assert np.array_equal(matrix.toarray(), before)
    assert np.array_equal(to_scipy(csr_tensor(matrix)).toarray(), before)


def test_unsorted_columns_are_sorted_in_a_copy() -> None:
    """Features may come with unsorted columns; making them ready must not write into them."""
    matrix = sp.csr_matrix(
        (np.array([1.0, 2.0], dtype=np.float32), np.array([2, 0]), np.array([0, 2])), shape=(1, 3)
    )
    sparse = Sparse.of(matrix)
    assert matrix.indices.tolist() == [2, 0]
    assert matrix.data.tolist() == [1.0, 2.0]
    assert sparse.times(torch.tensor([[1.0], [10.0], [100.0]])).tolist() == [[102.0]]


PATH = torch.tensor([[0, 1], [1, 2]])


def test_adjacency_is_symmetric_without_loops() -> None:
    assert adjacency(PATH, 4).toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert adjacency(torch.empty(2, 0, dtype=torch.int64), 2).toarray().tolist() == [[0, 0], [0, 0]]


def test_normalised_adjacency_of_the_path_by_hand() -> None:
    """Eq. 10 on a-b-c and an isolated node: degrees with self-loops 2, 3, 2, 1, entries 1/√(d_i d_j)."""
    end, middle, across = 1 / 2, 1 / 3, 1 / math.sqrt(6)
    expected = np.array([[end, across, 0, 0], [across, middle, across, 0], [0, across, end, 0], [0, 0, 0, 1]])
    matrix = normalised(adjacency(PATH, 4))
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-7)
    assert (matrix != matrix.T).nnz == 0


def test_neighbour_mean_of_the_path_by_hand() -> None:
    """Each row averages its neighbours; the isolated node's is zero."""
    adj = adjacency(PATH, 4)
    assert inverse_degrees(adj).tolist() == [1, 0.5, 1, 0]
    assert neighbour_mean(adj).toarray().tolist() == [
        [0, 1, 0, 0],
        [0.5, 0, 0.5, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 0],
    ]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("entries", "shape"),
    [(2**31, (3, 3)), (2**33, (3, 3)), (0, (3, 2**31)), (0, (2**31, 3)), (0, (3, 2**40))],
)
def test_what_32_bit_indices_cannot_count_is_refused_and_does_not_wrap(
    entries: int, shape: tuple[int, int]
) -> None:
    """Only the number of entries is there: with the entries themselves the test would need 24 GB."""
    matrix = SimpleNamespace(
        indptr=np.array([0, entries]), indices=np.empty(0), data=np.empty(0), shape=shape
    )
    with pytest.raises(BadData, match="too large for 32-bit indices; give fewer"):
        csr_tensor(matrix, np.int32)


@pytest.mark.hostile
def test_more_edges_than_32_bits_count_are_refused_before_a_matrix_is_made() -> None:
    """2^30 edges have 2^31 entries. An expanded tensor claims them and holds two numbers."""
    many = torch.tensor([[0], [1]]).expand(2, 2**30)
    with pytest.raises(BadData, match=r"2,147,483,650 entries is too large for 32-bit indices; give fewer"):
        adjacency(many, 2)


@pytest.mark.parametrize("library", ["compiled", "torch"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_matrix_of_sorted_edges_is_scipys_bit_by_bit(
    library: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted edges are placed by the kernel, others by scipy: values, columns and starts are the same."""
    if library == "torch":
        monkeypatch.setattr(kernels, "_library", None)
    rng = np.random.default_rng(3)
    keys = np.unique(rng.integers(30 * 30, size=200))
    pairs = np.stack(np.divmod(keys, 30))
    edges = torch.from_numpy(pairs[:, pairs[0] < pairs[1]])
    weight = torch.rand(edges.shape[1]) + 0.1 if weighted else None
    order = torch.from_numpy(rng.permutation(edges.shape[1]))
    ours = adjacency(edges, 31, weight)
    theirs = adjacency(edges[:, order], 31, None if weight is None else weight[order])
    for part in ("data", "indices", "indptr"):
        a, b = getattr(ours, part), getattr(theirs, part)
        assert a.dtype == b.dtype
        assert a.tolist() == b.tolist()
    for unit_loops in (False, True):
        looped = ours + sp.identity(31, np.float32, "csr") if unit_loops else with_loops(ours)
        scale = sp.diags(1.0 / np.sqrt(np.asarray(looped.sum(1), dtype=np.float64).reshape(-1)))
        product = sp.csr_matrix(scale @ looped @ scale)
        whole, narrow = (normalised(ours, unit_loops, dtype) for dtype in (np.float64, np.float32))
        assert whole.data.tolist() == product.data.tolist()
        assert whole.indices.tolist() == product.indices.tolist()
        assert narrow.data.tolist() == product.data.astype(np.float32).tolist()


@pytest.mark.parametrize("edges", [[[1], [0]], [[0, 0], [1, 1]], [[1, 0], [2, 1]], [[0], [0]]])
def test_edges_in_another_form_are_not_placed_by_the_kernel(edges: list[list[int]]) -> None:
    """Downwards, twice, unsorted, and a self-loop: scipy sums what is there twice."""
    found = adjacency(torch.tensor(edges), 3).toarray()
    expected = np.zeros((3, 3))
    for a, b in zip(*edges, strict=True):
        expected[a, b] += 1
        expected[b, a] += 1
    assert found.tolist() == expected.tolist()


@pytest.mark.hostile
def test_a_sparse_tensor_on_another_device_is_refused() -> None:
    with pytest.raises(BadData, match="device 'meta'"):
        to_scipy(csr_tensor(random_matrix(3, 3)).to("meta"))


WEIGHT = torch.tensor([2.0, 6.0])


def test_normalised_weights_of_the_path_by_hand() -> None:
    """a-b counts 2 and b-c 6. A self-loop counts as much as the mean of its node's edges: 2, 4, 6, and 1 for
    the isolated node. Degrees are 4, 12, 12, 1, entries w / √(d_i d_j).
    """
    ab, bc = 2 / math.sqrt(48), 6 / 12
    expected = np.array([[2 / 4, ab, 0, 0], [ab, 4 / 12, bc, 0], [0, bc, 6 / 12, 0], [0, 0, 0, 1]])
    adj = adjacency(PATH, 4, WEIGHT)
    assert own_weights(adj).tolist() == [2, 4, 6, 1]
    np.testing.assert_allclose(normalised(adj).toarray(), expected, rtol=1e-7)
    np.testing.assert_allclose(neighbour_mean(adj).toarray()[1], [2 / 8, 0, 6 / 8, 0], rtol=1e-7)


def test_the_unit_of_weights_changes_nothing() -> None:
    """2 and 6, or 2048 and 6144: powers of two, so that no bit changes."""
    for made in (normalised, neighbour_mean):
        one, other = (made(adjacency(PATH, 4, WEIGHT * unit)).toarray() for unit in (1, 1024))
        assert one.tolist() == other.tolist()


def test_weights_of_1_are_no_weights() -> None:
    plain, ones = adjacency(PATH, 4), adjacency(PATH, 4, torch.ones(2))
    assert (plain != ones).nnz == 0
    assert not is_weighted(ones)
    assert is_weighted(adjacency(PATH, 4, WEIGHT))


def test_normalised_weights_are_those_of_torch_geometric() -> None:
    """Its gcn_norm, with our self-loops given."""
    norm = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
    adj = adjacency(PATH, 4, WEIGHT)
    whole = sp.coo_matrix(with_loops(adj))
    index = torch.tensor(np.stack([whole.row, whole.col]).astype(np.int64))
    edges, values = norm(index, torch.tensor(whole.data), 4)
    theirs = torch.zeros(4, 4).index_put_(tuple(edges), values)
    np.testing.assert_allclose(normalised(adj).toarray(), theirs.numpy(), rtol=1e-6)


def test_some_edges_of_a_graph_with_their_weights() -> None:
    graph = Graph.make(torch.eye(3), PATH, torch.tensor([0, 1, 0]), edge_weight=WEIGHT)
    assert weighted_adjacency(graph).toarray()[1].tolist() == [2, 0, 6]
    assert weighted_adjacency(graph, PATH[:, 1:]).toarray()[1].tolist() == [0, 0, 6]


def test_dots_of_rows_dense_and_sparse() -> None:
    """(1, 2)·(3, 4) = 11, (0, 5)·(6, 7) = 35."""
    a, b = np.array([[1.0, 2.0], [0.0, 5.0]]), np.array([[3.0, 4.0], [6.0, 7.0]])
    assert row_dots(a, b).tolist() == row_dots(sp.csr_matrix(a), sp.csr_matrix(b)).tolist() == [11, 35]


@pytest.mark.parametrize(
    ("entries", "shape", "dense"),
    [
        (9, (4, 5), False),  # 9 of 20 entries: below one half
        (10, (4, 5), True),  # exactly one half
        (20, (4, 5), True),
        (0, (4, 5), False),
        (0, (0, 5), False),  # no entry that could be counted
    ],
)
def test_features_are_dense_from_one_half_on(entries: int, shape: tuple[int, int], dense: bool) -> None:
    values = np.zeros(shape, dtype=np.float32)
    values.reshape(-1)[:entries] = np.arange(1, entries + 1)
    factor = factor_of(csr_tensor(sp.csr_matrix(values)))
    assert isinstance(factor, torch.Tensor) == dense
    found = factor if isinstance(factor, torch.Tensor) else factor.matrix.to_dense()
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.from_numpy(values))


def test_dense_features_stay_as_they_are() -> None:
    x = torch.zeros(3, 2)
    assert factor_of(x) is x


def test_rows_of_a_large_symmetric_matrix_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client trains and predicts with the same bits either way."""
    data, model = toy_client(nodes=40), Backbone(hidden=8)
    params = model.initial(TaskInfo(data.graph.num_features, data.graph.num_classes, 1), 0)

    def found(inputs: Inputs) -> list[torch.Tensor]:
        _, grads = model.gradient(
            params, inputs, np.random.default_rng(0), lambda z: (0.0, torch.softmax(z, 1))
        )
        return [*(grads[name] for name in sorted(grads)), model.training_rows(params, inputs)[0]]

    copied = model.inputs(data)
    monkeypatch.setattr(module, "IN_PLACE_FROM", 1)
    in_place = model.inputs(data)
    assert isinstance(copied.train_rows, Sparse)
    assert isinstance(in_place.train_rows, Chosen)
    assert in_place.train_rows.shape == copied.train_rows.shape
    assert all(torch.equal(a, b) for a, b in zip(found(copied), found(in_place), strict=True))
    sage = Backbone("sage", hidden=8).inputs(data)  # its operator is not symmetric
    assert isinstance(sage.train_rows, Sparse)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_steps_are_rows_of_the_square_bit_by_bit(weighted: bool) -> None:
    a = abs(random_matrix(30, 30, density=0.1))
    adj = sp.csr_matrix(sp.triu(a, 1) + sp.triu(a, 1).T)
    if not weighted:
        adj.data[:] = 1
    nodes, whole = np.array([2, 5, 17, 29]), normalised(adj)
    expected, found = (whole[nodes] @ whole).tocsr(), two_steps(adj, nodes)
    assert found.shape == (4, 30)
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(found, part), getattr(expected, part))
