"""What would leave this site, measured before joining by running one round here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.clients.scaling import scaled_by, scaling_of, sums_of, with_features
from fedepd.deploy.agreement import hashed_names, schema_sha256
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.limits import Limits
from fedepd.deploy.sum_site import what_of
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import Sum, declaration_record
from fedepd.privacy.recovery import Recovery, measure
from fedepd.rounds.budget import cost_in_words
from fedepd.rounds.guard import FEWEST, OPEN
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.noise import covered
from fedepd.rounds.participant import Participant
from fedepd.rounds.questions import QUESTIONS, STATISTICS
from fedepd.rounds.statistics import withheld
from fedepd.rounds.sums import ADVERT_BYTES, MASKS, OPENED_BYTES, SEALED_BYTES, WEIGHT
from fedepd.runs.experiment import rounds_in_words
from fedepd.types import ClientData, Tensors

FEW = 5
"""A sum over fewer nodes than this reveals much about each single node."""
ALONE, IN_THE_SUM = "the coordinator", "nobody alone: only the sum over all sites"
WITH_NOISE = f"{IN_THE_SUM}, with noise"
CONSTANT = "everybody: it is the same number from every site"
"""Who sees a field."""
FIRST = "before the first round"
MIN_COUNT = "the guard (--guard) would keep it at home"


@dataclass(frozen=True)
class Leaving:
    """One field of a message to the server."""

    field: str
    shape: list[int]
    bytes: int
    when: str
    seen: str
    """Who sees the numbers of this site."""


@dataclass(frozen=True)
class Preview:
    fields: list[Leaving]
    counts: dict[str, list[int]]
    """For each field that counts nodes: the number of nodes of each class that this site would send."""
    withheld: list[str]
    """What the guard keeps at home."""
    warnings: list[str]
    recovery: Recovery
    """What a coordinator with a crafted model could rebuild of a single answer, measured here."""
    limits: list[str]
    """The owner's limits, one text per line of the file."""
    refusal: str | None
    """Why this site would refuse the run; None if it would take part."""
    noise: str | None = None
    """What noise will cost, if the run has any."""

    @property
    def bytes_per_round(self) -> int:
        return sum(each.bytes for each in self.fields if each.when == "every round")


def preview(task: FederationTask, site: str, data: Path, limits: Limits | None = None) -> Preview:
    limits, owned = limits or Limits(), site_data(task, site, data)
    complete, privacy = _complete(task, owned), task.experiment().privacy
    participant = task.participant(complete)
    method, tensors = task.experiment().method, Ledger(task).progress.tensors
    torch.set_num_threads(1)
    # Choice: preview the last round, because methods with a warm-up send less in the first ones.
    last = task.server().last_round
    message = method.message(tensors, participant.client_id)
    held = participant.own_sizes.train
    # What others have is not known here, so a class is taken for open if this site alone has enough of it.
    opened = {OPEN: (held >= privacy.min_count).to(torch.float32)} if privacy.guard else {}
    answer = participant.step(last, {**message, **opened})
    after = method.server_step(replace(task.server(), round=last), tensors, {participant.client_id: answer})
    later = method.message(after, participant.client_id)
    if privacy.secure:
        fields = _summed(task, message, later, last)
    else:
        again = participant.step(last, {**later, **opened}).tensors
        fields = [*_reply(answer.tensors, again), *_scalars(answer.scalars)]
    fields += [*_declared(participant, owned), *_measured(task)]
    if privacy.noisy:
        replied = method.reply_fields(replace(task.server(), round=last), message)
        fields = _under_noise(fields, covered(replied, message))
    else:
        fields += _matrices(task, participant, {**message, **opened})
    tensors = {} if privacy.noisy else answer.tensors
    counts = {name: [int(n) for n in value] for name, value in tensors.items() if name.endswith(".count")}
    lines = [line for line in limits.text().splitlines() if line and not line.startswith("#")]
    warnings = [
        *([] if privacy.secure else _warnings(counts)),
        *(f"limits.toml permits more than the safe limits: {line}" for line in limits.looser()),
    ]
    if privacy.secure and len(task.sites) == FEWEST:
        warnings.append(
            "with three sites, two that work together with the coordinator see the third one's numbers"
        )
    few = _withheld(held, privacy.min_count) if privacy.guard else []
    few += withheld(owned, task.counted, privacy)
    attack = measure(participant, complete, message)
    return Preview(fields, counts, few, warnings, attack, lines, limits.refusal(task), noise_cost(task))


def _reply(tensors: Tensors, again: Tensors) -> list[Leaving]:
    return [
        Leaving(name, list(value.shape), value.nbytes, "every round" if name in again else "once", ALONE)
        for name, value in tensors.items()
    ]


def _scalars(scalars: Mapping[str, float]) -> list[Leaving]:
    names = ("round", "num_nodes", "num_train", *scalars)
    return [Leaving(name, [], 8, "every round", ALONE) for name in names]


