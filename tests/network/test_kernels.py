"""The compiled kernels against torch and scipy.

The same numbers for every width, the same bits every time.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedepd.errors import BadData
from fedepd.network import kernels
from fedepd.network.sparse import csr_tensor

compiled = pytest.mark.skipif(
    kernels.name() != "compiled", reason="the package was built without a C compiler"
)


@pytest.fixture
def on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_library", None)


def matrix(rows: int, columns: int, seed: int = 0) -> sp.csr_matrix:
    return sp.random(rows, columns, 0.3, format="csr", dtype=np.float32, random_state=seed)


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), width=st.integers(1, 150), seed=st.integers(0, 9))
def test_product_equals_scipy(rows: int, columns: int, width: int, seed: int) -> None:
    """Widths cover every strip (64, 32, 16 and 8 columns).

    They cover the overlapping last strip and rows narrower than one, too.
    """
    a = matrix(rows, columns, seed)
    dense = torch.randn(columns, width, generator=torch.Generator().manual_seed(seed))
    out = kernels.Factor(csr_tensor(a, np.int32)).times(dense)
    assert torch.allclose(out, torch.from_numpy(a @ dense.numpy()), atol=1e-5)


def test_product_of_a_transposed_view() -> None:
    a, dense = matrix(6, 9), torch.randn(5, 9).t()
    assert torch.allclose(
        kernels.Factor(csr_tensor(a, np.int32)).times(dense), torch.from_numpy(a @ dense.numpy()), atol=1e-5
    )


def test_product_with_an_empty_matrix() -> None:
    empty = kernels.Factor(csr_tensor(sp.csr_matrix((3, 4), dtype=np.float32), np.int32))
    assert torch.equal(empty.times(torch.ones(4, 2)), torch.zeros(3, 2))


def test_product_refuses_rows_that_are_not_there() -> None:
    """The matrix has 9 columns: with 3 rows of the other factor the kernel would read beyond them."""
    with pytest.raises(RuntimeError):
        kernels.Factor(csr_tensor(matrix(6, 9), np.int32)).times(torch.ones(3, 4))


def test_product_with_64_bit_indices_and_with_values_that_share_one_place() -> None:
    a = matrix(6, 9)
    a.data[:] = 2.0
    wide = csr_tensor(a)
    expected = torch.from_numpy(a @ np.ones((9, 4), np.float32))
    assert torch.allclose(kernels.Factor(wide).times(torch.ones(9, 4)), expected)
    narrow = csr_tensor(a, np.int32)
    shared = torch.tensor([2.0]).expand(a.nnz)
    spread = torch.sparse_csr_tensor(
        narrow.crow_indices(), narrow.col_indices(), shared, size=a.shape, check_invariants=False
    )
    assert torch.allclose(kernels.Factor(spread).times(torch.ones(9, 4)), expected)


@given(rows=st.integers(0, 12), columns=st.integers(1, 12), seed=st.integers(0, 9))
def test_transposed_is_scipys_bit_by_bit(rows: int, columns: int, seed: int) -> None:
    a = matrix(rows, columns, seed) if rows else sp.csr_matrix((0, columns), dtype=np.float32)
    expected = a.T.tocsr()
    for library in (kernels._library, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_library", library)
            found = kernels.Factor(csr_tensor(a, np.int32)).transposed()
        assert found.shape == (columns, rows)
        assert found.col_indices().dtype == torch.int32
        assert found.crow_indices().tolist() == expected.indptr.tolist()
        assert found.col_indices().tolist() == expected.indices.tolist()
        assert found.values().tolist() == expected.data.tolist()


@given(rows=st.integers(1, 12), chosen=st.lists(st.integers(0, 11), max_size=15), seed=st.integers(0, 9))
def test_chosen_rows_are_scipys_bit_by_bit(rows: int, chosen: list[int], seed: int) -> None:
    a, index = matrix(rows, 7, seed), torch.tensor([row % rows for row in chosen], dtype=torch.int64)
    expected = a[index.numpy()]
    for library in (kernels._library, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_library", library)
            found = kernels.Factor(csr_tensor(a, np.int32)).chosen_rows(index)
        assert found.shape == (len(chosen), 7)
        assert found.col_indices().dtype == torch.int32
        assert found.crow_indices().tolist() == expected.indptr.tolist()
        assert found.col_indices().tolist() == expected.indices.tolist()
        assert found.values().tolist() == expected.data.tolist()


@given(rows=st.integers(1, 40), width=st.integers(1, 70), seed=st.integers(0, 9))
def test_products_of_rows_in_place_have_the_bits_of_products_with_a_copy(
    rows: int, width: int, seed: int
) -> None:
    a, rng = matrix(rows, rows, seed), np.random.default_rng(seed)
    whole = kernels.Factor(csr_tensor(a + a.T, np.int32))
    index = torch.from_numpy(np.flatnonzero(rng.random(rows) < 0.6))
    right, left = (torch.from_numpy(rng.standard_normal((n, width), np.float32)) for n in (rows, len(index)))
    for library in (kernels._library, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_library", library)
            copied, chosen = kernels.Factor(whole.chosen_rows(index)), kernels.ChosenFactor(whole, index)
            assert torch.equal(chosen.times(right), copied.times(right))
            transposed = kernels.Factor(copied.transposed()).times(left)
            assert torch.equal(chosen.transposed_times(left), transposed)


@compiled
@pytest.mark.hostile
@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_in_place_that_is_not_there_is_refused(row: int) -> None:
    whole = kernels.Factor(csr_tensor(sp.identity(3, np.float32, "csr"), np.int32))
    with pytest.raises(IndexError, match=r"a row is not in 0 \.\. 2"):
        kernels.ChosenFactor(whole, torch.tensor([0, row]))


@compiled
@pytest.mark.hostile
@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(IndexError, match=r"not in 0 \.\. 2"):
        kernels.Factor(csr_tensor(matrix(3, 2), np.int32)).chosen_rows(torch.tensor([0, row]))


@compiled
@pytest.mark.parametrize(
    ("columns", "values"),
    [([1, 0], [2.0, 2.0]), ([0, 1], [1.0, 1.0]), ([2, 0], [1.0, 1.0]), ([-1, 0], [1.0, 1.0])],
    ids=["weighted", "diagonal", "too_large", "negative"],
)
def test_only_a_plain_adjacency_matrix_is_normalised_by_the_kernel(
    columns: list[int], values: list[float]
) -> None:
    adj = sp.csr_matrix((2, 2), dtype=np.float32)
    adj.data, adj.indices = np.array(values, np.float32), np.array(columns, np.int32)
    adj.indptr = np.array([0, 1, 2], np.int32)
    assert kernels.normalised_parts(adj, np.full(2, 0.5**0.5)) is None


@compiled
def test_normalised_by_hand() -> None:
    """0 - 1, and 2 alone: degrees with self-loops 2, 2, 1, so entries 1/2 in one block and a 1."""
    adj = sp.csr_matrix(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], np.float32))
    parts = kernels.normalised_parts(adj, np.array([0.5, 0.5, 1.0]) ** 0.5)
    assert parts is not None
    values, columns, starts = parts
    assert values == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.0])
    assert columns.tolist() == [0, 1, 0, 1, 2]
    assert starts.tolist() == [0, 2, 4, 5]


def test_activate_in_double_precision_and_on_a_transposed_view() -> None:
    for h in (torch.tensor([[1.5, -1.0]], dtype=torch.float64), torch.randn(3, 2).t()):
        bias = torch.ones(h.shape[1], dtype=h.dtype)
        expected = (h + bias).relu()
        kernels.activate(h, bias, None)
        assert torch.equal(h, expected)


@pytest.mark.parametrize("width", [3, 8, 11])
def test_what_is_not_a_number_is_not_hidden(width: int) -> None:
    """A diverged unit is no dead unit: relu(NaN) is NaN, and its gradient passes, as in torch."""
    h = torch.tensor([[float("nan"), 1.0, -1.0, *[0.0] * (width - 3)]])
    kernels.activate(h, torch.zeros(width), None)
    assert h.isnan().tolist() == [[True, *[False] * (width - 1)]]
    back = kernels.activate_backward(torch.ones(1, width), h, 2.0)[0]
    assert back.tolist() == [[2.0, 2.0, *[0.0] * (width - 2)]]


def test_activate_by_hand() -> None:
    """h + bias = [[1, -1, 3]]; relu: [[1, 0, 3]].

    Bits 0b101: first kept and doubled, second dropped, third doubled: [[2, 0, 6]].
    """
    h = torch.tensor([[0.5, -2.0, 1.0]])
    kernels.activate(h, torch.tensor([0.5, 1.0, 2.0]), bytes([0b10100000]))
    assert h.tolist() == [[2.0, 0.0, 6.0]]


@compiled
@pytest.mark.parametrize("width", [3, 8, 13, 64])
@pytest.mark.parametrize("dropout", [False, True])
def test_activate_equals_torch(monkeypatch: pytest.MonkeyPatch, width: int, dropout: bool) -> None:
    h, bias, grad = torch.randn(11, width), torch.randn(width), torch.randn(11, width)
    bits = np.random.default_rng(1).bytes((11 * width + 7) // 8) if dropout else None
    mine, theirs = h.clone(), h.clone()
    kernels.activate(mine, bias, bits)
    back = kernels.activate_backward(grad, mine, 2.0)
    monkeypatch.setattr(kernels, "_library", None)
    kernels.activate(theirs, bias, bits)
    assert torch.equal(mine, theirs)
    for a, b in zip(back, kernels.activate_backward(grad, theirs, 2.0), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@given(
    rows=st.integers(0, 70),
    units=st.sampled_from([3, 8, 24]),
    width=st.integers(1, 11),
    seed=st.integers(0, 9),
)
def test_transposed_product_equals_torch(rows: int, units: int, width: int, seed: int) -> None:
    """8 · width covers every number of lanes and a second strip.

    70 rows are three blocks of 32. Widths without factor 8 are torch's.
    """
    generator = torch.Generator().manual_seed(seed)
    holey = torch.randn(rows, units, generator=generator).relu()
    for columns in (width, 8 * width):
        dense = torch.randn(rows, columns, generator=generator)
        torch.testing.assert_close(
            kernels.transposed_product(holey, dense), holey.t() @ dense, rtol=1e-5, atol=1e-5
        )


def test_transposed_product_lets_no_nan_pass_and_refuses_rows_that_are_not_there() -> None:
    """A NaN is not 0, so its row of the result shows it."""
    holey = torch.zeros(2, 8)
    holey[1, 3] = float("nan")
    assert kernels.transposed_product(holey, torch.ones(2, 8)).isnan().any(1).tolist() == [
        j == 3 for j in range(8)
    ]
    with pytest.raises(RuntimeError):
        kernels.transposed_product(torch.zeros(3, 8), torch.zeros(2, 8))


def test_cross_entropy_by_hand() -> None:
    """z + shift = [[0, ln 3], [ln 3, 0]]: p = [1/4, 3/4] and [3/4, 1/4].

    Both labels are 1, so the losses are -ln 3/4 and -ln 1/4.
    Their mean is ln 4 - ln(3)/2, doubled by the weight.
    The gradient is 2 (p - onehot) / 2 rows.
    """
    z, shift = torch.tensor([[0.0, 0.0], [math.log(3), -math.log(3)]]), torch.tensor([0.0, math.log(3)])
    assert kernels.cross_entropy_(z, torch.tensor([1, 1]), shift, 2.0) == pytest.approx(
        2 * math.log(4) - math.log(3), abs=1e-6
    )
    torch.testing.assert_close(z, torch.tensor([[0.25, -0.25], [0.75, -0.75]]))


@pytest.mark.parametrize("library", ["compiled", "torch"])
@given(
    rows=st.integers(1, 9),
    width=st.integers(1, 40),
    scale=st.sampled_from([0.1, 3.0, 60.0, 1000.0]),
    seed=st.integers(0, 9),
)
def test_cross_entropy_equals_autograd(library: str, rows: int, width: int, scale: float, seed: int) -> None:
    """Large scales put e^x below what a float holds; a shift of -inf takes a class out of the softmax."""
    generator = torch.Generator().manual_seed(seed)
    z, shift = scale * torch.randn(rows, width, generator=generator), torch.randn(width, generator=generator)
    labels = torch.randint(width, (rows,), generator=generator)
    out = int(torch.randint(width, (), generator=generator))
    if out not in labels.tolist():
        shift[out] = float("-inf")
    leaf = z.clone().requires_grad_()
    expected = 0.7 * F.cross_entropy(leaf + shift, labels)
    with pytest.MonkeyPatch.context() as patch:
        if library == "torch":
            patch.setattr(kernels, "_library", None)
        loss = kernels.cross_entropy_(z, labels, shift, 0.7)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-5)
    torch.testing.assert_close(z, torch.autograd.grad(expected, leaf)[0], rtol=1e-5, atol=1e-6)


def test_cross_entropy_refuses_a_class_that_is_not_there_and_hides_no_nan() -> None:
    for label in (-1, 3):
        with pytest.raises(IndexError):
            kernels.cross_entropy_(torch.zeros(1, 3), torch.tensor([label]))
    z = torch.tensor([[0.0, float("nan"), 1.0]])
    assert math.isnan(kernels.cross_entropy_(z, torch.tensor([0])))
    assert bool(z.isnan().all())


@compiled
@pytest.mark.parametrize("size", [1, 7, 64, 1001])
def test_adam_equals_torchs(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    mine = [torch.randn(size, generator=generator), torch.zeros(size), torch.zeros(size)]
    theirs = [part.clone() for part in mine]
    for step in (1, 2, 3):
        grad = torch.randn(size, generator=generator)
        kernels.Adam(*mine).step(grad, step, 0.01, 0.1)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_library", None)
            kernels.Adam(*theirs).step(grad, step, 0.01, 0.1)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def bits_of_products(width: int) -> list[bytes]:
    """A product, one with chosen rows, and a transposed product with a matrix full of holes."""
    random = torch.Generator().manual_seed(width)
    dense, holey = (torch.randn(40, columns, generator=random) for columns in (width, 24))
    factor = kernels.Factor(csr_tensor(matrix(40, 40, width), np.int32))
    tiled = kernels.Factor(csr_tensor(matrix(40, 300, width), np.int32))
    found = [factor.times(dense), tiled.times(torch.randn(300, width, generator=random))]
    found.append(kernels.ChosenFactor(factor, torch.tensor([39, 0, 7])).times(dense))
    if width % 8 == 0:
        found.append(kernels.transposed_product(holey.relu(), dense))
    return [part.numpy().tobytes() for part in found]


@compiled
@pytest.mark.parametrize("width", [5, 16, 24, 32, 48, 64, 80, 112, 128, 167])
def test_avx512_has_the_bits_of_avx2(width: int) -> None:
    """A column's sum has the same terms in the same order, one fused step each, at any width."""
    library = kernels._library
    assert library is not None
    if not library.fedepd_widen(1):
        pytest.skip("this processor has no AVX-512")
    wide = bits_of_products(width)
    library.fedepd_widen(0)
    try:
        assert bits_of_products(width) == wide
    finally:
        library.fedepd_widen(1)


