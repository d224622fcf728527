"""Was joining worth it? A site's own answer after a run, without the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fedepd.deploy.credentials import ROOT, read_certificate
from fedepd.deploy.difference import Measured, difference
from fedepd.deploy.inferred import inferred
from fedepd.deploy.left import Left, Withheld, by_round, left, withheld
from fedepd.deploy.own_models import ALONE, Scored, compared, model_words, scored, true_classes
from fedepd.deploy.sent import read_sent
from fedepd.deploy.taken import Taken
from fedepd.longtail import Tiers
from fedepd.privacy.audit import Audit
from fedepd.rounds.guard import OPEN
from fedepd.rounds.statistics import of_method
from fedepd.runs.folder import weights_sha256
from fedepd.types import Sizes

MATTERS = 0.01
"""A gain in balanced accuracy below this is not worth the trouble, even if it is sure."""
WORTH, NOT_WORTH, UNKNOWN = "worth it", "not worth it", "cannot be told"


@dataclass(frozen=True)
class Verdict:
    """The answer, and what it rests on."""

    answer: str
    """``WORTH``, ``NOT_WORTH`` or ``UNKNOWN``."""
    sentence: str
    gain: Measured | None = None
    """How much more balanced accuracy the site has by joining; None if it could not be measured."""


@dataclass(frozen=True, eq=False)
class Worth:
    """All that the page of a site says."""

    site: str
    run: str
    sites: tuple[str, ...]
    method: str
    protocol: str
    verdict: Verdict
    rare: str
    """The same for the rarest classes, in one sentence; empty if there is nothing to compare."""
    models: list[Scored]
    label_names: tuple[str, ...]
    sizes: Sizes
    tiers: Tiers
    opened: list[int] | None
    """The open classes; None without the guard."""
    left: list[Left]
    rounds: dict[int, dict[str, int]]
    """Bytes that left, by round and field."""
    withheld: list[Withheld]
    audit: Audit
    facts: dict[str, str]
    """Names, hashes and dates."""

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        counts = {name: getattr(self.sizes, name).tolist() for name in ("train", "val", "test")}
        models = [{n: v for n, v in asdict(each).items() if n != "predicted"} for each in self.models]
        return {
            "site": self.site,
            "run": self.run,
            "sites": self.sites,
            "verdict": asdict(self.verdict),
            "rare": self.rare,
            "models": models,
            "classes": {
                "names": self.label_names,
                **counts,
                "open": self.opened,
                "tiers": asdict(self.tiers),
            },
            "left": [asdict(each) for each in self.left],
            "withheld": [asdict(each) for each in self.withheld],
            "audit": self.audit.as_json(),
            "facts": self.facts,
        }


def steps(taken: Taken) -> int:
    """How often ``worth`` calls its ``step``."""
    return taken.task.experiment().protocol.rounds + 1


def worth(taken: Taken, step: Callable[[int], None] = lambda amount: None) -> Worth:
    """Compare the model that a site took home with one that it trains here alone.

    Args:
        taken: The run, as the site has it.
        step: Called as the work goes on. ``steps`` says how often.

    Returns:
        What the page says.

    Raises:
        BadConfig: The site was away in the round that was selected, so it has no model.
    """
    torch.set_num_threads(1)
    task, e = taken.task, taken.task.experiment()
    sizes = taken.participant("global").own_sizes
    models = scored(taken, sizes, lambda: step(1))
    lines, opened = read_sent(folder_of(taken)), taken.message.get(OPEN)
    attacks = inferred(taken)
    step(1)
    return Worth(
        site=taken.kit.name,
        run=task.run,
        sites=task.sites,
        method=e.method.label,
        protocol=e.sentence(),
        verdict=verdict(taken, sizes, models),
        rare=rare(taken, models),
        models=models,
        label_names=task.label_names or taken.data.graph.label_names,
        sizes=sizes,
        tiers=taken.tiers,
        opened=taken.opened,
        left=left(lines, task, taken.message),
        rounds=by_round(lines),
        withheld=withheld(task, sizes, None if opened is None else opened > 0),
        audit=attacks,
        facts=facts(taken),
    )


def folder_of(taken: Taken) -> Path:
    """The run's folder in the kit."""
    return taken.kit.folder / "state" / taken.task.run


