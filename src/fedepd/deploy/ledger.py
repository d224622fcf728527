"""The book of a federated run: its progress, and what the server knows of the sites.

The run folder is written by the same functions as a simulated run's.

Everything here comes from messages alone. Class sizes are those that the sites declared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd.deploy.task import FederationTask
from fedepd.errors import BadData
from fedepd.files import clean
from fedepd.longtail import Tiers, tiers
from fedepd.rounds.loop import Exchange, Round
from fedepd.rounds.pooled import Summing
from fedepd.runs import checkpoint, record
from fedepd.runs.conclude import conclude
from fedepd.runs.drive import Course, begin, now, since
from fedepd.runs.folder import ROUNDS, Json, checkpoints, weights_sha256
from fedepd.runs.measure import measure
from fedepd.runs.spending import Spending
from fedepd.types import Sizes, Tensors

Facts = dict[int, dict[str, Any]]
"""What the server learns of each client from its messages; JSON can hold it."""
UNKNOWN = (
    "edges and other facts of the sites' graphs stay at the sites and are shown as 0; "
    "class sizes are those the sites declared"
)
SUMS_ONLY = (
    "the server saw sums over the sites only: sizes and scores of single sites are not known here and are "
    "shown as 0"
)


GUARDED = (
    "the guard was on: scores are over the held-out nodes of the classes that sites may show, and the "
    "columns of all other classes stay at the sites"
)
UNSCORED = (
    "sizes and scores were not sent: they would not be covered by the budget of dp_epsilon. So sizes are "
    "shown as 0, no score is known, and the model is that of the last round"
)


class Ledger:
    def __init__(self, task: FederationTask) -> None:
        self.task, self.experiment, self.server = task, task.experiment(), task.server()
        self.progress = begin(self.experiment, self.server, Tiers((), (), ()))
        self.facts: Facts = {}
        self.together: tuple[Sizes, tuple[int, ...]] | None = None
        """Under secure sums: what the sites declared together, and which sites these are."""
        self._started = now()

    def course(self, exchange: Exchange | Summing, folder: Path | None = None) -> Course:
        """``folder``: the run's, which counts the sums of a noisy run."""
        clients, budget = range(len(self.task.sites)), self.experiment.privacy.budget(self.server.last_round)
        spending = None if budget is None else Spending(budget, folder)
        return Course(self.experiment, self.server, clients, exchange, self.together, spending)

    def add(
        self, each: Round, counts: Mapping[int, Tensors] | None = None, evaluated: Sequence[int] = ()
    ) -> Json:
        """Take a round in and return its line. Personal models stay at the sites.

        The line names the classes whose last prototype was kept, and the sites that took part in the
        evaluation.
        """
        if each.confusions and not self.progress.tiers.head and not self.experiment.privacy.noisy:
            # Choice: tiers are fixed at the first evaluation. So a site that leaves later moves no class from
            # the tail to the head.
            self.progress.tiers = tiers(self.class_sizes())
        line = self.progress.add(each, dict)
        if stale := stale_classes(
            each.tensors, [counted for client, counted in (counts or {}).items() if client in each.clients]
        ):
            line["stale"] = stale
        if each.confusions and evaluated:
            line["evaluated"] = list(evaluated)
        return line

    def declare(self, declared: Mapping[int, Sizes]) -> None:
        """Keep what clients declared, so that a resumed run holds them to it."""
        self.facts |= {client: _known(sizes) for client, sizes in declared.items()}

    def declared(self) -> dict[int, Sizes]:
        return {client: _sizes(known) for client, known in self.facts.items()}

    def class_sizes(self) -> NDArray[np.int64]:
        if self.together is not None:
            total = self.together[0]
            return (total.train + total.val + total.test).numpy()
        sizes: NDArray[np.int64] = self._client_class().sum(0)
        return sizes

    def _nodes(self) -> int:
        if self.experiment.privacy.noisy:  # a site declares one node then, whatever it has
            return 0
        if self.together is not None:
            return self.together[0].num_nodes
        return sum(known["num_nodes"] for known in self.facts.values())

    def _client_class(self) -> NDArray[np.int64]:
        declared, empty = self.declared(), torch.zeros(self.task.num_classes, dtype=torch.int64)
        every = [declared.get(k) for k in range(len(self.task.sites))]
        return np.stack([(each.train + each.val + each.test if each else empty).numpy() for each in every])

    def digest(self) -> str:
        """Of the final tensors and all test metrics. Two runs with the same digest are the same run."""
        metrics = json.dumps(clean(self.progress.metrics()), sort_keys=True)
        return hashlib.sha256((weights_sha256(self.progress.tensors) + metrics).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        tensors, about = self.progress.packed()
        more: Json = {
            "config_hash": self.task.identity(),
            "tiers": asdict(self.progress.tiers),
            "facts": self.facts,
        }
        if self.together is not None:
            sizes, members = self.together
            more["together"] = {**_known(sizes), "clients": sizes.clients, "members": members}
        checkpoint.save(folder, self.progress.next_round - 1, tensors, {**about, **more})

    def save_round(self, folder: Path) -> None:
        self.save(folder)
        record.add_round(folder, self.progress.lines[-1])

    def measure(
        self, exchange: Exchange | Summing, folder: Path | None = None, names: Sequence[str] = ()
    ) -> None:
        """Ask what is asked before the first round. ``names``: of the features, where they are known.

        What was found is saved in ``folder`` at once. A server that is started again asks no second time.
        """
        course, task = self.course(exchange), self.task
        if measure(course, task.setting(), self.progress, task.max_nodes, names) and folder is not None:
            self.save(folder)

    def conclude(self, exchange: Exchange | Summing) -> None:
        """Ask what is asked after the last round."""
        declared = [self.together[0]] if self.together is not None else [*self.declared().values()]
        conclude(self.course(exchange), self.progress, sum(int(each.val.sum()) for each in declared))

    def load(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be trusted; rounds written after it never happened."""
        found, bad = checkpoints(folder), []
        for path in found:
            try:
                tensors, about = checkpoint.load(path, self.task.identity())
            except BadData as reason:
                bad.append(str(reason))
                continue
            self.progress.restore(tensors, about)
            self.progress.tiers = Tiers(**{name: tuple(classes) for name, classes in about["tiers"].items()})
            self.facts = {int(client): known for client, known in about["facts"].items()}
            if "together" in about:
                known = about["together"]
                self.together = _sizes(known), tuple(known["members"])
            record.write_rounds(folder, self.progress.lines)
            return
        if found:
            raise BadData(
                f"no checkpoint in '{folder}' can be used ({'; '.join(bad)}); "
                "restore it from a backup or submit a new run"
            )

    def finish(self, folder: Path) -> Json:
        """Everything but the rounds; the summary last, so that a folder with one is complete."""
        config = self._config()
        summary = self._summary(config)
        clients = [self._client(k) for k in range(len(self.task.sites))]
        held = {"client_class": self._client_class(), "class_sizes": self.class_sizes()}
        record.write_config(folder, config)
        record.write_setting(folder, clients, held)
        record.write_results(folder, clients, self.progress, summary)
        return summary

    def _client(self, client: int) -> Json:
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

    def _config(self) -> Json:
        e, task = self.experiment, self.task
        dataset = record.describe_data(
            name=f"federation {'+'.join(task.sites)}",
            nodes=self._nodes(),
            edges=0,
            features=task.num_features,
            class_sizes=self.class_sizes().tolist(),
            sha256=task.sites_sha256(),
            label_names=task.label_names,
        )
        dataset["owner_names"] = task.sites
        if task.weighted:
            dataset["edge_weights"] = True
        protocol = e.sentence().replace(f"({e.partition.partition})", "(sites)")
        return record.describe(e, dataset, protocol, sites=task.sites)

    def _summary(self, config: Json) -> Json:
        refused = sum(len(line.get("refused", [])) for line in self.progress.lines)
        warnings = [UNKNOWN] if self.together is None else [UNKNOWN, SUMS_ONLY]
        if self.experiment.privacy.guard:
            warnings.append(GUARDED)
        if self.experiment.privacy.noisy:
            warnings = [UNSCORED]
        if refused:
            warnings.append(f"{refused} replies were refused or missing; {ROUNDS} names them")
        own: Json = {"digest": self.digest(), "refused": refused}
        if self.together is not None:
            own["members"] = self.together[1]
        own |= {name: answer for name, answer in self.progress.answers.items()}
        return record.summarise(config, self.progress, since(self._started), warnings, **own)


COUNTS = ("train", "val", "test", "own_holders")


def _known(sizes: Sizes) -> Json:
    counts = {name: getattr(sizes, name) for name in COUNTS}
    counted = {name: value.tolist() for name, value in counts.items() if value is not None}
    return {"num_nodes": sizes.num_nodes, "num_train": sizes.num_train, **counted}


def _sizes(known: Mapping[str, Any]) -> Sizes:
    counts = {name: torch.tensor(known[name], dtype=torch.int64) for name in COUNTS if name in known}
    return Sizes(
        num_nodes=known["num_nodes"], num_train=known["num_train"], clients=known.get("clients", 1), **counts
    )


def counted(tensors: Tensors) -> Tensors:
    """The tensors that count nodes by class."""
    return {name: value for name, value in tensors.items() if name.endswith(".count")}


def stale_classes(tensors: Tensors, counts: Sequence[Tensors]) -> dict[str, list[int]]:
    """By field that counts nodes: classes that the server knows and this round's replies hold no node of."""
    out = {}
    for name, known in counted(tensors).items():
        now = [each[name] for each in counts if name in each]
        if now and (classes := ((known > 0) & (torch.stack(now).sum(0) == 0)).nonzero().reshape(-1).tolist()):
            out[name] = classes
    return out
