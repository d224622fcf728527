"""The models that a site can compare on its own test nodes, after a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedepd.deploy.alone import trained_alone
from fedepd.deploy.difference import Ints, Measured, found, measured
from fedepd.deploy.taken import Taken
from fedepd.errors import BadConfig
from fedepd.rounds.adapt import CANDIDATES, own_choice
from fedepd.rounds.evaluate import held_out
from fedepd.rounds.gains import best
from fedepd.rounds.participant import Participant
from fedepd.types import Sizes

ALONE, FEDERATION, ADAPTED = "alone", "federation", "adapted"
LABELS = {ALONE: "trained here alone", FEDERATION: "the federation's", ADAPTED: "adapted here"}
WORDS = {FEDERATION: "the federation's model", ADAPTED: "the federation's model, adapted to your nodes,"}


@dataclass(frozen=True, eq=False)
class Scored:
    """A model on the site's test nodes."""

    name: str
    """One of ``LABELS``."""
    label: str
    about: str
    """How it was made, in one sentence."""
    used: bool
    """Whether validation nodes speak for it, so that it may stand for joining."""
    predicted: Ints
    """Of the test nodes, [n]."""
    scores: dict[str, Measured]
    found: list[float]
    """The share of each class's test nodes that it finds, [C]; NaN for a class without any."""


def scored(taken: Taken, sizes: Sizes, on_round: Callable[[], None] = lambda: None) -> list[Scored]:
    """The models that can be scored here: none without test nodes, no own one without training nodes.

    Args:
        taken: The run, as the site has it.
        sizes: All sizes of the site.
        on_round: Called after each round of the model that is trained alone.

    Returns:
        The model trained alone, the federation's, and the federation's adapted to this site.

    Raises:
        BadConfig: The site was away in the round that was selected, so it has no model.
    """
    kind = kind_of(taken)
    if not int(sizes.test.sum()):
        return []
    out, trains = [], int(sizes.train.sum()) > 0
    if trains:
        out.append(_alone(taken, on_round))
    participant = taken.participant(kind)
    out.append(_federation(taken, participant, kind))
    if kind == "global" and (trains or taken.final.adapted is not None):
        out.append(_adapted(taken, participant))
    return out


def _alone(taken: Taken, on_round: Callable[[], None]) -> Scored:
    e, alone = taken.task.experiment(), trained_alone(taken.task, taken.data, taken.tiers, on_round)
    budget = f"{e.protocol.rounds} rounds of {e.training.epochs} epochs"
    about = f"{e.method.label} on your training nodes only, {budget}; round {alone.selected} was selected."
    return _scored(taken, ALONE, about, True, alone.predicted)


def _federation(taken: Taken, participant: Participant, kind: str) -> Scored:
    last = taken.task.server().last_round
    selected = taken.rounds[kind] or last
    predicted = participant.predictions(selected, taken.message)[kind].argmax(1)
    about = "Your own model" if kind == "personal" else "The model for all sites"
    if taken.opened is not None and kind == "global":
        about += ", with your own columns of closed classes"
    chosen = "which validation nodes of all sites selected" if taken.rounds[kind] else "the last one"
    return _scored(taken, FEDERATION, f"{about}, of round {selected} of {last}, {chosen}.", True, predicted)


def _adapted(taken: Taken, participant: Participant) -> Scored:
    """The federation's model, trained on at this site: as the run decided, or as the site would.

    Choice: a run that did not adapt its model leaves it to the site. It shows the candidate that is best on
    its validation nodes, but uses it only if they are many and the gain is beyond its interval
    (``rounds.adapt.own_choice``). The best of ten candidates on few nodes is often no better at all.
    """
    if taken.final.adapted is not None:
        predicted = participant.adapted_predictions(taken.message, taken.final.adapted).argmax(1)
        about = "The federation's model, trained on here after the last round, as the sites decided together."
        return _scored(taken, ADAPTED, about, True, predicted)
    metric = "acc" if taken.task.experiment().protocol.select == "val_acc" else "macro_f1"
    ways = participant.adapter(taken.message).predicted
    counts = participant.compared(ways)
    number, gain = best(counts[0].numpy(), [each.numpy() for each in counts[1:]], metric)
    used = own_choice(0, participant.compared([ways[0], *ways]), metric) > 0
    chosen, nodes = CANDIDATES[number + 1], int(counts[0].sum())
    half = "" if chosen.weight == 1 else ", averaged with the federation's"
    about = f"The federation's model, trained on here for {chosen.steps} steps{half}. "
    about += f"Your {nodes} validation nodes find {100 * gain.value:+.1f} points of {METRICS[metric]}"
    about += (
        ", which is beyond chance." if used else ", which may be chance, so the answer does not rest on it."
    )
    return _scored(taken, ADAPTED, about, used, ways[number + 1])


METRICS = {"acc": "accuracy", "macro_f1": "macro-F1"}


def kind_of(taken: Taken) -> str:
    """The model that is taken home: "global", or "personal" where the method has no other."""
    if taken.task.experiment().method.has_global:
        return "global"
    if taken.final.personal is None:
        raise BadConfig(
            f"this site was away in the round that was selected in run '{taken.task.run}', so it has no "
            "model to compare; look at another run with --run"
        )
    return "personal"


def _scored(taken: Taken, name: str, about: str, used: bool, predicted: Tensor) -> Scored:
    """``predicted``: the classes of all nodes, [n]."""
    classes = taken.task.num_classes
    y, own = true_classes(taken), held_out(predicted, taken.data)["test"][0].numpy()
    scores = measured(y, own, taken.tiers, classes)
    return Scored(name, LABELS[name], about, used, own, scores, found(y, own, classes).tolist())


def true_classes(taken: Taken) -> Ints:
    """Of the labelled test nodes."""
    y: Ints = held_out(torch.empty(taken.data.graph.num_nodes, 0), taken.data)["test"][1].numpy()
    return y


def compared(models: Sequence[Scored]) -> Scored:
    """The model that stands for joining: the adapted one if validation nodes speak for it.

    Choice: test nodes do not choose it, because the best of two models on test nodes looks better than it is.
    """
    return next(each for each in reversed(models) if each.name != ALONE and each.used)


def model_words(model: Scored) -> str:
    return WORDS[model.name]
