"""Results written down instead of trained: scores by row, dataset and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedepd.report.runs import Run
from fedepd.reproduction.study.results import Entry, Results
from fedepd.reproduction.study.targets import Row, Target

MakeResults = Callable[..., Results]


def made_run(
    row: Row, dataset: str, seed: int, score: float, personal: bool = False, proxy: bool = False
) -> Run:
    """A finished run whose every test score is ``score`` percent."""
    scores = dict.fromkeys(("acc", "bacc", "macro_f1", "head_acc", "medium_acc", "tail_acc"), score / 100)
    models = ["personal"] if personal else ["global", "personal"]
    config_hash = f"{row.key}-{dataset}-{seed}"
    summary = {
        "method": row.method,
        "method_label": row.label,
        "preset": row.preset,
        "seed": seed,
        "rounds": 5,
    }
    summary |= {"protocol": "10 clients; 5 rounds", "headline": models[0]}
    summary |= {"metrics": {m: {"pooled": scores, "client_mean": scores} for m in models}, "best_round": 5}
    summary |= {
        "best_rounds": dict.fromkeys(models, 5),
        "proxy_features": proxy,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
    }
    experiment = {
        "protocol": {"select": "val_macro_f1", "seed": seed},
        "partition": {"shuffle_nodes": True},
        "method": dict(row.settings),
    }
    graph = {"name": dataset, "sha256": dataset, "proxy_features": proxy}
    return Run(
        Path(config_hash), summary, {"config_hash": config_hash, "dataset": graph, "experiment": experiment}
    )


@pytest.fixture
def make_results() -> MakeResults:
    """``make_results({("fedavg", "email"): [50, 51]})``: scores by seed, None where the cell failed.

    ``shipped``: the name of the package's target that this is, if it is one.
    """

    def make(
        scores: Mapping[tuple[str, str], Sequence[float | None]],
        kind: Any = "comparison",
        personal: Sequence[str] = (),
        proxies: Sequence[str] = (),
        references: Sequence[str] = (),
        why: str = "no memory",
        shipped: str = "",
        **more: Any,
    ) -> Results:
        keys = list(dict.fromkeys(key for key, _ in scores))
        rows = {}
        for key in keys:
            method, _, preset = key.partition(":")
            rows[key] = Row(method, preset or "default", key.upper(), {}, key in references)
        datasets = list(dict.fromkeys(dataset for _, dataset in scores))
        entries = []
        for dataset in datasets:
            for key, row in rows.items():
                found = dict(enumerate(scores[key, dataset]))
                runs = {
                    s: made_run(row, dataset, s, v, key in personal, dataset in proxies)
                    for s, v in found.items()
                    if v is not None
                }
                entries.append(
                    Entry(row, dataset, runs, {seed: why for seed, value in found.items() if value is None})
                )
        made = {"rows": tuple(rows.values()), "datasets": tuple(datasets), "shipped": bool(shipped)}
        return Results(Target(shipped or "mine", "Mine", kind, **{**made, **more}), entries)

    return make
