"""What stands in the tables: marks, gaps, references, and the paper's value only where it compares."""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedepd.report.tables import Cell, Table, markdown
from fedepd.reproduction.pages.tables import WRAPPED_ROWS, failure_table, latex, latex_document, metric_tables
from fedepd.reproduction.study.results import OPENFGL, Results, numbers_csv

MakeResults = Callable[..., Results]
TEX = shutil.which("pdflatex")


def cells(table: Table) -> dict[str, list[str]]:
    """Row label -> cells, with * for best and _ for second."""
    marks = ("", "*", "_")
    return {
        row[0].text: [marks[c.rank] + c.text + c.spread for c in row[1:]]
        for section in table.sections
        for row in section
    }


def test_best_second_references_and_gaps(make_results: MakeResults) -> None:
    """a: mean of 50 and 52 is 51, deviation sqrt(2) = 1.41.

    The reference is best of all and still unmarked; c has one seed of two.
    """
    x = {"a": [50, 52], "b": [40, 40], "c": [45, None], "d": [None, None], "r": [90, 90]}
    y = {"a": [10, 10], "b": [20, 20], "c": [30, 30], "d": [1, 1], "r": [9, 9]}
    scores = {(key, "x"): found for key, found in x.items()} | {(key, "y"): found for key, found in y.items()}
    results = make_results(scores, references=["r"], personal=["b"])
    tables = metric_tables(results, ("bacc", "acc"))
    assert list(tables) == ["Balanced accuracy", "Accuracy"]
    assert tables["Accuracy"].headers == ["Method", "x", "y"]
    assert cells(tables["Accuracy"]) == {
        "A": ["*51.00±1.41", "10.00±0.00"],
        "B †": ["40.00±0.00", "_20.00±0.00"],
        "C": ["_45.00 (1 of 2 seeds)", "*30.00±0.00"],
        "D": ["– OOM", "1.00±0.00"],
        "R (reference)": ["90.00±0.00", "9.00±0.00"],
    }
    assert [len(section) for section in tables["Accuracy"].sections] == [4, 1]
    note = tables["Accuracy"].note
    for part in (
        "over the pooled test nodes",
        "seeds 0, 1",
        "10 clients; 5 rounds",
        "personal models",
        "References are not ranked",
    ):
        assert part in note


@pytest.mark.parametrize(
    ("why", "state"),
    [
        (
            "its process was killed (SIGKILL), as the system does for want of memory; give fewer --workers",
            "OOM",
        ),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory (models.py, line 1)", "OOM"),
        ("MemoryError:  (sparse.py, line 1)", "OOM"),
        ("its process was killed (SIGTERM); run it again", "failed"),
        ("round 3 made the loss NaN; lower lr", "failed"),
    ],
)
def test_why_a_row_has_no_number(make_results: MakeResults, why: str, state: str) -> None:
    table = metric_tables(make_results({("a", "x"): [None, None], ("b", "x"): [1, 2]}, why=why), ("acc",))[
        "x"
    ]
    assert cells(table)["A"] == [f"– {state}"]


def test_a_cell_that_was_never_run_says_so(make_results: MakeResults) -> None:
    results = make_results({("a", "x"): [None], ("b", "x"): [1]}, why="not run yet")
    table = metric_tables(results, ("acc",))["x"]
    assert cells(table)["A"] == ["– not run"]
    shown = failure_table(results)
    assert [cell.text for cell in shown.sections[0][0]] == ["x", "A", "0", "not run yet"]


def test_one_dataset_has_its_metrics_side_by_side(make_results: MakeResults) -> None:
    tables = metric_tables(make_results({("a", "x"): [1], ("b", "x"): [2]}), ("bacc", "macro_f1", "acc"))
    assert {heading: table.headers for heading, table in tables.items()} == {
        "x": ["Method", "bAcc", "Macro-F1", "Acc"]
    }


def test_the_paper_stands_beside_official_datasets_only(make_results: MakeResults) -> None:
    """Table 2 prints 36.93 for FedAvg's accuracy on Email; a proxy, another graph and a method that is not
    there have no value."""
    scores = {
        (key, dataset): [50.0]
        for key in ("fedavg", "isolated")
        for dataset in ("email", "roman_empire", "cora")
    }
    table = metric_tables(make_results(scores, proxies=["roman_empire"]), ("acc",))["Accuracy"]
    assert table.headers == ["Method", "Email", "roman_empire ‡", "cora"]
    assert cells(table)["FEDAVG"] == ["*50.00 [36.93]", "*50.00", "*50.00"]
    assert cells(table)["ISOLATED"] == ["*50.00"] * 3
    assert "‡ Proxy features." in table.note
    assert "In brackets: the paper's value." in table.note