@compiled
@pytest.mark.parametrize("columns", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("ones", [False, True])
def test_tiles_have_the_bits_of_rows(
    columns: int, width: int, ones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row's entries are added in ascending columns in both, one fused step each."""
    filled = matrix(30, columns, columns).toarray()
    filled[3], filled[4] = 0, 1
    a = sp.csr_matrix(filled)
    if ones:
        a.data[:] = 1
    dense = torch.randn(columns, width, generator=torch.Generator().manual_seed(columns))

    def product(tiled_from: float) -> torch.Tensor:
        monkeypatch.setattr(kernels, "TILED_FROM", tiled_from)
        factor = kernels.Factor(csr_tensor(a, np.int32))
        assert (factor._tiles is None) == (tiled_from > 0)
        return factor.times(dense)

    assert torch.equal(product(0), product(math.inf))


@compiled
def test_only_rows_with_enough_entries_per_tile_are_tiled() -> None:
    """300 columns are 3 tiles. 24 entries per row are 8 per tile, which is the least."""
    few, enough = (
        kernels.Factor(
            csr_tensor(sp.csr_matrix(np.tile(np.arange(300) < n, (5, 1)), dtype=np.float32), np.int32)
        )
        for n in (23, 24)
    )
    assert few._tiles is None
    assert enough._tiles is not None
    starts, rows, quads, values = enough._tiles
    assert starts.tolist() == [0, 6, 12, 18, 24, 30] + 10 * [30]
    assert rows.tolist() == 3 * list(range(5))
    begins = quads.numpy().view("<u2")  # in bytes; the last quad reads the row of nothing below the tile
    assert begins.tolist() == 5 * [256 * column for column in range(24)] + 4 * [256 * 128]
    assert values is None  # all are 1


@compiled
def test_rows_of_a_tile_stand_by_size_and_are_filled_up() -> None:
    """Rows of 5, 2, 0 and 7 entries are 2, 1, 0 and 2 quads. A row of nothing has no quad."""
    filled = np.zeros((4, 9), np.float32)
    for row, count in enumerate((5, 2, 0, 7)):
        filled[row, :count] = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "TILED_FROM", 0)
        tiles = kernels.Factor(csr_tensor(sp.csr_matrix(filled), np.int32))._tiles
    assert tiles is not None
    starts, rows, quads, values = tiles
    assert rows.tolist() == [2, 1, 0, 3]
    assert starts.tolist() == [0, 0, 1, 3, 5]
    begins = (quads.numpy().view("<u2") // 256).reshape(-1, 4)
    assert begins[:5].tolist() == [
        [0, 1, 128, 128],
        [0, 1, 2, 3], [4, 128, 128, 128],
        [0, 1, 2, 3], [4, 5, 6, 128],
    ]  # fmt: skip
    assert values is not None
    ones = [2, 2, 1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 1]
    assert values[: len(ones)].tolist() == ones


DENSE_SHAPES = [
    (16, 3, 16),
    (100, 128, 64),
    (61, 64, 40),
    (60, 40, 70),
    (33, 193, 64),
    (20, 300, 17),
    (17, 70, 12),
]


@pytest.mark.skipif(not torch._C.has_mkl, reason="torch has no MKL, whose bits these are")
@pytest.mark.parametrize("shape", [*DENSE_SHAPES, (20, 384, 64), (20, 1000, 65), (3, 5, 7), (0, 5, 64)])
@pytest.mark.parametrize("turned", [False, True])
def test_dense_product_has_the_bits_of_torch(shape: tuple[int, int, int], turned: bool) -> None:
    """MKL adds in parts of 192 entries, or two halves, on the processors on which it is not asked."""
    rows, inner, width = shape
    random = torch.Generator().manual_seed(inner)
    left = torch.randn(rows, inner, generator=random)
    right = torch.randn(width, inner, generator=random).t() if turned else torch.randn(inner, width)
    assert torch.equal(kernels.dense_product(left, right), left @ right)
    bias = torch.randn(width, generator=random)
    assert torch.equal(kernels.dense_product(left, right, bias), torch.addmm(bias, left, right))
    back, grad = left.t(), torch.randn(rows, width, generator=random)
    assert torch.equal(kernels.dense_product(back, grad), back @ grad)


@pytest.mark.skipif(not torch._C.has_mkl, reason="torch has no MKL, whose bits these are")
@given(rows=st.integers(1, 90), inner=st.integers(2, 90), width=st.integers(1, 13), turned=st.booleans())
def test_narrow_products_have_the_bits_of_torch(rows: int, inner: int, width: int, turned: bool) -> None:
    """MKL takes some columns apart, by row and width, on the processors on which it is not asked."""
    random = torch.Generator().manual_seed(rows * inner)
    left = torch.randn(inner, rows, generator=random).t() if turned else torch.randn(rows, inner)
    right = torch.randn(inner, width, generator=random)
    assert torch.equal(kernels.dense_product(left, right), left @ right)


NUMBERS = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1.0, 2.0, math.inf, math.nan])


