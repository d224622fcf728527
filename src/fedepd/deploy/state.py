"""What a site keeps on disk: its state, to continue after a restart, and the model that it takes home."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedepd.errors import BadData
from fedepd.runs.checkpoint import load, save, write
from fedepd.runs.folder import checkpoints, round_of
from fedepd.runs.selection import below
from fedepd.types import Tensors

ADAPTED = "adapted"
"""The file with what the site keeps of its adapted model, if it has one (``rounds.adapt``)."""
FINAL = "final"
"""The file with the selected model. It is there once the run is over."""
EVALUATED = re.compile(r"evaluated-[0-9]{6}")
"""Files with the site's own model after each evaluated round, until the run is over."""


class SiteState:
    """A client's state after its two latest rounds.

    A server that lost its last round asks for it again, and then gets the same bits.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder, self._identity = folder, identity
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._after = {round_of(path): load(path, identity)[0] for path in checkpoints(folder)}
        except BadData as cause:
            raise BadData(
                f"the saved state in '{folder}' cannot be used: {cause}; restore it or remove the folder"
            ) from cause

    def before(self, round: int) -> Tensors:
        """The state with which ``round`` begins."""
        earlier = [done for done in self._after if done < round]
        return self._after[max(earlier)] if earlier else {}

    def save(self, round: int, state: Tensors, used: int | None = None) -> None:
        """Keep the state after ``round``. ``used``: later rounds than this one never happened."""
        for path in checkpoints(self._folder):
            if round_of(path) > (round if used is None else used):
                path.unlink()
        save(self._folder, round, state, {"config_hash": self._identity})
        self._after[round] = state
        self._after = {done: self._after[done] for done in map(round_of, checkpoints(self._folder))}

    def keep_evaluated(self, round: int, state: Tensors) -> None:
        """Keep the site's own model after an evaluated round. One of them will be selected at the end."""
        if own := without_moments(state):
            write(self._folder / f"evaluated-{round:06d}", own, {"config_hash": self._identity})

    def evaluated(self, round: int) -> Tensors | None:
        """The site's own model after an evaluated round; None if the site was not there."""
        path = self._folder / f"evaluated-{round:06d}"
        return load(path, self._identity)[0] if path.exists() else None

    def keep_adapted(self, adapted: Tensors) -> None:
        """Keep what the site needs to predict with its adapted model, beside the selected one."""
        write(self._folder / ADAPTED, adapted, {"config_hash": self._identity})

    def keep_final(self, final: Final) -> None:
        """Keep what the site takes home, and remove the models of rounds that were not selected."""
        parts = {"model": final.model, "state": final.state, "personal": final.personal or {}}
        tensors = {f"{part}/{n}": value for part, named in parts.items() for n, value in named.items()}
        about = {**final.about, "personal": final.personal is not None, "config_hash": self._identity}
        write(self._folder / FINAL, tensors, about)
        for path in self._folder.iterdir():
            if EVALUATED.fullmatch(path.name):
                path.unlink()


@dataclass(frozen=True, eq=False)
class Final:
    """What a site has after the last message of a run."""

    model: Tensors
    """The message: the selected round's tensors, and the entries that are no tensors of the method."""
    state: Tensors
    """What the site kept after its last round, without moments."""
    personal: Tensors | None
    """The same after the round that was selected for personal models; None if it was not there then."""
    about: dict[str, Any]
    """The task as JSON ("task"), and hashes of the site's nodes ("nodes_sha256") and of its data file
    ("data_sha256")."""
    adapted: Tensors | None = None
    """What ``rounds.adapt.adapted_logits`` needs beside the model; None if the model was not adapted."""


def read_final(folder: Path, identity: str | None = None) -> Final:
    """What the site has kept. Raises ``BadData`` if it is damaged or belongs to another run.

    Without an ``identity``, the caller compares it with the task's, which is in the file, too.
    """
    tensors, about = load(folder / FINAL, identity)
    found = {part: below(tensors, f"{part}/") for part in ("model", "state", "personal")}
    personal = found["personal"] if about.get("personal") is True else None
    own = about["config_hash"]
    adapted = load(folder / ADAPTED, own)[0] if (folder / ADAPTED).exists() else None
    return Final(found["model"], found["state"], personal, about, adapted)


def without_moments(state: Tensors) -> Tensors:
    """A client's state without what only its optimiser needs."""
    return {name: value for name, value in state.items() if ".moments." not in name}
