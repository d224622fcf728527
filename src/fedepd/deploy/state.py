"""What must survive a crash: at a site the client's state, at the server the run's progress. Every file appears whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from fedepd.errors import BadData
from fedepd.longtail import Tiers
from fedepd.progress import Best, Progress
from fedepd.record import clean, write_bytes, write_tensors
from fedepd.types import Tensors

Facts = dict[int, dict[str, Any]]
"""What the server learns of each client from its messages; JSON can hold it."""


class SiteState:
    """A client's state after its two latest rounds: a server that lost its last round asks for it again, and gets the same bits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._after = {int(path.stem.split("-")[1]): load_file(path) for path in sorted(folder.glob("round-*.safetensors"))}
        except (SafetensorError, OSError, ValueError) as cause:
            raise BadData(f"the saved state in '{folder}' cannot be read ({cause}); restore it or remove the folder") from cause

    def before(self, round: int) -> Tensors:
        """The state with which ``round`` begins."""
        earlier = [done for done in self._after if done < round]
        return self._after[max(earlier)] if earlier else {}

    def save(self, round: int, state: Tensors) -> None:
        write_tensors(self._path(round), state)
        self._after[round] = state
        keep = sorted(done for done in self._after if done <= round)[-2:]
        for done in [done for done in self._after if done not in keep]:
            del self._after[done]
            self._path(done).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self._folder / f"round-{round}.safetensors"


def save_progress(path: Path, progress: Progress, facts: Facts) -> None:
    tensors = {f"server/{name}": value for name, value in progress.tensors.items()}
    for kind, best in progress.best.items():
        tensors |= {f"best/{kind}/tensors/{name}": value for name, value in best.tensors.items()}
        tensors |= {f"best/{kind}/confusions/{name}": torch.from_numpy(value) for name, value in best.confusions.items()}
    about = {
        "lines": clean(progress.lines),
        "tiers": asdict(progress.tiers),
        "facts": facts,
        "best": {kind: {"score": best.score, "round": best.round} for kind, best in progress.best.items()},
    }
    content = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    write_bytes(path, save(content, {"fedepd": json.dumps(about)}))


def load_progress(path: Path, progress: Progress) -> Facts:
    """Fill ``progress`` from a checkpoint; returns what was known of the sites."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["fedepd"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as cause:
        raise BadData(f"the checkpoint '{path}' cannot be read ({cause}); restore it from a backup or submit a new run") from cause
    progress.tensors = _below(tensors, "server/")
    progress.lines = about["lines"]
    progress.tiers = Tiers(**{name: tuple(classes) for name, classes in about["tiers"].items()})
    for kind, best in about["best"].items():
        confusions = {name: value.numpy() for name, value in _below(tensors, f"best/{kind}/confusions/").items()}
        progress.best[kind] = Best(best["score"], best["round"], confusions, _below(tensors, f"best/{kind}/tensors/"))
    return {int(client): known for client, known in about["facts"].items()}


def _below(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
