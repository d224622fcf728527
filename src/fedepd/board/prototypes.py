"""The prototypes that a run's last message held, on a plane. Read with numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadData
from fedepd.files import DAMAGE, regular_content
from fedepd.runs.folder import FINAL, called
from fedepd.shapes import DAMAGED
from fedepd.shown import shown

MEANS, COUNTS = "prototype.mean", "prototype.count"
"""What FedEPD's server sends: a mean per class, and how much stands behind it."""
MOST_BYTES = 64 * 2**20
"""Largest file that is read for a picture."""


@dataclass(frozen=True, eq=False)
class Map:
    places: npt.NDArray[np.float64]
    """[C, 2]"""
    counts: npt.NDArray[np.float64]
    """[C]; 0 for a class without a prototype."""
    explained: float
    """The share of the prototypes' variance that the plane shows."""


def prototype_map(folder: Path) -> Map | None:
    """The prototypes by their first two principal components; None if the run has none, or a huge file."""
    tensors = _tensors(folder)
    means, counts = tensors.get(MEANS), tensors.get(COUNTS)
    if means is None or counts is None or means.ndim != 2 or counts.shape != means.shape[:1]:
        return None
    there = (counts > 0) & np.isfinite(means).all(1)
    if int(there.sum()) < 3:
        return None
    counts, means = np.where(there, counts, 0.0).astype(np.float64), means.astype(np.float64)
    centred = means[there] - means[there].mean(0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2, np.abs(axes[:2]).argmax(1)].diagonal())[:, None]  # one of two signs
    places = np.zeros((len(means), 2))
    places[there, : len(axes)] = centred @ axes.T
    total = float((spread**2).sum())
    return Map(places, counts, float((spread[:2] ** 2).sum()) / total if total else 1.0)


def _tensors(folder: Path) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / FINAL
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        return dict(load(regular_content(path, MOST_BYTES)))
    except (SafetensorError, *DAMAGE) as cause:
        raise BadData(f"'{called(folder, FINAL)}' cannot be read ({shown(cause, 200)}); {DAMAGED}") from cause
