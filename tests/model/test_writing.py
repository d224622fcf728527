"""A model folder is there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.model.export import export
from fedepd.runs.run import run


@pytest.mark.parametrize("file", ["model.safetensors", "README.md", "config.json"])
def test_a_full_disk_leaves_no_folder(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = synthetic(nodes=90, edges=300, classes=3, imbalance=4.0, smallest=None, features=8, communities=4)
    run(graph, "isolated", out=tmp_path / "run", rounds=1, hidden=4, clients=2)
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if Path(target).name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadConfig, match="No space left"):
        export(tmp_path / "run", tmp_path / "model", graph, client=0)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
