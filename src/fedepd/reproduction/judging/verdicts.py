"""Does a claim of the paper hold in our runs? The rule is that of ``judge``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedepd.methods import METHODS
from fedepd.report.numbers import mean_std
from fedepd.report.tables import PERSONAL
from fedepd.reproduction.judging.claims import CLAIMS, Claim
from fedepd.reproduction.judging.contrasts import Contrast, Found, Missing, Rows
from fedepd.reproduction.judging.statistics import (
    FEWEST_PAIRS,
    compare_seeds,
    holm,
    in_common,
    smallest_wilcoxon_p,
)

Measured = Mapping[str, Rows]
"""Dataset -> row -> measure -> one value per seed, seeds in the same order in all rows of a dataset."""
Outcome = Literal["holds", "does not hold", "cannot be told"]

ALPHA = 0.05
ALL = "all datasets"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    dataset: str
    """``ALL`` where it is about all of them together."""
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
    """Of one of a case's contrasts, that it is above a bound or that it is below."""

    contrast: Contrast | None
    """None where there is none to test."""
    n: int
    """Seeds or datasets."""
    doubt: float
    """Twice the one-sided p, so that below 1 the scores speak for it; NaN with too few of them."""
    times: float = 1.0
    """By how much the p counts for having been picked."""

    @property
    def p(self) -> float:
        return math.nan if math.isnan(self.doubt) else min(1.0, self.doubt * self.times)


