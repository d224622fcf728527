from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedepd.metrics import METRICS
from fedepd.report import tables
from fedepd.report.runs import group, read_run, read_runs
from fedepd.report.tables import (
    METRIC_TITLES,
    Cell,
    Table,
    classes,
    clients,
    cost,
    hashes,
    html_table,
    markdown_table,
    rich_table,
    summary,
    tier_rule,
)

WriteRun = Callable[..., Path]


def scores(acc: float | None, model: str = "global") -> dict[str, Any]:
    every = {name: acc for name in METRICS}
    return {model: {"pooled": every, "client_mean": every}}


@pytest.fixture
def three_methods(write_run: WriteRun) -> Path:
    """FedAvg 60, 62, 64: 62.00 ± 2.00 (ddof 1: sqrt((4 + 0 + 4) / 2)).

    FedEPD 70: no spread. FedGTA, personal, 65 and 66: 65.50 ± 0.71.
    """
    for seed, acc in enumerate((0.60, 0.62, 0.64)):
        write_run(f"avg{seed}", method="fedavg", label="FedAvg", prunes=False, seed=seed, metrics=scores(acc))
    for seed, acc in enumerate((0.65, 0.66)):
        metrics = scores(acc, "personal")
        write_run(
            f"gta{seed}",
            method="fedgta",
            label="FedGTA",
            prunes=False,
            seed=seed,
            has_global=False,
            metrics=metrics,
        )
    return write_run("epd", metrics=scores(0.70)).parent


def test_every_metric_has_a_title() -> None:
    assert tuple(METRIC_TITLES) == METRICS


def test_summary_numbers_and_ranks(three_methods: Path) -> None:
    table = summary(group(read_runs(three_methods)))
    assert table.headers == ["Method", "Seeds", *METRIC_TITLES.values()]
    (rows,) = table.sections
    assert [[cell.text + cell.spread for cell in row[:3]] for row in rows] == [
        ["FedAvg", "3", "62.00±2.00"],
        ["FedEPD", "1", "70.00"],
        ["FedGTA †", "2", "65.50±0.71"],
    ]
    assert [row[2].rank for row in rows] == [0, 1, 2]


def test_the_note_states_the_protocol(three_methods: Path) -> None:
    note = summary(group(read_runs(three_methods))).note
    for part in (
        "global model",
        "over the pooled test nodes of all clients",
        "seeds 0, 1, 2",
        "† A method without a global model",
        "Bold: best",
    ):
        assert part in note
    assert (
        "Protocol: 4 clients (openfgl), split floor 60/20/20, selection by best pooled validation macro-F1 "
        "every 5 rounds." in note
    )
    assert "Proxy" not in note


def test_personal_numbers_need_no_mark(write_run: WriteRun) -> None:
    groups = group(read_runs(write_run("a", has_global=False)))
    assert summary(groups, "personal").sections[0][0][0].text == "FedEPD"
    assert summary(groups, "personal", "client_mean").note.startswith(
        "Test scores of the clients' personal models in percent, as the mean of each client's score, "
        "weighted by its test nodes; seed 0."
    )


def test_proxy_features_are_said(write_run: WriteRun) -> None:
    assert (
        "Proxy features: the features of toy replace the official ones"
        in summary(group(read_runs(write_run("a", proxy=True)))).note
    )


def test_ties_as_printed_share_a_rank_and_the_unmeasured_has_none(write_run: WriteRun) -> None:
    """0.70001 and 0.70002 print as 70.00: both best, 0.6 second; what is null prints a dash; one row alone
    is not marked."""
    for name, acc in {"A": 0.70001, "B": 0.70002, "C": 0.6, "D": 0.5, "E": None}.items():
        folder = write_run(name, method=name, label=name, metrics=scores(acc))
    rows = summary(group(read_runs(folder.parent))).sections[0]
    assert [(row[2].text, row[2].rank) for row in rows] == [
        ("70.00", 1),
        ("70.00", 1),
        ("60.00", 2),
        ("50.00", 0),
        ("–", 0),
    ]
    assert summary(group(read_runs(folder.parent / "A"))).sections[0][0][2].rank == 0


