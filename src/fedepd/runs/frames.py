"""Finished runs as tables of pandas: one row for one thing, one column for one number, names where they are
known.

This module imports no training code, so that a report can use it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.metrics import OF_A_CLASS, class_scores, scores
from fedepd.runs.folder import MODELS, SPLITS, Json
from fedepd.shown import shown

if TYPE_CHECKING:
    import pandas

Counts = Mapping[str, npt.NDArray[Any]]


class Finished(Protocol):
    """What is known of a finished run, in memory or read from its folder."""

    @property
    def summary(self) -> Json: ...
    @property
    def config(self) -> Json: ...
    @property
    def rounds(self) -> list[Json]: ...
    @property
    def clients(self) -> list[Json]: ...
    @property
    def confusions(self) -> Counts: ...


@dataclass(frozen=True, eq=False)
class Frames:
    """Finished runs as data frames. Each frame is made when it is first asked for.

    Every frame begins with the same columns: ``run`` (the folder's name), ``dataset``, ``method``,
    ``preset``, ``seed``, and each setting in which runs of one method differ. Scores are shares from 0 to 1.

    Examples:
        >>> import fedepd
        >>> for seed in range(2):
        ...     _ = fedepd.run("synthetic", "fedavg", rounds=2, clients=3, seed=seed, out=f"runs/{seed}")
        >>> frames = fedepd.read_runs("runs")
        >>> len(frames.scores.query("model == 'global' and average == 'pooled'"))
        2
        >>> frames.rounds.groupby("seed")["round"].max().tolist()
        [2, 2]
        >>> sorted(frames.clients["client"].unique())
        ['0', '1', '2']
    """

    runs: Sequence[tuple[str, Finished]]
    """Each run with the name that it is called by."""

    @cached_property
    def scores(self) -> pandas.DataFrame:
        """One row per run, model and average: the test scores, the selected round, and what the run cost."""
        return self._frame(_scores)

    @cached_property
    def rounds(self) -> pandas.DataFrame:
        """One row per run and round: loss, bytes, seconds, and validation scores where it was evaluated."""
        return self._frame(_rounds)

    @cached_property
    def classes(self) -> pandas.DataFrame:
        """One row per run, model and class: test nodes, precision, recall and F1 with their intervals."""
        return self._frame(_classes)

    @cached_property
    def clients(self) -> pandas.DataFrame:
        """One row per run and client: what it holds, and its test scores by each model.

        There are no scores of clients where the server saw sums only.
        """
        return self._frame(_clients)

    @cached_property
    def confusions(self) -> pandas.DataFrame:
        """One row per run, model, split, client, true class and predicted class with at least one node.

        The client is "all" where only sums over the clients are known.
        """
        return self._frame(_confusions)

    def _frame(self, rows: Any) -> pandas.DataFrame:
        differing = _differing([run for _, run in self.runs])
        return _pandas().DataFrame(
            [{**_common(name, run, differing), **row} for name, run in self.runs for row in rows(run)]
        )

    def _repr_html_(self) -> str:
        return str(self.scores.to_html(index=False, float_format="{:.3f}".format))

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(str(run.summary["method"]) for _, run in self.runs))
        parts = ".scores, .rounds, .classes, .clients, .confusions"
        return f"Frames({len(self.runs)} runs of {shown(names)}; {parts})"


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as cause:
        raise BadConfig(
            "data frames need the package pandas; install it with: pip install 'fedepd[data]'"
        ) from cause
    return pandas


def _common(name: str, run: Finished, differing: Sequence[str]) -> Json:
    own = dict(settings_of(run.config))
    return {
        "run": name,
        "dataset": run.config["dataset"]["name"],
        "method": run.summary["method"],
        "preset": run.summary["preset"],
        "seed": run.summary["seed"],
        **{each.rsplit(".", 1)[-1]: own.get(each) for each in differing},
    }


def _differing(runs: Sequence[Finished]) -> list[str]:
    """The settings that have more than one value among runs of one method and preset."""
    values: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for name, value in settings_of(run.config):
            if name.rsplit(".", 1)[-1] not in ("seed", "name", "preset"):
                key = (run.summary["method"], run.summary["preset"], name)
                values.setdefault(key, set()).add(json.dumps(value))
    return list(dict.fromkeys(name for (_, _, name), found in values.items() if len(found) > 1))


def settings_of(config: Json) -> Iterator[tuple[str, Any]]:
    """Every resolved setting of a run, by its dotted name."""
    return _flatten(config["experiment"])


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _scores(run: Finished) -> Iterator[Json]:
    summary = run.summary
    for model, averages in summary["metrics"].items():
        for average, values in averages.items():
            yield {
                "model": model,
                "average": average,
                "headline": model == summary["headline"],
                "best_round": summary["best_rounds"].get(model),
                "rounds_run": summary["rounds"],
                **{name: _number(value) for name, value in values.items()},
                **{name: summary.get(name) for name in ("bytes_up", "bytes_down", "seconds", "cpu_seconds")},
            }


def _rounds(run: Finished) -> Iterator[Json]:
    return map(round_row, run.rounds)


def round_row(line: Json) -> Json:
    """The numbers of one line of rounds.jsonl, by the names that a table has for them."""
    return {
        "round": line["round"],
        "loss": _number(line.get("loss")),
        "clients": len(line["clients"]) if "clients" in line else None,
        **{name: sum(line.get(name, {}).values()) for name in ("bytes_up", "bytes_down")},
        **{name: line.get(name) for name in ("seconds", "cpu_seconds")},
        **{
            f"{model}_val_{name}": _number(value)
            for model, values in line.get("val", {}).items()
            for name, value in values.items()
        },
    }


def _classes(run: Finished) -> Iterator[Json]:
    tiers = {c: tier for tier, members in run.summary["tiers"].items() for c in members}
    for model, split, counts in _matrices(run):
        if split != "test":
            continue
        total = counts.sum(0)
        found = class_scores(total)
        for c, name in enumerate(class_names(run, len(total))):
            row: Json = {
                "model": model,
                "class": name,
                "tier": tiers.get(c),
                "nodes": int(total[c].sum()),
                "predicted": int(total[:, c].sum()),
            }
            for score in OF_A_CLASS:
                ends = (f"{score}_low", f"{score}_high")
                row |= dict(zip((score, *ends), (float(part[c]) for part in found[score]), strict=True))
            yield row


def _clients(run: Finished) -> Iterator[Json]:
    count = len(run.clients)
    own = {model: each for model, split, each in _matrices(run) if split == "test" and len(each) == count}
    cut = run.summary["tiers"]
    tiers = Tiers(*(tuple(cut[name]) for name in ("head", "medium", "tail")))
    for client, name in zip(run.clients, client_names(run, count), strict=True):
        row = {**client, "client": name}
        for model, counts in own.items():
            values = scores(counts[client["client"]], tiers)
            row |= {f"{model}_test_{score}": value for score, value in values.items()}
        yield row


def _confusions(run: Finished) -> Iterator[Json]:
    clients = client_names(run, len(run.clients))
    for model, split, counts in _matrices(run):
        names, single = class_names(run, counts.shape[1]), len(counts) == len(clients)
        for k, true, predicted in np.argwhere(counts).tolist():
            yield {
                "model": model,
                "split": split,
                "client": clients[k] if single else "all",
                "true": names[true],
                "predicted": names[predicted],
                "nodes": int(counts[k, true, predicted]),
            }


def _matrices(run: Finished) -> Iterator[tuple[str, str, npt.NDArray[Any]]]:
    """Each model's confusion matrices, [K, C, C], of the rounds that the run selected."""
    for model in MODELS:
        for split in SPLITS:
            if f"{model}_{split}" in run.confusions:
                yield model, split, np.asarray(run.confusions[f"{model}_{split}"])


def class_names(run: Finished, count: int) -> list[str]:
    """What the classes are called; their numbers, if there are not as many names as classes."""
    return _names(run.config["dataset"].get("label_names"), count)


def client_names(run: Finished, count: int) -> list[str]:
    """What the clients are called: by their owners, or by their numbers."""
    return _names(run.config["dataset"].get("owner_names"), count)


def _names(given: Sequence[str] | None, count: int) -> list[str]:
    return [str(name) for name in (given if given and len(given) == count else range(count))]


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
