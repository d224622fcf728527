from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.clients.client_file import read_client_file, write_client_file
from fedepd.clients.split import SplitConfig, split
from fedepd.datasets.npz import write_npz
from fedepd.errors import BadData
from fedepd.rng import seeded_numpy
from toy import toy_client


@pytest.mark.parametrize("sparse", [False, True])
def test_a_client_comes_back_bit_for_bit(tmp_path: Path, sparse: bool) -> None:
    data = toy_client(1, sparse=sparse)
    write_client_file(data, tmp_path / "a.npz")
    back = read_client_file(tmp_path / "a.npz", 1, SplitConfig(), 7)
    for name in ("train_mask", "val_mask", "test_mask", "global_ids"):
        assert torch.equal(getattr(back, name), getattr(data, name)), name
    assert torch.equal(back.graph.x.to_dense(), data.graph.x.to_dense())
    assert back.graph.is_sparse == sparse
    assert torch.equal(back.graph.edge_index, data.graph.edge_index)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_a_file_without_split_is_split_as_a_simulation_would(tmp_path: Path) -> None:
    graph = toy_client().graph
    write_npz(graph, tmp_path / "a.npz")
    back = read_client_file(tmp_path / "a.npz", 3, SplitConfig(), 5)
    masks = split(graph, SplitConfig(), seeded_numpy(5, "split", 3))
    assert torch.equal(torch.stack(masks), torch.stack([back.train_mask, back.val_mask, back.test_mask]))
    assert back.global_ids.tolist() == list(range(graph.num_nodes))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("split", np.full(24, 4, dtype=np.uint8), "0 train"),
        ("split", np.zeros(23, dtype=np.uint8), "each of the 24 nodes"),
        ("split", np.zeros(24), "one integer"),
        ("global_ids", np.zeros((24, 1), dtype=np.int64), "each of the 24 nodes"),
    ],
)
def test_a_bad_array_is_refused_by_name(tmp_path: Path, name: str, value: np.ndarray, says: str) -> None:
    graph = toy_client().graph
    arrays: dict[str, Any] = {
        "x": graph.x.numpy(),
        "edge_index": graph.edge_index.numpy(),
        "y": graph.y.numpy(),
        name: value,
    }
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadData, match=f"{name} .*{says}"):
        read_client_file(tmp_path / "a.npz", 0, SplitConfig(), 0)


def test_a_node_without_label_has_no_part(tmp_path: Path) -> None:
    graph = toy_client().graph
    y = graph.y.numpy().copy()
    y[5] = -1
    np.savez(
        tmp_path / "a.npz",
        x=graph.x.numpy(),
        edge_index=graph.edge_index.numpy(),
        y=y,
        split=np.zeros(24, dtype=np.uint8),
    )
    with pytest.raises(BadData, match="without a label"):
        read_client_file(tmp_path / "a.npz", 0, SplitConfig(), 0)


def test_no_folder_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="existing folder"):
        write_client_file(toy_client(), tmp_path / "none" / "a.npz")
