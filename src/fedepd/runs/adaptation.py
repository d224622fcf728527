"""The stage after the last round: whether the selected model is adapted at the clients, and what it brings.

The clients are asked twice. First for the counts from which the choice is made. Then, if adaptation helps,
for the confusion matrices of their adapted models. Nothing but sums over the clients comes back, and no
adapted model leaves its client.
"""

from __future__ import annotations

import time
from typing import Any

from fedepd.rounds.adapt import CANDIDATES
from fedepd.rounds.adapting import adaptation_counts, adapted_counts, choice_entry
from fedepd.rounds.gains import best
from fedepd.rounds.questions import ADAPTATION, ADAPTED
from fedepd.runs.asking import ask
from fedepd.runs.drive import Course
from fedepd.runs.folder import SPLITS
from fedepd.runs.selection import Adapted, Progress

WORDS = {"macro_f1": "macro-F1", "acc": "accuracy"}


def adapt(course: Course, progress: Progress) -> None:
    """Let all clients decide whether they adapt the selected model, and score what they decide for.

    Choice: the score that selects the round also decides here. Where the last round is taken whatever its
    score, macro-F1 decides, because without a score there is no choice.
    """
    started, classes = time.perf_counter(), course.server.info.num_classes
    metric = "acc" if course.experiment.protocol.select == "val_acc" else "macro_f1"
    (total, members), cost = ask(course, progress, ADAPTATION, {})
    first, others = adaptation_counts(total, classes)
    number, gain = best(first, others, metric)
    chosen = number + 1  # the selected model itself is candidate 0
    about: dict[str, Any] = {
        "used": gain.sure,
        "steps": CANDIDATES[chosen].steps,
        "weight": CANDIDATES[chosen].weight,
        "metric": metric,
        "gain": gain.value,
        "interval": gain.half,
        "nodes": int(first.sum()),
        "asked": list(members),
        "clients": [],
        "own": 0,
    }
    kept = progress.best["global"].confusions
    confusions = {f"adapted_{split}": kept[f"global_{split}"].sum(0, keepdims=True) for split in SPLITS}
    if gain.sure:
        (total, members), more = ask(course, progress, ADAPTED, choice_entry(chosen, metric))
        confusions, used = adapted_counts(total, classes)
        about |= {"clients": list(members), "own": len(members) - int(used[chosen])}
        cost = {name: cost[name] + more[name] for name in cost if name != "clients"}
    about |= {name: cost[name] for name in ("bytes_up", "bytes_down")}
    progress.adapted = Adapted({**about, "seconds": time.perf_counter() - started}, confusions)


def in_words(about: dict[str, Any]) -> str:
    """What was decided, in one sentence."""
    what = f"{about['steps']} steps"
    what += ", half of the mixture" if about["weight"] < 1 else ", the adapted model alone"
    gain = (
        f"validation {WORDS[about['metric']]} {100 * about['gain']:+.1f} points "
        f"(± {100 * about['interval']:.1f}) on {about['nodes']} nodes"
    )
    if about["used"]:
        others = f", {about['own']} of which chose otherwise" if about["own"] else ""
        return f"adapted at {len(about['clients'])} clients{others}: {what}; {gain}"
    if not about["nodes"]:
        return "kept the global model, because no validation node could be counted"
    why = "may be chance" if about["gain"] > 0 else "does not help"
    return f"kept the global model, because the best adaptation ({what}) {why}: {gain}"
