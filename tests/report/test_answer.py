"""The first line of a report, from confusion matrices whose shares are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedepd.report.answer import MANY, UNSCORED, Answer, answers
from fedepd.report.runs import group, read_runs

WriteRun = Callable[..., Path]
Write = Callable[..., Path]
NAMES = ["clean", "takeover", "mule"]


@pytest.fixture
def write(write_run: WriteRun) -> Write:
    """``write("FedAvg", [[right of each class], ...])`` writes a run for every seed's list."""

    def written(
        label: str, right: Sequence[Sequence[int]], nodes: Sequence[int], names: Sequence[str] = ()
    ) -> Path:
        place = Path()
        for seed, found in enumerate(right):
            counts = np.diag(found) + np.roll(np.diag(np.subtract(nodes, found)), 1, axis=1)
            place = write_run(
                f"{label}{seed}",
                method=label.lower(),
                label=label,
                seed=seed,
                sizes=tuple(5 * n + 1 for n in nodes),
                clients=1,
                confusion=counts[None],
            )
            config = json.loads((place / "config.json").read_text())
            config["dataset"]["label_names"] = list(names)
            (place / "config.json").write_text(json.dumps(config))
        return place.parent

    return written


def said(folder: Path) -> Answer:
    (found,) = answers(group(read_runs(folder)))
    return found


def test_one_method_says_what_it_finds_and_misses(write: Write) -> None:
    """18 of 25 are 72 %; 90, 50 and 72 % are 70.67 % on average."""
    found = said(write("FedEPD", [[90, 25, 18]], (100, 50, 25), NAMES))
    assert found.first == (
        "FedEPD finds 72 % of 'mule', the rarest class (25 test nodes), and 71 % of all classes on average; "
        "the class that it misses most is 'takeover' (50 %)."
    )
    assert found.more == "Shares of test nodes."


def test_seeds_are_averaged_and_classes_without_names_have_numbers(write: Write) -> None:
    """10 and 15 of 25 are 50 % on average, and nothing is missed more."""
    found = said(write("FedEPD", [[90, 50, 10], [90, 50, 15]], (100, 50, 25)))
    assert found.first.startswith("FedEPD finds 50 % of class 2, the rarest class (25 test nodes), and 80 %")
    assert found.first.endswith("; no class is missed more than the rarest.")
    assert found.more == "Shares of test nodes, mean over 2 seeds."


def test_two_classes(write: Write) -> None:
    found = said(write("FedEPD", [[199, 1]], (200, 4), ["clean", "fraud"]))
    assert found.first == (
        "FedEPD finds 25 % of 'fraud', the rarer class (4 test nodes), and over 99 % of 'clean'."
    )


def test_of_many_classes_the_tail_is_asked_about(write: Write) -> None:
    """12 classes: the tail is the smallest four (30 % of twelve, rounded up), with 6 + 5 + 4 + 3 test nodes.
    Their shares are 1, 0, 0 and 2/3: 42 % on average. Of all classes it is (9 + 2/3) / 12: 81 %."""
    nodes = (900, 300, 100, 50, 40, 30, 20, 10, 6, 5, 4, 3)
    assert len(nodes) > MANY
    found = said(write("FedEPD", [[*nodes[:9], 0, 0, 2]], nodes))
    assert found.first == (
        "FedEPD finds 42 % of the 4 rarest classes (18 test nodes) on average, and 81 % of all classes; it "
        "finds nothing of 2 classes: class 9, class 10."
    )


MULES = [[90, 40, 18], [91, 41, 19], [90, 39, 17]]
FEWER = [[91, 40, 4], [90, 41, 3], [91, 40, 5]]


def test_two_methods_are_told_apart_where_the_test_says_so(write: Write) -> None:
    """Differences on 'mule': 14, 16 and 12 of 25 nodes, 56, 64 and 48 points: mean 56, deviation 8, half
    width 4.303 · 8 / √3 = 19.9. On the others they have both signs."""
    write("FedAvg", FEWER, (100, 50, 25), NAMES)
    found = said(write("FedEPD", MULES, (100, 50, 25), NAMES))
    assert found.first == (
        "FedEPD finds 72 % of 'mule', the rarest class (25 test nodes), FedAvg 16 %; on the other 2 classes "
        "they cannot be told apart."
    )
    assert found.more == (
        "Shares of test nodes, mean over 3 seeds. Told apart: by 95 % t intervals, paired by seed, with "
        "Holm's correction over 1 test for 'mule', 2 for the others and 1 for the mean of all classes."
    )


def test_the_rival_may_be_ahead_elsewhere(write: Write) -> None:
    """On 'clean' FedAvg finds 60, 61 and 60 of 100 more: far beyond the deviation of 0.6."""
    write("FedAvg", FEWER, (100, 50, 25), NAMES)
    found = said(write("FedEPD", [[31, 40, 18], [29, 41, 19], [31, 39, 17]], (100, 50, 25), NAMES))
    assert found.first.endswith(
        "FedAvg 16 %; FedAvg is ahead on 'clean'; on the other class nothing can be told."
    )


def test_equal_methods_are_not_told_apart(write: Write) -> None:
    write("FedAvg", MULES[::-1], (100, 50, 25), NAMES)
    found = said(write("FedEPD", MULES, (100, 50, 25), NAMES))
    assert found.first.endswith("; neither a single class nor the mean of all classes tells them apart.")


