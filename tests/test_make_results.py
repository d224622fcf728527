"""The tables of docs/results.md, from what `reproduce equal` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_results as made
import pytest

HEAD = "dataset,proxy_features,row,method,preset,settings,seed,config_hash,model,average,select,best_round,"
METRICS = ("bacc", "macro_f1", "acc", "tail_acc")


def study(folder: Path) -> Path:
    """Two graphs and two seeds. FedAvg has 40 and 60 %, FedEPD ten points more, adapted models five more."""
    lines = [HEAD + "metric,value,failure"]

    def add(graph: str, row: str, seed: int, model: str, value: float, settings: str = "{}") -> None:
        method = row.partition(",")[0].lower()
        head = (
            f'{graph},{str("proxy" in graph).lower()},"{row}",{method},default,"{settings}",{seed},0,{model}'
        )
        lines.extend(f"{head},pooled,val_macro_f1,5,{metric},{value},," for metric in METRICS)
        lines.append(f"{head},pooled,val_acc,5,bacc,0,")  # the other selection is not this table's
        if model == "global":
            own = head.removesuffix("global")
            lines.extend(f"{own},,,,{cost},{1000 * value},," for cost in ("cpu_seconds", "bytes_up"))

    for graph in ("a_lt", "proxy"):
        for seed, base in enumerate((0.4, 0.6)):
            for row, more in (("FedAvg", 0.0), ("FedEPD", 0.1)):
                add(graph, row, seed, "global", base + more)
                add(graph, row, seed, "adapted", base + more + 0.05)
                add(graph, row, seed, "preferred", base + more + 0.1)
            add(graph, "FedEPD, personal models", seed, "global", 0.99)
            add(graph, "FedAvg", seed, "global", 0.01, "{'epochs': 6}")
            add(graph, "Isolated", seed, "personal", 0.3)
    (folder / "equal").mkdir(parents=True)
    (folder / "equal" / "equal.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ranked: list[dict[str, Any]] = [
        {"row": "fedavg", "label": "FedAvg", "mean_rank": 2.0, "posterior": {"better": 0.9, "worse": 0.04}},
        {"row": "fedepd", "label": "FedEPD", "mean_rank": 1.0, "posterior": {"better": None, "worse": None}},
    ]
    found = [
        {"scoring": scoring, "metric": metric, "rows": ranked}
        for scoring in ("headline", "adapted", "preferred")
        for metric in METRICS[:3]
    ]
    (folder / "equal" / "equal-standings.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def test_methods_stand_by_rank_and_references_below(tmp_path: Path) -> None:
    read = made.Study.read(study(tmp_path))
    assert list(made.standing(read, "headline"))[2:] == [
        "| FedEPD | 60.0 | 60.0 | 60.0 | 60.0 | 1.0 | 1.0 | 1.0 | – | – | – |",
        "| FedAvg | 50.0 | 50.0 | 50.0 | 50.0 | 2.0 | 2.0 | 2.0 | 0.90 (0.04) | 0.90 (0.04) | 0.90 (0.04) |",
        "| isolated (reference) | 30.0 | 30.0 | 30.0 | 30.0 | – | – | – | – | – | – |",
    ]
    (*_, fedavg, isolated) = made.standing(read, "adapted")
    assert fedavg.startswith("| FedAvg | 55.0 |")
    assert isolated.startswith("| isolated (reference) | 30.0 |")
    (*_, fedavg, isolated) = made.standing(read, "preferred")
    assert fedavg.startswith("| FedAvg | 60.0 |")
    assert isolated.startswith("| isolated (reference) | 30.0 |")


def test_gains_are_graph_by_graph(tmp_path: Path) -> None:
    assert list(made.gains(made.Study.read(study(tmp_path)), "headline"))[2:] == [
        "| a_lt § | +10.0 | +10.0 | +10.0 | +10.0 |",
        "| proxy ‡ | +10.0 | +10.0 | +10.0 | +10.0 |",
        "| **mean** | +10.0 | +10.0 | +10.0 | +10.0 |",
    ]


def test_the_best_other_method_is_named(tmp_path: Path) -> None:
    """FedLC is a third method between the two, then above both."""
    read = made.Study.read(study(tmp_path))
    for row in [each["rows"] for each in read.standings.values()]:
        row.append({"row": "fedlc", "label": "FedLC", "mean_rank": 3.0, "posterior": {}})
    numbers = dict.fromkeys(METRICS, 55.0)
    read.scores["fedlc", "a_lt", "headline"] = numbers
    read.scores["fedlc", "proxy", "headline"] = {**numbers, "bacc": 70.0}
    assert list(made.rivals(read, "headline"))[2:] == [
        "| a_lt § | 50.0 | **60.0** | 55.0 (FedLC) | 50.0 | **60.0** | 55.0 (FedLC) |",
        "| proxy ‡ | 50.0 | 60.0 | 70.0 (FedLC) | 50.0 | **60.0** | 55.0 (FedLC) |",
    ]


def test_costs_are_multiples_of_fedavg_s(tmp_path: Path) -> None:
    """Seeds cost 400 and 600, FedEPD's 100 more: 600 / 500 on both graphs."""
    read = made.Study.read(study(tmp_path))
    assert list(made.costs(read, "headline"))[2:] == [
        "| FedAvg | 1.0 | 1.0 | 1.00 |",
        "| FedEPD | 1.2 | 1.2 | 1.20 |",
    ]


def test_a_preset_is_a_row_of_its_own() -> None:
    assert made.row_of({"method": "a", "preset": "default"}) == "a"
    assert made.row_of({"method": "a", "preset": "printed"}) == "a:printed"


def test_a_page_gets_the_tables_that_it_has_marks_for(tmp_path: Path) -> None:
    read = made.Study.read(study(tmp_path))
    text = "a <!-- adapted gains -->\n<!-- end of adapted gains --> b"
    assert made.page(text, read).count("| proxy ‡ |") == 1
    assert made.page("nothing", read) == "nothing"
    with pytest.raises(SystemExit, match="'headline standing' with an end"):
        made.page("<!-- headline standing -->\n", read)


def test_only_what_stands_between_marks_is_replaced() -> None:
    text = "before\n<!-- t -->\nold\n<!-- end of t -->\nafter\n"
    new = made.replaced(text, "t", "| new |")
    assert new == "before\n<!-- t -->\n\n| new |\n\n<!-- end of t -->\nafter\n"
    assert made.replaced(new, "t", "| new |") == new
    with pytest.raises(SystemExit, match="has no table 'other' with an end"):
        made.replaced(text, "other", "")
