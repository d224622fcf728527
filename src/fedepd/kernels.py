"""Compiled kernels for the hot products, where the package was built with a C compiler; torch computes the same where it was not.

``_kernels.c`` is compiled when the package is installed (hatch_build.py). FEDEPD_KERNELS=torch turns the kernels off.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedepd.errors import BadConfig

LIBRARY = Path(__file__).with_name("_kernels.so")
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_TWICE = 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)  # [256, 8]


def _load() -> ctypes.CDLL | None:
    choice = os.environ.get("FEDEPD_KERNELS", "auto")
    if choice not in ("auto", "torch"):
        raise BadConfig(f"FEDEPD_KERNELS is '{choice}'; it must be auto or torch")
    if choice == "torch" or not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:  # built for another machine
        return None
    if not library.fedepd_supported():
        return None
    library.fedepd_product.argtypes = [_COUNT, _COUNT, *[_POINTER] * 5]
    library.fedepd_activate.argtypes = [_COUNT, _COUNT, *[_POINTER] * 3]
    library.fedepd_activate_backward.argtypes = [_COUNT, _COUNT, _POINTER, _POINTER, ctypes.c_float, _POINTER, _POINTER]
    for function in (library.fedepd_product, library.fedepd_activate, library.fedepd_activate_backward):
        function.restype = None
    return library


_library = _load()


def name() -> str:
    """Which kernels this process computes with: "compiled" or "torch"."""
    return "torch" if _library is None else "compiled"


def product(matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense`` for a CSR matrix: [r, w]. No gradient flows through it: that is ``sparse.spmm``."""
    rows, width = matrix.shape[0], dense.shape[1]
    if matrix.values().numel() == 0:  # MKL refuses an empty matrix
        return dense.new_zeros(rows, width)
    start, index, value, dense = (part.contiguous() for part in (matrix.crow_indices(), matrix.col_indices(), matrix.values(), dense))
    if _library is None or not _readable(value, dense) or index.dtype != torch.int32 or matrix.shape[1] != dense.shape[0]:
        return torch.mm(matrix, dense)
    out = torch.empty(rows, width)
    _library.fedepd_product(rows, width, start.data_ptr(), index.data_ptr(), value.data_ptr(), dense.data_ptr(), out.data_ptr())
    return out


def activate(h: Tensor, bias: Tensor, bits: bytes | None) -> None:
    """h <- dropout(relu(h + bias)) in place; one bit per unit says whether it is dropped or doubled, None: no dropout."""
    fits = bias.shape == h.shape[1:] and (bits is None or 8 * len(bits) >= h.numel())
    if _library is not None and _readable(h, bias) and fits:
        _library.fedepd_activate(*h.shape, bias.data_ptr(), bits, h.data_ptr())
        return
    h.add_(bias).relu_()
    if bits is not None:
        h.mul_(unpacked(bits, *h.shape))


def activate_backward(grad: Tensor, h: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The gradient before :func:`activate`, ``scale * grad`` where h > 0 and 0 elsewhere, and its column sums."""
    grad = grad.contiguous()
    if _library is None or not _readable(grad, h) or grad.shape != h.shape:
        g = torch.ops.aten.threshold_backward(grad, h, 0)
        if scale != 1:
            g.mul_(scale)
        return g, g.sum(0)
    g, bias_grad = torch.empty_like(h), torch.empty(h.shape[1])
    _library.fedepd_activate_backward(*h.shape, grad.data_ptr(), h.data_ptr(), scale, g.data_ptr(), bias_grad.data_ptr())
    return g, bias_grad


def _readable(*values: Tensor) -> bool:
    """Whether the compiled functions can read these: float32, one row after the other. Whatever else is torch's to compute or to refuse."""
    return all(value.dtype == torch.float32 and value.is_contiguous() for value in values)


def unpacked(bits: bytes, rows: int, width: int) -> Tensor:
    """2 where a bit is set, else 0, most significant bit first: [rows, width]."""
    lanes = _TWICE.take(np.frombuffer(bits, np.uint8), axis=0)
    return torch.from_numpy(lanes.reshape(-1)[: rows * width].reshape(rows, width))