def test_both_readings_of_fedepd_stand_beside_the_papers(make_results: MakeResults) -> None:
    results = make_results(
        {(key, "corafull"): [50] for key in ("fedepd", "fedepd:printed", "fedepd:without_consensus")},
        "ablation",
    )
    shown = cells(metric_tables(results, ("acc",))["CoraFull"])
    assert list(shown.values()) == [
        ["*50.00 [66.73]"],
        ["*50.00 [66.73]"],
        ["*50.00 [66.31]"],
    ]  # Table 3, not Table 2's 66.71


def test_the_test_beds_own_scoring_has_tables_of_its_own(make_results: MakeResults) -> None:
    """No dagger there: everyone is scored by personal models."""
    results = make_results({("fedavg", "email"): [50], ("fedproto", "email"): [60]}, personal=["fedproto"])
    table = metric_tables(results, ("acc",), OPENFGL)["Email, scored as OpenFGL does by default"]
    assert list(cells(table)) == ["FEDAVG", "FEDPROTO"]
    how = "as the mean of each client's score, weighted by its test nodes"
    assert f"the clients' personal models in percent, {how}" in table.note


def test_every_number_is_in_the_csv_with_its_protocol(make_results: MakeResults) -> None:
    """Two models, two averages, six scores and five costs of one run: 29 lines; and one for the failure."""
    results = make_results({("a", "x"): [50, None]})
    lines = list(csv.DictReader(numbers_csv(results).splitlines()))
    assert len(lines) == 2 * 2 * 6 + 5 + 1
    assert lines[0] | {"value": "0.5", "metric": "acc"} == lines[0]
    assert (lines[0]["model"], lines[0]["average"], lines[0]["select"], lines[0]["seed"]) == (
        "global",
        "pooled",
        "val_macro_f1",
        "0",
    )
    assert (lines[-1]["seed"], lines[-1]["failure"], lines[-1]["value"]) == ("1", "no memory", "")


def awkward(make_results: MakeResults) -> list[Table]:
    keys = ("a_b", "c&d", "50%", "x^2~{}\\#$")
    results = make_results(
        {(key, dataset): [50, 51] for key in keys for dataset in ("email", "x_proxy")}, proxies=["x_proxy"]
    )
    return list(metric_tables(results, ("acc", "bacc")).values())


def test_latex_has_as_many_cells_as_columns_and_balanced_braces(make_results: MakeResults) -> None:
    for table in awkward(make_results):
        text = latex(table)
        assert text.isascii()
        bare = re.sub(r"\\[{}]|\\\\", "", text)
        assert bare.count("{") == bare.count("}")
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert len(rows) == 5
        assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
        assert r"\toprule" in text
        assert r"\textbf{50.50}" in text


def sentences(rows: int) -> Table:
    """Numbered rows with a sentence in the last column."""
    body = [
        [Cell(f"claim {i}"), Cell(f"{i}.5", i + 0.5), Cell("more than one line holds, " * 12)]
        for i in range(rows)
    ]
    return Table("long", ["Claim", "p", "Because"], [body], "A note.")


def test_latex_wraps_sentences_and_goes_on_after_a_full_page() -> None:
    """40 rows that wrap, 15 to a page: three floats; the sentence's column wraps, numbers stand right, the
    caption is said once."""
    text = latex(sentences(40))
    assert text.count(r"\begin{table*}") == text.count(r"\end{tabularx}") == math.ceil(40 / WRAPPED_ROWS)
    assert r"{lr>{\raggedright\arraybackslash}X}" in text
    assert (text.count("A note."), text.count(r"\label"), text.count("(continued)")) == (1, 1, 2)
    assert [len(re.findall(rf"claim {i} ", text)) for i in range(40)] == [1] * 40
    assert "tabularx" not in latex(replace(sentences(2), sections=[[[Cell("short")] * 3]]))
    assert r"\toprule" in latex(replace(sentences(0), sections=[]))


@pytest.mark.skipif(TEX is None, reason="no pdflatex on the path")
def test_latex_compiles_and_nothing_sticks_out(make_results: MakeResults, tmp_path: Path) -> None:
    """As many tables as the largest target has: LaTeX alone stops at 52 with no text between them."""
    tables = [*awkward(make_results), sentences(40), replace(sentences(0), sections=[]), *[sentences(2)] * 60]
    (tmp_path / "t.tex").write_text(latex_document([latex(table) for table in tables]))
    done = subprocess.run(
        [str(TEX), "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-1500:]
    assert "Overfull" not in done.stdout
    assert "too large" not in done.stdout


def test_markdown_escapes_names(make_results: MakeResults) -> None:
    assert r"A\_B" in markdown(awkward(make_results)[0])