@pytest.mark.parametrize(("seeds", "words"), [(1, "with one seed"), (2, "with 2 seeds")])
def test_few_seeds_cannot_tell(write: Write, seeds: int, words: str) -> None:
    write("FedAvg", FEWER[:seeds], (100, 50, 25), NAMES)
    found = said(write("FedEPD", MULES[:seeds], (100, 50, 25), NAMES))
    assert found.first.endswith(f"; {words} it cannot be told whether that is chance.")


def test_one_node_more_at_every_seed_tells_nothing(write: Write) -> None:
    """1 of 3 nodes against none, three times: without any spread the interval would be 33.3 ± 0. With a
    spread of one node it is 33.3 ± 82.8."""
    write("FedAvg", [[90, 40, 0]] * 3, (100, 50, 3), NAMES)
    found = said(write("FedEPD", [[90, 40, 1]] * 3, (100, 50, 3), NAMES))
    assert "FedEPD finds 33 % of 'mule', the rarest class (3 test nodes), FedAvg 0 %; neither" in found.first


def test_the_mean_may_tell_what_no_class_does(write: Write) -> None:
    """Points more of each class at the three seeds: 40, 20, 20 (26.7 ± 28.7), 30, 30, 10 (23.3 ± 28.7) and 5,
    40, 55 (33.3 ± 63.8). Of all classes: 25, 30, 28.3 (27.8 ± 6.3)."""
    write("FedAvg", [[20, 20, 20]] * 3, (100, 100, 100), NAMES)
    more = [[60, 50, 25], [40, 50, 60], [40, 30, 75]]
    found = said(write("FedEPD", more, (100, 100, 100), NAMES))
    assert found.first.endswith(
        "; no single class tells them apart, but on the mean of all classes FedEPD (48 %) is ahead of FedAvg "
        "(20 %)."
    )


def test_of_three_methods_the_first_is_held_against_the_others(write: Write) -> None:
    """CReFF is level with FedEPD, and FedAvg 56 and 52 points behind. Three tests of a class: the smallest
    p is multiplied by three."""
    level = [[90, 40, 17], [91, 41, 17], [90, 40, 17]]
    write("FedAvg", [[90, 40, 4]] * 3, (100, 50, 25), NAMES)
    write("CReFF", level, (100, 50, 25), NAMES)
    found = said(write("FedEPD", [[90, 40, 18], [91, 41, 18], [90, 40, 18]], (100, 50, 25), NAMES))
    assert found.first == (
        "FedEPD finds 72 % of 'mule', the rarest class (25 test nodes), CReFF 68 %, FedAvg 16 %; FedEPD is "
        "ahead of FedAvg there, and cannot be told from CReFF; on the other 2 classes no two can be told "
        "apart."
    )


def test_of_three_methods_the_line_says_who_is_ahead_on_other_classes(write: Write) -> None:
    """'takeover' tells all of them apart, 'clean' only FedAvg from both others. 'mule' tells nothing."""
    write("FedAvg", [[60, 10, 4], [61, 10, 4], [60, 11, 4]], (100, 50, 25), NAMES)
    write("CReFF", [[90, 20, 4], [91, 20, 4], [90, 21, 4]], (100, 50, 25), NAMES)
    found = said(write("FedEPD", [[90, 40, 5], [91, 40, 4], [90, 41, 5]], (100, 50, 25), NAMES))
    assert found.first.endswith(
        "; no two of them can be told apart there; on 'clean' FedEPD and CReFF are ahead of FedAvg; on "
        "'takeover' FedEPD is ahead of CReFF and FedAvg."
    )


def test_of_many_methods_the_first_are_named(write: Write) -> None:
    """Six methods with one seed: three by name, then from what to what the others find."""
    for place in range(6):
        folder = write(f"M{place}", [[90, 40, 5 * place]], (100, 50, 25), NAMES)
    assert said(folder).first == (
        "M5 finds 100 % of 'mule', the rarest class (25 test nodes), M4 80 %, M3 60 %, the other 3 0 % to "
        "40 %; with one seed it cannot be told whether that is chance."
    )


def test_a_class_without_test_nodes_is_passed_over(write: Write) -> None:
    found = said(write("FedEPD", [[90, 25, 0]], (100, 50, 0), NAMES))
    assert found.first.startswith(
        "FedEPD finds 50 % of 'takeover', the rarest class with test nodes (50 test"
    )


def test_runs_without_scores_say_so(write: Write) -> None:
    assert said(write("FedEPD", [[0, 0, 0]], (0, 0, 0))) == Answer(UNSCORED, "")


def test_every_graph_has_its_line(write_run: WriteRun) -> None:
    write_run("a", dataset="one")
    folder = write_run("b", dataset="two").parent
    assert [each.first[:20] for each in answers(group(read_runs(folder)))] == [
        "On one: FedEPD finds",
        "On two: FedEPD finds",
    ]


def test_who_is_ahead_by_more_seeds_and_behind_by_the_common_ones_is_not_called_ahead(write: Write) -> None:
    """On seeds 0 to 2, FedGTA finds 10 % and the others 50 to 53. Six more seeds lift its mean to 70 %."""
    nodes = (200, 100)
    write("FedGTA", [[200, 10]] * 3 + [[200, 100]] * 6, nodes)
    folder = write("FedAvg", [[200, 50], [200, 51], [200, 52]], nodes)
    assert said(folder).first == (
        "FedGTA finds 70 % of class 1, the rarer class (100 test nodes), FedAvg 51 %; over the seeds that "
        "both have, FedAvg is ahead there; on the other class they cannot be told apart."
    )
    write("FedEPD", [[200, 50], [200, 51], [200, 53]], nodes)
    assert "; FedGTA over the seeds that both have is behind FedEPD, FedAvg there; on" in said(folder).first
