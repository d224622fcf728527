"""What a run needs to go on after a crash: one file per saved round.

A file is there whole or not at all, and it is never believed without its checksum. It begins with the sha256
of the rest. The rest is a safetensors file: the tensors stand under "server/", "best/", "otherwise/" and
"client/", and the JSON stands as bytes in "about".
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as to_bytes

from fedepd.errors import BadData
from fedepd.files import MAX_TENSOR_BYTES, parse_json, parse_tensors, regular_content, write_bytes
from fedepd.rounds.evaluate import SPLITS
from fedepd.rounds.in_process import InProcess
from fedepd.runs.folder import CHECKPOINT_FIELDS, checkpoint_path, checkpoints
from fedepd.runs.selection import Progress, of_each_client
from fedepd.shapes import TEXT, expect
from fedepd.shown import shown
from fedepd.types import Tensors

KEPT = 2
"""The newest and the one before it, should the newest be damaged."""

SHARE = 0.05
# Choice: a state is the weights and two moments per client. On the CoraFull shape that is 70 to 96 MB and
# takes 0.9 to 1.4 s, as long as a round, so a save in every round would double such a run. A due save waits
# until the last one's cost is at most this share of the time since:
# "every round" holds wherever it is cheap, and a crash costs at most about twenty times what a save takes.

DIGEST = 32
"""Bytes of a sha256."""


class Saver:
    """Saves a run every ``every`` rounds (0: never), and no more often than ``SHARE`` allows.

    Under noise it saves whenever it is ``due``, because a round that is lost has spent a part of the budget.
    """

    def __init__(self, folder: Path, every: int, config_hash: str, due: bool = False) -> None:
        self.folder, self.every, self.config_hash, self.due = folder, every, config_hash, due
        self._ended, self._cost = 0.0, 0.0

    def after_round(self, progress: Progress, clients: InProcess, seconds: tuple[float, float]) -> None:
        """``seconds``: wall and CPU time of the run so far, sittings before a crash included."""
        start, round = time.perf_counter(), int(progress.lines[-1]["round"])
        if not self.every or round % self.every:
            return
        if not self.due and (start - self._ended) * SHARE < self._cost:
            return
        tensors, about = progress.packed()
        for k, state in clients.kept("state").items():
            tensors |= {f"client/{k}/{name}": value for name, value in state.items()}
        save(self.folder, round, tensors, {**about, "config_hash": self.config_hash, "seconds": seconds})
        self._ended = time.perf_counter()
        self._cost = self._ended - start


def save(folder: Path, round: int, tensors: Tensors, about: dict[str, Any]) -> None:
    """Write the checkpoint of a round, and remove all but the newest."""
    write(checkpoint_path(folder, round), tensors, about)
    for old in checkpoints(folder)[KEPT:]:
        with suppress(OSError):  # a folder of that name is nothing that we have made
            old.unlink()


def write(path: Path, tensors: Tensors, about: dict[str, Any]) -> None:
    """Write tensors and JSON with their checksum. ``load`` takes them back in."""
    arrays = {name: value.detach().contiguous().numpy() for name, value in tensors.items()}
    about = {
        **about,
        "names": list(tensors),
    }  # safetensors sorts them, and a method that sums over its tensors would round otherwise
    content = to_bytes({**arrays, "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)})
    write_bytes(path, hashlib.sha256(content).digest() + content)


def load(path: Path, config_hash: str | None) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the JSON of a checkpoint, or one sentence on why it cannot be trusted.

    ``config_hash``: the run that it must belong to; None if the caller looks at that himself.
    """
    try:
        content = memoryview(regular_content(path, MAX_TENSOR_BYTES))
    except OSError as cause:
        raise BadData(f"'{path.name}' cannot be read ({cause.strerror})") from cause
    if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
        raise BadData(f"'{path.name}' is damaged (its checksum differs)")
    try:
        tensors = parse_tensors(bytes(content[DIGEST:]), "it", "")
        about: dict[str, Any] = parse_json(
            tensors.pop("about", torch.empty(0)).numpy().tobytes(), "its JSON", ""
        )
        expect(about, {"names": [TEXT], "config_hash": TEXT}, "its JSON", "")
        tensors = {name: tensors[name] for name in about.pop("names")}
    except (BadData, KeyError) as cause:
        raise BadData(f"'{path.name}' is not a checkpoint ({str(cause).rstrip('; ')})") from cause
    if config_hash is not None and about["config_hash"] != config_hash:
        raise BadData(f"'{path.name}' belongs to another run ({shown(about['config_hash'], 20)})")
    return tensors, about


def restore(
    folder: Path,
    config_hash: str,
    progress: Progress,
    clients: InProcess,
    rounds: int | None = None,
) -> tuple[tuple[float, float], list[str]]:
    """Continue from the newest checkpoint that can be trusted, else from the start.

    Returns the seconds already spent, wall and CPU, and a sentence if a damaged checkpoint was passed over.
    """
    bad = []
    for path in checkpoints(folder):
        try:
            tensors, about = load(path, config_hash)
            _check(tensors, about, progress, path.name, rounds)
        except BadData as reason:
            bad.append(str(reason))
            continue
        progress.restore(tensors, about)
        states = of_each_client(tensors, "client/", "/")
        clients.restore({k: states[str(k)] for k in clients.participants if str(k) in states})
        wall, cpu = about["seconds"]
        return (wall, cpu), [
            f"{'; '.join(bad)}: continued from round {progress.lines[-1]['round']} instead"
        ] if bad else []
    return (0.0, 0.0), [f"{'; '.join(bad)}: started again from round 1"] if bad else []


def _check(tensors: Tensors, about: dict[str, Any], start: Progress, name: str, rounds: int | None) -> None:
    """Refuse a checkpoint with which a run that began as ``start`` cannot go on.

    Its checksum is right, but a checksum says nothing of who wrote the file.
    """
    expect(about, CHECKPOINT_FIELDS, f"'{name}'", "it is not ours")
    done = len(about["lines"])
    if [line["round"] for line in about["lines"]] != list(range(1, done + 1)) or (
        rounds is not None and done > rounds
    ):
        raise BadData(f"'{name}' does not hold the rounds of this run")
    if len(about["seconds"]) != 2 or not done or (done == rounds and not about["best"]):
        raise BadData(f"'{name}' does not say what was reached")
    for each, value in start.tensors.items():
        found = tensors.get(f"server/{each}")
        if found is None or found.shape != value.shape or found.dtype != value.dtype:
            raise BadData(f"'{name}' holds other weights than this run's ('{each}')")
    classes = 1 + max((*start.tiers.head, *start.tiers.medium, *start.tiers.tail), default=0)
    selected = [(place, *each) for place in ("best", "otherwise") for each in about.get(place, {}).items()]
    for place, kind, best in selected:
        for split in SPLITS:
            matrix = tensors.get(f"{place}/{kind}/confusions/{kind}_{split}", torch.empty(0))
            if (
                matrix.dtype != torch.int64
                or matrix.dim() != 3
                or not matrix.shape[1] == matrix.shape[2] >= classes
            ):
                raise BadData(f"'{name}' holds no confusion matrices of its best round ({shown(kind)})")
        if best["round"] > done or kind not in ("global", "personal"):
            raise BadData(f"'{name}' names a best round that never was")


def remove(folder: Path) -> None:
    """All checkpoints, and what a killed process left half-written."""
    for path in (*checkpoints(folder), *folder.glob(".*.part")):
        with suppress(OSError):
            path.unlink()
