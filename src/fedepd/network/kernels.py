"""Compiled kernels for the functions that take most of the time. Without them, torch computes the same.

``_kernels.c`` is compiled when the package is installed and a C compiler is found (hatch_build.py).
FEDEPD_KERNELS=torch turns the kernels off, and FEDEPD_KERNELS=avx2 their form for AVX-512. Both forms have
the same bits where torch multiplies by MKL. (Debian's torch does not.)
"""

from __future__ import annotations

import ctypes
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adam import adam

from fedepd.errors import BadConfig, BadData

LIBRARY = Path(__file__).with_name("_kernels.so")
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
FROM_WIDTH = 12
"""MKL on AMD's processors multiplies narrower matrices in another way."""
STRIP_WIDTH, TILE_HEIGHT = 64, 128
"""As in _kernels.c: of a dense matrix, a tiled product takes as many columns and rows at a time."""
TILE_QUAD = 4
"""As there: the entries of a row of a tile are filled up to a multiple of it."""
TILED_FROM = 8
"""From so many entries on per row of a tile a matrix is multiplied in tiles."""
MOST_TILED = 1 << 30
"""Above so many entries it is not: 32 bits might not count those that are filled up."""
_TWICE = 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)  # [256, 8]


def _load() -> ctypes.CDLL | None:
    choice = os.environ.get("FEDEPD_KERNELS", "auto")
    if choice not in ("auto", "avx2", "torch"):
        raise BadConfig(f"FEDEPD_KERNELS is '{choice}'; it must be auto, avx2 or torch")
    if choice == "torch" or not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:  # built for another machine
        return None
    if not library.fedepd_supported():
        return None
    if not hasattr(library, "fedepd_largest"):
        raise BadConfig("the compiled kernels are older than the package; install it again with pip install")
    library.fedepd_widen(int(choice == "auto"))
    library.fedepd_product.argtypes = [_COUNT, _POINTER, _COUNT, *[_POINTER] * 5]
    library.fedepd_tiled_product.argtypes = [*[_COUNT] * 3, *[_POINTER] * 6]
    library.fedepd_dense_product.argtypes = [*[_COUNT] * 8, *[_POINTER] * 4]
    library.fedepd_narrow_product.argtypes = [*[_COUNT] * 7, *[_POINTER] * 4]
    library.fedepd_tile_rows.argtypes = [_COUNT, _COUNT, *[_POINTER] * 5]
    library.fedepd_tiles.argtypes = [_COUNT, _COUNT, *[_POINTER] * 6]
    library.fedepd_activate.argtypes = [_COUNT, _COUNT, *[_POINTER] * 3]
    before, after = (_COUNT, _COUNT, _POINTER, _POINTER), (_POINTER, _POINTER)
    library.fedepd_activate_backward.argtypes = (*before, ctypes.c_float, *after)
    library.fedepd_cross_entropy.argtypes = (*before, ctypes.c_double, *after)
    library.fedepd_transposed_product.argtypes = [*[_COUNT] * 3, *[_POINTER] * 4]
    library.fedepd_adjacency.argtypes = [_COUNT, _COUNT, *[_POINTER] * 6]
    library.fedepd_transpose.argtypes = [_COUNT, _COUNT, *[_POINTER] * 6]
    library.fedepd_normalised.argtypes = [_COUNT, *[_POINTER] * 7]
    library.fedepd_rows.argtypes = [_COUNT, *[_POINTER] * 7]
    library.fedepd_largest.argtypes = [_COUNT, _COUNT, _POINTER, _POINTER]
    library.fedepd_adam.argtypes = [_COUNT, *[ctypes.c_float] * 6, *[_POINTER] * 4]
    without_result = (
        "product",
        "tiled_product",
        "dense_product",
        "narrow_product",
        "tile_rows",
        "tiles",
        "transpose",
        "transposed_product",
        "rows",
        "activate",
        "activate_backward",
        "largest",
        "adam",
    )
    for name in without_result:
        getattr(library, f"fedepd_{name}").restype = None
    return library


_library = _load()
_beats_mkl = _library is not None and bool(_library.fedepd_beats_mkl())


def name() -> str:
    """Which kernels this process computes with: "compiled" or "torch"."""
    return "torch" if _library is None else "compiled"


def check_cpu(value: Tensor) -> None:
    """Refuse a tensor on a device.

    The compiled functions and numpy would read its address as one of main memory.
    """
    if not value.is_cpu:
        raise BadData(
            f"a tensor is on the device '{value.device}', but fedepd computes on the CPU; give it as .cpu()"
        )


