"""What a run has reached: the server's tensors, one line per round, and the selected round of each model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd import metrics
from fedepd.files import clean
from fedepd.longtail import Tiers
from fedepd.rounds.defence import shares
from fedepd.rounds.evaluate import SPLITS
from fedepd.rounds.loop import Round
from fedepd.types import Tensors

Confusions = dict[str, NDArray[np.int64]]
"""By model and split, e.g. "global_test": [K, C, C], clients ascending."""

HEADLINE_SCORES = ("acc", "bacc", "macro_f1")
OTHER = {"val_macro_f1": "val_acc", "val_acc": "val_macro_f1"}
"""A selection by one score -> the selection by the other, whose test scores are kept as well."""


@dataclass
class Best:
    """The round selected so far for one model, by validation alone."""

    score: float
    round: int
    confusions: Confusions
    tensors: Tensors


@dataclass(frozen=True, eq=False)
class Adapted:
    """What the stage of adaptation came to."""

    about: dict[str, Any]
    """The summary's ``adapted``."""
    confusions: Confusions
    """"adapted_val" and "adapted_test": sums over the clients, [1, C, C]."""


@dataclass
class Progress:
    tensors: Tensors
    select: str
    """val_macro_f1, val_acc or last."""
    tiers: Tiers
    first: int = 1
    """No earlier round may be selected (methods with stages)."""
    cap_weights: bool = False
    """Whether a client's held-out nodes, which it declares itself, are capped where rounds are compared."""
    opened: tuple[int, ...] | None = None
    """Under the guard: the classes that are open."""
    best: dict[str, Best] = field(default_factory=dict)
    otherwise: dict[str, Best] | None = field(default_factory=dict)
    """What the other score would select (``OTHER``), without tensors. So one run shows what selection does.

    None in a run that went on from a checkpoint without it.
    """
    lines: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, Any] = field(default_factory=dict)
    """Under noise: what was spent of the privacy budget."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What the clients answered together to questions beside the rounds, by question."""
    adapted: Adapted | None = None
    """Once the clients have decided about adaptation."""

    @property
    def next_round(self) -> int:
        return int(self.lines[-1]["round"]) + 1 if self.lines else 1

    def add(self, each: Round, personal: Callable[[], Tensors]) -> dict[str, Any]:
        """Take a round in and return its line.

        ``personal`` gives the clients' models. They are kept if the round is selected for them.
        """
        self.tensors = each.tensors
        self.opened = each.opened if each.opened is not None else self.opened
        line: dict[str, Any] = {
            "round": each.number,
            "loss": each.loss,
            "clients": each.clients,
            "seconds": each.seconds,
            "cpu_seconds": each.cpu_seconds,
            "bytes_up": each.bytes_up,
            "bytes_down": each.bytes_down,
        }
        if not each.clients:
            line["empty"] = True
        if each.refused:
            line["refused"] = [asdict(refusal) for refusal in each.refused]
        if deeds := each.deeds.as_json():
            line["defence"] = deeds
        if each.excluded:
            line["excluded"] = each.excluded
        if each.confusions is not None:
            stacked = stack(each.confusions)
            line["val"] = {}
            for kind in sorted({name.split("_")[0] for name in stacked}):
                held_out = stacked[f"{kind}_val"]
                counted = shares(held_out.sum((1, 2)).tolist()) if self.cap_weights else None
                scores = metrics.pooled(held_out, self.tiers, counted)
                line["val"][kind] = {name: scores[name] for name in HEADLINE_SCORES}
                if each.number >= self.first:
                    self._consider(kind, each, stacked, scores, personal)
        self.lines.append(line)
        return line

    def _consider(
        self,
        kind: str,
        each: Round,
        stacked: Confusions,
        scores: dict[str, float],
        personal: Callable[[], Tensors],
    ) -> None:
        confusions = {f"{kind}_{split}": stacked[f"{kind}_{split}"] for split in SPLITS}
        score = float(each.number) if self.select == "last" else scores[self.select.removeprefix("val_")]
        if _beats(score, self.best.get(kind)):
            self.best[kind] = Best(
                score, each.number, confusions, personal() if kind == "personal" else each.tensors
            )
        if self.select in OTHER and self.otherwise is not None:
            score = scores[OTHER[self.select].removeprefix("val_")]
            if _beats(score, self.otherwise.get(kind)):
                self.otherwise[kind] = Best(score, each.number, confusions, {})

    def other_confusions(self) -> Confusions:
        """Those of the rounds that the other score selects, as "global_test_by_acc"."""
        by = OTHER.get(self.select, "").removeprefix("val_")
        selected = (self.otherwise or {}).values()
        return {f"{name}_by_{by}": matrix for best in selected for name, matrix in best.confusions.items()}

    def other_selection(self) -> dict[str, Any]:
        """The summary's ``other_selection``: which score it is, its rounds and their test scores."""
        assert self.otherwise is not None
        return {
            "select": OTHER[self.select],
            "best_rounds": {kind: best.round for kind, best in self.otherwise.items()},
            "metrics": self._scored(self.otherwise),
        }

    def confusions(self) -> Confusions:
        found = {name: matrix for best in self.best.values() for name, matrix in best.confusions.items()}
        return found if self.adapted is None else {**found, **self.adapted.confusions}

    def metrics(self) -> dict[str, Any]:
        """Test scores of each model at its selected round, pooled and as the clients' mean."""
        out = self._scored(self.best)
        if self.adapted is not None:
            out["adapted"] = {"pooled": metrics.pooled(self.adapted.confusions["adapted_test"], self.tiers)}
        return out

    def _scored(self, selected: Mapping[str, Best]) -> dict[str, Any]:
        tests = {kind: best.confusions[f"{kind}_test"] for kind, best in selected.items()}
        return {
            kind: {
                "pooled": metrics.pooled(test, self.tiers),
                "client_mean": metrics.client_mean(test, self.tiers),
            }
            for kind, test in tests.items()
        }

    def packed(self) -> tuple[Tensors, dict[str, Any]]:
        """As named tensors and JSON; ``restore`` takes it back in."""
        tensors = {f"server/{name}": value for name, value in self.tensors.items()}
        about: dict[str, Any] = {} if self.opened is None else {"opened": self.opened}
        for place, selected in (("best", self.best), ("otherwise", self.otherwise)):
            if selected is None:
                continue
            about[place] = {
                kind: {"score": each.score, "round": each.round} for kind, each in selected.items()
            }
            for kind, each in selected.items():
                at = f"{place}/{kind}"
                tensors |= {f"{at}/tensors/{name}": value for name, value in each.tensors.items()}
                tensors |= {
                    f"{at}/confusions/{name}": torch.from_numpy(value)
                    for name, value in each.confusions.items()
                }
        about |= {"answers": clean(self.answers)} if self.answers else {}
        if self.adapted is not None:
            about["adapted"] = clean(self.adapted.about)
            arrays = self.adapted.confusions.items()
            tensors |= {f"adapted/{name}": torch.from_numpy(value) for name, value in arrays}
        return tensors, {"lines": clean(self.lines), **about}

    def restore(self, tensors: Tensors, about: dict[str, Any]) -> None:
        self.tensors, self.lines = below(tensors, "server/"), about["lines"]
        self.opened = tuple(about["opened"]) if "opened" in about else None
        self.answers = about.get("answers", {})
        if "adapted" in about:
            arrays = {name: value.numpy() for name, value in below(tensors, "adapted/").items()}
            self.adapted = Adapted(about["adapted"], arrays)
        self.best = _selected("best", tensors, about)
        self.otherwise = _selected("otherwise", tensors, about) if "otherwise" in about else None


