"""Does federation help, does the graph help, by how much, and can it be told?

A method is held against itself at each client alone, on the pooled graph and without edges, and against
classifiers of rows, where ``fedepd compare --against`` has run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from fedepd.report.paired import FEWEST_PAIRS, Comparison, compare_seeds
from fedepd.report.runs import Group, Run, settings
from fedepd.report.tables import METRIC_WORDS, NOTHING, Cell, Table

MAIN = "bacc"
"""Choice: balanced accuracy is asked first, because accuracy hides rare classes. Macro-F1 stands beside it:
false alarms lower it, and balanced accuracy hardly."""
ROWS = {"logistic": "logistic regression", "boosting": "gradient boosting"}
GRAPHLESS = "mlp"
"""The network that reads no edges."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A method and one thing that it is held against."""

    ours: Group
    theirs: Group
    kind: str
    """alone, pooled, no-graph, logistic or boosting."""
    scope: str

    def by(self, metric: str) -> Comparison:
        """Ours minus theirs in points, paired by seed."""
        mine, others = (
            {run.seed: 100 * run.metric(metric) for run in g.runs} for g in (self.ours, self.theirs)
        )
        seeds = sorted(mine.keys() | others.keys())
        missing = float("nan")
        return compare_seeds([mine.get(s, missing) for s in seeds], [others.get(s, missing) for s in seeds])

    @property
    def words(self) -> str:
        """What it is held against."""
        if self.kind in ROWS:
            return (
                f"{ROWS[self.kind]} {'on pooled rows' if self.scope == 'pooled' else 'at each client alone'}"
            )
        return {
            "alone": "the same method at each client alone",
            "pooled": "the same method on the pooled graph",
            "no-graph": "the same method without edges",
        }[self.kind]


def pairs(groups: Sequence[Group]) -> list[Pair]:
    """What each method of one graph is held against. Methods come in the order of the groups."""
    found = []
    for ours in own(groups):
        for theirs in groups:
            kind = _kind(theirs.first)
            if kind in ROWS or (kind and _name(theirs) == _name(ours)):
                found.append(Pair(ours, theirs, kind, _scope(theirs.first)))
    return found


def _name(each: Group) -> tuple[str, str]:
    return each.method, str(each.first.summary["preset"])


def _scope(run: Run) -> str:
    return str(settings(run).get("protocol.scope", "federated"))


def _kind(run: Run) -> str:
    """What a run is to a method that it is held against; empty for a method's own run."""
    if run.summary["method"] in ROWS:
        return str(run.summary["method"])
    if settings(run).get("protocol.edges", True) is False:
        return "no-graph"
    return {"alone": "alone", "pooled": "pooled"}.get(_scope(run), "")


def own(groups: Sequence[Group]) -> list[Group]:
    """The groups that are a method's own runs."""
    return [each for each in groups if not _kind(each.first)]


def verdicts(groups: Sequence[Group]) -> list[list[str]]:
    """For each method of one graph that is held against something, what came out, in sentences.

    The first sentence is the answer.
    """
    held = pairs(groups)
    found = [[pair for pair in held if pair.ours is ours] for ours in groups]
    return [_sentences(of_one) for of_one in found if of_one]


def _sentences(held: Sequence[Pair]) -> list[str]:
    ours, by_kind = held[0].ours, {pair.kind: pair for pair in held}
    first = []
    if "alone" in by_kind:
        first.append(_verdict("federation", by_kind["alone"], "over each client alone"))
    if _reads_edges(ours.first):
        first += (
            [_verdict("the graph", by_kind["no-graph"], "over no edges")] if "no-graph" in by_kind else []
        )
    else:
        first.append(f"the graph is not used, because the network {GRAPHLESS} reads no edges")
    rest = [pair for pair in held if pair.kind in ("pooled", *ROWS)]
    texts = [f"{ours.label}: " + (" and ".join(first) if first else _beside(rest.pop(0)))]
    texts += [f"Against {'; against '.join(map(_beside, rest))}"] if rest else []
    seeds = max(pair.by(MAIN).n for pair in held)
    how = (
        f"Points of test balanced accuracy over {seeds} seeds, with 95 % intervals paired by seed"
        if seeds >= FEWEST_PAIRS
        else f"Points of test balanced accuracy; nothing can be told with fewer than {FEWEST_PAIRS} seeds"
    )
    return [f"{text}." for text in [*texts, how]]


def _reads_edges(run: Run) -> bool:
    return settings(run).get("model.backbone") != GRAPHLESS


def _verdict(who: str, pair: Pair, over: str) -> str:
    found = pair.by(MAIN)
    told = {1: f"{who} helps", -1: f"{who} hurts", 0: f"whether {who} helps cannot be told"}[sign(found)]
    return f"{told} ({points(found)} {over}, macro-F1 {points(pair.by('macro_f1'))})"


def _beside(pair: Pair) -> str:
    found = pair.by(MAIN)
    told = {1: "ahead", -1: "behind", 0: "cannot be told"}[sign(found)]
    return f"{pair.words} {points(found)}, {told} (macro-F1 {points(pair.by('macro_f1'))})"


def sign(found: Comparison) -> int:
    """1 or -1 where the whole interval is above or below 0, else 0."""
    if isnan(found.half_width) or abs(found.difference) <= found.half_width:
        return 0
    return 1 if found.difference > 0 else -1


def points(found: Comparison) -> str:
    """A difference with its interval."""
    if isnan(found.difference):
        return "not measured"
    return f"{found.difference:+.1f}" + ("" if isnan(found.half_width) else f" ± {found.half_width:.1f}")


def told_cells(pair: Pair) -> list[Cell]:
    """For every metric the difference, and whether it can be told."""
    cells = []
    for metric in METRIC_WORDS:
        found = pair.by(metric)
        told = {1: "better", -1: "worse", 0: NOTHING}[sign(found)]
        cells += [Cell(points(found), found.difference), Cell(told)]
    return cells


def differences(groups: Sequence[Group]) -> Table | None:
    """Every difference that was asked for; None where none was."""
    rows = []
    for pair in pairs(groups):
        rows.append([Cell(pair.ours.label), Cell(pair.words), *told_cells(pair)])
    if not rows:
        return None
    headers = [text for word in METRIC_WORDS.values() for text in (word[0].upper() + word[1:], "Told")]
    note = (
        "Points of the test score above what stands on the left, paired by seed: same clients, same split, "
        "same selection by validation. ±: 95 % t interval over seeds. –: it cannot be told, because the "
        f"interval has both signs or there are fewer than {FEWEST_PAIRS} seeds. All seeds draw "
        "from the same nodes, so new data may differ more."
    )
    return Table("against", ["Method", "Held against", *headers], [rows], note)
