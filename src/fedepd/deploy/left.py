"""What left a site in a run, from its own book: by field and round, in words, and what stayed at home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedepd.deploy.preview import ALONE, CONSTANT, IN_THE_SUM, WITH_NOISE
from fedepd.deploy.task import FederationTask
from fedepd.rounds.noise import covered
from fedepd.rounds.statistics import of_method
from fedepd.rounds.sums import MASKS
from fedepd.types import Fields, Sizes, Tensors

KINDS: Mapping[str, str] = {
    "real": "numbers of the model, trained here",
    "count": "training nodes of each class",
    "presence": "which classes have training nodes",
    "votes": "votes by training nodes on whether edges are pruned",
    "weight": "the site's weight in the average",
    "sum": "class rows: sums over the training nodes of each class",
    "mean": "class rows: means over the training nodes of each class",
    "rows": "class rows: one for each class with training nodes",
}
"""What a field of a reply means, by its kind (``types.Field``)."""
WORDS: Mapping[str, str] = {
    MASKS: "keys and shares of secrets, which are random numbers to everybody else",
    "round": "the number of the round",
    "loss": "mean training loss",
    "num_nodes": "number of nodes",
    "num_train": "number of training nodes",
    "clients": "the number 1, so that the sum counts the sites",
    "train": "training nodes of each class",
    "val": "validation nodes of each class",
    "test": "test nodes of each class",
    "holders": "which classes have training nodes",
    "selected": "how validation nodes are classified: counts by true and predicted class",
    "used": "which way of adapting the model this site uses",
    "rows": "number of rows behind these sums",
    "label_names": "names of the classes",
    "schema_sha256": "hash of the columns' names and types",
}
"""What other fields mean, by name."""
ENDINGS: Mapping[str, str] = {
    "_val": "how validation nodes are classified: counts by true and predicted class",
    "_test": "how test nodes are classified: counts by true and predicted class",
    "totals": "sums of columns that the sites scale together",
    "squares": "sums of squares of these columns",
    "categories": "rows of each category",
    "/nodes": "number of validation nodes, by tier",
    "/nll": "how likely the validation nodes are at each temperature",
    "/of": "validation nodes that the rule shall alert, counted by bins of their score",
    "/others": "other validation nodes, counted by bins of their score",
}
WHENS: Mapping[str, str] = {
    "declaration": "before the first round",
    "statistics": "before the first round",
    "sizes": "before the first round",
    "step": "after training",
    "evaluate": "evaluation",
    "adaptation": "after the last round",
    "adapted": "after the last round",
    "point": "after the last round",
    "final": "after the last round",
}
"""When an answer left, by what it answers."""
NOTHING_IN_IT = "zeros and empty texts, because sizes are only told in the sum"


@dataclass(frozen=True)
class Left:
    """All answers of one kind to one question, of one field."""

    what: str
    field: str
    words: str
    times: int
    bytes: int
    masked: bool
    seen: str
    """Who sees the numbers of this site."""


def left(lines: Sequence[Mapping[str, Any]], task: FederationTask, message: Tensors) -> list[Left]:
    """What left, the largest first.

    Args:
        lines: The site's book (``sent.read_sent``).
        task: The run's task.
        message: A message of the run, which decides what a method's replies hold.
    """
    meant = fields_of(task, message)
    totals: dict[tuple[str, str, bool], list[int]] = {}
    for line in lines:
        for field, size in line["fields"].items():
            totals.setdefault((line["what"], field, line["masked"]), []).append(size)
    out = []
    for (what, field, masked), sizes in totals.items():
        words, seen = in_words(what, field, meant), seen_by(what, field, masked, task, meant, message)
        if what == "declaration" and task.experiment().privacy.secure:
            words = NOTHING_IN_IT
        if sum(sizes):
            out.append(Left(what, field, words, len(sizes), sum(sizes), masked, seen))
    return sorted(out, key=lambda each: (-each.bytes, each.what, each.field))


def fields_of(task: FederationTask, message: Tensors) -> Fields:
    """What the fields of replies mean, in any stage of the method."""
    method, server, own = task.experiment().method, task.server(), of_method(message)
    stages = [method.reply_fields(replace(server, round=n), own) for n in (1, server.last_round)]
    begin = method.server_init(server, server.model.initial(server.info, server.seed))
    return {**method.reply_fields(replace(server, round=1), begin), **stages[0], **stages[1]}


def in_words(what: str, field: str, meant: Fields) -> str:
    """What a field means; empty if nothing is known about it."""
    if what == "adaptation" and field not in (MASKS, "selected"):
        return "how validation nodes change if the model is adapted: counts by class"
    if field in meant and what == "step":
        return KINDS[meant[field].kind]
    if field in WORDS:
        return WORDS[field]
    return next((text for ending, text in ENDINGS.items() if field.endswith(ending)), "")


def seen_by(
    what: str, field: str, masked: bool, task: FederationTask, meant: Fields, message: Tensors
) -> str:
    """Who sees this site's numbers, in the words of the preview."""
    if field == MASKS:
        return "random numbers: keys and shares"
    if not masked:
        return ALONE
    if task.experiment().privacy.noisy:
        return WITH_NOISE if what == "step" and field in covered(meant, message) else CONSTANT
    return IN_THE_SUM


def gathered(found: Sequence[Left]) -> list[tuple[Left, list[str]]]:
    """Fields that mean the same, are seen by the same and left at the same time, with their names."""
    out: dict[tuple[str, str, str], tuple[Left, list[str]]] = {}
    for each in found:
        place = (WHENS.get(each.what, each.what), each.words or each.field, each.seen)
        first, names = out.get(place, (replace(each, bytes=0, times=0), []))
        whole = replace(first, bytes=first.bytes + each.bytes, times=max(first.times, each.times))
        out[place] = whole, [*names, each.field]
    return sorted(out.values(), key=lambda pair: -pair[0].bytes)


def by_round(lines: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, int]]:
    """Round -> field -> bytes. Round 0 is before the first one."""
    out: dict[int, dict[str, int]] = {}
    for line in lines:
        here = out.setdefault(line["round"], {})
        for field, size in line["fields"].items():
            here[field] = here.get(field, 0) + size
    return dict(sorted(out.items()))


@dataclass(frozen=True)
class Withheld:
    """A class of which something stayed at home."""

    label: int
    train: int
    """The site's own training nodes."""
    why: str


def withheld(task: FederationTask, sizes: Sizes, opened: Tensor | None) -> list[Withheld]:
    """The classes with training nodes here of which nothing was sent, and why.

    Args:
        task: The run's task.
        sizes: All sizes of the site.
        opened: The open classes, bool [C]; None without the guard.
    """
    if opened is None:
        return []
    privacy, out = task.experiment().privacy, []
    for label, train in enumerate(sizes.train.tolist()):
        if not train:
            continue
        if not bool(opened[label]):
            holders = f"fewer than {privacy.min_holders} sites have it"
            few = f"all sites together have fewer than {privacy.min_count} training nodes of it, or "
            out.append(Withheld(label, train, (few if train < privacy.min_count else "") + holders))
        elif not privacy.secure and train < privacy.min_count:
            out.append(Withheld(label, train, f"this site has fewer than {privacy.min_count} of it"))
    return out