@given(rows=st.integers(0, 5), width=st.integers(1, 20), data=st.data())
def test_classes_are_those_of_torch(rows: int, width: int, data: st.DataObject) -> None:
    """The first of equal numbers, and the first NaN before any number."""
    count = rows * width
    drawn = data.draw(st.lists(NUMBERS, min_size=count, max_size=count))
    logits = torch.tensor(drawn, dtype=torch.float32).reshape(rows, width)
    assert torch.equal(kernels.classes_of(logits), logits.argmax(1))
    assert torch.equal(kernels.classes_of(logits.double()), logits.argmax(1))


@pytest.mark.usefixtures("on_torch")
def test_torch_computes_without_the_library() -> None:
    a, dense = matrix(7, 5), torch.randn(5, 3)
    assert kernels.name() == "torch"
    assert torch.allclose(
        kernels.Factor(csr_tensor(a, np.int32)).times(dense), torch.from_numpy(a @ dense.numpy()), atol=1e-5
    )


def test_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    with monkeypatch.context() as patch:
        for value in ("auto", "avx2", "torch"):
            patch.setenv("FEDEPD_KERNELS", value)
            patch.setattr(kernels, "_library", kernels._load())
            names[value] = kernels.name()
    assert names["torch"] == "torch"
    assert names["avx2"] == names["auto"]  # "torch" too, where nothing is compiled
    kernels._load()  # the library is one for all, and now as wide as before


