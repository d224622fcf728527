"""Verdicts from results: which claims, which rows, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedepd.reproduction.judging import judgement
from fedepd.reproduction.judging.claims import CLAIMS
from fedepd.reproduction.judging.contrasts import BASELINES
from fedepd.reproduction.judging.judgement import (
    glance_table,
    in_words,
    verdict_lines,
    verdict_table,
    verdicts_of,
)
from fedepd.reproduction.judging.verdicts import ALL, Verdict
from fedepd.reproduction.study.measures import MEASURES
from fedepd.reproduction.study.results import HEADLINE, OPENFGL, Results, Scoring

MakeResults = Callable[..., Results]


@pytest.fixture(autouse=True)
def scores_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up runs have no rounds: every measure is the score."""

    def align(runs: Any, seeds: Any, scoring: Scoring) -> dict[str, list[float]]:
        scores = [
            100 * runs[seed].metric("acc", scoring.model, scoring.average) if seed in runs else np.nan
            for seed in seeds
        ]
        return dict.fromkeys(MEASURES, scores)

    monkeypatch.setattr(judgement, "align_seeds", align)


def found(results: Results) -> dict[tuple[str, str, str], str]:
    return {(each.claim.id, each.dataset, each.row): each.outcome for each in verdicts_of(results)}


def test_a_comparison_is_judged_by_the_claims_on_table_2(make_results: MakeResults) -> None:
    """FedEPD is 20 points above all others on x with a spread of 1, and 20 below on y; its printed version
    was not run, so it is not judged. Without LWS nobody can say who is the best."""
    scores = {("fedepd", "x"): [70, 71, 72], ("fedepd", "y"): [30, 31, 32]}
    scores |= {(rival, dataset): [50, 51, 52] for rival in BASELINES for dataset in "xy"}
    without = scores | {("lws", "x"): [None, None, None]}
    outcomes = found(make_results(scores, shipped="table2"))
    assert found(make_results(without, shipped="table2"))["best-bacc", "x", "fedepd"] == "cannot be told"
    assert outcomes["best-bacc", "x", "fedepd"] == "holds"
    assert outcomes["best-bacc", "y", "fedepd"] == "does not hold"
    assert not [row for _, _, row in outcomes if row == "fedepd:printed"]
    assert not [claim for claim, _, _ in outcomes if claim.startswith("consensus")]


def test_a_claim_is_judged_by_the_scoring_that_is_asked_for(make_results: MakeResults) -> None:
    """The global model of FedEPD is 20 points above all others but FedGTA, its clients' own models are 20
    below: holds, and does not. Where all rows are scored by personal models FedGTA, which has no others,
    needs no mark."""
    scores = (
        {("fedepd", "x"): [70, 71, 72]}
        | {(rival, "x"): [50, 51, 52] for rival in BASELINES}
        | {("fedgta", "x"): [55, 56, 57]}
    )
    results = make_results(scores, personal=["fedgta"], shipped="table2")
    for run in results.runs:
        if run.summary["method"] == "fedepd":
            run.summary["metrics"]["personal"] = {"client_mean": {"acc": run.metric("acc") - 0.4}}
    ours, theirs = (
        {each.claim.id: each for each in verdicts_of(results, scoring)}["best-acc"]
        for scoring in (HEADLINE, OPENFGL)
    )
    assert (ours.outcome, theirs.outcome) == ("holds", "does not hold")
    assert ours.because.startswith("FedEPD has 71.00, FedGTA † has 56.00: a difference of +15.00 points.")
    assert theirs.because.startswith("FedEPD has 31.00, FedGTA has 56.00: a difference of -25.00 points.")


def test_an_ablation_is_judged_by_the_claims_on_table_3(make_results: MakeResults) -> None:
    results = make_results(
        {("fedepd", "x"): [70, 71, 72], ("fedepd:without_consensus", "x"): [50, 51, 52]},
        "ablation",
        shipped="table3",
    )
    outcomes = found(results)
    assert outcomes["consensus-bacc", "x", "fedepd"] == "holds"
    assert outcomes["purification-bacc", "x", "fedepd"] == "cannot be told"


def test_a_target_of_the_users_own_has_no_claims_of_the_paper(make_results: MakeResults) -> None:
    scores = {(row, "x"): [50, 51, 52] for row in ("fedepd", *BASELINES)}
    assert found(make_results(scores, shipped="table2"))
    assert found(make_results(scores)) == {}


def test_nothing_is_judged_without_runs(make_results: MakeResults) -> None:
    assert verdicts_of(make_results({("fedepd", "x"): [None]}, shipped="table2")) == []
    assert verdicts_of(make_results({("fedepd", "x"): [1]}, "distribution")) == []


def test_how_verdicts_are_shown() -> None:
    first, other = CLAIMS[:2]
    verdicts = [
        Verdict(first, "email", "fedepd", "holds", 0.012, "higher"),
        Verdict(first, "arxiv", "fedepd", "cannot be told", float("nan"), "not run"),
        Verdict(other, ALL, "fedepd:printed", "does not hold", 0.0001, "lower"),
    ]
    glance = glance_table(verdicts, {"email": "Email"})
    assert glance.headers == ["Claim", "In the paper", "Judged", "All together", "Email"]
    assert glance.note.startswith(
        "✓ holds, ✗ does not hold, ? cannot be told, – the paper makes no such claim."
    )
    assert [[cell.text for cell in row[2:]] for row in glance.sections[0]] == [
        ["FedEPD", "not run: arxiv", "✓"], ["FedEPD (printed)", "✗ does not hold", "–"],
    ]  # fmt: skip
    shown = verdict_table(verdicts, {"email": "Email"}, "mine", "the rule, and the protocol")
    assert shown.note == "the rule, and the protocol"
    assert [[cell.text for cell in row[1:]] for row in shown.sections[0]] == [
        ["Email", "FedEPD", "holds", "0.012", "higher"],
        ["arxiv", "FedEPD", "cannot be told", "–", "not run"],
        [ALL, "FedEPD (printed)", "does not hold", "<0.001", "lower"],
    ]
    assert in_words(verdicts) == "1 hold, 1 do not hold, 1 cannot be told"
    lines = verdict_lines({HEADLINE: verdicts, OPENFGL: verdicts[:1]})
    assert [line[0] for line in lines] == ["scoring", "headline", "headline", "headline", "openfgl"]
    assert verdict_lines({HEADLINE: []}) == []