class Factor:
    """A constant CSR matrix. It is checked once, so that its many products need no checks."""

    def __init__(self, matrix: Tensor) -> None:
        check_cpu(matrix)
        self.matrix = matrix
        self.rows, self.columns = matrix.shape
        self.empty = matrix.values().numel() == 0
        self._parts = [
            part.contiguous() for part in (matrix.crow_indices(), matrix.col_indices(), matrix.values())
        ]
        self._pointers = [part.data_ptr() for part in self._parts]
        types = [part.dtype for part in self._parts]
        self._narrow = types == [torch.int32, torch.int32, torch.float32]
        self._check_range()

    def _check_range(self) -> None:
        """Check the indices, because the compiled product uses them unchecked.

        Once is cheap for many products.
        """
        starts, columns, _ = self._parts
        sound = starts.numel() == self.rows + 1 and int(starts[0]) == 0 and int(starts[-1]) == columns.numel()
        sound = sound and bool((starts[1:] >= starts[:-1]).all())
        if sound and columns.numel():
            least, most = torch.aminmax(columns)
            sound = int(least) >= 0 and int(most) < self.columns
        if not sound:
            raise BadData(
                f"a sparse matrix [{self.rows}, {self.columns}] has indices outside its shape; make it again"
            )

    def times(self, dense: Tensor) -> Tensor:
        """``matrix @ dense``: [r, w]. No gradient flows through it; use ``sparse.spmm`` for that."""
        check_cpu(dense)
        if self.empty:  # MKL refuses an empty matrix
            return dense.new_zeros(self.rows, dense.shape[1])
        dense = dense.contiguous()
        if (
            _library is None
            or not self._narrow
            or dense.dtype != torch.float32
            or dense.shape[0] != self.columns
        ):
            return torch.mm(self.matrix, dense)
        out, width = torch.empty(self.rows, dense.shape[1]), dense.shape[1]
        ends = (dense.data_ptr(), out.data_ptr())
        if width and width % STRIP_WIDTH == 0 and (tiles := self._tiles) is not None:
            _library.fedepd_tiled_product(self.rows, self.columns, width, *map(_address, tiles), *ends)
        else:
            _library.fedepd_product(self.rows, None, width, *self._pointers, *ends)
        return out

    @cached_property
    def _tiles(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
        """The matrix in tiles of 128 columns, for products with the same bits.

        Returned are starts, rows, columns and values. Values that are all 1 are left out. A matrix with few
        entries per row of a tile has no tiles: what a row costs at each tile would exceed the gain.
        """
        ends = -(-self.columns // TILE_HEIGHT) * self.rows
        starts, columns, values = self._parts
        if _library is None or not TILED_FROM * ends <= len(values) <= MOST_TILED:
            return None
        start, row, place = (torch.zeros(count, dtype=torch.int32) for count in (ends + 1, ends, ends))
        rows = map(_address, (starts, columns, start, row, place))
        _library.fedepd_tile_rows(self.rows, self.columns, *rows)
        quad = torch.empty(int(start[-1]) + 1, dtype=torch.int64)  # unsigned to the library
        value = None if bool((values == 1).all()) else torch.ones(len(quad) * TILE_QUAD)
        own = map(_address, (place, quad, value))
        _library.fedepd_tiles(self.rows, len(quad), *self._pointers, *own)
        return start, row, quad, value

    @property
    def parts(self) -> list[Tensor]:
        """Where rows begin, columns, and values."""
        return self._parts

    @property
    def pointers(self) -> list[int]:
        """Where the compiled functions read them."""
        return self._pointers

    @property
    def chooses(self) -> bool:
        """Whether some of its rows can be multiplied without a copy of them."""
        return _library is not None and self._narrow

    def chosen_rows(self, index: Tensor) -> Tensor:
        """The chosen rows, in that order, again as CSR with 32-bit indices."""
        chosen = np.ascontiguousarray(index.numpy(), dtype=np.int64)
        parts: tuple[np.ndarray[Any, Any], ...]
        if _library is None or not self._narrow:
            starts, columns, values = (part.numpy() for part in self._parts)
            found = sp.csr_matrix((values, columns, starts), shape=self.matrix.shape)[chosen]
            parts = found.indptr.astype(np.int32), found.indices.astype(np.int32), found.data
        else:
            parts = self._copied(_library, chosen)
        start, column, value = map(torch.from_numpy, parts)
        size = (len(chosen), self.columns)
        return torch.sparse_csr_tensor(start, column, value, size=size, check_invariants=False)

    def _copied(
        self, library: ctypes.CDLL, chosen: np.ndarray[Any, np.dtype[np.int64]]
    ) -> tuple[np.ndarray[Any, Any], ...]:
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < self.rows:
            raise IndexError(f"a row is not in 0 .. {self.rows - 1}")
        starts = self._parts[0].numpy()
        ends = np.cumsum((starts[1:] - starts[:-1])[chosen], dtype=np.int64)
        entries = int(ends[-1]) if len(ends) else 0
        if entries > np.iinfo(np.int32).max:
            raise BadData(f"{entries:,} entries of chosen rows are too many for 32-bit indices; choose fewer")
        start = np.zeros(len(chosen) + 1, np.int32)
        start[1:] = ends
        out = start, np.empty(entries, np.int32), np.empty(entries, np.float32)
        pointers = (*self._pointers, *(part.ctypes.data for part in out))
        library.fedepd_rows(len(chosen), chosen.ctypes.data, *pointers)
        return out

    def transposed(self) -> Tensor:
        """The transpose, again as CSR with 32-bit indices. The columns of its rows ascend."""
        parts, size = self._parts, (self.columns, self.rows)
        if _library is None or not self._narrow:
            values, columns, starts = (part.numpy() for part in parts[::-1])
            found = sp.csr_matrix((values, columns, starts), shape=self.matrix.shape).T.tocsr()
            start, index = (torch.from_numpy(part.astype(np.int32)) for part in (found.indptr, found.indices))
            value = torch.from_numpy(found.data)
        else:
            start = torch.zeros(self.columns + 1, dtype=torch.int32)
            index, value = torch.empty_like(parts[1]), torch.empty_like(parts[2])
            out = (part.data_ptr() for part in (start, index, value))
            _library.fedepd_transpose(self.rows, self.columns, *self._pointers, *out)
        return torch.sparse_csr_tensor(start, index, value, size=size, check_invariants=False)


class ChosenFactor:
    """Distinct rows of a symmetric matrix, for products that read them where they are.

    The sums have the order, and so the bits, of products with a copy of these rows. They are checked once.
    """

    def __init__(self, whole: Factor, chosen: Tensor) -> None:
        self.whole, self.chosen = whole, chosen.to(torch.int64).contiguous()
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < whole.rows:
            raise IndexError(f"a row is not in 0 .. {whole.rows - 1}")

    def times(self, dense: Tensor) -> Tensor:
        """``matrix[chosen] @ dense``: [chosen, w]."""
        check_cpu(dense)
        dense = dense.contiguous()
        fits = dense.dtype == torch.float32 and dense.shape[0] == self.whole.columns
        if _library is None or not self.whole.chooses or not fits:
            return Factor(self.whole.chosen_rows(self.chosen)).times(dense)
        out, width = torch.empty(len(self.chosen), dense.shape[1]), dense.shape[1]
        pointers = (*self.whole.pointers, dense.data_ptr(), out.data_ptr())
        _library.fedepd_product(len(self.chosen), self.chosen.data_ptr(), width, *pointers)
        return out

    def transposed_times(self, dense: Tensor) -> Tensor:
        """``matrix[chosen].t() @ dense``: [n, w]."""
        return self._transposed.times(dense)

    @cached_property
    def _transposed(self) -> Factor:
        """The chosen columns. They are those of the transpose, because the matrix is symmetric."""
        place = np.full(self.whole.rows, -1, np.int32)
        place[self.chosen.numpy()] = np.arange(len(self.chosen), dtype=np.int32)
        starts, columns, values = (part.numpy() for part in self.whole.parts)
        placed = place[columns]
        stays = placed >= 0
        before = np.concatenate([[0], np.cumsum(stays, dtype=np.int64)])
        parts = before[starts].astype(np.int32), placed[stays], values[stays]
        start, column, value = map(torch.from_numpy, parts)
        size = (self.whole.rows, len(self.chosen))
        return Factor(torch.sparse_csr_tensor(start, column, value, size=size, check_invariants=False))


def symmetric_parts(
    edge_index: Tensor, num_nodes: int, weight: Tensor | None
) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Values, columns and row starts of the adjacency matrix of edges [2, e] and their weights [e].

    None without the library, or where edges are not sorted, distinct and from a lower to a higher node.
    """
    check_cpu(edge_index)
    count = edge_index.shape[1]
    fits = edge_index.dtype == torch.int64 and edge_index.is_contiguous() and 2 * count < 2**31
    if _library is None or not fits:
        return None
    if weight is not None and (not _readable(weight) or weight.shape != (count,)):
        return None
    start = np.zeros(num_nodes + 1, np.int32)
    index, value = np.empty(2 * count, np.int32), np.empty(2 * count, np.float32)
    ends = (edge_index.data_ptr(), edge_index.data_ptr() + 8 * count)
    where = None if weight is None else weight.data_ptr()
    out = (part.ctypes.data for part in (start, index, value))
    failed = _library.fedepd_adjacency(num_nodes, count, *ends, where, *out)
    return None if failed else (value, index, start)


def normalised_parts(
    adj: sp.csr_matrix, scale: np.ndarray[Any, np.dtype[np.float64]]
) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Float32 values, columns and row starts of S (A + I) S, where S is the diagonal matrix of ``scale`` [n].

    None without the library, or where A is not a 0/1 matrix with an empty diagonal and sorted columns.
    """
    stored = adj.indptr, adj.indices, adj.data
    if _library is None or [part.dtype for part in stored] != [np.int32, np.int32, np.float32]:
        return None
    rows, entries = adj.shape[0], len(adj.indices) + adj.shape[0]
    parts = [np.ascontiguousarray(part) for part in (*stored, scale)]
    out = np.empty(rows + 1, np.int32), np.empty(entries, np.int32), np.empty(entries, np.float32)
    failed = _library.fedepd_normalised(rows, *(part.ctypes.data for part in (*parts, *out)))
    return None if failed else out[::-1]


def transposed_product(holey: Tensor, dense: Tensor) -> Tensor:
    """``holey.t() @ dense``: [u, w]. Zeros in ``holey``, which ReLU and dropout make, cost no time."""
    (rows, units), width = holey.shape, dense.shape[1]
    fits = rows == dense.shape[0] and units % 8 == 0 and width % 8 == 0
    if _library is None or not fits or not _readable(holey, dense):
        return dense_product(holey.t(), dense)
    filled, out = torch.empty(units, dtype=torch.int32), torch.empty(units, width)
    pointers = (part.data_ptr() for part in (holey, dense, filled, out))
    _library.fedepd_transposed_product(rows, units, width, *pointers)
    return out


def dense_product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``left @ right``: [r, w], or ``left @ right + bias``. No gradient flows through it.

    Use ``products`` for that. The compiled ones have MKL's bits for these shapes. MKL sums others
    differently, and keeps them.
    """
    (rows, inner), width = left.shape, right.shape[1]
    narrow = width < FROM_WIDTH
    fits = rows >= 16 and inner == right.shape[0] and inner > 2 and width > 1
    fits = fits and left.is_cpu and right.is_cpu and left.dtype == right.dtype == torch.float32
    fits = fits and (not narrow or (right.is_contiguous() and bias is None))
    fits = fits and (bias is None or (bias.shape == (width,) and _readable(bias)))
    if _library is None or not _beats_mkl or not fits:
        return left @ right if bias is None else torch.addmm(bias, left, right)
    sizes = (rows, inner, width, *left.stride(), *right.stride())
    near = torch.empty(inner * -(-width // 16) * 16)
    out = torch.empty(rows, width) if bias is None else bias.repeat(rows, 1)
    pointers = map(_address, (left, right, near, out))
    if narrow:
        _library.fedepd_narrow_product(*sizes, *pointers)
    else:
        _library.fedepd_dense_product(*sizes, int(bias is not None), *pointers)
    return out


def classes_of(logits: Tensor) -> Tensor:
    """``logits.argmax(1)``: int64 [n]."""
    if _library is None or logits.ndim != 2 or not logits.shape[1] or not _readable(logits):
        return logits.argmax(1)
    out = torch.empty(logits.shape[0], dtype=torch.int64)
    _library.fedepd_largest(*logits.shape, logits.data_ptr(), out.data_ptr())
    return out


def cross_entropy_(logits: Tensor, labels: Tensor, shift: Tensor | None = None, weight: float = 1.0) -> float:
    """``weight`` times the mean cross-entropy of ``logits + shift`` [t, C].

    The logits are overwritten by its gradient.
    """
    check_cpu(labels)
    parts = (logits,) if shift is None else (logits, shift)
    fits = labels.shape == logits.shape[:1] and labels.dtype == torch.int64 and labels.is_contiguous()
    if (
        _library is not None
        and _readable(*parts)
        and fits
        and (shift is None or shift.shape == logits.shape[1:])
        and logits.numel()
    ):
        loss = ctypes.c_double()
        where = None if shift is None else shift.data_ptr()
        if _library.fedepd_cross_entropy(
            *logits.shape, where, labels.data_ptr(), weight, logits.data_ptr(), ctypes.byref(loss)
        ):
            raise IndexError(f"a label is not in 0 .. {logits.shape[1] - 1}")
        return loss.value
    log_p = torch.log_softmax(logits if shift is None else logits + shift, 1)
    loss_of_rows = F.nll_loss(log_p, labels)
    torch.exp(log_p, out=logits)
    logits[torch.arange(len(labels)), labels] -= 1
    logits.mul_(weight / max(len(labels), 1))
    return weight * float(loss_of_rows)


class Adam:
    """Adam with an L2 penalty, in place on a value and its moments.

    They are checked once, so that the many steps need no checks.
    """

    def __init__(self, value: Tensor, first: Tensor, second: Tensor) -> None:
        self._parts = (value, first, second)
        self._pointers = tuple(part.data_ptr() for part in self._parts)
        self._fits = _readable(*self._parts) and value.shape == first.shape == second.shape

    def step(self, grad: Tensor, number: int, lr: float, weight_decay: float) -> None:
        """The ``number``-th step: 1, 2, ..."""
        value, first, second = self._parts
        check_cpu(grad)
        grad = grad.contiguous()
        if _library is not None and self._fits and grad.dtype == torch.float32 and grad.shape == value.shape:
            rate, root = lr / (1 - BETA1**number), (1 - BETA2**number) ** 0.5
            new = (1 - BETA1, 1 - BETA2)
            _library.fedepd_adam(
                value.numel(), rate, root, *new, EPS, weight_decay, grad.data_ptr(), *self._pointers
            )
            return
        adam(
            [value], [grad], [first], [second], [], [torch.tensor(float(number - 1))],
            fused=True, amsgrad=False, maximize=False,
            beta1=BETA1, beta2=BETA2, lr=lr, weight_decay=weight_decay, eps=EPS,
        )  # fmt: skip


def activate(h: Tensor, bias: Tensor, bits: bytes | None) -> None:
    """h <- dropout(relu(h + bias)), in place.

    One bit per unit says whether it is doubled (1) or dropped (0). Without bits there is no dropout.
    """
    fits = bias.shape == h.shape[1:] and (bits is None or 8 * len(bits) >= h.numel())
    if _library is not None and _readable(h, bias) and fits:
        _library.fedepd_activate(*h.shape, bias.data_ptr(), bits, h.data_ptr())
        return
    h.add_(bias).relu_()
    if bits is not None:
        h.mul_(unpacked(bits, *h.shape))


def activate_backward(grad: Tensor, h: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The gradient before :func:`activate` and its column sums.

    It is ``scale * grad`` where h > 0, else 0.
    """
    grad = grad.contiguous()
    if _library is None or not _readable(grad, h) or grad.shape != h.shape:
        g = torch.ops.aten.threshold_backward(grad, h, 0)
        if scale != 1:
            g.mul_(scale)
        return g, g.sum(0)
    g, bias_grad = torch.empty_like(h), torch.empty(h.shape[1])
    _library.fedepd_activate_backward(
        *h.shape, grad.data_ptr(), h.data_ptr(), scale, g.data_ptr(), bias_grad.data_ptr()
    )
    return g, bias_grad


def _address(value: Tensor | None) -> int | None:
    return None if value is None else value.data_ptr()


def _readable(*values: Tensor) -> bool:
    """Whether the compiled functions can read these tensors: float32 and contiguous.

    torch computes, or refuses, all others.
    """
    # This runs many times per step, and a generator would take as long as the test itself.
    for value in values:
        if not value.is_cpu:
            check_cpu(value)
        if value.dtype != torch.float32 or not value.is_contiguous():
            return False
    return True


def unpacked(bits: bytes, rows: int, width: int) -> Tensor:
    """2 where a bit is set, else 0, with the most significant bit first: [rows, width]."""
    lanes = _TWICE.take(np.frombuffer(bits, np.uint8), axis=0)
    return torch.from_numpy(lanes.reshape(-1)[: rows * width].reshape(rows, width))
