"""The run folder: everything behind a number, written so that no file is ever half there."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from fedepd import kernels
from fedepd.errors import BadConfig
from fedepd.types import Tensors


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


def check_new_folder(path: Path, config_hash: str | None = None) -> None:
    """Refuse an output folder that holds a run or anything else. Writes nothing."""
    try:
        if path.exists() and not path.is_dir():
            raise BadConfig(f"the output '{path}' is a file; give a folder with --out")
        if (path / "config.json").exists():
            which = "this very run" if config_hash is not None and _hash_in(path) == config_hash else f"another run ({_hash_in(path)})"
            raise BadConfig(f"the output folder '{path}' already holds {which}; give another --out or remove the folder")
        if path.exists() and any(not _is_part(file) for file in path.iterdir()):
            raise BadConfig(f"the output folder '{path}' is not empty; give another --out or remove the folder")
    except OSError as cause:
        raise BadConfig(f"cannot read the output folder '{path}': {cause.strerror}; give another --out") from cause


def _is_part(file: Path) -> bool:
    """Left behind by ``write_bytes`` in a process that was killed."""
    return file.name.startswith(".") and file.name.endswith(".part")


def _hash_in(path: Path) -> str:
    try:
        return str(json.loads((path / "config.json").read_bytes())["config_hash"])
    except (ValueError, KeyError, TypeError):
        return "damaged"


def claim_folder(path: Path, config_hash: str) -> None:
    """Make the folder of a new run, or fail before anything is written."""
    check_new_folder(path, config_hash)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as cause:
        raise BadConfig(f"cannot write to the output folder '{path}': {cause.strerror}; give another --out") from cause


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """One process at a time works in a run folder; the system lets go of it however the process ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadConfig(f"another process is at work in '{folder}'; let it finish or stop it first") from None
        yield
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """All or nothing: temporary file, flush to disk, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except OSError as cause:
        needed = f"{len(content):,} bytes are needed, make room for them and try again"
        raise BadConfig(f"cannot write '{path}' ({cause.strerror}); {needed}") from cause
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(clean(content), indent=1, allow_nan=False) + "\n").encode())


def append_line(path: Path, content: Mapping[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as f:
            f.write(as_line(content))
    except OSError as cause:
        raise BadConfig(f"cannot write '{path}' ({cause.strerror}); make room and try again") from cause


def as_line(content: Mapping[str, Any]) -> str:
    return json.dumps(clean(content), allow_nan=False) + "\n"


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()})
    write_bytes(path, buffer.getvalue())


def write_tensors(path: Path, tensors: Tensors) -> None:
    write_bytes(path, save({name: value.detach().contiguous().clone() for name, value in tensors.items()}))


def clean(content: Any) -> Any:
    """JSON has no NaN: None instead."""
    if isinstance(content, Mapping):
        return {str(k): clean(v) for k, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [clean(v) for v in content]
    if isinstance(content, np.generic):
        return clean(content.item())
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
