"""The book of a federated run: progress, what is known of the sites, and the same run folder as a simulated run's.

Everything here comes from messages alone. Class sizes are those that the sites declared.
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.deploy.task import FederationTask
from fedepd.errors import BadData
from fedepd.longtail import Tiers, imbalance_ratio, tiers
from fedepd.rng import seeded
from fedepd.rounds.loop import Round
from fedepd.runs import checkpoint
from fedepd.runs.folder import (
    append_line,
    as_line,
    clean,
    environment,
    weights_sha256,
    write_arrays,
    write_bytes,
    write_json,
    write_tensors,
)
from fedepd.runs.selection import Progress
from fedepd.types import Sizes, Tensors

Facts = dict[int, dict[str, Any]]
"""What the server learns of each client from its messages; JSON can hold it."""
UNKNOWN = "edges and other facts of the sites' graphs stay at the sites and are shown as 0; class sizes are those the sites declared"


class Ledger:
    def __init__(self, task: FederationTask) -> None:
        self.task, self.experiment, self.server = task, task.experiment(), task.server()
        tensors = self.experiment.model.init(self.server.info, seeded(self.server.seed, "init"))
        tensors = self.experiment.method.server_init(self.server, tensors)
        first = self.experiment.method.complete_from(self.server.last_round)
        capped = self.experiment.defence.cap_weights
        self.progress = Progress(tensors, self.experiment.protocol.select, Tiers((), (), ()), first, capped)
        self.facts: Facts = {}
        self._started = time.perf_counter(), time.process_time()

    @property
    def next_round(self) -> int:
        return int(self.progress.lines[-1]["round"]) + 1 if self.progress.lines else 1

    def add(self, each: Round, counts: Mapping[int, Tensors] | None = None) -> dict[str, Any]:
        """Take a round in; returns its line, where classes are named whose last prototype was kept. Personal models stay at the sites."""
        if each.confusions and not self.progress.tiers.head:
            # Choice: tiers are fixed at the first evaluation, so that a site that leaves later does not move a class from tail to head.
            self.progress.tiers = tiers(self.class_sizes())
        line = self.progress.add(each, dict)
        if stale := stale_classes(
            each.tensors, [counted for client, counted in (counts or {}).items() if client in each.clients]
        ):
            line["stale"] = stale
        return line

    def declare(self, declared: Mapping[int, Sizes]) -> None:
        """Keep what clients declared, so that a resumed run holds them to it."""
        for client, sizes in declared.items():
            counts = {
                name: value.tolist() for name, value in vars(sizes).items() if isinstance(value, Tensor)
            }
            self.facts[client] = {"num_nodes": sizes.num_nodes, "num_train": sizes.num_train, **counts}

    def declared(self) -> dict[int, Sizes]:
        return {client: _sizes(known) for client, known in self.facts.items()}

    def class_sizes(self) -> NDArray[np.int64]:
        sizes: NDArray[np.int64] = self._client_class().sum(0)
        return sizes

    def _client_class(self) -> NDArray[np.int64]:
        declared, empty = self.declared(), torch.zeros(self.task.num_classes, dtype=torch.int64)
        every = [declared.get(k) for k in range(len(self.task.sites))]
        return np.stack([(each.train + each.val + each.test if each else empty).numpy() for each in every])

    def digest(self) -> str:
        """Of the final server tensors and all test metrics: two runs with the same digest are the same run."""
        metrics = json.dumps(clean(self.progress.metrics()), sort_keys=True)
        return hashlib.sha256((weights_sha256(self.progress.tensors) + metrics).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        tensors, about = self.progress.packed()
        more = {
            "config_hash": self.task.identity(),
            "tiers": asdict(self.progress.tiers),
            "facts": self.facts,
        }
        checkpoint.save(folder, self.next_round - 1, tensors, {**about, **more})
        append_line(folder / "rounds.jsonl", self.progress.lines[-1])

    def load(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be trusted; rounds written after it never happened."""
        found, bad = checkpoint.saved(folder), []
        for path in found:
            try:
                tensors, about = checkpoint.load(path, self.task.identity())
            except BadData as reason:
                bad.append(str(reason))
                continue
            self.progress.restore(tensors, about)
            self.progress.tiers = Tiers(**{name: tuple(classes) for name, classes in about["tiers"].items()})
            self.facts = {int(client): known for client, known in about["facts"].items()}
            write_bytes(folder / "rounds.jsonl", "".join(map(as_line, self.progress.lines)).encode())
            return
        if found:
            raise BadData(
                f"no checkpoint in '{folder}' can be used ({'; '.join(bad)}); restore it from a backup or submit a new run"
            )

    def finish(self, folder: Path) -> dict[str, Any]:
        """Everything but rounds.jsonl; the summary last, so that a folder with one is complete."""
        config = self._config()
        summary = self._summary(config)
        write_json(folder / "config.json", config)
        write_json(folder / "env.json", environment())
        write_json(folder / "clients.json", [self._client(k) for k in range(len(self.task.sites))])
        write_arrays(
            folder / "partition.npz",
            {"client_class": self._client_class(), "class_sizes": self.class_sizes()},
        )
        write_arrays(folder / "confusion.npz", self.progress.confusions())
        write_tensors(folder / "final.safetensors", self.progress.tensors)
        write_tensors(folder / "model.safetensors", self.progress.best[summary["headline"]].tensors)
        write_json(folder / "summary.json", summary)
        return summary

    def _client(self, client: int) -> dict[str, Any]:
        known = self.facts.get(client, {})
        unknown = dict.fromkeys(("edges", "edges_kept", "isolated_before", "isolated_after"), 0)
        unmeasured = dict.fromkeys(("homophily_before", "homophily_after"))
        seen = int((self._client_class()[client] > 0).sum())
        sizes = {"nodes": known.get("num_nodes", 0), "train": known.get("num_train", 0)}
        sizes |= {name: sum(known.get(name, [])) for name in ("val", "test")}
        return {
            "client": client,
            "site": self.task.sites[client],
            **sizes,
            "classes": seen,
            **unknown,
            **unmeasured,
        }

    def _config(self) -> dict[str, Any]:
        e, task = self.experiment, self.task
        return {
            "config_hash": task.identity(),
            "method": e.method_name,
            "method_label": e.method.label,
            "preset": e.preset,
            "has_global": e.method.has_global,
            "seed": e.protocol.seed,
            "rounds": e.protocol.rounds,
            "sites": task.sites,
            "dataset": {
                "name": f"federation {'+'.join(task.sites)}",
                "nodes": sum(known["num_nodes"] for known in self.facts.values()),
                "edges": 0,
                "features": task.num_features,
                "classes": task.num_classes,
                "imbalance_ratio": imbalance_ratio(self.class_sizes()),
                "proxy_features": False,
                "sha256": task.sites_sha256(),
                "label_names": [],
            },
            "experiment": e.resolved(),
            "protocol": e.sentence().replace(f"({e.partition.partition})", "(sites)"),
        }

    def _summary(self, config: dict[str, Any]) -> dict[str, Any]:
        progress, cut = self.progress, self.progress.tiers
        headline = "global" if config["has_global"] else "personal"
        refused = sum(len(line.get("refused", [])) for line in progress.lines)
        return {
            **{
                name: config[name]
                for name in ("method", "method_label", "preset", "seed", "rounds", "config_hash", "protocol")
            },
            "dataset": config["dataset"]["name"],
            "proxy_features": False,
            "headline": headline,
            "best_round": progress.best[headline].round,
            "best_rounds": {kind: best.round for kind, best in progress.best.items()},
            "metrics": progress.metrics(),
            "tiers": {"head": cut.head, "medium": cut.medium, "tail": cut.tail},
            "bytes_up": sum(sum(line["bytes_up"].values()) for line in progress.lines),
            "bytes_down": sum(sum(line["bytes_down"].values()) for line in progress.lines),
            "seconds": time.perf_counter() - self._started[0],
            "cpu_seconds": time.process_time() - self._started[1],
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "weights_sha256": weights_sha256(progress.tensors),
            "digest": self.digest(),
            "refused": refused,
            "warnings": [UNKNOWN]
            + ([f"{refused} replies were refused or missing; rounds.jsonl names them"] if refused else []),
        }


def _sizes(known: Mapping[str, Any]) -> Sizes:
    train, val, test = (torch.tensor(known[name], dtype=torch.int64) for name in ("train", "val", "test"))
    return Sizes(known["num_nodes"], known["num_train"], train, val, test)


def counted(tensors: Tensors) -> Tensors:
    """The tensors that count nodes by class."""
    return {name: value for name, value in tensors.items() if name.endswith(".count")}


def stale_classes(tensors: Tensors, counts: Sequence[Tensors]) -> dict[str, list[int]]:
    """Per field that counts nodes: classes the server knows, but of which this round's replies hold no node."""
    out = {}
    for name, known in counted(tensors).items():
        now = [each[name] for each in counts if name in each]
        if now and (classes := ((known > 0) & (torch.stack(now).sum(0) == 0)).nonzero().reshape(-1).tolist()):
            out[name] = classes
    return out