def test_datasets_are_ranked_apart(write_run: WriteRun) -> None:
    write_run("a", dataset="one", metrics=scores(0.9))
    write_run("b", dataset="one", method="fedavg", label="FedAvg", metrics=scores(0.8))
    write_run("c", dataset="two", metrics=scores(0.1))
    table = summary(
        group(
            read_runs(
                write_run("d", dataset="two", method="fedavg", label="FedAvg", metrics=scores(0.2)).parent
            )
        )
    )
    assert table.headers[0] == "Dataset"
    assert [[(row[0].text, row[1].text, row[3].rank) for row in section] for section in table.sections] == [
        [("one", "FedAvg", 2), ("one", "FedEPD", 1)],
        [("two", "FedAvg", 1), ("two", "FedEPD", 2)],
    ]


def test_the_terminal_table_fits_80_columns(three_methods: Path) -> None:
    shown = Console(width=80, force_terminal=True, color_system="standard", highlight=False)
    with shown.capture() as capture:
        shown.print(rich_table(read_runs(three_methods)))
    text = capture.get()
    assert "FedGTA †" in text
    assert "62.0±2.0" in text
    assert re.search(r"\x1b\[1m *70\.0\x1b\[0m", text)
    assert re.search(r"\x1b\[4m65\.5±0\.7\x1b\[0m", text)
    assert "…" not in text


def test_terminal_labels_are_not_markup(write_run: WriteRun) -> None:
    shown = Console(width=80)
    with shown.capture() as capture:
        shown.print(rich_table(read_runs(write_run("a", label="[red]x"))))
    assert "[red]x" in capture.get()


def test_markdown(three_methods: Path) -> None:
    lines = markdown_table(read_runs(three_methods)).splitlines()
    assert lines[0] == "| Method | Seeds | Acc | bAcc | Macro-F1 | Head | Medium | Tail |"
    assert lines[1].startswith("| :--- | ---: |")
    assert lines[3].startswith("| FedEPD | 1 | **70.00** |")
    assert lines[4].startswith("| FedGTA † | 2 | <u>65.50±0.71</u> |")
    assert lines[5] == ""
    assert "Protocol:" in lines[6]


def test_text_from_data_is_escaped(write_run: WriteRun) -> None:
    folder = write_run("a", dataset="<b>x", label="<i>|*")
    write_run("b", dataset="other")
    runs = read_runs(folder.parent)
    html = html_table(summary(group(runs)))
    assert "&lt;b&gt;x" in html
    assert "&lt;i&gt;|*" in html
    assert "<b>" not in html
    assert "<i>" not in html
    assert r"| \<b\>x | \<i\>\|\* |" in markdown_table(runs)


def test_html_cells_sort_by_number(three_methods: Path) -> None:
    html = html_table(summary(group(read_runs(three_methods))))
    assert '<td class="number" data-value="62">62.00 <small>± 2.00</small></td>' in html
    assert '<td class="number" data-value="70"><strong>70.00</strong></td>' in html
    assert '<td class="number" data-value="65.5"><u>65.50</u> <small>± 0.71</small></td>' in html


def test_the_unmeasured_sorts_last(write_run: WriteRun) -> None:
    html = html_table(summary(group(read_runs(write_run("a", metrics=scores(None))))))
    assert '<td class="number" data-value="-Infinity">–</td>' in html


def test_cost_and_hashes(three_methods: Path) -> None:
    """Seconds are 3.5, 4.5, 5.5 for FedAvg's three seeds: 4.5 ± 1.0."""
    groups = group(read_runs(three_methods))
    row = cost(groups).sections[0][0]
    assert [cell.text + cell.spread for cell in row[:4]] == ["FedAvg", "5.0±0.0", "4.0±0.0", "4.5±1.0"]
    rows = hashes(groups).sections[0]
    assert [[cell.text for cell in row] for row in rows][3] == [
        "epd",
        "toy",
        "FedEPD",
        "0",
        "000000000000",
        "ef" * 8,
        "cd" * 8,
    ]


def test_clients(three_methods: Path) -> None:
    table = clients(group(read_runs(three_methods)))
    assert table.headers[7:12] == ["Label divergence", "Homophily", "Degree", "Clustering", "Isolated"]
    assert table.headers[12:15] == ["Edges kept", "Homophily after", "Isolated after"]
    scores = [f"{score} {who}" for who in ("FedAvg", "FedEPD", "FedGTA †") for score in ("Acc", "bAcc", "F1")]
    assert table.headers[15:] == scores
    row = [cell.text for cell in table.sections[0][1][:15]]  # 2 · 1000 / 484 edges per node
    assert " ".join(row[:7] + row[8:]) == "1 484 1000 290 96 96 12 57.0 4.1 – 1 680 77.0 5"
    assert 0 <= float(row[7]) < 1


