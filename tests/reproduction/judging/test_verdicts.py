"""Made-up scores, spread by -0.1, 0 and 0.1 over three seeds, or by ten times that where nothing shall be
told.

Welch on two rows of that spread has a standard error of 0.1 sqrt(2/3) = 0.082 and 4 degrees of freedom: a
difference of 1 gives t = 12.2 (p = 0.0003), one of 0.1 gives t = 1.2 (p = 0.29).
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedepd.reproduction.judging.claims import CLAIMS, Claim
from fedepd.reproduction.judging.contrasts import BASELINES, best, cheap, comparable
from fedepd.reproduction.judging.statistics import welch_p
from fedepd.reproduction.judging.verdicts import ALL, Verdict, judge, row_name
from fedepd.reproduction.study.measures import MEASURES

BY_ID = {claim.id: claim for claim in CLAIMS}
Row = dict[str, list[float]]


def row(spread: float = 0.1, seeds: int = 3, **means: float) -> Row:
    """Every measure, 50 unless told."""
    return {
        name: [means.get(name, 50.0) + spread * (seed % 3 - 1) for seed in range(seeds)] for name in MEASURES
    }


def among(claim: str, *rivals: str) -> Claim:
    """The claim against these alone."""
    return replace(BY_ID[claim], contrast=best(BY_ID[claim].metric, rivals))


def verdict(claim: str | Claim, dataset: str = "toy", /, **rows: Row) -> Verdict:
    named = {name.replace("__", ":"): values for name, values in rows.items()}
    found = [
        v
        for v in judge({dataset: named}, [BY_ID[claim] if isinstance(claim, str) else claim])
        if v.dataset == dataset
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("gain", "spread", "outcome", "because"),
    [
        (
            1.0,
            0.1,
            "holds",
            "FedEPD has 51.00, FedGTA † has 50.00: a difference of +1.00 points. "
            "The test over 3 seeds shows that the difference is above 0 points.",
        ),
        (
            -1.0,
            0.1,
            "does not hold",
            "FedEPD has 49.00, FedGTA † has 50.00: a difference of -1.00 points. "
            "The test over 3 seeds shows that the difference is below +0.50 points.",
        ),
        (
            0.05,
            0.1,
            "does not hold",
            "+0.05 points. The test over 3 seeds shows that the difference is below +0.50 points.",
        ),
        (
            1.0,
            5.0,
            "cannot be told",
            "The test over 3 seeds shows neither that the difference is above 0 points nor that it is below "
            "+0.50 points.",
        ),
        (-1.0, 5.0, "cannot be told", "-1.00 points. The test over 3 seeds shows neither"),
    ],
)
def test_a_gain(gain: float, spread: float, outcome: str, because: str) -> None:
    """The rival with the highest mean is FedGTA."""
    claim = among("best-bacc", "fedgta", "fedavg")
    found = verdict(claim, fedepd=row(spread, bacc=50 + gain), fedgta=row(spread), fedavg=row(bacc=20))
    assert found.outcome == outcome
    assert because in found.because
    assert (found.p < 0.05) == (outcome != "cannot be told")
    assert found.row == "fedepd"


def test_a_rival_that_leads_among_many_by_chance_refutes_nothing() -> None:
    """0.2 above the rival is 0.3 below the half point: t = 3.67, p = 0.0213. Alone that refutes; for the
    best of three it is 0.0639. What is told then is that 0.2 are not shown to be above 0: t = 2.45, p =
    0.0705."""
    ours, lead = row(bacc=50.2), row()
    assert verdict(among("best-bacc", "fedgta"), fedepd=ours, fedgta=lead).outcome == "does not hold"
    three = among("best-bacc", "fedavg", "fedgta", "lws")
    found = verdict(three, fedepd=ours, fedgta=lead, fedavg=row(bacc=30), lws=row(bacc=30))
    assert found.outcome == "cannot be told"
    assert found.p == pytest.approx(0.0705, abs=2e-4)
    assert "FedGTA † has 50.00" in found.because


def test_the_best_is_shown_to_be_above_every_rival_and_not_only_above_the_one_with_the_highest_mean() -> None:
    """FedGTA is told from FedEPD by its small spread; FedAvg, with a mean just below FedGTA's, varies by 5
    and cannot be."""
    rows = {"fedepd": row(bacc=51), "fedgta": row(bacc=50), "fedavg": row(5.0, bacc=49.9)}
    claim = among("best-bacc", "fedgta", "fedavg")
    found = verdict(claim, **rows)
    assert found.outcome == "cannot be told"
    assert "FedAvg has 49.90" in found.because
    rows["fedavg"]["bacc"][1:] = [nan, nan]
    assert "1 seed in common" in verdict(claim, **rows).because


def test_a_range_by_chance_refutes_nothing() -> None:
    """Twelve draws of one distribution: the best and the worst lie 5.79 points apart, and Welch's p that
    this is beyond 1.45 is 0.015. There are 66 pairs to pick from, so that the smallest p of a pair counts
    66 times. All have one gamma, whose mean says nothing."""
    draws = np.random.default_rng(12).normal(50, 3, (12, 5))
    cells = {f"fedepd:mu={i}:gamma=0.5": {"macro_f1": values.tolist()} for i, values in enumerate(draws)}
    (found,) = judge({"toy": cells}, [BY_ID["insensitive"]])
    lowest, highest = draws[draws.mean(1).argmin()], draws[draws.mean(1).argmax()]
    assert welch_p(lowest, highest - 1.45) == pytest.approx(0.015, abs=1e-3)
    assert found.outcome == "cannot be told"
    assert found.p > 0.05


def test_too_few_seeds_missing_rows_and_missing_datasets_cannot_be_told() -> None:
    few = verdict(among("best-bacc", "fedgta"), fedepd=row(seeds=2, bacc=60), fedgta=row(seeds=2))
    assert few.outcome == "cannot be told"
    assert isnan(few.p)
    assert "They have 2 seeds in common, and a test needs at least 3." in few.because
    assert verdict("best-bacc", fedepd=row()).because == f"There is no run of {', '.join(BASELINES)}."
    assert verdict(among("best-bacc", "fedavg"), fedavg=row()).because == "There is no run of fedepd."
    elsewhere = judge({"toy": {"fedepd": row(), "fedgta": row()}}, [BY_ID["over-fedgta-bacc"]])
    assert [(v.dataset, v.outcome, v.because) for v in elsewhere] == [
        ("electronics", "cannot be told", "The dataset electronics was not run.")
    ]


def test_the_best_of_all_cannot_be_told_where_one_was_not_run_but_can_be_refuted() -> None:
    """An ablation of FedEPD is not asked for: the claim does not name it."""
    rows = {rival: row(bacc=40) for rival in BASELINES if rival != "lws"}
    found = verdict("best-bacc", fedepd=row(bacc=60), **rows)
    assert (found.outcome, found.because) == ("cannot be told", "There is no run of lws.")
    assert isnan(found.p)
    assert verdict("best-bacc", fedepd=row(bacc=20), **rows).outcome == "does not hold"
    assert verdict("best-bacc", fedepd=row(bacc=60), lws=row(), **rows).outcome == "holds"


def test_a_failed_seed_is_left_out_of_both_rows() -> None:
    """Seeds of 50.9, 51.1 and 50.9 against 49.9, 50.1 and 49.9 are left."""
    ours, theirs = row(seeds=4, bacc=51), row(seeds=4)
    ours["bacc"][1] = nan
    found = verdict(among("best-bacc", "fedavg"), fedepd=ours, fedavg=theirs)
    assert (
        found.because == "FedEPD has 50.97, FedAvg has 49.97: a difference of +1.00 points. "
        "The test over 3 seeds shows that the difference is above 0 points."
    )


def test_over_datasets_too_a_mean_is_over_the_seeds_that_both_have() -> None:
    """Behind at the one seed in common on each of six datasets, though its three seeds have the higher
    mean."""
    rows = {"fedepd": {"bacc": [50.0, 60.0, 70.0]}, "fedepd:without_consensus": {"bacc": [51.0, nan, nan]}}
    found = judge({f"d{i}": rows for i in range(6)}, [BY_ID["consensus-bacc"]])
    assert [(v.dataset, v.outcome) for v in found] == [
        *((f"d{i}", "cannot be told") for i in range(6)),
        (ALL, "does not hold"),
    ]
    assert (
        "FedEPD has 50.00, FedEPD (without consensus) has 51.00: a difference of -1.00 points on average. "
        "It is ahead on 0 of 6 datasets." in found[-1].because
    )


def test_a_part_that_was_not_used_is_named_as_such() -> None:
    same = verdict("purification-bacc", fedepd=row(), fedepd__without_purification=row())
    assert (
        same.because
        == "FedEPD has 50.00, FedEPD (without purification) has 50.00: a difference of 0 points. "
        "They are the same at every seed."
    )
    gains = [*over_all([0, 0, 0, 1, 2], "purification-bacc")]
    assert "+0.60 points on average. It is ahead on 2 of 5 datasets and level on 3." in gains[0].because


def test_the_printed_preset_is_judged_beside_ours_where_it_was_run() -> None:
    found = judge(
        {"toy": {"fedepd": row(acc=52), "fedepd:printed": row(acc=48), "fedavg": row()}},
        [among("best-acc", "fedavg")],
    )
    assert [(v.row, v.outcome) for v in found] == [("fedepd", "holds"), ("fedepd:printed", "does not hold")]


def test_what_the_paper_prints_stands_beside_its_own_datasets_alone() -> None:
    rows = {"fedepd": row(bacc=52), "fedavg": row()}
    official, other = judge({"corafull": rows, "corafull_proxy": rows}, [among("best-bacc", "fedavg")])
    assert official.because.endswith("The paper prints +1.20 points.")
    assert "paper" not in other.because


def test_the_paper_does_not_claim_the_best_f1_on_roman_empire() -> None:
    found = judge(
        {"roman_empire": {"fedepd": row(), "fedgac": row()}, "toy": {"fedepd": row(), "fedgac": row()}},
        [BY_ID["best-macro_f1"]],
    )
    assert [v.dataset for v in found] == ["toy"]


@pytest.mark.parametrize(
    ("loss", "outcome"), [(0.5, "holds"), (2.0, "does not hold"), (1.0, "cannot be told"), (-3.0, "holds")]
)
def test_a_tolerance_of_one_point(loss: float, outcome: str) -> None:
    found = verdict("keeps-head", fedepd=row(head_acc=50 - loss), fedavg=row())
    assert found.outcome == outcome
    neither = "neither that the difference is above -1.00 points nor that it is below -1.00 points."
    assert (neither in found.because) == (outcome == "cannot be told")


@given(st.lists(st.integers(-300, 300), min_size=4, max_size=4), st.integers(1, 300))
def test_no_p_below_alpha_without_a_decision(gains: list[int], spread: int) -> None:
    rows = {
        f"d{i}": {"fedepd": row(spread / 100, bacc=50 + gain / 100), "fedavg": row(spread / 100)}
        for i, gain in enumerate(gains)
    }
    for found in judge(rows, [among("best-bacc", "fedavg")]):
        assert (found.p < 0.05) == (found.outcome != "cannot be told")


@pytest.mark.parametrize(
    ("gain", "outcome"), [(0.3, "holds"), (0.05, "cannot be told"), (-0.3, "does not hold")]
)
def test_a_part_helps(gain: float, outcome: str) -> None:
    """A standard error of 0.082: 0.3 is t = 3.7 (p = 0.02), and a gain that is not seen is not refuted
    either."""
    rows = {"fedepd": row(bacc=50 + gain), "fedepd__without_consensus": row()}
    assert verdict("consensus-bacc", **rows).outcome == outcome


def test_the_ablation_of_the_printed_preset_has_its_own_rows() -> None:
    rows = {"fedepd:printed": row(bacc=52), "fedepd:printed:consensus=False": row()}
    assert [(v.row, v.outcome) for v in judge({"toy": rows}, [BY_ID["consensus-bacc"]])] == [
        ("fedepd:printed", "holds")
    ]


@pytest.mark.parametrize(("without_purification", "outcome"), [(40.0, "holds"), (46.0, "does not hold")])
def test_purification_matters_most(without_purification: float, outcome: str) -> None:
    rows = {
        "fedepd__without_purification": row(acc=without_purification),
        "fedepd__without_recalibration": row(acc=45),
    }
    found = verdict("purification-most", fedepd=row(), fedepd__without_consensus=row(acc=48), **rows)
    assert found.outcome == outcome
    assert found.because.startswith("FedEPD (without recalibration) has 45.00, ")


@pytest.mark.parametrize(
    ("highest", "outcome"), [(50.5, "holds"), (53.0, "does not hold"), (51.45, "cannot be told")]
)
def test_sensitivity(highest: float, outcome: str) -> None:
    cells = {
        f"fedepd:mu={mu}:gamma=0.1": row(macro_f1=score)
        for mu, score in ((0.1, 50.0), (1.0, 50.2), (2.0, highest))
    }
    (found,) = judge({"toy": {"fedepd": row(macro_f1=90), **cells}}, [BY_ID["insensitive"]])
    assert found.outcome == outcome
    assert found.because.startswith("FedEPD (mu=0.1, gamma=0.1) has 50.00, ")


def test_a_grid_is_refuted_by_what_one_parameter_does_on_average() -> None:
    """Five values of either: gamma does nothing, each step of mu costs 2 points, and seeds spread by 1.5.
    The mean over gamma of mu = 2 is 8 points below that of mu = 0.1: 6.55 beyond the bound, a standard
    error of 1.5 sqrt(2/3) = 1.22, t = 5.35 with 4 degrees of freedom, p = 0.0059; picked of 20 pairs of
    values, with 300 pairs of cells that have as much of the error, it counts 40 times: 0.235. Twice the
    seeds show it."""
    mus, gammas = (0.1, 0.5, 1.0, 1.5, 2.0), (0.1, 0.3, 0.5, 0.7, 0.9)

    def found(seeds: int) -> Verdict:
        cells = {
            f"fedepd:mu={mu}:gamma={gamma}": row(1.5, seeds, macro_f1=50 - 2 * step)
            for step, mu in enumerate(mus)
            for gamma in gammas
        }
        (verdict,) = judge({"toy": cells}, [BY_ID["insensitive"]])
        return verdict

    three, six = found(3), found(6)
    assert three.outcome == "cannot be told"
    assert three.p == pytest.approx(0.235, abs=0.002)
    assert six.outcome == "does not hold"
    together = judge(
        {f"d{i}": {f"fedepd:mu={mu}": row(macro_f1=50 + 9 * mu) for mu in (0, 1)} for i in range(9)},
        [BY_ID["insensitive"]],
    )
    assert {v.dataset for v in together} == {
        f"d{i}" for i in range(9)
    }  # which of two cells is the lower was picked by each dataset
    low, high = ([mean + 1.5 * (seed % 3 - 1) for seed in range(6)] for mean in (42, 50 - 1.45))
    assert six.p == pytest.approx(40 * welch_p(low, high))
    assert six.because == (
        "FedEPD (mu=2.0 on average) has 42.00, FedEPD (mu=0.1 on average) has 50.00: a difference of "
        "-8.00 points. The test over 6 seeds shows that the difference is below -1.45 points."
    )


def test_one_bad_cell_refutes_a_grid_though_no_parameter_does() -> None:
    """3 points below the 24 others, 1.55 beyond the bound, where seeds spread by 0.1: with a standard
    error of 0.05 t is 30 over ten degrees of freedom, and 600 times its p is still below 1e-5. Averaged
    over five cells it is 0.6 points."""
    values = (0.1, 0.5, 1.0, 1.5, 2.0)
    cells = {f"fedepd:mu={mu}:gamma={gamma}": row(seeds=6) for mu in values for gamma in values}
    cells["fedepd:mu=2.0:gamma=2.0"] = row(seeds=6, macro_f1=47)
    (found,) = judge({"toy": cells}, [BY_ID["insensitive"]])
    assert found.outcome == "does not hold"
    assert found.p < 1e-5
    assert found.because.startswith("FedEPD (mu=2.0, gamma=2.0) has 47.00, FedEPD (")
    assert "has 50.00: a difference of -3.00 points." in found.because


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(11.0, "holds"), (20.0, "does not hold"), (12.5, "cannot be told")]
)
def test_running_time(seconds: float, outcome: str) -> None:
    """The cheapest baseline takes 10 seconds, so 1.25 times is 12.5."""
    claim = replace(BY_ID["fast"], contrast=cheap("cpu_seconds", 1.25, ("fedavg", "fedgta")))
    found = verdict(
        claim, fedepd=row(cpu_seconds=seconds), fedavg=row(cpu_seconds=10), fedgta=row(cpu_seconds=30)
    )
    assert found.outcome == outcome
    assert found.because.startswith(f"FedEPD takes {seconds / 10:.2f} times as much as FedAvg. ")


def test_traffic_without_any_spread_is_told_exactly() -> None:
    """The bytes of a run do not depend on its seed: 4 % more is negligible, 25 % is not."""
    for megabytes, outcome in ((104.0, "holds"), (125.0, "does not hold")):
        found = verdict("little-traffic", fedepd=row(0, megabytes=megabytes), fedavg=row(0, megabytes=100))
        assert (found.outcome, found.p) == (outcome, 0)
    assert found.because == (
        "FedEPD takes 1.25 times as much as FedAvg. The test over 3 seeds shows that the ratio is above 1.05."
    )


def test_steadier_than_the_mean_of_the_methods_for_long_tails() -> None:
    """Steps of 1 against the mean of 2, 3 and 4."""
    rivals = {
        "creff": row(fluctuation=2),
        "fedlc": row(fluctuation=3),
        "graphfedmig": row(fluctuation=4),
        "fedavg": row(fluctuation=0),
    }
    found = verdict("steadier", fedepd=row(fluctuation=1), **rivals)
    assert found.outcome == "holds"
    assert (
        "FedEPD has 1.00, the average method for long tails has 3.00: a difference of -2.00 points. "
        "The test over 3 seeds shows that the difference is below 0 points." in found.because
    )
    assert verdict("steadier", fedepd=row(fluctuation=9), **rivals).outcome == "does not hold"


def test_the_tail_of_standard_models() -> None:
    found = judge(
        {"toy": {"fedavg": row(head_acc=90, tail_acc=10), "fedgta": row(head_acc=40, tail_acc=60)}},
        [BY_ID["tail-is-worse"]],
    )
    assert [(v.row, v.outcome) for v in found] == [("fedavg", "holds"), ("fedgta", "does not hold")]


def test_the_tests_of_a_target_are_corrected_together() -> None:
    """A gain of 0.3 has t = 3.674 and p = 0.0213. Two of them have twice that by Holm, three of them three
    times; a claim of another target does not count."""
    rows = {"fedepd": row(bacc=50.3), "fedavg": row()}
    for count, p in ((1, 0.0213), (2, 0.0426), (3, 0.0639)):
        found = judge({f"d{i}": rows for i in range(count)}, [among("best-bacc", "fedavg")])
        assert [v.p for v in found] == pytest.approx([p] * count, abs=2e-4)
        assert {v.outcome for v in found} == {"holds" if p < 0.05 else "cannot be told"}
    apart = judge(
        {"d": rows},
        [among("best-bacc", "fedavg"), Claim("other", "", "", "elsewhere", best("bacc", ("fedavg",)))],
    )
    assert [v.p for v in apart] == pytest.approx([0.0213] * 2, abs=2e-4)


def over_all(gains: list[float], *claims: str) -> list[Verdict]:
    """FedEPD this far above its ablations, a dataset each."""
    ablations = [f"fedepd:without_{part}" for part in ("consensus", "purification", "recalibration")]
    measured = {
        f"d{i}": {"fedepd": row(3.0, bacc=50 + gain), **{name: row(3.0) for name in ablations}}
        for i, gain in enumerate(gains)
    }
    return [v for v in judge(measured, [BY_ID[claim] for claim in claims]) if v.dataset == ALL]


def test_a_part_over_all_datasets() -> None:
    """Gains on six datasets: all 2^6 signs are as likely, so 2 / 64 = 0.031 if all have one sign. The
    seeds of a dataset, spread by 3 points, tell nothing. Five datasets have 2 / 32 = 0.063 at best; fewer
    than three have no verdict together."""
    (found,) = over_all([0.5, 1, 1.5, 2, 2.5, 3], "consensus-bacc")
    assert (found.outcome, found.p) == ("holds", 0.03125)
    assert found.because == (
        "FedEPD has 51.75, FedEPD (without consensus) has 50.00: a difference of +1.75 points on average. "
        "It is ahead on 6 of 6 datasets. The test over 6 datasets shows that the difference is above 0 "
        "points."
    )
    (lost,) = over_all([-0.5, -1, -1.5, -2, -2.5, -3], "consensus-bacc")
    assert (lost.outcome, lost.p) == ("does not hold", 0.03125)
    (few,) = over_all([1.0] * 5, "consensus-bacc")
    assert (few.outcome, few.p) == ("cannot be told", 0.0625)
    assert over_all([1.0, 2.0], "consensus-bacc") == []


def test_over_all_datasets_ranks_decide_and_not_one_large_gain() -> None:
    """Eight small losses and one gain of 40: ranks 1 to 8 against 9. Of 2^9 signs those with a sum of at
    most 9 on one side count: 0.0977 two-sided. With eight losses alone 2 / 256; the mean of all nine
    speaks for the part, its signed ranks against it."""
    (found,) = over_all([-0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7, -0.8, 40], "consensus-bacc")
    ways = sum(sum(rank for rank in range(1, 10) if signs >> rank & 1) <= 9 for signs in range(0, 2**10, 2))
    assert found.outcome == "cannot be told"
    assert found.p == pytest.approx(2 * ways / 2**9)
    assert (
        "+4.04 points on average. It is ahead on 1 of 9 datasets. The test over 9 datasets shows neither"
        in found.because
    )
    (fifteen,) = over_all([*(-0.1 * (i + 1) for i in range(14)), 40], "consensus-bacc")
    assert fifteen.outcome == "does not hold"


def test_claims_over_all_datasets_are_corrected_together_and_apart_from_those_of_each() -> None:
    """Two claims with 2 / 64 each have 0.0625 by Holm; the six datasets' own tests do not count."""
    both = over_all([0.5, 1, 1.5, 2, 2.5, 3], "consensus-bacc", "purification-bacc")
    assert [(v.outcome, v.p) for v in both] == [("cannot be told", 0.0625)] * 2


