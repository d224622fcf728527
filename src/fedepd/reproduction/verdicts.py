"""Does a claim of the paper hold in our runs? The rule is that of ``judge``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedepd.methods import METHODS
from fedepd.report.numbers import mean_std
from fedepd.reproduction.claims import CLAIMS, Claim
from fedepd.reproduction.contrasts import BASELINES, Contrast, Found, Missing, Rows
from fedepd.reproduction.statistics import FEWEST_PAIRS, compare_seeds, critical_difference, holm

Measured = Mapping[str, Rows]
"""Dataset -> row -> measure -> one value per seed, seeds in the same order in all rows of a dataset."""
Outcome = Literal["holds", "does not hold", "cannot be told"]

ALPHA = 0.05
ALL = "all datasets"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    dataset: str
    """``ALL`` where the claim is about all of them together."""
    row: str
    """Which row is judged: ``fedepd`` is our reading, ``fedepd:printed`` the paper's text."""
    outcome: Outcome
    p: float
    """Holm-corrected: of the test that decided, else of the one in the direction of the mean; NaN without a test."""
    because: str


@dataclass(frozen=True)
class Case:
    """A claim on one dataset, or over ``ALL``: then a contrast has one value per dataset, not one per seed."""

    claim: Claim
    dataset: str
    row: str
    found: Found


@dataclass(frozen=True)
class Test:
    """Of one of a case's contrasts against a bound, before Holm."""

    contrast: Contrast | Missing
    n: int
    """Seeds or datasets."""
    direction: float
    """Above 0 where ours is above theirs and the bound."""
    p: float