def test_a_client_with_one_class_of_two_is_far_from_the_others(write_run: WriteRun) -> None:
    """Client 0 has [10, 0], client 1 [0, 30], all [10, 30]. By hand, client 0: half of log2(1 / 0.625) +
    0.25 log2(0.25 / 0.625) + 0.75 log2(0.75 / 0.375) = 0.5488; client 1: 0.1379."""
    (run,) = read_runs(write_run("a", sizes=(20, 20), clients=2))
    vars(run)["partition"] = {**run.partition, "client_class": np.array([[10, 0], [0, 30]])}
    table = clients(group([run]))
    column = table.headers.index("Label divergence")
    assert [row[column].text for row in table.sections[0]] == ["0.55", "0.14"]


def test_client_scores_are_dashes_without_test_nodes(write_run: WriteRun) -> None:
    """Three of four nodes of the one class that occurs are right: recall 3/4, F1 = 2 · 3 / (4 + 3) = 6/7."""
    confusion = np.zeros((2, 2, 2), dtype=np.int64)
    confusion[0] = [[3, 1], [0, 0]]
    table = clients(group(read_runs(write_run("a", sizes=(20, 5), clients=2, confusion=confusion))))
    texts = [[cell.text for cell in row[-3:]] for row in table.sections[0]]
    assert texts == [["75.0", "75.0", "85.7"], ["–", "–", "–"]]


def test_the_tier_rule_counts_classes(three_methods: Path) -> None:
    """Sizes 900, 400, 250, ... sum to 1936: 900 + 400 is the first sum over 968, and 30 % of 12 classes
    are 4 (3.6 rounded)."""
    rule = tier_rule(read_runs(three_methods)[0])
    assert "hold 50% of the nodes" in rule
    assert "Tail: the smallest 30% of the classes" in rule
    assert "Here: 2 head, 6 medium, 4 tail." in rule


def test_classes_are_named_largest_first_with_their_intervals(write_run: WriteRun) -> None:
    """The Wilson interval of every class contains its accuracy; the order is that of the class sizes."""
    (run,) = read_runs(write_run("epd"))
    run.config["dataset"]["label_names"] = [f"kind {c}" for c in range(run.config["dataset"]["classes"])]
    table = classes(group([run]))
    sizes = [row[3].value for row in table.sections[0]]
    assert sizes == sorted(sizes, key=lambda size: -float(size or 0))
    assert {row[1].text for row in table.sections[0]} == {f"kind {c}" for c in range(len(sizes))}
    for row in table.sections[0]:
        if row[4].value is not None:
            low, high = map(float, row[4].spread.split("-"))
            assert low - 1 <= 100 * row[4].value <= high + 1


def test_clients_are_called_by_their_owners(write_run: WriteRun) -> None:
    (run,) = read_runs(write_run("epd"))
    names = [f"bank {k}" for k in range(len(run.clients))]
    run.config["dataset"]["owner_names"] = names
    table = clients(group([run]))
    assert table.headers[1] == "Name"
    assert [row[1].text for row in table.sections[0]] == names


def test_a_long_name_in_a_header_may_break_at_its_underscores() -> None:
    assert '<th scope="col">roman_<wbr>empire_<wbr>proxy ‡</th>' in html_table(
        Table("mine", ["roman_empire_proxy ‡"], [[[Cell("a_b")]]])
    )


def test_what_defences_did_and_what_was_refused_is_shown_by_client(write_run: WriteRun) -> None:
    """Client 1 was clipped to 20 and 40 % and refused once; client 2 was missing once.

    Client 0 did nothing and has no row.
    """
    folder = write_run("a")
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert tables.defences(group([read_run(folder)])) is None
    refused = [{"client": 1, "field": "w", "reason": "holds NaN", "absent": False}]
    lines[0] |= {"defence": {"clipped": {"1": 0.2}, "rows": {"1": 3}}, "refused": refused}
    lines[1] |= {"defence": {"clipped": {"1": 0.4}, "capped": {"1": 0.5}}, "excluded": [1]}
    lines[1] |= {"refused": [{"client": 2, "field": "reply", "reason": "is missing", "absent": True}]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = tables.defences(group([read_run(folder)]))
    assert table is not None
    shown = [[cell.text for cell in row[2:]] for row in table.sections[0]]
    assert shown == [
        ["1", "1", "0", "w holds NaN", "2", "30.0", "3", "1", "50.0"],
        ["2", "0", "1", "reply is missing", "0", "–", "0", "0", "100.0"],
    ]