def test_over_all_datasets_the_best_is_above_each_rival() -> None:
    """Ahead of FedAvg on all eight, of CReFF on seven, where it loses most: ranks 1 to 7 against 8. Alone
    that is 2 / 2^8; last of two on all eight, it would have to be told from one that was picked of two,
    and of eleven in Table 2, for which eight datasets are too few."""
    measured = {
        f"d{i}": {"fedepd": row(bacc=51 + i / 10), "fedavg": row(), "creff": row(bacc=50 if i else 70)}
        for i in range(8)
    }
    (found,) = judge(measured, [among("first-bacc", "fedavg", "creff")])
    assert (found.dataset, found.outcome) == (ALL, "cannot be told")
    assert "CReFF has" in found.because
    assert "ahead on 7 of 8" in found.because
    (only,) = judge(measured, [among("first-bacc", "fedavg")])
    assert (only.outcome, only.p) == ("holds", 2 / 2**8)
    behind = {name: {"fedepd": row(bacc=10), "fedavg": row(), "creff": row()} for name in measured}
    (last,) = judge(behind, [among("first-bacc", "fedavg", "creff")])
    assert (last.outcome, last.p) == ("does not hold", 2 * 2 / 2**8)
    everybody = {name: {"fedepd": row(bacc=10), **{rival: row() for rival in BASELINES}} for name in measured}
    (many,) = judge(everybody, [BY_ID["first-bacc"]])
    assert (many.outcome, many.p) == ("cannot be told", 11 * 2 / 2**8)
    assert many.because.endswith(
        "The test over 8 datasets shows neither that the difference is above 0 points nor that it is below "
        "+0.50 points. 8 datasets are too few to show it, even if all of them agree."
    )
    assert judge({}, [BY_ID["first-bacc"]]) == []