def _selected(place: str, tensors: Tensors, about: dict[str, Any]) -> dict[str, Best]:
    """What ``Progress.packed`` has put at a place."""
    found = {}
    for kind, best in about[place].items():
        matrices = below(tensors, f"{place}/{kind}/confusions/")
        confusions = {name: value.numpy() for name, value in matrices.items()}
        own = below(tensors, f"{place}/{kind}/tensors/")
        found[kind] = Best(best["score"], best["round"], confusions, own)
    return found


def _beats(score: float, best: Best | None) -> bool:
    """Whether a round is selected instead of the best so far.

    The earliest round wins a tie. As long as no validation node was scored, the latest round is taken,
    because nothing speaks for another one.
    """
    old = float("nan") if best is None else best.score
    return score > old or old != old


def offences(lines: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """In how many rounds each client's answers were refused, from the lines of these rounds."""
    out: dict[int, int] = {}
    for line in lines:
        for client in {refusal["client"] for refusal in line.get("refused", []) if not refusal.get("absent")}:
            out[client] = out.get(client, 0) + 1
    return out


def below(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def of_each_client(tensors: Tensors, prefix: str, end: str) -> dict[str, Tensors]:
    """The tensors of every client, in one pass: "client3.bias" is "bias" of "3" for "client" and "."."""
    out: dict[str, Tensors] = {}
    for name, value in below(tensors, prefix).items():
        client, _, own = name.partition(end)
        out.setdefault(client, {})[own] = value
    return out


def stack(confusions: dict[int, dict[str, Any]]) -> Confusions:
    clients = sorted(confusions)
    return {name: np.stack([confusions[k][name].numpy() for k in clients]) for name in confusions[clients[0]]}
