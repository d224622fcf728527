"""What a run writes: the same files and fields, whoever ran it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from fedepd.files import append_line, write_json
from fedepd.runs.record import environment, write_arrays, write_tensors


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_json_lines_and_arrays_come_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": float("nan")})
    append_line(tmp_path / "a.jsonl", {"round": 1})
    append_line(tmp_path / "a.jsonl", {"round": 2})
    write_arrays(tmp_path / "a.npz", {"matrix": np.eye(2, dtype=np.int64), "tensor": torch.arange(3)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": None}
    assert (tmp_path / "a.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert file["matrix"].tolist() == [[1, 0], [0, 1]]
        assert file["tensor"].tolist() == [0, 1, 2]


def test_tensors_come_back_even_if_they_share_memory(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "a.safetensors", {"whole": whole, "view": whole.T})
    back = load_file(tmp_path / "a.safetensors")
    assert torch.equal(back["whole"], whole)
    assert torch.equal(back["view"], whole.T)
    assert everything(tmp_path) == ["a.safetensors"]


def test_environment_is_json_and_names_what_a_number_depends_on() -> None:
    found = environment()
    json.dumps(found, allow_nan=False)
    assert {"fedepd", "torch", "numpy", "scipy", "python", "platform", "cpu_count", "threads"} <= found.keys()