def test_a_rival_that_was_not_run_everywhere_is_not_left_out() -> None:
    measured = {f"d{i}": {"fedepd": row(bacc=60), "fedavg": row(), "fedgta": row(bacc=90)} for i in range(8)}
    for i in range(6):
        del measured[f"d{i}"]["fedgta"]
    (found,) = judge(measured, [among("first-bacc", "fedavg", "fedgta")])
    assert (found.outcome, found.because) == ("cannot be told", "There is no run of fedgta.")


def test_a_dataset_that_has_nothing_of_the_kind_does_not_count_among_all() -> None:
    """One of seven has no medium classes; the other six agree: 2 / 2^6."""
    measured = {f"d{i}": {"fedepd": row(medium_acc=60), "fedavg": row()} for i in range(7)}
    for rows in measured["d0"].values():
        rows["medium_acc"] = [nan, nan, nan]
    first, *_, together = judge(measured, [BY_ID["keeps-medium"]])
    assert (first.outcome, first.because) == ("cannot be told", "There is no medium_acc of fedepd, fedavg.")
    assert (together.dataset, together.outcome, together.p) == (ALL, "holds", 2 / 2**6)


def test_only_tests_in_one_direction_are_corrected_together() -> None:
    """b is refuted with p = 0.0213, as in the test above; beside a, which is 40 points ahead and speaks
    for the claim, Holm has two tests that could refute: 0.0426."""
    measured = {
        "a": {"fedepd": row(bacc=90), "fedavg": row()},
        "b": {"fedepd": row(bacc=50.2), "fedavg": row()},
    }
    ahead, behind = judge(measured, [among("best-bacc", "fedavg")])
    assert (ahead.outcome, behind.outcome) == ("holds", "does not hold")
    assert behind.p == pytest.approx(0.0426, abs=2e-4)


