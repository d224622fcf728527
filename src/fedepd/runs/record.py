"""What a run writes into its folder, whoever ran it: a simulation and a federation call the same functions.

No file is ever half there. ``folder`` names the files and reads them.
"""

from __future__ import annotations

import io
import os
import platform
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors.torch import save

from fedepd.files import append_line, as_line, write_bytes, write_json
from fedepd.longtail import imbalance_ratio
from fedepd.metrics import class_numbers, mean_with_interval, one_class_notice
from fedepd.network import kernels
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import (
    ADAPTED,
    CLIENTS,
    CONFIG,
    CONFUSION,
    ENV,
    FINAL,
    MODEL,
    PARTITION,
    RANKING,
    RELEASES,
    ROUNDS,
    SHARED,
    SUMMARY,
    Json,
    weights_sha256,
)
from fedepd.runs.selection import Progress
from fedepd.types import Tensors

# --- what the files hold ------------------------------------------------------------------------------------


def environment() -> Json:
    """What a number depends on beside settings and data, and the command that began the run."""
    packages = ("fedepd", "torch", "numpy", "scipy", "scikit-network", "safetensors")
    return {
        **{name: _version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": kernels.name(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


@cache
def _version(package: str) -> str:
    """Of an installed package. It is read from a long file, and a process may begin many runs."""
    return version(package)


def describe(experiment: Experiment, dataset: Json, protocol: str, **own: Any) -> Json:
    """The configuration: the resolved settings and what they are applied to.

    ``own``: fields that only a simulation or only a federation has.
    """
    return {
        "config_hash": experiment.config_hash(dataset["sha256"]),
        "method": experiment.method_name,
        "method_label": experiment.method.label,
        "preset": experiment.preset,
        "has_global": experiment.method.has_global,
        "seed": experiment.protocol.seed,
        "rounds": experiment.protocol.rounds,
        **own,
        "dataset": dataset,
        "experiment": experiment.resolved(),
        "protocol": protocol,
    }


def describe_data(
    name: str,
    nodes: int,
    edges: int,
    features: int,
    class_sizes: Sequence[int],
    sha256: str,
    proxy_features: bool = False,
    label_names: Sequence[str] = (),
) -> Json:
    """The configuration's ``dataset``."""
    return {
        "name": name,
        "nodes": nodes,
        "edges": edges,
        "features": features,
        "classes": len(class_sizes),
        "imbalance_ratio": imbalance_ratio(class_sizes) if any(class_sizes) else None,
        "proxy_features": proxy_features,
        "sha256": sha256,
        "label_names": label_names,
    }


def summarise(
    config: Json,
    progress: Progress,
    elapsed: tuple[float, float],
    warnings: Sequence[str],
    ranking: Json | None = None,
    **own: Any,
) -> Json:
    """The summary. ``elapsed``: seconds on the wall and on the CPU clock. ``own``: as in ``describe``.

    ``ranking``: of the headline model, where single nodes' scores are at hand (``runs.ranked``).
    """
    headline, cut = "global" if config["has_global"] else "personal", progress.tiers
    tiers: Json = {"head": cut.head, "medium": cut.medium, "tail": cut.tail}
    test = progress.best[headline].confusions[f"{headline}_test"]
    said = one_class_notice(test.sum(0), config["dataset"]["label_names"])
    # Under secure sums, the matrix is that of all clients together.
    numbers = class_numbers(test, cut, not config["experiment"]["privacy"]["secure"])
    return {
        **{name: config[name] for name in SHARED},
        "dataset": config["dataset"]["name"],
        "proxy_features": config["dataset"]["proxy_features"],
        "headline": headline,
        "best_round": progress.best[headline].round,
        "best_rounds": best_rounds(progress),
        "metrics": progress.metrics(),
        **({"other_selection": progress.other_selection()} if progress.otherwise else {}),
        **({} if progress.opened is None else {"open_classes": progress.opened}),
        "tiers": tiers,
        **with_ranking(numbers, ranking, tiers),
        "bytes_up": sum(sum(line["bytes_up"].values()) for line in progress.lines),
        "bytes_down": sum(sum(line["bytes_down"].values()) for line in progress.lines),
        "seconds": elapsed[0],
        "cpu_seconds": elapsed[1],
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "weights_sha256": weights_sha256(progress.tensors),
        **own,
        **({"privacy": progress.spent} if progress.spent else {}),
        **({} if progress.adapted is None else {"adapted": progress.adapted.about}),
        **({"one_class": said[0]} if said else {}),
        "warnings": [*warnings, *stop_notice(progress.spent, config["rounds"]), *adapt_notice(config)],
    }


ADDED = ("average_precision", "at_alerts")
"""What the summary takes from a ranking. The curves are in a file of their own."""


def with_ranking(numbers: Json, ranking: Json | None, tiers: Json) -> Json:
    """The numbers of ``metrics.class_numbers``, with what a ranking adds to them."""
    if ranking is None:
        return numbers
    nothing = [float("nan")] * 3
    parts = np.array([each["average_precision"] or nothing for each in ranking["classes"]]).T  # [3, C]
    means = {
        tier: mean_with_interval((parts[0], parts[1], parts[2]), members) for tier, members in tiers.items()
    }
    return {
        "by_class": [
            {**own, **{name: more[name] for name in ADDED}}
            for own, more in zip(numbers["by_class"], ranking["classes"], strict=True)
        ],
        "by_tier": {
            tier: {
                **own,
                "average_precision": None if np.isnan(means[tier][0]) else list(means[tier]),
                **ranking["tiers"][tier],
            }
            for tier, own in numbers["by_tier"].items()
        },
        "by_client": [
            {**own, "average_precision": more, "cases": found["nodes"], "at_alerts": found["at_alerts"]}
            for own, more, found in zip(
                numbers["by_client"], ranking["clients"], ranking["client_alerts"], strict=True
            )
        ],
    }


def best_rounds(progress: Progress) -> dict[str, int]:
    """The selected round of each model. Adapted models begin at the global model's."""
    rounds = {kind: best.round for kind, best in progress.best.items()}
    return rounds if progress.adapted is None else {**rounds, "adapted": rounds["global"]}


def adapt_notice(config: Json) -> list[str]:
    """A warning where adaptation is on, but the method has nothing to adapt."""
    if config["has_global"] or not config["experiment"]["protocol"]["adapt"]:
        return []
    return [
        f"{config['method_label']} has no model for all clients, so there is nothing to adapt; "
        "the clients' own models are scored"
    ]


def stop_notice(spent: Json, rounds: int) -> list[str]:
    """A warning where a noisy run ended before its last round; ``spent`` as in the summary."""
    if "stopped_after" not in spent:
        return []
    return [
        f"the privacy budget was spent after round {spent['stopped_after']} of {rounds}, because rounds were "
        "repeated after an interruption"
    ]


# --- writing ------------------------------------------------------------------------------------------------


def write_config(folder: Path, config: Json) -> None:
    write_json(folder / CONFIG, config)


def write_setting(folder: Path, clients: Sequence[Json], partition: Mapping[str, ArrayLike]) -> None:
    """What is known before the first round, beside the configuration."""
    if not (folder / ENV).exists():  # A resumed run keeps the command that began it: it is the one to repeat.
        write_json(folder / ENV, environment())
    write_json(folder / CLIENTS, clients)
    write_arrays(folder / PARTITION, partition)


def write_rounds(folder: Path, lines: Iterable[Json]) -> None:
    """These rounds and no others."""
    write_bytes(folder / ROUNDS, "".join(map(as_line, lines)).encode())


def add_round(folder: Path, line: Json) -> None:
    append_line(folder / ROUNDS, line)


def write_releases(folder: Path, made: int) -> None:
    """How many noisy sums a run has made."""
    write_json(folder / RELEASES, {"releases": made})


def write_results(
    folder: Path,
    clients: Sequence[Json],
    progress: Progress,
    summary: Json,
    adapted: Tensors | None = None,
    ranking: Json | None = None,
) -> None:
    """What is known after the last round; the summary last, so that a folder with one is complete.

    ``adapted``: the clients' adapted models, where there are any and they are at hand. ``ranking``: how well
    test nodes are ranked, likewise.
    """
    write_json(folder / CLIENTS, clients)
    write_arrays(folder / CONFUSION, {**progress.confusions(), **progress.other_confusions()})
    write_tensors(folder / FINAL, progress.tensors)
    write_tensors(folder / MODEL, progress.best[summary["headline"]].tensors)
    if adapted:
        write_tensors(folder / ADAPTED, adapted)
    if ranking is not None:
        write_json(folder / RANKING, ranking)
    write_json(folder / SUMMARY, summary)


def write_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    buffer = io.BytesIO()
    named = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez_compressed(buffer, allow_pickle=False, **named)
    write_bytes(path, buffer.getvalue())


def write_tensors(path: Path, tensors: Tensors) -> None:
    write_bytes(path, save({name: value.detach().contiguous().clone() for name, value in tensors.items()}))