def verdict(taken: Taken, sizes: Sizes, models: Sequence[Scored]) -> Verdict:
    """Whether joining was worth it, by balanced accuracy on the site's test nodes."""
    if not models:
        why = "this site has no test node whose class is known, so no model can be scored here"
        return Verdict(UNKNOWN, f"It cannot be told: {why}.")
    if models[0].name != ALONE:
        why = "this site has no training node, so there is no model of its own to compare with"
        return Verdict(UNKNOWN, f"It cannot be told: {why}.")
    alone, joined = models[0], compared(models)
    gain = difference(true_classes(taken), alone.predicted, joined.predicted, range(taken.task.num_classes))
    return judged(gain, alone.scores["bacc"].value, joined.scores["bacc"].value, model_words(joined))


def judged(gain: Measured, alone: float, joined: float, model: str) -> Verdict:
    """The answer from a gain in balanced accuracy. All numbers are shares.

    Choice: a gain is worth it if its whole interval lies above 0. It is not worth it if the whole interval
    lies below ``MATTERS``: then joining gains nothing that matters, whatever more test nodes would show.
    """
    numbers = (
        f"{model} has a balanced accuracy of {100 * joined:.1f} % on your {gain.nodes:,} test nodes, and one "
        f"trained here alone {100 * alone:.1f} % (difference {points(gain)})"
    )
    if gain.low > 0:
        return Verdict(WORTH, f"Joining was worth it: {numbers}.", gain)
    if gain.high < MATTERS:
        least = "" if gain.high < 0 else f"; it gains less than {100 * MATTERS:.0f} point"
        return Verdict(NOT_WORTH, f"Joining was not worth it: {numbers}{least}.", gain)
    return Verdict(UNKNOWN, f"It cannot be told: {numbers}; the interval goes from a loss to a gain.", gain)


def points(gain: Measured) -> str:
    """A difference in words, in percentage points."""
    value, low, high = (100 * x for x in (gain.value, gain.low, gain.high))
    return f"{value:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"


def rare(taken: Taken, models: Sequence[Scored]) -> str:
    """The same for the tail, in one sentence."""
    tail = taken.tiers.tail
    if not models or models[0].name != ALONE:
        return ""
    alone, joined = models[0], compared(models)
    gain = difference(true_classes(taken), alone.predicted, joined.predicted, tail)
    if not gain.nodes:
        return "None of your test nodes is of a rare class (tail)."
    theirs, own = (100 * each.scores["tail_acc"].value for each in (joined, alone))
    told = "can" if gain.low > 0 or gain.high < 0 else "cannot"
    return (
        f"Of your rare nodes (tail, {gain.nodes:,} test nodes), {model_words(joined)} finds {theirs:.1f} % "
        f"and the one trained alone {own:.1f} % ({points(gain)}); the two {told} be told apart."
    )


def facts(taken: Taken) -> dict[str, str]:
    """What was run, with whom, and until when the certificates are valid."""
    folder = taken.kit.folder
    model = of_method(taken.message)
    dates = {
        name: read_certificate(folder, path)
        for name, path in {"root certificate": ROOT, "own certificate": "startup/client.crt"}.items()
    }
    valid = {
        name: f"valid from {each.not_valid_before_utc.date()} to {each.not_valid_after_utc.date()}"
        for name, each in dates.items()
    }
    return {
        "run": taken.task.run,
        "this site": taken.kit.name,
        "sites": ", ".join(taken.task.sites),
        "method": taken.task.experiment().method.label,
        "selected model, sha256": weights_sha256(model),
        "settings and sites, sha256": taken.task.identity(),
        "data file, sha256": taken.final.about["data_sha256"],
        "federation's fingerprint, SHA-256": taken.kit.fingerprint,
        **valid,
    }
