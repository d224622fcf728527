"""The only place that seeds. Each random stream is named by its use, so two uses never share draws."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def key(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on nothing else."""
    digest = hashlib.sha256("/".join(str(p) for p in parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def seeded(*parts: int | str) -> torch.Generator:
    """A torch generator for one use, e.g. ``seeded(seed, "dropout", round, client)``."""
    return torch.Generator().manual_seed(key(*parts))


def seeded_numpy(*parts: int | str) -> np.random.Generator:
    """A numpy generator for one use, as ``seeded``."""
    return np.random.default_rng(key(*parts))


def fast_numpy(*parts: int | str) -> np.random.Generator:
    """A numpy generator with the fastest bit generator, for dropout."""
    return np.random.Generator(np.random.SFC64(seeded_numpy(*parts).integers(2**63)))


@contextmanager
def torch_seeded(*parts: int | str) -> Iterator[None]:
    """For foreign code that draws from torch's global generator: seeded inside, as before afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(*parts))
        yield
