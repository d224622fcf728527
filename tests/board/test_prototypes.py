"""Prototypes on a plane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedepd.board.prototypes import prototype_map
from fedepd.errors import BadData


def test_the_plane_keeps_distances_where_two_dimensions_hold_everything(tmp_path: Path) -> None:
    """A 3-4-5 triangle, turned in five dimensions: principal components turn it back."""
    corners = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [9.0, 9.0]])
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0][:2]
    means = (corners @ turned + 7).astype(np.float32)
    counts = np.array([10.0, 20.0, 30.0, 0.0], dtype=np.float32)  # the last class has no prototype
    save_file({"prototype.mean": means, "prototype.count": counts}, tmp_path / "final.safetensors")
    found = prototype_map(tmp_path)
    assert found is not None
    a, b, c = found.places[:3]
    assert [np.linalg.norm(a - b), np.linalg.norm(a - c), np.linalg.norm(b - c)] == pytest.approx(
        [3, 4, 5], 1e-4
    )
    assert found.counts.tolist() == [10, 20, 30, 0]
    assert found.places[3].tolist() == [0, 0]
    assert found.explained == pytest.approx(1)


def test_a_run_without_prototypes_has_no_map(tmp_path: Path) -> None:
    assert prototype_map(tmp_path) is None
    save_file({"encoder.weight": np.eye(3, dtype=np.float32)}, tmp_path / "final.safetensors")
    assert prototype_map(tmp_path) is None
    two = {
        "prototype.mean": np.eye(3, dtype=np.float32),
        "prototype.count": np.array([1, 1, 0], dtype=np.float32),
    }
    save_file(two, tmp_path / "final.safetensors")
    assert prototype_map(tmp_path) is None  # two points are always on a line


@pytest.mark.hostile
def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "final.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(BadData, match=r"final\.safetensors"):
        prototype_map(tmp_path)