def test_the_variable_is_read_when_a_process_begins() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from fedepd.network import kernels"],
        env={**os.environ, "FEDEPD_KERNELS": "gpu"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "FEDEPD_KERNELS is 'gpu'; it must be auto, avx2 or torch" in done.stderr


# --- what the compiled functions must never follow ----------------------------------------------------------

ELSEWHERE = torch.ones(8, 8, device="meta")
"""A tensor whose memory is not the machine's: its address is 0."""
HERE = torch.ones(8, 8)


def product(dense: torch.Tensor) -> object:
    return kernels.Factor(csr_tensor(matrix(8, 8), np.int32)).times(dense)


CALLS: dict[str, Callable[[], object]] = {
    "edges": lambda: kernels.symmetric_parts(torch.ones(2, 3, dtype=torch.int64, device="meta"), 4, None),
    "weights of edges": lambda: kernels.symmetric_parts(torch.tensor([[0], [1]]), 2, ELSEWHERE[0, :1]),
    "product": lambda: product(ELSEWHERE),
    "product of an empty matrix": lambda: kernels.Factor(csr_tensor(sp.csr_matrix((8, 8)), np.int32)).times(
        ELSEWHERE
    ),
    "transposed product, first": lambda: kernels.transposed_product(ELSEWHERE, HERE),
    "transposed product, second": lambda: kernels.transposed_product(HERE, ELSEWHERE),
    "cross-entropy, logits": lambda: kernels.cross_entropy_(ELSEWHERE, torch.zeros(8, dtype=torch.int64)),
    "cross-entropy, labels": lambda: kernels.cross_entropy_(
        HERE.clone(), torch.zeros(8, dtype=torch.int64, device="meta")
    ),
    "cross-entropy, shift": lambda: kernels.cross_entropy_(
        HERE.clone(), torch.zeros(8, dtype=torch.int64), ELSEWHERE[0]
    ),
    "activation": lambda: kernels.activate(ELSEWHERE, HERE[0], None),
    "activation, bias": lambda: kernels.activate(HERE.clone(), ELSEWHERE[0], None),
    "activation backward": lambda: kernels.activate_backward(ELSEWHERE, HERE, 1.0),
    "activation backward, second": lambda: kernels.activate_backward(HERE, ELSEWHERE, 1.0),
    "Adam": lambda: kernels.Adam(ELSEWHERE, HERE, HERE),
    "Adam, moments": lambda: kernels.Adam(HERE, HERE, ELSEWHERE),
    "Adam, gradient": lambda: kernels.Adam(HERE.clone(), HERE.clone(), HERE.clone()).step(
        ELSEWHERE, 1, 0.1, 0.0
    ),
}


@compiled
@pytest.mark.hostile
@pytest.mark.parametrize("case", CALLS)
def test_tensors_on_another_device_never_reach_the_compiled_functions(case: str) -> None:
    with pytest.raises(BadData, match=r"is on the device 'meta', .* \.cpu\(\)"):
        CALLS[case]()


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("starts", "columns"),
    [
        ([0, 1, 2], [0, 2]),
        ([0, 1, 2], [0, -1]),
        ([0, 3, 2], [0, 1]),
        ([1, 1, 2], [0, 1]),
        ([0, 1, 9], [0, 1]),
        ([0, -5, 2], [0, 1]),
    ],
)
def test_indices_outside_the_matrix_never_reach_the_compiled_product(
    starts: list[int], columns: list[int]
) -> None:
    parts = torch.tensor(starts, dtype=torch.int32), torch.tensor(columns, dtype=torch.int32), torch.ones(2)
    with pytest.raises(BadData, match="indices outside its shape"):
        kernels.Factor(torch.sparse_csr_tensor(*parts, size=(2, 2), check_invariants=False))
