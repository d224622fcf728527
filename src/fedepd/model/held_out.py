"""What a model says about held-out nodes, and whether that is what was measured in the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.metrics import client_mean, pooled
from fedepd.model.model import Model
from fedepd.report.runs import Run
from fedepd.rounds.calibrate import grid_sums, tier_of_class
from fedepd.rounds.evaluate import SPLITS, confusions, held_out
from fedepd.rounds.guard import Privacy
from fedepd.rounds.sums import Vector, summed
from fedepd.types import ClientData, Graph

OTHERWISE = (
    "gets other predictions than in the run, and so would a new graph; export a run whose method does not "
    "use local labels to predict"
)


def needed_only(model: Model, graph: Graph) -> Model:
    """The model without the tensors that change no prediction.

    Class prototypes and counts reveal more about the data than a user of the model needs.
    """
    wanted = model.logits(graph)
    for group in sorted({name.split(".")[0] for name in model.tensors}):
        fewer = replace(
            model,
            tensors={name: value for name, value in model.tensors.items() if name.split(".")[0] != group},
        )
        try:
            unchanged = torch.equal(fewer.logits(graph), wanted)
        except KeyError:
            unchanged = False
        model = fewer if unchanged else model
    return model


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model says about the clients' held-out nodes."""

    rows: dict[str, list[tuple[Tensor, Tensor]]]
    """Logits [n, C] and classes [n] of each client, by split."""
    confusion: dict[str, NDArray[np.int64]]
    """[K, C, C] by split."""

    def test(self) -> tuple[Any, Any]:
        """Logits [n, C] and classes [n] of the test nodes of all clients."""
        return self.split("test")

    def split(self, name: str) -> tuple[Any, Any]:
        """Logits [n, C] and classes [n] of all clients' nodes of a split."""
        logits, y = (torch.cat(part).numpy() for part in zip(*self.rows[name], strict=True))
        return logits.astype(np.float64), y

    def validation_sums(self, tiers: Tiers, privacy: Privacy, opened: Sequence[int] | None) -> Vector:
        """What the clients would send together to calibrate by. ``opened``: the open classes, or None."""
        classes = self.confusion["val"].shape[1]
        tier = tier_of_class(tiers, classes)
        known = None if opened is None else np.isin(np.arange(classes), opened)
        few = privacy.min_count if privacy.guard and not privacy.secure else 0
        return summed([grid_sums(z.numpy(), y.numpy(), tier, known, few) for z, y in self.rows["val"]])

    def scores(self, tiers: Tiers) -> dict[str, dict[str, Any]]:
        """Test scores, pooled and as the clients' mean."""
        test = self.confusion["test"]
        return {"pooled": pooled(test, tiers), "client_mean": client_mean(test, tiers)}


def measured(clients: Iterable[ClientData], logits_of: Callable[[ClientData], Tensor]) -> HeldOut:
    """What is said about the clients' held-out nodes. ``logits_of`` gives the logits of a client's nodes."""
    rows: dict[str, list[tuple[Tensor, Tensor]]] = {split: [] for split in SPLITS}
    found: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for client in clients:
        logits = logits_of(client)
        for split, matrix in confusions(logits, client).items():
            found[split].append(matrix.numpy())
        for split, pair in held_out(logits, client).items():
            rows[split].append(pair)
    return HeldOut(rows, {split: np.stack(matrices) for split, matrices in found.items()})


def check_reproduced(run: Run, predicted: HeldOut) -> None:
    """Refuse predictions that are not the run's, so that an exported model predicts as was measured.

    They must have the run's confusion matrices, client by client, or their sum where the server saw sums
    only.
    """
    for split, matrices in predicted.confusion.items():
        ours = matrices.sum(0, keepdims=True) if run.sums_only else matrices
        theirs = run.confusions[f"{run.headline}_{split}"]
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if not np.array_equal(mine, other):
                raise BadConfig(f"without its training labels client {number} {OTHERWISE}")
