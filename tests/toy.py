"""The small federations of ``fedepd.testing``, and how tests compare tensors."""

from __future__ import annotations

import torch

from fedepd.testing.toy import (
    CLASSES,
    FEATURES,
    initial,
    make_client,
    make_server,
    relabelled,
    run_rounds,
    toy_client,
    toy_clients,
)
from fedepd.types import Tensors

__all__ = ["CLASSES", "FEATURES", "assert_near", "assert_same", "initial", "make_client", "make_server"]
__all__ += ["relabelled", "run_rounds", "toy_client", "toy_clients"]


def assert_same(a: Tensors, b: Tensors) -> None:
    """Bit for bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def assert_near(a: Tensors, b: Tensors) -> None:
    """But for rounding: one side's gradients are autograd's, the other's are written by hand."""
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=2e-6, msg=name)