def judge(measured: Measured, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """A verdict per claim, dataset and judged row.

    A claim says that one row is above another, or no more than a tolerance below it.
    It *holds* where Welch's test over seeds shows that, with a Holm-corrected p < 0.05.
    It *does not hold* where the test shows the contrary: a gain over rivals below half a point, a part that costs, a loss beyond the
    tolerance. A mean on the wrong side is not enough, nor is a difference that these seeds cannot show.
    A claim against several rows holds where it is shown against each of them, and does not where the contrary is shown against one, with
    its p multiplied by their number: the best of many noisy rows is ahead by chance alone.
    Otherwise it *cannot be told*, as with fewer than three seeds, or where a row or a dataset was not run.
    Over three datasets or more each claim is judged of all of them together too: the same by Wilcoxon over their means.
    A claim about the mean rank over datasets holds where FedEPD ranks first and Wilcoxon with Holm's correction tells it from every
    baseline, and does not where it is told from the first.
    Corrected together: the tests in one direction for the same target and judged row, over its claims and datasets; those of all datasets
    together for themselves.
    Choice: Welch decides over seeds and not Wilcoxon, which can show nothing at 0.05 with the usual five.
    """
    found: list[tuple[int, Verdict]] = []
    families: dict[tuple[str, str, bool], list[tuple[int, Case]]] = {}
    for place, claim in enumerate(claims):
        if claim.contrast is None:
            found += [(place, _judge_rank(claim, row, measured)) for row in claim.judged]
        cases = _cases(claim, measured)
        for case in [*cases, *_over_datasets(claim, cases)]:
            families.setdefault((claim.target, case.row, case.dataset == ALL), []).append((place, case))
    for family in families.values():
        verdicts = _decide([case for _, case in family])
        found += [(place, verdict) for (place, _), verdict in zip(family, verdicts, strict=True)]
    return [verdict for _, verdict in sorted(found, key=lambda each: each[0])]


def row_name(row: str) -> str:
    """``fedepd:without_consensus`` is "FedEPD (without consensus)"."""
    method, *rest = row.split(":")
    label = METHODS[method].label if method in METHODS else method
    return f"{label} ({', '.join(rest).replace('_', ' ')})" if rest else label


def _cases(claim: Claim, measured: Measured) -> list[Case]:
    """On every dataset it is made of. A judged row that has nothing to show anywhere is left out beside one that has."""
    if claim.contrast is None:
        return []
    datasets = claim.datasets or [dataset for dataset in measured if dataset not in claim.except_for]
    cases = []
    for dataset in datasets:
        for row in claim.judged:
            there = claim.contrast(measured[dataset], row) if dataset in measured else Missing(f"{dataset} is not among the datasets")
            cases.append(Case(claim, dataset, row, there))
    known = {case.row for case in cases if not isinstance(case.found, Missing)} or {claim.judged[0]}
    return [case for case in cases if case.row in known]


def _over_datasets(claim: Claim, cases: Sequence[Case]) -> list[Case]:
    """One case per judged row over all datasets with the same contrast, from three on."""
    if claim.datasets is not None or not claim.together:
        return []
    overall = []
    for row in dict.fromkeys(case.row for case in cases):
        there: dict[tuple[str, str], list[Contrast]] = {}
        for case in cases:
            for each in [] if case.row != row or isinstance(case.found, Missing) else case.found:
                there.setdefault(each.names, []).append(each)
        contrasts = [_of_means(each) for each in there.values() if len(each) >= FEWEST_PAIRS]
        overall += [Case(claim, ALL, row, contrasts)] if contrasts else []
    return overall


def _of_means(contrasts: Sequence[Contrast]) -> Contrast:
    """Of the same two rows on several datasets, by their means there."""
    ours, theirs = ([mean_std(values)[0] for values in side] for side in zip(*((c.ours, c.theirs) for c in contrasts), strict=True))
    return replace(contrasts[0], ours=ours, theirs=theirs)


def _decide(family: Sequence[Case]) -> list[Verdict]:
    above, below = [_hardest(case) for case in family], [_plainest(case) for case in family]
    proofs, refutals = (holm([test.p for test in tests]) for tests in (above, below))
    verdicts = []
    for case, over, under, proof, refutal in zip(family, above, below, proofs, refutals, strict=True):
        outcome: Outcome = "cannot be told"
        if over.direction > 0 and proof < ALPHA:
            outcome = "holds"
        elif under.direction < 0 and refutal < ALPHA:
            outcome = "does not hold"
        by_proof = outcome == "holds" or (outcome == "cannot be told" and over.direction > 0)
        decided, p = (over, proof) if by_proof else (under, refutal)
        verdicts.append(Verdict(case.claim, case.dataset, case.row, outcome, p, _because(case, outcome, decided)))
    return verdicts


def _hardest(case: Case) -> Test:
    """What is shown of this contrast is shown of all."""
    return max((_test(case, each, each.proof) for each in _contrasts(case)), key=lambda test: _doubt(test, 1), default=_untested(case))


def _plainest(case: Case) -> Test:
    """The contrast that speaks most against the claim, its p corrected for having been picked."""
    tests = [_test(case, each, each.refutal) for each in _contrasts(case) if each.refutal is not None]
    known = sum(not math.isnan(test.p) for test in tests)
    plainest = min(tests, key=lambda test: _doubt(test, -1), default=_untested(case))
    return replace(plainest, p=min(1.0, plainest.p * known) if known else math.nan)


def _contrasts(case: Case) -> list[Contrast]:
    return [] if isinstance(case.found, Missing) else case.found


def _untested(case: Case) -> Test:
    return Test(case.found if isinstance(case.found, Missing) else Missing("nothing to compare"), 0, math.nan, math.nan)


def _test(case: Case, contrast: Contrast, bound: float) -> Test:
    """Ours against theirs moved up by the bound."""
    outcome = compare_seeds(contrast.ours, [value + bound for value in contrast.theirs])
    if case.dataset == ALL:
        return Test(contrast, outcome.n, outcome.rank_sum, outcome.wilcoxon_p)
    return Test(contrast, outcome.n, outcome.difference, outcome.welch_p)


def _doubt(test: Test, sign: int) -> float:
    """Twice the one-sided p of a difference with this sign; infinite without a test."""
    if math.isnan(test.p):
        return math.inf
    return test.p if sign * test.direction > 0 else 2 - test.p


def _because(case: Case, outcome: Outcome, decided: Test) -> str:
    contrast = decided.contrast
    if isinstance(contrast, Missing):
        return f"{contrast.reason}."
    over = f"{decided.n} {'dataset' if case.dataset == ALL else 'seed'}{'s'[: decided.n != 1]}"
    rises, falls = ("above", "below") if contrast.unit == "points" else ("below", "above")
    proof = _shown(contrast, contrast.proof)
    refutal = proof if contrast.refutal is None else _shown(contrast, contrast.refutal)
    why = {
        "holds": f"shown to be {rises} {proof} over {over}",
        "does not hold": f"shown to be {falls} {refutal} over {over}",
        "cannot be told": f"over {over} neither shown to be {rises} {proof} nor {falls} {'it' if proof == refutal else refutal}",
    }[outcome]
    why = why if decided.n >= FEWEST_PAIRS else f"{over} in common, and fewer than {FEWEST_PAIRS} tell nothing"
    ahead = sum(ours > theirs for ours, theirs in zip(contrast.ours, contrast.theirs, strict=True))
    where = f" on average, ahead on {ahead} of {decided.n}" if case.dataset == ALL else ""
    printed = case.claim.printed.get(case.dataset)
    return f"{_difference(contrast)}{where}; {why}." + ("" if printed is None else f" The paper prints {printed:+.2f} points.")


def _difference(contrast: Contrast) -> str:
    ours, theirs = (row_name(row) for row in contrast.names)
    means = [mean_std(values)[0] for values in (contrast.ours, contrast.theirs)]
    apart = _shown(contrast, compare_seeds(contrast.ours, contrast.theirs).difference)
    if contrast.unit == "times":
        return f"{ours} takes {apart} what {theirs} takes"
    return f"{abs(means[0]):.2f} of {ours} against {abs(means[1]):.2f} of {theirs}, {apart}"


def _shown(contrast: Contrast, difference: float) -> str:
    """In the unit a reader knows: costs and fluctuations are better where they are lower."""
    if contrast.unit == "times":
        return f"{math.exp(-difference):.2f} times"
    text = f"{difference if contrast.unit == 'points' else -difference:+.2f} points"
    return "0 points" if text[1:] == "0.00 points" else text


def _judge_rank(claim: Claim, row: str, measured: Measured) -> Verdict:
    means = {dataset: {r: mean_std(rows[r][claim.metric])[0] for r in (row, *BASELINES) if r in rows} for dataset, rows in measured.items()}
    found = critical_difference(means, ALPHA)
    if row not in found.mean_ranks or len(found.mean_ranks) < 2:
        return Verdict(claim, ALL, row, "cannot be told", math.nan, f"no run of {row} and a baseline on every dataset.")
    rank, first = found.mean_ranks[row], next(iter(found.mean_ranks))
    is_first = rank == found.mean_ranks[first]
    others = [p for pair, p in found.pairwise.items() if row in pair and (is_first or first in pair)]
    p = float(np.max(others))
    outcome: Outcome = "cannot be told"
    if p < ALPHA and found.friedman_p < ALPHA:
        outcome = "holds" if is_first else "does not hold"
    place = "first" if is_first else f"behind {row_name(first)} ({found.mean_ranks[first]:.2f})"
    told = "told from" if outcome != "cannot be told" else "not told from"
    because = f"mean rank {rank:.2f} of {len(found.mean_ranks)} over {len(found.datasets)} datasets, {place}; {told} "
    return Verdict(claim, ALL, row, outcome, p, because + ("every other." if is_first else "it."))
