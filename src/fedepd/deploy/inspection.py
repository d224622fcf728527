"""A kit's plan in plain words, for the owner who decides whether to join."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedepd.deploy.agreement import weighing_in_words
from fedepd.deploy.contents import PLAN
from fedepd.deploy.credentials import ROOT, read_certificate
from fedepd.deploy.kits import Kit
from fedepd.deploy.limits import LIMITS_FILE, Limits
from fedepd.deploy.plan import Plan, PlanColumn
from fedepd.deploy.plan_task import plan_task
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig
from fedepd.runs.experiment import rounds_in_words
from fedepd.shown import listed, shown

COORDINATOR = "the coordinator sees your numbers"
SUMS = "the coordinator sees only the sum over all sites, and nobody sees your own numbers"
KINDS = {
    "real": "the trained weights of the model",
    "count": "the number of training nodes of each class",
    "presence": "which classes you have",
    "votes": "votes of your training nodes",
    "weight": "the weight of your answer",
    "sum": "sums of the embeddings of each class's training nodes",
    "mean": "means of the embeddings of each class's training nodes",
    "rows": "one row of numbers for each class that you have",
}
"""The fields of an answer in words, by their kind."""


@dataclass(frozen=True)
class Leaving:
    """Something that leaves the site."""

    what: str
    when: str


@dataclass(frozen=True)
class Inspection:
    """What an owner reads before it joins. Every text is plain."""

    site: str
    server: str
    sites: list[str]
    task: str
    purpose: str
    classes: list[str]
    columns: dict[str, str]
    """For each column that is needed: its kind in words."""
    edges: str
    """What the table of edges needs, in words."""
    learnt: str
    leaves: list[Leaving]
    seen: str
    """Who sees what leaves."""
    kept: list[str]
    """What stays at home."""
    gets: str
    refusal: str | None
    """Why this site's limits would refuse a run by the plan; None if they would not."""
    signed_by: str
    certificates: dict[str, str]
    """The day on which each certificate ends."""


def inspect(kit: Kit) -> Inspection:
    """The plan of a site's kit, in words. A kit without a plan is refused."""
    if kit.plan is None:
        raise BadConfig(
            f"'{shown(kit.folder, 300)}' has no plan ({PLAN}); ask the coordinator for a kit made with "
            f"'fedepd federation init --plan', or see what would leave with 'fedepd federation preview'"
        )
    plan, task = kit.plan, plan_task(kit.plan, kit.plan.task, kit.sites)
    e = task.experiment()
    own = kit.folder / "local" / LIMITS_FILE
    limits = Limits.read(own) if own.exists() else Limits()
    return Inspection(
        site=kit.name,
        server=f"{kit.host}:{kit.port}",
        sites=list(kit.sites),
        task=plan.task,
        purpose=plan.purpose,
        classes=list(plan.classes),
        columns={column.name: column_in_words(column) for column in plan.columns},
        edges=edges_in_words(plan),
        learnt=e.sentence().replace(f"({e.partition.partition})", "(sites)"),
        leaves=leaving(plan, task),
        seen=SUMS if e.privacy.secure else COORDINATOR,
        kept=kept(task),
        gets="the trained model at the end, to use on your own nodes without the coordinator",
        refusal=limits.refusal(task),
        signed_by=f"SHA-256 {kit.fingerprint}",
        certificates={
            "your": _ends(kit.folder, "startup/client.crt"),
            "the federation's": _ends(kit.folder, ROOT),
        },
    )


def column_in_words(column: PlanColumn) -> str:
    if column.kind == "category":
        return f"one of: {listed(column.values, 20)}"
    if column.kind == "flag":
        return "0 or 1"
    how = "scaled by the mean and deviation of all sites" if column.scaled else "used as it is"
    if column.kind == "edges":
        of = f" of '{shown(column.of)}'" if column.of else ""
        return f"from your table of edges: {column.made}{of} at each node, {how}"
    what = f"a date, as days before {column.day}" if column.kind == "date" else "a number"
    gaps = "; may be empty: the mean of all sites takes its place, and a feature marks it"
    return f"{what}, {how}{gaps if column.missing else ''}"


