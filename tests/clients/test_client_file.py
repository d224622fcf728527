from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.clients.client_file import Unscaled, read_client_file, read_file, write_client_file
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


# --- columns that are yet to be scaled ----------------------------------------------------------------------

RAW = np.stack([np.arange(24.0) * 1e6, np.linspace(-1e-9, 1e-9, 24)], 1)  # [24, 2]


def test_unscaled_columns_come_back_bit_for_bit_and_x_holds_zeros(tmp_path: Path) -> None:
    data = toy_client(1)
    write_client_file(data, tmp_path / "a.npz", Unscaled((1, 4), RAW))
    back = read_file(tmp_path / "a.npz")
    assert back.unscaled is not None
    assert back.unscaled.columns == (1, 4)
    assert back.unscaled.values.dtype == np.float64
    assert np.array_equal(back.unscaled.values, RAW)
    x = data.graph.x.clone()
    x[:, [1, 4]] = 0
    assert torch.equal(back.graph.x, x)
    assert bool(data.graph.x[:, 1].any())  # the caller's graph is left as it was


def test_a_file_that_is_not_scaled_is_no_client_yet(tmp_path: Path) -> None:
    write_client_file(toy_client(1), tmp_path / "a.npz", Unscaled((1, 4), RAW))
    with pytest.raises(BadData, match=r"a.npz' has 2 columns .* not scaled yet.*use it in a federation"):
        read_client_file(tmp_path / "a.npz", 0, SplitConfig(), 0)


BAD_COLUMNS = {
    "one alone": ({"unscaled": RAW}, "only one of the arrays"),
    "other alone": ({"scaled": np.array([1, 4])}, "only one of the arrays"),
    "float32": ({"unscaled": RAW.astype(np.float32), "scaled": np.array([1, 4])}, "must be float64"),
    "flat": ({"unscaled": RAW[:, 0], "scaled": np.array([1])}, "with 2 axes"),
    "float positions": ({"unscaled": RAW, "scaled": np.array([1.0, 4.0])}, "must be int64"),
    "text": ({"unscaled": RAW, "scaled": np.array(["1", "4"])}, "must be int64"),
    "rows": ({"unscaled": RAW[1:], "scaled": np.array([1, 4])}, r"shape \[23, 2\] for 24 nodes"),
    "columns": ({"unscaled": RAW, "scaled": np.array([1])}, "and 1 scaled columns"),
    "none": ({"unscaled": RAW[:, :0], "scaled": np.array([], np.int64)}, "at least one column"),
    "descending": ({"unscaled": RAW, "scaled": np.array([4, 1])}, "ascending"),
    "twice": ({"unscaled": RAW, "scaled": np.array([1, 1])}, "ascending"),
    "negative": ({"unscaled": RAW, "scaled": np.array([-1, 4])}, "positions in 0"),
    "beyond": ({"unscaled": RAW, "scaled": np.array([1, 10**15])}, "positions in 0"),
    "nan": ({"unscaled": RAW * np.nan, "scaled": np.array([1, 4])}, "nan in row 0 of column 1"),
    "infinite": (
        {"unscaled": RAW + np.array([0, np.inf]), "scaled": np.array([1, 4])},
        "inf in row 0 of column 4",
    ),
    "large": (
        {"unscaled": RAW + np.array([0, 1e39]), "scaled": np.array([1, 4])},
        "1e.39 in row 0 of column 4",
    ),
    "x": ({"unscaled": RAW, "scaled": np.array([1, 4]), "x": None}, "x is not 0"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_bad_unscaled_columns_are_refused_by_name(tmp_path: Path, case: str) -> None:
    more, says = BAD_COLUMNS[case]
    graph = toy_client().graph
    x = graph.x.numpy().copy()
    if "x" not in more:
        x[:, [1, 4]] = 0
    arrays: dict[str, Any] = {"edge_index": graph.edge_index.numpy(), "y": graph.y.numpy()}
    np.savez(tmp_path / "a.npz", **{**arrays, **more, "x": x})
    with pytest.raises(BadData, match=f"a.npz.*{says}"):
        read_file(tmp_path / "a.npz")


def test_sparse_features_cannot_be_scaled(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="sparse features"):
        write_client_file(toy_client(sparse=True), tmp_path / "a.npz", Unscaled((1, 4), RAW))
    assert list(tmp_path.iterdir()) == []


def test_columns_that_do_not_fit_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="positions in 0"):
        write_client_file(toy_client(), tmp_path / "a.npz", Unscaled((1, 40), RAW))
    assert list(tmp_path.iterdir()) == []
