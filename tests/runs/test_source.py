"""Data are loaded as they are on disk; an experiment's settings come afterwards."""

from __future__ import annotations

from pathlib import Path

import torch

from fedepd.clients.client_file import ClientFile
from fedepd.clients.clients_dir import read_clients
from fedepd.clients.split import SplitConfig
from fedepd.datasets import write_npz
from fedepd.datasets.synthetic import synthetic
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build
from fedepd.runs.source import Source


def test_a_folder_of_clients_is_read_first_and_split_afterwards(tmp_path: Path) -> None:
    """The files have no split. So every seed and every share gives another one from the same loaded files."""
    for name, seed in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        graph = synthetic(nodes=60, edges=150, classes=3, imbalance=3, features=6, smallest=None, seed=seed)
        write_npz(graph, tmp_path / name / "graph.npz")
    loaded = Source.make(None, clients_dir=tmp_path).load()
    assert isinstance(loaded, list)
    assert all(isinstance(each, ClientFile) and each.masks is None for each in loaded)
    masks = []
    for seed, share in ((0, 0.6), (1, 0.6), (0, 0.3)):
        clients = build(Experiment.make("fedavg", seed=seed, train_share=share, rounds=1), loaded).clients
        wanted = read_clients(tmp_path, SplitConfig(train_share=share), seed)
        for mine, theirs in zip(clients, wanted, strict=True):
            assert torch.equal(mine.train_mask, theirs.train_mask)
            assert torch.equal(mine.test_mask, theirs.test_mask)
        masks.append(clients[0].train_mask)
    assert not torch.equal(masks[0], masks[1])
    assert int(masks[2].sum()) < int(masks[0].sum())