def edges_in_words(plan: Plan) -> str:
    if plan.edges is None:
        return "two ids, and all edges count alike"
    by = weighing_in_words(plan.schema)
    return f"two ids and a number '{shown(plan.edges.edge_weight)}'; an edge counts by {by}, summed over rows"


def leaving(plan: Plan, task: FederationTask) -> list[Leaving]:
    """What a run by the plan sends, in words."""
    e, server = task.experiment(), task.server()
    first, every = "once, before the first round", "every round"
    out = []
    if plan.scaled:
        what = f"number of values, sum and sum of squares of each of {len(plan.scaled)} scaled columns"
        out.append(Leaving(what, first))
    if plan.counted:
        out.append(Leaving(f"number of rows of each of {len(plan.counted)} categories", first))
    if not e.privacy.noisy:
        what = "number of nodes, and of training, validation and test nodes of each class"
        out.append(Leaving(what, first))
    tensors = e.method.server_init(server, server.model.initial(server.info, server.seed))
    fields = e.method.reply_fields(server, e.method.message(tensors, 0))
    for kind in dict.fromkeys(field.kind for field in fields.values()):
        names = [name for name, field in fields.items() if field.kind == kind]
        out.append(Leaving(f"{KINDS[kind]} ({listed(names, 8)})", every))
    if not e.privacy.noisy:
        when = f"every {rounds_in_words(e.protocol.evaluate_every)} and after the last one"
        what = "how often validation and test nodes of one class are taken for another"
        out.append(Leaving(what, when))
    if e.protocol.aim:
        what = f"how many validation nodes have which score, for the aim '{shown(e.protocol.aim)}'"
        out.append(Leaving(what, "once, after the last round"))
    return out


def kept(task: FederationTask) -> list[str]:
    out = ["your tables: rows, ids, edges, and the class of any single node"]
    privacy = task.experiment().privacy
    if privacy.guard:
        but = ", except that its nodes are counted in the sum over all sites" if privacy.secure else ""
        out.append(
            f"what concerns a class with fewer than {privacy.min_count} training nodes over all sites, or "
            f"that fewer than {privacy.min_holders} sites have{but}"
        )
    return out


def _ends(kit: Path, path: str) -> str:
    day: Any = read_certificate(kit, path).not_valid_after_utc.date()
    return str(day.isoformat())


def lines(seen: Inspection) -> list[str]:
    """The inspection for a terminal. Names come from others, so each is made fit to be shown."""
    width = min(30, max(len(shown(name, 30)) for name in seen.columns))
    columns = [f"  {shown(name, 30):<{width}}  {text}" for name, text in seen.columns.items()]
    refusal = "this site's limits allow such a run"
    if seen.refusal is not None:
        refusal = f"this site's limits would refuse such a run: {seen.refusal}"
    return [
        f"task: {shown(seen.task)}",
        f"what is to be learnt: {shown(seen.purpose, 300)}",
        f"classes ({len(seen.classes)}): {listed(seen.classes, 50)}",
        f"your table of nodes needs an id, a class where it is known, and {len(seen.columns)} columns:",
        *columns,
        f"your table of edges needs {seen.edges}",
        "how it is learnt:",
        *(f"  {part}" for part in seen.learnt.split("; ")),
        f"what leaves this site ({seen.seen}):",
        *(f"  {each.when}: {each.what}" for each in seen.leaves),
        "what stays here:",
        *(f"  {each}" for each in seen.kept),
        f"what you get: {seen.gets}",
        refusal,
        f"you are {shown(seen.site)}, one of {len(seen.sites)} sites: {listed(seen.sites, 20)}; "
        f"the server is {shown(seen.server, 300)}",
        f"signed with the key of the federation's root certificate, fingerprint {seen.signed_by}",
        "compare this fingerprint with the one that the coordinator tells you over another channel",
        *(f"{whose} certificate ends on {day}" for whose, day in seen.certificates.items()),
    ]