def test_every_claim_has_a_verdict_on_full_results_and_on_none() -> None:
    rows = {name: row() for name in ("fedepd", "fedepd:printed", *BASELINES)}
    rows |= {f"fedepd:without_{part}": row() for part in ("consensus", "purification", "recalibration")}
    rows |= {f"fedepd:mu={mu}:gamma=0.5": row() for mu in (0.1, 1.0)}
    full = judge({"a": rows, "b": rows, "c": rows})
    assert {v.claim.id for v in full} == set(BY_ID)
    assert [v.claim.id for v in full] == sorted((v.claim.id for v in full), key=list(BY_ID).index)
    assert len(BY_ID) == len(CLAIMS)
    assert all(v.because.endswith(".") for v in full)
    assert {v.outcome for v in judge({})} <= {"cannot be told"}


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=6), st.data())
def test_a_claim_and_its_contrary_never_both_hold(ours: list[int], data: st.DataObject) -> None:
    theirs = data.draw(st.lists(st.integers(-50, 50), min_size=len(ours), max_size=len(ours)))
    rows = {"fedepd": {"bacc": [float(v) for v in ours]}, "fedavg": {"bacc": [float(v) for v in theirs]}}
    there = Claim("there", "", "", "a", best("bacc", ("fedavg",)), judged=("fedepd",))
    back = Claim("back", "", "", "b", best("bacc", ("fedepd",)), judged=("fedavg",))
    near = Claim("near", "", "", "c", comparable("bacc", ("fedavg",)), judged=("fedepd",))
    above, below, close = (v.outcome for v in judge({"toy": rows}, [there, back, near]))
    assert (above, below) != ("holds", "holds")
    assert above != "holds" or below == "does not hold"
    assert above != "holds" or close == "holds"


def test_names_of_rows() -> None:
    assert row_name("fedepd:without_consensus") == "FedEPD (without consensus)"
    assert row_name("fedepd:mu=0.1:gamma=0.5") == "FedEPD (mu=0.1, gamma=0.5)"
    assert row_name("the tail") == "the tail"
