"""The state that a site keeps on disk, so that it can continue after a restart."""

from __future__ import annotations

from pathlib import Path

from fedepd.errors import BadData
from fedepd.runs.checkpoint import load, save
from fedepd.runs.folder import checkpoints, round_of
from fedepd.types import Tensors


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
