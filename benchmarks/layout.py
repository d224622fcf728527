"""Where dense products overtake sparse ones: the first layer's two products, by share of non-zero entries.

``python benchmarks/layout.py --rows 1375 --features 767`` prints CPU milliseconds of X W and the weight
gradient together, for a dense X and for CSR. ``fedepd.network.sparse.DENSE_FROM`` was chosen by it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.network import kernels
from fedepd.network.sparse import Sparse
from fedepd.rng import seeded_numpy

HIDDEN = 64
SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0)


def best(run: Callable[..., Tensor], *factors: Tensor, seconds: float = 0.12, most: int = 60) -> float:
    """The shortest of several runs, in CPU milliseconds. The first run is not counted."""
    run(*factors)
    times: list[float] = []
    while sum(times) < seconds and len(times) < most:
        start = time.process_time()
        run(*factors)
        times.append(time.process_time() - start)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1375)
    parser.add_argument("--features", type=int, nargs="+", default=[104, 304, 767, 768, 2000])
    values = parser.parse_args()
    torch.set_num_threads(1)
    draws = seeded_numpy(0, "layout")
    for width in values.features:
        weight = torch.from_numpy(draws.standard_normal((width, HIDDEN), dtype=np.float32))
        # ReLU and dropout leave a quarter of the gradient.
        kept = draws.random((values.rows, HIDDEN)) < 0.25
        grad = torch.from_numpy(draws.standard_normal(kept.shape, dtype=np.float32) * kept)
        x = torch.from_numpy(draws.random((values.rows, width), dtype=np.float32))
        backward = (
            best(torch.mm, x.t(), grad),
            best(torch.mm, grad.t(), x),
            best(kernels.transposed_product, grad, x),
        )
        dense = best(torch.mm, x, weight) + min(backward)
        print(f"{values.rows} x {width}: dense {dense:.2f} ms")
        for share in SHARES:
            matrix = Sparse.of(sp.random(values.rows, width, share, "csr", np.float32, draws))
            csr = best(matrix.times, weight) + best(matrix.transposed_times, grad)
            print(f"  CSR, {share:4.0%} not zero: {csr:.2f} ms, dense / CSR {dense / csr:.2f}")


if __name__ == "__main__":
    main()
