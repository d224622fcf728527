"""FedEPD against its best rival, and a whole against its parts."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import pytest

from fedepd.reproduction.judging.comparisons import PAIRS, all_pairs, best_rival, duel_table, duels, ranks
from fedepd.reproduction.judging.statistics import holm, welch_p
from fedepd.reproduction.study.results import Results

MakeResults = Callable[..., Results]
OURS, SECOND, BEST = [50.0, 52.0, 54.0], [30.0, 31.0, 32.0], [49.0, 48.0, 50.0]


@pytest.fixture
def results(make_results: MakeResults) -> Results:
    """On y the other rival is the better one; the reference beats all and counts for nothing."""
    scores = {
        ("fedepd", "x"): OURS,
        ("fedavg", "x"): SECOND,
        ("fedlc", "x"): BEST,
        ("centralised", "x"): [99.0] * 3,
    }
    scores |= {
        ("fedepd", "y"): OURS,
        ("fedavg", "y"): BEST,
        ("fedlc", "y"): SECOND,
        ("centralised", "y"): [99.0] * 3,
    }
    return make_results(scores, references=["centralised"])


def test_the_best_rival_is_found_by_mean(results: Results) -> None:
    rivals = [best_rival(results, dataset, "acc") for dataset in ("x", "y")]
    assert [rival.row.method for rival in rivals if rival] == ["fedlc", "fedavg"]


def test_a_rival_without_a_number_is_not_the_best(make_results: MakeResults) -> None:
    results = make_results({("fedepd", "x"): OURS, ("fedavg", "x"): [float("nan")] * 3, ("fedlc", "x"): BEST})
    rival = best_rival(results, "x", "acc")
    assert rival is not None
    assert rival.row.method == "fedlc"


def test_every_metric_on_every_dataset_corrected_together(results: Results) -> None:
    """Three metrics on two datasets with equal scores: six equal p-values, each times six, at most 1; the
    difference is 52 - 49 = 3.

    Seed by seed it is 1, 4, 4: variance 3, t of 2 degrees of freedom 4.302653, half width 4.302653 · sqrt(3
    / 3).
    """
    found = duels(results)
    assert [(duel.metric, duel.ours.dataset) for duel in found] == [
        (m, d) for d in "xy" for m in ("bacc", "macro_f1", "acc")
    ]
    raw = welch_p(OURS, BEST)
    assert 0.05 < raw < 1 / 6
    assert [duel.welch_p for duel in found] == holm([raw] * 6) == pytest.approx([6 * raw] * 6)
    assert {duel.outcome.difference for duel in found} == {3.0}
    table = duel_table(results, found)
    assert [cell.text for cell in table.sections[0][0][:6]] == [
        "x",
        "bAcc",
        "FEDEPD",
        "FEDLC",
        "+3.00",
        "−1.30 to +7.30",
    ]
    assert "With 3 seeds a Wilcoxon p-value is at least 0.25 before correction." in table.note


def test_a_missing_seed_is_left_out_of_both(make_results: MakeResults) -> None:
    """Seeds 0 and 2 are common: 50, 54 against 10, 30, which differ by 52 - 20; two seeds allow no test."""
    results = make_results({("fedepd", "x"): [50, 52, 54, None], ("fedavg", "x"): [10, None, 30, 40]})
    duel = duels(results)[0]
    assert (duel.outcome.n, duel.outcome.difference) == (2, 32.0)
    assert isnan(duel.welch_p)
    row = duel_table(results, [duel]).sections[0][0]
    assert [cell.text for cell in row[-4:]] == ["–", "–", "–", "2"]


def test_an_ablation_is_set_against_the_whole(make_results: MakeResults) -> None:
    results = make_results(
        {(key, "x"): OURS for key in ("fedepd", "fedepd:without_consensus", "fedavg")}, "ablation"
    )
    assert [(duel.ours.row.key, duel.theirs.row.key) for duel in duels(results)][:2] == [
        ("fedepd", "fedepd:without_consensus"), ("fedepd", "fedavg"),
    ]  # fmt: skip


def test_ranks_need_two_datasets_and_leave_references_out(
    results: Results, make_results: MakeResults
) -> None:
    """FedEPD is first on both; each of the others is second once and third once: 2.5."""
    found = ranks(results, "acc")
    assert found is not None
    assert found.mean_ranks == {"fedepd": 1.0, "fedavg": 2.5, "fedlc": 2.5}
    assert ranks(make_results({("fedepd", "x"): [1]}), "acc") is None


def test_any_row_can_be_held_against_its_best_rival(make_results: MakeResults) -> None:
    """FedLC is ours, so that FedEPD is a rival like any other."""
    scores = {("fedepd", "x"): OURS, ("fedavg", "x"): SECOND, ("fedlc", "x"): BEST}
    found = duels(make_results(scores, ours="fedlc"))
    assert {(duel.ours.row.method, duel.theirs.row.method) for duel in found} == {("fedlc", "fedepd")}
    assert found[0].outcome.difference == pytest.approx(-3)
    assert "FEDLC against the rival" in duel_table(make_results(scores, ours="fedlc"), found).note


def test_every_pair_is_corrected_over_all_pairs(results: Results) -> None:
    """Three rows on two datasets without the reference: six pairs. 52 - 31 = 21 points."""
    found = all_pairs(results, "acc")
    assert [(d.ours.row.method, d.theirs.row.method, d.ours.dataset) for d in found] == [
        (a, b, d) for d in "xy" for a, b in (("fedepd", "fedavg"), ("fedepd", "fedlc"), ("fedavg", "fedlc"))
    ]
    raw = [welch_p(OURS, SECOND), welch_p(OURS, BEST), welch_p(SECOND, BEST)]
    raw += [welch_p(OURS, BEST), welch_p(OURS, SECOND), welch_p(BEST, SECOND)]
    assert [duel.welch_p for duel in found] == pytest.approx(holm(raw))
    assert found[0].outcome.difference == pytest.approx(21)
    assert PAIRS in duel_table(results, found, PAIRS).note
