"""Does a claim of the paper hold in our runs? ``judge`` decides, and its docstring states the rule."""

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

OPEN: Outcome = "cannot be told"
ALPHA = 0.05
ALL = "all datasets"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    dataset: str
    """``ALL`` for a verdict on all datasets together."""
    row: str
    """The row that is judged: ``fedepd`` is our reading of the paper, ``fedepd:printed`` follows its text."""
    outcome: Outcome
    p: float
    """The Holm-corrected p-value of the test that decided.

    Where none did, it belongs to the test whose direction the scores point to. NaN where nothing could be
    tested.
    """
    because: str


@dataclass(frozen=True)
class Case:
    """A claim about one judged row on one dataset.

    With dataset ``ALL`` the values of a contrast are one mean per dataset instead of one score per seed.
    """

    claim: Claim
    dataset: str
    row: str
    found: Found


@dataclass(frozen=True)
class Test:
    """A test of one contrast: that the difference is above a bound, or that it is below one."""

    contrast: Contrast | None
    """None where the case has no contrast that can be tested."""
    n: int
    """How many seeds, or with ``ALL`` how many datasets, it is based on."""
    doubt: float
    """Twice the one-sided p-value.

    Below 1 the scores point the way that is tested. NaN with too few scores.
    """
    times: float = 1.0
    """The p-value is multiplied by this, because the contrast was picked as the worst of several."""

    @property
    def p(self) -> float:
        return math.nan if math.isnan(self.doubt) else min(1.0, self.doubt * self.times)


