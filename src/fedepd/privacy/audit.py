"""A simulated run -> what is left to learn about its clients, without and with the guard and secure sums."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedepd.errors import BadConfig, UnknownName
from fedepd.privacy.attacks import ATTACKS, Attack, Step, Target, chosen, titles
from fedepd.privacy.classes import class_figures
from fedepd.privacy.figures import TIERS, Figure
from fedepd.privacy.membership import SHADOWS, audit_membership
from fedepd.privacy.reidentify import reidentify_figures
from fedepd.privacy.rows import row_figures
from fedepd.privacy.shadows import Trainers
from fedepd.privacy.view import strongest, watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation
from fedepd.runs.source import Data
from fedepd.shown import shown

ROUNDS = 20
"""Rounds of which the server's view is attacked."""
SETTINGS = ("off", "secure", "on", "distilled")
"""Guard and secure sums off, secure sums alone, both on; and the run as it is, but its model distilled.

The second and the last are audited only if they are asked for. All are in the order in which they are shown.
"""
MAIN = ("rows.few", "reidentified.rank1", "classes.auc")
"""The figures that say most in least space."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What the attacks got from one run."""

    method: str
    dataset: str
    seed: int
    protocol: str
    """The run in words."""
    rounds: int
    """Rounds of which the server's view was attacked."""
    shadows: int
    own: str
    """The setting that the run itself has: off or on."""
    privacy: Mapping[str, Privacy]
    """By setting."""
    figures: Mapping[str, Sequence[Figure]]
    """By setting."""
    notes: Sequence[str]
    seconds: float

    @property
    def settings(self) -> list[str]:
        """Those of ``SETTINGS`` that were audited."""
        return [setting for setting in SETTINGS if setting in self.figures]

    def of(self, setting: str, name: str, tier: str = "all") -> Figure | None:
        """A figure, if it was measured."""
        found = (f for f in self.figures.get(setting, ()) if (f.name, f.tier) == (name, tier))
        return next(found, None)

    def as_json(self) -> dict[str, Any]:
        """For ``audit.json``."""
        words, known = titles(), {f.name for found in self.figures.values() for f in found}
        content = asdict(replace(self, privacy={}, figures={}))
        return content | {
            "privacy": {setting: asdict(privacy) for setting, privacy in self.privacy.items()},
            "titles": {name: words[name] for name in words if name in known},
            "figures": {setting: [asdict(f) for f in found] for setting, found in self.figures.items()},
        }


def units(
    rounds: int, shadows: int, skip: Collection[str] = (), secure_alone: bool = False, distil: bool = False
) -> int:
    """How often ``step`` is called in all."""
    each = rounds + sum(attack.units(shadows) for attack in chosen(skip).values())
    return (2 + secure_alone) * each + distil * ATTACKS["membership"].units(shadows)


def audit(
    simulation: Simulation,
    data: Data,
    *,
    rounds: int = ROUNDS,
    shadows: int = SHADOWS,
    skip: Collection[str] = (),
    step: Step = lambda units: None,
    secure_alone: bool = False,
    distil: bool = False,
    workers: int | Trainers | None = None,
) -> Audit:
    """Attack a run without and with the guard and secure sums.

    Args:
        simulation: The run before its first round, from ``fedepd.runs.resume.rebuild``.
        data: What it was built from.
        rounds: Rounds of which the server's view is attacked, at most those of the run.
        shadows: Shadow models of the attack on membership.
        skip: Names of ``ATTACKS`` to leave out.
        step: Called as the work goes on. ``units`` says how many steps there are.
        secure_alone: Attack the run with secure sums and without the guard, too.
        distil: Ask for membership in the distilled model, too, as ``fedepd.export`` can make it.
        workers: Who trains the shadows: processes, or a cluster; None: as many processes as there are cores.

    Returns:
        The figures of all settings.

    Raises:
        UnknownName: An attack to skip does not exist.
        BadConfig: Nothing crosses between clients in the run, or its clients are dishonest. Or a setting
            was asked for that the run cannot have.
    """
    started, was = time.perf_counter(), simulation.experiment
    attacks = check(simulation, rounds, skip)
    rounds = min(rounds, was.protocol.rounds)
    settings, notes = _settings(simulation, secure_alone)
    figures: dict[str, list[Figure]] = {}
    common = was.method.has_global
    if distil and not (common and "membership" in attacks):
        raise BadConfig("--distil asks for membership in the model of all clients, and there is none to ask")
    for setting, privacy in settings.items():
        view = watch(simulation, privacy, rounds, lambda: step(1))
        target = Target(view, replace(was, privacy=privacy), data, shadows, step, workers)
        usable = [attack for attack in attacks.values() if common or not attack.common]
        figures[setting] = [figure for attack in usable for figure in attack.run(target)]
    if distil:
        settings["distilled"], done = was.privacy, lambda *_: step(1)
        figures["distilled"] = audit_membership(was, data, shadows, workers, done, distil=True)
        notes.append("'distilled' is the run's model after 'export --distil'; only membership is asked")
    left_out = [name for name, attack in attacks.items() if attack.common and not common]
    if left_out:
        names = " and no ".join(left_out)
        notes.append(f"{was.method.label} has no model for all clients, so there is no {names}")
    on, has = settings["on"], was.privacy
    own = "on" if (has.guard, has.secure) == (on.guard, on.secure) else "off"
    return Audit(
        method=was.method.label,
        dataset=simulation.graph.name,
        seed=was.protocol.seed,
        protocol=was.sentence(),
        rounds=rounds,
        shadows=shadows,
        own=own,
        privacy=settings,
        figures=figures,
        notes=notes,
        seconds=time.perf_counter() - started,
    )


