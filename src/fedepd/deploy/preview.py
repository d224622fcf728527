"""What would leave this site, measured before joining by running one round here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedepd.deploy.agreement import schema_sha256
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.limits import Limits
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import confusions_record, declaration_record, reply_record
from fedepd.privacy.recovery import Recovery, measure

FEW = 5
"""A sum over fewer nodes than this reveals much about each single node."""

MIN_COUNT = "the filter MinCount would send zeros instead, but would not hide that this site has the class"


@dataclass(frozen=True)
class Leaving:
    """One field of a message to the server."""

    field: str
    shape: list[int]
    bytes: int
    when: str


@dataclass(frozen=True)
class Preview:
    fields: list[Leaving]
    counts: dict[str, list[int]]
    """For each field that counts nodes: the number of nodes of each class."""
    warnings: list[str]
    recovery: Recovery
    """What a coordinator with a crafted model could rebuild, measured here."""
    limits: list[str]
    """The owner's limits, one text per line of the file."""
    refusal: str | None
    """Why this site would refuse the run; None if it would take part."""

    @property
    def bytes_per_round(self) -> int:
        return sum(each.bytes for each in self.fields if each.when == "every round")


def preview(task: FederationTask, site: str, data: Path, limits: Limits | None = None) -> Preview:
    limits, owned = limits or Limits(), site_data(task, site, data)
    participant = task.participant(owned)
    method, tensors = task.experiment().method, Ledger(task).progress.tensors
    torch.set_num_threads(1)
    # Choice: preview the last round, because methods with a warm-up send less in the first ones.
    last = task.server().last_round
    message = method.message(tensors, participant.client_id)
    answer = participant.step(last, message)
    reply = reply_record(answer)
    after = method.server_step(replace(task.server(), round=last), tensors, {participant.client_id: answer})
    again = participant.step(last, method.message(after, participant.client_id)).tensors
    matrices = confusions_record(last, participant.evaluate(last, message))["confusions"]
    every = task.experiment().protocol.evaluate_every
    when = {name: "every round" if name in again else "once" for name in reply["tensors"]}
    fields = [
        Leaving(name, list(value.shape), value.nbytes, when[name]) for name, value in reply["tensors"].items()
    ]
    fields += [
        Leaving(name, [], 8, "every round") for name in ("round", "num_nodes", "num_train", *reply["scalars"])
    ]
    fields += [
        Leaving(name, list(value.shape), value.nbytes, f"every {every} rounds")
        for name, value in matrices.items()
    ]
    declared = declaration_record(
        participant.sizes, owned.graph.label_names, schema_sha256(owned.graph.schema)
    )
    first = "before the first round"
    fields += [
        Leaving(f"class_sizes.{name}", list(each.shape), each.nbytes, first)
        for name, each in declared["class_sizes"].items()
    ]
    named = sum(len(name.encode()) for name in declared["label_names"])
    fields.append(Leaving("label_names", [len(declared["label_names"])], named, first))
    fields.append(Leaving("schema_sha256", [], len(declared["schema_sha256"]), first))
    fields += [Leaving(name, [], 8, first) for name in ("num_nodes", "num_train")]
    counts = {
        name: [int(n) for n in value] for name, value in reply["tensors"].items() if name.endswith(".count")
    }
    lines = [line for line in limits.text().splitlines() if line and not line.startswith("#")]
    warnings = [
        *_warnings(counts),
        *(f"limits.toml permits more than the safe limits: {line}" for line in limits.looser()),
    ]
    return Preview(
        fields, counts, warnings, measure(participant, owned, message), lines, limits.refusal(task)
    )


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
