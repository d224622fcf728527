"""What others could infer about a site's nodes: the audit's attacks, as far as one site can run them.

The site attacks one answer of its own: what it would send back for the model that it took home. It does so
twice: as if the run had had neither guard nor secure sums, and as the coordinator of this run saw it. Attacks
that need the data of other sites are left out.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from fedepd.deploy.limits import expected_message
from fedepd.deploy.taken import Taken
from fedepd.methods import Server
from fedepd.privacy.audit import Audit
from fedepd.privacy.classes import class_figures
from fedepd.privacy.figures import TIERS, Figure, share
from fedepd.privacy.recovery import measure
from fedepd.privacy.reidentify import reidentify_figures
from fedepd.privacy.rows import row_figures
from fedepd.privacy.view import Seen, View
from fedepd.rounds.guard import HOME, NO_PRIVACY, OPEN, Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.statistics import of_method
from fedepd.runs.simulation import Simulation
from fedepd.types import Partition, Reply

NAMES = (
    "rows.single", "rows.few", "reidentified.rank1", "reidentified.top5", "classes.shown", "classes.accuracy",
    "recovery.nodes", "model.rank1",
)  # fmt: skip
"""The figures that one site can measure."""
MEMBERSHIP = (
    "Whether the model tells which nodes it was trained on is not measured here. That needs models of other "
    "data to compare with: 'fedepd audit' measures it on a simulated run."
)


def inferred(taken: Taken) -> Audit:
    """Attack one answer of the site, "off" and "on".

    Args:
        taken: The site's run.

    Returns:
        The figures over all classes, in the form of an audit. "on" are the run's own settings.
    """
    e = taken.task.experiment()
    off = replace(e.privacy, guard=False, secure=False, dp_epsilon=None)
    settings = {"off": off, "on": e.privacy}
    figures = {"off": seen_alone(taken, off), "on": seen_in_run(taken)}
    return Audit(
        method=e.method.label,
        dataset=taken.kit.name,
        seed=e.protocol.seed,
        protocol=e.sentence(),
        rounds=1,
        shadows=0,
        own="on",
        privacy=settings,
        figures=figures,
        notes=(),
        seconds=0.0,
    )


def seen_in_run(taken: Taken) -> list[Figure]:
    """What the coordinator of the run could learn. Of a sum, a single site cannot measure it."""
    privacy = taken.task.experiment().privacy
    if not privacy.secure:
        return seen_alone(taken, privacy)
    view = view_of(taken, _participant(taken, privacy), {})
    found = [f for f in reidentify_figures(view) if f.name == "model.rank1"]
    held = int((_participant(taken, privacy).own_sizes.train > 0).sum())
    nothing = [share(name, TIERS[0], 0, 0) for name in NAMES[:4]]
    return _chosen([*nothing, share("classes.shown", TIERS[0], 0, held), *found])


def seen_alone(taken: Taken, privacy: Privacy) -> list[Figure]:
    """What the attacks get from one answer that is seen alone."""
    participant = _participant(taken, privacy)
    client, opened = participant.client_id, _opened(taken, privacy)
    kept = participant.state
    reply = participant.step(taken.task.server().last_round, {**of_method(taken.message), **opened})
    participant.state = kept
    view = view_of(taken, participant, {client: reply})
    found = [*row_figures(view), *reidentify_figures(view), *class_figures(view)]
    first = of_method(expected_message(taken.task, client))
    rebuilt = measure(participant, taken.data, {**first, **opened})
    return _chosen([*found, share("recovery.nodes", TIERS[0], rebuilt.nodes, rebuilt.of)])


def _chosen(found: list[Figure]) -> list[Figure]:
    """Over all classes. Of one client alone, chance would be to know its classes already."""
    by_name = {figure.name: figure for figure in found if figure.tier == TIERS[0]}
    by_name |= {
        name: replace(by_name[name], chance=None) for name in ("classes.accuracy",) if name in by_name
    }
    return [by_name[name] for name in NAMES if name in by_name]


def _opened(taken: Taken, privacy: Privacy) -> dict[str, torch.Tensor]:
    return {OPEN: taken.message[OPEN]} if privacy.guard and OPEN in taken.message else {}


def _participant(taken: Taken, privacy: Privacy) -> Participant:
    made = taken.task.participant(taken.data)
    made.privacy = privacy
    state = taken.final.state if taken.final.personal is None else taken.final.personal
    made.state = {n: v for n, v in state.items() if privacy.guard or not n.startswith(HOME)}
    made.prepare()
    return made


def view_of(taken: Taken, participant: Participant, replies: dict[int, Reply]) -> View:
    """What a server saw that asked this site alone, once, with the model that it took home."""
    e, data, server = taken.task.experiment(), taken.data, taken.task.server()
    message, client = of_method(taken.message), data.client_id
    last = replace(server, round=server.last_round)
    seen = Seen(last.round, {client: message}, e.method.reply_fields(last, message), replies)
    declared = {client: participant.sizes} if replies else {}
    return View(participant.privacy, [seen], declared, _simulation(taken, server, participant))


def _simulation(taken: Taken, server: Server, participant: Participant) -> Simulation:
    """The truth that the attacks are scored by: one client, which is this site."""
    data = taken.data
    own = Partition(torch.full((data.graph.num_nodes,), data.client_id), data.client_id + 1, "site")
    exchange = InProcess([participant])
    e = replace(taken.task.experiment(), privacy=NO_PRIVACY)
    return Simulation(e, data.graph, own, [data], server, exchange, {}, math.nan)
