"""The run folder: everything behind a number, written so that no file is ever half there."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from fedepd.files import append_line, as_line, clean, write_bytes, write_json
from fedepd.folders import check_new_folder, claim_folder, held
from fedepd.network import kernels
from fedepd.types import Tensors

__all__ = [
    "append_line",
    "as_line",
    "check_new_folder",
    "claim_folder",
    "clean",
    "environment",
    "held",
    "weights_sha256",
]
__all__ += ["write_arrays", "write_bytes", "write_json", "write_tensors"]


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().contiguous()
        digest.update(f"{name}|{value.dtype}|{list(value.shape)}|".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def environment() -> dict[str, Any]:
    packages = ("fedepd", "torch", "numpy", "scipy", "scikit-network", "safetensors")
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": kernels.name(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()}
    )
    write_bytes(path, buffer.getvalue())


def write_tensors(path: Path, tensors: Tensors) -> None:
    write_bytes(path, save({name: value.detach().contiguous().clone() for name, value in tensors.items()}))
