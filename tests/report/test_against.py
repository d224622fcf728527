"""The answer of a comparison, from run folders whose scores are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedepd.report.against import differences, own, pairs, points, sign, verdicts
from fedepd.report.page import render_page
from fedepd.report.paired import Comparison
from fedepd.report.runs import group, read_runs

WriteRun = Callable[..., Path]
OURS = (0.80, 0.82, 0.84)


@pytest.fixture
def write(write_run: WriteRun) -> WriteRun:
    """``write("name", scores, scope=...)`` writes a run for every seed's score."""

    def written(name: str, scores: tuple[float, ...], backbone: str = "gcn", **protocol: Any) -> Path:
        method = name if name in ("logistic", "boosting") else "fedepd"
        place = Path()
        for seed, score in enumerate(scores):
            made = {"pooled": {"acc": 0.5, "bacc": score, "macro_f1": score / 2}}
            place = write_run(
                f"{name}-{protocol.get('scope', '')}-{seed}",
                method=method,
                label="FedEPD" if method == "fedepd" else method,
                seed=seed,
                metrics={"global": made, "personal": made},
            )
            config = json.loads((place / "config.json").read_text(encoding="utf-8"))
            config["experiment"] |= {"protocol": protocol, "model": {"backbone": backbone}}
            (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return place.parent

    return written


def said(folder: Path) -> list[str]:
    return [" ".join(sentences) for sentences in verdicts(group(read_runs(folder)))]


def test_the_first_sentence_answers_what_was_asked(write: WriteRun) -> None:
    """Ours minus alone is 10, 11, 9 points: mean 10, deviation 1, so 4.303 · 1 / √3 = 2.5 around it.

    Without edges the differences are 1, 2, -3: mean 0, and the interval has both signs. Half of that is
    macro-F1's.
    """
    write("main", OURS)
    write("alone", (0.70, 0.71, 0.75), scope="alone")
    write("plain", (0.79, 0.80, 0.87), edges=False)
    folder = write("pooled", (0.90, 0.92, 0.94), scope="pooled")
    assert [each.label for each in group(read_runs(folder))] == [  # although 'alone' sorts before 'main'
        "FedEPD", "FedEPD (each client alone)", "FedEPD (no edges)", "FedEPD (pooled)",
    ]  # fmt: skip
    (text,) = said(folder)
    first, second, how = text.split(". ")
    assert first == (
        "FedEPD: federation helps (+10.0 ± 2.5 over each client alone, macro-F1 +5.0 ± 1.2) and "
        "whether the graph helps cannot be told (+0.0 ± 6.6 over no edges, macro-F1 +0.0 ± 3.3)"
    )
    assert second.startswith("Against the same method on the pooled graph -10.0 ± 0.0, behind (macro-F1 -5.0")
    assert how == "Points of test balanced accuracy over 3 seeds, with 95 % intervals paired by seed."


def test_a_network_without_edges_is_called_that(write: WriteRun) -> None:
    write("main", OURS, backbone="mlp")
    write("plain", OURS, backbone="mlp", edges=False)
    folder = write("alone", (0.85, 0.87, 0.89), backbone="mlp", scope="alone")
    (text,) = said(folder)
    assert "federation hurts (-5.0 ± 0.0" in text
    assert "the graph is not used, because the network mlp reads no edges" in text


def test_two_seeds_tell_nothing(write: WriteRun) -> None:
    write("main", OURS[:2])
    folder = write("alone", (0.1, 0.1), scope="alone")
    (text,) = said(folder)
    assert "whether federation helps cannot be told (+71.0 over" in text
    assert "nothing can be told with fewer than 3 seeds" in text


def test_rows_are_held_against_too(write: WriteRun) -> None:
    write("main", OURS)
    write("logistic", (0.70, 0.72, 0.74), scope="pooled")
    folder = write("boosting", (0.5, 0.5, 0.5), scope="alone")
    groups = group(read_runs(folder))
    assert {(p.kind, p.scope) for p in pairs(groups)} == {("logistic", "pooled"), ("boosting", "alone")}
    table = differences(groups)
    assert table is not None
    rows = {row[1].text: [cell.text for cell in row] for row in table.sections[0]}
    # Accuracy is 50 for all, so its differences are 0; then balanced accuracy and macro-F1.
    assert rows["logistic regression on pooled rows"][2:] == [
        "+0.0 ± 0.0", "–", "+10.0 ± 0.0", "better", "+5.0 ± 0.0", "better",
    ]  # fmt: skip
    (text,) = said(folder)
    assert "logistic regression on pooled rows +10.0 ± 0.0, ahead" in text


@pytest.mark.usefixtures("no_figures")
def test_the_page_begins_with_the_answer_and_others_are_as_before(write: WriteRun) -> None:
    folder = write("main", OURS)
    assert said(folder) == []
    assert differences(group(read_runs(folder))) is None
    assert "Is it worth it?" not in render_page(read_runs(folder))
    write("alone", OURS, scope="alone")
    page = render_page(read_runs(folder))
    assert '<h1 class="answer"><span>FedEPD: whether federation helps cannot be told (+0.0' in page
    assert [each.label for each in own(group(read_runs(folder)))] == ["FedEPD"]
    assert page.index("Is it worth it?") > page.index("<h3>Scores</h3>")
    assert "FedEPD (each client alone)" in page


@pytest.mark.parametrize(
    ("difference", "half", "found", "text"),
    [
        (2.0, 1.0, 1, "+2.0 ± 1.0"),
        (-2.0, 1.0, -1, "-2.0 ± 1.0"),
        (1.0, 1.0, 0, "+1.0 ± 1.0"),
        (5.0, float("nan"), 0, "+5.0"),
        (float("nan"), float("nan"), 0, "not measured"),
    ],
)
def test_a_difference_counts_where_its_interval_has_one_sign(
    difference: float, half: float, found: int, text: str
) -> None:
    made = Comparison(difference, half, 0.0, 0.0, 0.0, 3)
    assert sign(made) == found
    assert points(made) == text