def judge(measured: Measured, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """A verdict per claim, dataset and judged row.

    A claim says that one row is above another, or no more than a tolerance below it.
    It *holds* where Welch's test over seeds shows that, with a Holm-corrected p < 0.05.
    It *does not hold* where it is not shown and the test shows the contrary: a gain over rivals below half a point, a part that costs, a
    loss beyond the tolerance. A mean on the wrong side is not enough, nor is a difference that these seeds cannot show.
    A claim against several rows holds where it is shown against each of them, and does not where the contrary is shown against one, with
    its p multiplied by their number: the best of many noisy rows is ahead by chance alone.
    Otherwise it *cannot be told*, as with fewer than three seeds, or where a row or a dataset was not run.
    Over three datasets or more a claim is judged of all of them together too: the same by Wilcoxon over their means.
    Corrected together: the tests in one direction for the same target and judged row, over its claims and datasets; those of all datasets
    together for themselves.
    Choice: Welch decides over seeds and not Wilcoxon, which can show nothing at 0.05 with the usual five.
    """
    found: list[tuple[int, Verdict]] = []
    families: dict[tuple[str, str, bool], list[tuple[int, Case]]] = {}
    for place, claim in enumerate(claims):
        for case in _cases(claim, measured):
            families.setdefault((claim.target, case.row, case.dataset == ALL), []).append((place, case))
    for family in families.values():
        verdicts = _decide([case for _, case in family])
        found += [(place, verdict) for (place, _), verdict in zip(family, verdicts, strict=True)]
    return [verdict for _, verdict in sorted(found, key=lambda each: each[0])]


def row_name(row: str) -> str:
    """``fedepd:without_consensus`` is "FedEPD (without consensus)"; a dagger where the scores are those of personal models."""
    method, *rest = row.split(":")
    label = METHODS[method].label if method in METHODS else method
    mark = PERSONAL if method in METHODS and not METHODS[method].has_global else ""
    return (f"{label} ({', '.join(rest).replace('_', ' ')})" if rest else label) + mark


def _cases(claim: Claim, measured: Measured) -> list[Case]:
    """On every dataset it is made of. A judged row that has nothing to show anywhere is left out beside one that has."""
    datasets = claim.datasets or [dataset for dataset in measured if dataset not in claim.except_for]
    cases = []
    for dataset in datasets:
        for row in claim.judged:
            there = (
                claim.contrast(measured[dataset], row)
                if dataset in measured
                else [Missing(f"{dataset} is not among the datasets")]
            )
            cases.append(Case(claim, dataset, row, there))
    known = {case.row for case in cases if _contrasts(case)} or {claim.judged[0]}
    cases = [case for case in cases if case.row in known]
    together = (
        []
        if claim.scope == "each" or claim.datasets
        else [_together([c for c in cases if c.row == row]) for row in claim.judged]
    )
    return (cases if claim.scope != "all" else []) + [case for case in together if case is not None]


def _together(cases: Sequence[Case]) -> Case | None:
    """The same contrasts by a row's means on all datasets, from three on."""
    there: dict[tuple[str, str], list[Contrast]] = {}
    for each in (contrast for case in cases for contrast in _contrasts(case)):
        there.setdefault(each.names, []).append(each)
    if sum(bool(_contrasts(case)) for case in cases) < FEWEST_PAIRS:
        return None
    missing = dict.fromkeys(
        each for case in cases for each in case.found if isinstance(each, Missing) and not each.undefined
    )
    return Case(cases[0].claim, ALL, cases[0].row, [*map(_of_means, there.values()), *missing])


def _of_means(contrasts: Sequence[Contrast]) -> Contrast:
    """Of the same two rows on several datasets, by their means over the seeds that both have there."""
    pairs = [[mean_std(side)[0] for side in in_common(each.ours, each.theirs)] for each in contrasts]
    return replace(contrasts[0], ours=[ours for ours, _ in pairs], theirs=[theirs for _, theirs in pairs])


def _contrasts(case: Case) -> list[Contrast]:
    return [each for each in case.found if isinstance(each, Contrast)]


def _decide(family: Sequence[Case]) -> list[Verdict]:
    above, below = [_hardest(case) for case in family], [_plainest(case) for case in family]
    proofs, refutals = (holm([test.p for test in tests]) for tests in (above, below))
    verdicts = []
    for case, over, under, proof, refutal in zip(family, above, below, proofs, refutals, strict=True):
        outcome: Outcome = (
            "holds" if proof < ALPHA else "does not hold" if refutal < ALPHA else "cannot be told"
        )
        by_proof = outcome == "holds" or (
            outcome == "cannot be told" and not over.doubt >= 1
        )  # untested, or it speaks for the claim
        decided, p, together = (over, proof, above) if by_proof else (under, refutal, below)
        tested = sum(not math.isnan(test.p) for test in together)
        verdicts.append(
            Verdict(case.claim, case.dataset, case.row, outcome, p, _because(case, outcome, decided, tested))
        )
    return verdicts


def _hardest(case: Case) -> Test:
    """What is shown of this contrast is shown of all; nothing is where a row was not run."""
    if any(isinstance(each, Missing) for each in case.found):
        return Test(None, 0, math.nan)
    tests = [_test(case, each, each.proof, 1) for each in _contrasts(case)]
    return max(tests, key=lambda test: math.inf if math.isnan(test.doubt) else test.doubt)


def _plainest(case: Case) -> Test:
    """The contrast that speaks most against the claim, its p corrected for having been picked."""
    tests = [_test(case, each, each.refutal, -1) for each in _contrasts(case)]
    known = [
        (test, each.weight)
        for test, each in zip(tests, _contrasts(case), strict=True)
        if not math.isnan(test.doubt)
    ]
    picked = [replace(test, times=sum(weight for _, weight in known) / own) for test, own in known]
    return min(
        picked,
        key=lambda test: (test.doubt >= 1, test.doubt * test.times),
        default=tests[0] if tests else Test(None, 0, math.nan),
    )


def _test(case: Case, contrast: Contrast, bound: float, sign: int) -> Test:
    """That ours minus theirs is above the bound, or with sign -1 below it."""
    outcome = compare_seeds(contrast.ours, [value + bound for value in contrast.theirs])
    direction, p = (
        (outcome.rank_sum, outcome.wilcoxon_p)
        if case.dataset == ALL
        else (outcome.difference, outcome.welch_p)
    )
    return Test(contrast, outcome.n, p if sign * direction > 0 else 2 - p)


def _because(case: Case, outcome: Outcome, decided: Test, tested: int) -> str:
    """``tested``: how many tests were corrected together."""
    if decided.contrast is None:
        return "; ".join(each.reason for each in case.found if isinstance(each, Missing)) + "."
    contrast, (ours, theirs) = decided.contrast, in_common(decided.contrast.ours, decided.contrast.theirs)
    one = "dataset" if case.dataset == ALL else "seed"
    over = f"{decided.n} {one}{'s'[: decided.n != 1]}"
    rises, falls = ("above", "below") if contrast.unit == "points" else ("below", "above")
    proof, refutal = (_shown(contrast, bound) for bound in (contrast.proof, contrast.refutal))
    why = {
        "holds": f"shown to be {rises} {proof} over {over}",
        "does not hold": f"shown to be {falls} {refutal} over {over}",
        "cannot be told": f"over {over} neither shown to be {rises} {proof} nor {falls} {'it' if proof == refutal else refutal}",
    }[outcome]
    if decided.n < FEWEST_PAIRS:
        why = f"{over} in common, and fewer than {FEWEST_PAIRS} tell nothing"
    elif (ours == theirs).all():
        why = f"the same at every {one}"
    elif (
        case.dataset == ALL
        and outcome == "cannot be told"
        and smallest_wilcoxon_p(decided.n) * decided.times * tested >= ALPHA
    ):
        why += ", which so few cannot show"
    ahead, level = (ours > theirs).sum(), (ours == theirs).sum()
    where = (
        f" on average, ahead on {ahead} of {decided.n}{f', level on {level}' if level else ''}"
        if case.dataset == ALL
        else ""
    )
    printed = case.claim.printed.get(case.dataset)
    return f"{_difference(contrast)}{where}; {why}." + (
        "" if printed is None else f" The paper prints {printed:+.2f} points."
    )


def _difference(contrast: Contrast) -> str:
    """Of the means over the seeds that both have."""
    ours, theirs = (row_name(row) for row in contrast.names)
    means = [mean_std(side)[0] for side in in_common(contrast.ours, contrast.theirs)]
    apart = _shown(contrast, means[0] - means[1])
    if contrast.unit == "times":
        return f"{ours} takes {apart} what {theirs} takes"
    return f"{abs(means[0]):.2f} of {ours} against {abs(means[1]):.2f} of {theirs}, {apart}"


def _shown(contrast: Contrast, difference: float) -> str:
    """In the unit a reader knows: costs and fluctuations are better where they are lower."""
    if contrast.unit == "times":
        return f"{math.exp(-difference):.2f} times"
    text = f"{difference if contrast.unit == 'points' else -difference:+.2f} points"
    return "0 points" if text[1:] == "0.00 points" else text