def judge(measured: Measured, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """A verdict per claim, dataset and judged row.

    A claim is a set of contrasts. A contrast says that one row is above another, or at most a tolerance below
    it.

    - The claim *holds* if Welch's t test over seeds confirms every contrast, with a Holm-corrected p < 0.05.
    - It *does not hold* if the test confirms the opposite of at least one contrast: a gain over a rival of
      less than half a point, a part of the method that costs score, a loss beyond the tolerance. A mean on
      the wrong side is not enough. The p-value of that contrast is multiplied by the number of contrasts,
      because the best of many noisy rivals is ahead by chance alone. (``Contrast.weight`` can share this
      factor out unevenly.)
    - Otherwise it *cannot be told*. That is also the verdict with fewer than three seeds, or where a row or a
      dataset was not run.

    With three datasets or more, a claim is also judged on all of them together, by Wilcoxon's signed-rank
    test over the datasets' means.

    Holm's correction runs over all claims and datasets of the same target and judged row. Tests for the
    claims and tests against them are corrected separately, and so are the tests on all datasets together.

    Choice: over seeds Welch's test decides. With the usual five seeds Wilcoxon's p is never below 0.05.
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
    """What a reader sees: ``fedepd:without_consensus`` becomes "FedEPD (without consensus)".

    A dagger marks a method that is scored with its clients' personal models.
    """
    method, *rest = row.split(":")
    label = METHODS[method].label if method in METHODS else method
    mark = PERSONAL if method in METHODS and not METHODS[method].has_global else ""
    return (f"{label} ({', '.join(rest).replace('_', ' ')})" if rest else label) + mark


def _cases(claim: Claim, measured: Measured) -> list[Case]:
    """The cases of a claim: one per dataset and judged row, and one for all datasets together.

    A judged row without any measured contrast is dropped if another judged row has one.
    """
    datasets = claim.datasets or [dataset for dataset in measured if dataset not in claim.except_for]
    cases = []
    for dataset in datasets:
        for row in claim.judged:
            there = (
                claim.contrast(measured[dataset], row)
                if dataset in measured
                else [Missing(f"The dataset {dataset} was not run")]
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
    """The same contrasts over all datasets, each with one mean per dataset.

    None with fewer than three datasets.
    """
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
    """One contrast of the same two rows over several datasets, by their means over the seeds that both
    have."""
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
        # An open case reports the test for the claim, unless the scores point the other way.
        by_proof = outcome == "holds" or (outcome == "cannot be told" and not over.doubt >= 1)
        decided, p, together = (over, proof, above) if by_proof else (under, refutal, below)
        tested = sum(not math.isnan(test.p) for test in together)
        verdicts.append(
            Verdict(case.claim, case.dataset, case.row, outcome, p, _because(case, outcome, decided, tested))
        )
    return verdicts


def _hardest(case: Case) -> Test:
    """The contrast that is hardest to prove.

    If it is proved, all are. Nothing is proved where a row was not run.
    """
    if any(isinstance(each, Missing) for each in case.found):
        return Test(None, 0, math.nan)
    tests = [_test(case, each, each.proof, 1) for each in _contrasts(case)]
    return max(tests, key=lambda test: math.inf if math.isnan(test.doubt) else test.doubt)


def _plainest(case: Case) -> Test:
    """The contrast that speaks most against the claim.

    Its p-value is corrected for picking the worst of several.
    """
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
    """Test that ours minus theirs is above the bound (``sign`` 1) or below it (``sign`` -1)."""
    outcome = compare_seeds(contrast.ours, [value + bound for value in contrast.theirs])
    direction, p = (
        (outcome.rank_sum, outcome.wilcoxon_p)
        if case.dataset == ALL
        else (outcome.difference, outcome.welch_p)
    )
    return Test(contrast, outcome.n, p if sign * direction > 0 else 2 - p)


def _because(case: Case, outcome: Outcome, decided: Test, tested: int) -> str:
    """The reason in words. ``tested`` says how many tests were corrected together."""
    contrast = decided.contrast
    if contrast is None:
        return " ".join(f"{each.reason}." for each in case.found if isinstance(each, Missing))
    finding = _finding(contrast, outcome, decided, tested, case.dataset == ALL)
    sentences = [_difference(contrast, case.dataset == ALL), finding]
    if case.dataset in case.claim.printed:
        sentences.append(f"The paper prints {case.claim.printed[case.dataset]:+.2f} points.")
    return " ".join(sentences)


def _difference(contrast: Contrast, over_datasets: bool) -> str:
    """Both means over the seeds that both rows have, and how far they are apart."""
    one, other = (row_name(row) for row in contrast.names)
    ours, theirs = in_common(contrast.ours, contrast.theirs)
    (mean, _), (their_mean, _) = mean_std(ours), mean_std(theirs)
    apart = _shown(contrast, mean - their_mean)
    if contrast.unit == "times":
        text = f"{one} takes {apart} times as much as {other}"
    else:
        text = f"{one} has {abs(mean):.2f}, {other} has {abs(their_mean):.2f}: a difference of {apart}"
    text = text[0].upper() + text[1:]
    if not over_datasets:
        return f"{text}."
    ahead, level = (ours > theirs).sum(), (ours == theirs).sum()
    ties = f" and level on {level}" if level else ""
    return f"{text} on average. It is ahead on {ahead} of {len(ours)} datasets{ties}."


def _finding(contrast: Contrast, outcome: Outcome, decided: Test, tested: int, over_datasets: bool) -> str:
    """What the test that decided has shown, or why it could not show anything."""
    one = "dataset" if over_datasets else "seed"
    over = f"{decided.n} {one}" if decided.n == 1 else f"{decided.n} {one}s"
    if decided.n < FEWEST_PAIRS:
        return f"They have {over} in common, and a test needs at least {FEWEST_PAIRS}."
    ours, theirs = in_common(contrast.ours, contrast.theirs)
    if (ours == theirs).all():
        return f"They are the same at every {one}."
    gap = "ratio" if contrast.unit == "times" else "difference"
    rises, falls = ("above", "below") if contrast.unit == "points" else ("below", "above")
    proof = f"{rises} {_shown(contrast, contrast.proof)}"
    refutal = f"{falls} {_shown(contrast, contrast.refutal)}"
    if outcome != "cannot be told":
        return f"The test over {over} shows that the {gap} is {proof if outcome == 'holds' else refutal}."
    text = f"The test over {over} shows neither that the {gap} is {proof} nor that it is {refutal}."
    if over_datasets and smallest_wilcoxon_p(decided.n) * decided.times * tested >= ALPHA:
        text += f" {over} are too few to show it, even if all of them agree."
    return text


def _shown(contrast: Contrast, difference: float) -> str:
    """A difference in the unit that a reader knows.

    Costs and fluctuations are stored negated, so turn them back.
    """
    if contrast.unit == "times":
        return f"{math.exp(-difference):.2f}"
    text = f"{difference if contrast.unit == 'points' else -difference:+.2f} points"
    return "0 points" if text[1:] == "0.00 points" else text