def _settings(simulation: Simulation, secure_alone: bool) -> tuple[dict[str, Privacy], list[str]]:
    """The settings to attack, and what is to be said about them."""
    on, reason = strongest(simulation)
    settings = {"off": replace(on, guard=False, secure=False), "on": on}
    if secure_alone and reason:
        raise BadConfig(f"secure sums alone cannot be audited: {reason}")
    if secure_alone:
        settings["secure"] = replace(on, guard=False)
    return settings, [f"'on' is the guard alone: {reason}"] if reason else []


def check(simulation: Simulation, rounds: int, skip: Collection[str]) -> dict[str, Attack]:
    """Refuse what cannot be audited. Returns the attacks to run."""
    was = simulation.experiment
    if rounds < 1:
        raise BadConfig(f"rounds is {rounds}; give at least 1")
    if was.method.merges_clients:
        raise BadConfig(
            f"{was.method.label} holds the whole graph at one client, so nothing crosses between clients; "
            "audit a run of another method"
        )
    if was.attack.on:
        raise BadConfig(
            f"the run has dishonest clients (attack = {was.attack.attack}), and an audit looks at what "
            "honest ones give away; audit a run with attack = none"
        )
    was.check_clean("an audit compares what is guessed with the true data")
    return chosen(skip)


def main_figures(simulation: Simulation, rounds: int = ROUNDS) -> dict[str, list[Figure]]:
    """The three figures that say most, by setting, over all classes.

    Rows of fewer than ``min_count`` nodes, rows of one node whose node is named first, and how well the
    classes of a client are inferred.

    Args:
        simulation: The run before its first round.
        rounds: Rounds of which the server's view is attacked.

    Returns:
        For off and on the figures of ``MAIN``, in that order.

    Raises:
        BadConfig: As ``audit``.
    """
    check(simulation, rounds, ())
    was = simulation.experiment.privacy
    settings = {"off": replace(was, guard=False, secure=False), "on": strongest(simulation)[0]}
    out = {}
    for setting, privacy in settings.items():
        view = watch(simulation, privacy, rounds)
        found = [*row_figures(view), *reidentify_figures(view), *class_figures(view)]
        by_name = {figure.name: figure for figure in found if figure.tier == TIERS[0]}
        out[setting] = [by_name[name] for name in MAIN]
    return out


@dataclass(frozen=True)
class Gate:
    """A limit for one figure."""

    name: str
    tier: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """From ``NAME=VALUE`` or ``NAME:TIER=VALUE``.

        Args:
            text: What was typed.

        Returns:
            The gate. Without a tier it is over all nodes.

        Raises:
            UnknownName: There is no such figure or tier.
            BadConfig: The text is no gate, or its value no number.
        """
        which, equals, value = text.partition("=")
        name, _, tier = which.partition(":")
        if not equals:
            raise BadConfig(f"'{shown(text)}' is no limit; give NAME=VALUE, such as {MAIN[1]}=0.05")
        if name not in titles():
            raise UnknownName("figure", name, titles())
        if tier and tier not in TIERS:
            raise UnknownName("tier", tier, TIERS)
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if math.isnan(limit):
            raise BadConfig(f"the limit '{shown(value)}' of {name} is no number; give one such as 0.05")
        return cls(name, tier or TIERS[0], limit)


def above(found: Audit, gates: Iterable[Gate]) -> list[str]:
    """A phrase about each gate whose figure lies above its limit, in the run's own setting.

    Choice: that is "on" only if the run has all protection that its method allows. A run with one of guard
    and secure sums is held against "off", so that no gate passes for protection that the run does not have.

    Choice: the figure itself is compared, and not its interval. What could not be measured is not above.
    """
    out = []
    for gate in gates:
        figure = found.of(found.own, gate.name, gate.tier)
        if figure is not None and figure.value > gate.limit:
            tier = "" if gate.tier == TIERS[0] else f" ({gate.tier})"
            out.append(f"{gate.name}{tier} is {figure.value:.4g}, above {gate.limit:g}")
    return out