def _summed(task: FederationTask, message: Tensors, later: Tensors, last: int) -> list[Leaving]:
    """The parts of a masked vector, and the keys and shares that go with it."""
    first, again = (dict(what_of(task, Sum("step", last), each).layout) for each in (message, later))
    fields = []
    for name, shape in first.items():
        if not name.endswith(WEIGHT):
            weights = prod(first[name + WEIGHT]) if name + WEIGHT in first else 0
            size = 8 * (prod(shape) + weights)
            when = "every round" if name in again else "once"
            fields.append(Leaving(name, list(shape), size, when, IN_THE_SUM))
    sites = len(task.sites)
    masks = ADVERT_BYTES + (sites - 1) * SEALED_BYTES + sites * OPENED_BYTES
    return [*fields, Leaving(MASKS, [], masks, "every round", "random numbers: keys and shares")]


def _under_noise(fields: list[Leaving], names: list[str]) -> list[Leaving]:
    """The same fields, of which only ``names`` say anything about this site."""

    def who(each: Leaving) -> str:
        if each.seen != IN_THE_SUM:
            return each.seen
        return WITH_NOISE if each.field in names else CONSTANT

    return [replace(each, seen=who(each)) for each in fields]


def noise_cost(task: FederationTask) -> str | None:
    """What noise will cost, in words; None without noise."""
    e = task.experiment()
    if e.privacy.dp_epsilon is None:
        return None
    sites = cohort_size(len(task.sites), e.training)
    return cost_in_words(sites, e.protocol.rounds, e.privacy.dp_epsilon, e.privacy.dp_delta)


def _matrices(task: FederationTask, participant: Participant, message: Tensors) -> list[Leaving]:
    e = task.experiment()
    when = f"every {rounds_in_words(e.protocol.evaluate_every)}"
    seen = IN_THE_SUM if e.privacy.secure else ALONE
    matrices = participant.evaluate(task.server().last_round, message)
    return [Leaving(n, list(value.shape), value.nbytes, when, seen) for n, value in matrices.items()]


def _declared(participant: Participant, owned: ClientData) -> list[Leaving]:
    secure, names = participant.privacy.secure, owned.graph.label_names
    said = hashed_names(names, "") if secure else names
    record: dict[str, Any] = declaration_record(participant.sizes, said, schema_sha256(owned.graph.schema))
    seen = IN_THE_SUM if secure else ALONE
    sizes = record["class_sizes"].items()
    fields = [Leaving(f"class_sizes.{n}", list(each.shape), each.nbytes, FIRST, seen) for n, each in sizes]
    named = sum(len(name.encode()) for name in record["label_names"])
    fields.append(Leaving("label_names", [len(record["label_names"])], named, FIRST, ALONE))
    fields.append(Leaving("schema_sha256", [], len(record["schema_sha256"]), FIRST, ALONE))
    return fields + [Leaving(name, [], 8, FIRST, seen) for name in ("num_nodes", "num_train")]


def _measured(task: FederationTask) -> list[Leaving]:
    """What leaves so that all sites scale columns alike."""
    if not task.measured:
        return []
    seen = IN_THE_SUM if task.experiment().privacy.secure else ALONE
    layout = QUESTIONS[STATISTICS].layout(task.setting())
    return [
        Leaving(f"{STATISTICS}.{name}", list(shape), 8 * prod(shape), FIRST, seen)
        for name, shape in layout
        if prod(shape)
    ]


def _complete(task: FederationTask, owned: ClientData) -> ClientData:
    """What others have is not known here, so columns are scaled by this site's rows alone."""
    if owned.unscaled is None:
        return owned
    data = scaled_by(owned, scaling_of(sums_of(owned.unscaled)))
    return replace(data, graph=with_features(data.graph, task.experiment().protocol.features))


def _withheld(held: Tensor, least: int) -> list[str]:
    few = [k for k, n in enumerate(held.tolist()) if 0 < n < least]
    if not few:
        return ["every class of this site has enough training nodes here; other sites need to have it, too"]
    return [
        f"class {_listed(few)}: fewer than {least} training nodes here, so nothing about it is sent, "
        "unless the sites together have enough of it and only their sum is seen"
    ]


def _warnings(counts: dict[str, list[int]]) -> list[str]:
    out = []
    for name, values in counts.items():
        of = name.removesuffix(".count")
        single = [c for c, n in enumerate(values) if n == 1]
        few = [c for c, n in enumerate(values) if 1 < n < FEW]
        if single:
            out.append(
                f"class {_listed(single)}: '{of}' would be the embedding of a single node; {MIN_COUNT}"
            )
        if few:
            out.append(f"class {_listed(few)}: '{of}' would be a sum over fewer than {FEW} nodes")
    return out


def _listed(classes: list[int]) -> str:
    return ", ".join(map(str, classes))
