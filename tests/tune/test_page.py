from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedepd.options import ladder
from fedepd.tune.page import overview, render, said
from fedepd.tune.search import Knob, Search
from fedepd.tune.tuning import Found, Tuning

pytest.importorskip("optuna", reason="needs the extra 'tune'")


def made(graphs: tuple[str, ...] = ("email", "<b>x</b>"), score: float = 0.5) -> Found:
    """Two trials each, the second one better by 0.1 and with a value at its end."""
    searches = []
    for method in ("fedavg", "fedlc"):
        search = Search(method, "default", graphs, [Knob("lr", ladder(0.01, 0.1, above=1.0), 0, 0, 1)])
        for gain in (0.0, 0.1):
            trial = search.ask()
            for _ in graphs:
                search.add_score(trial, score + gain)
            search.tell(trial, "complete")
        search.extend()
        trial = search.ask(extra=True)
        search.add_score(trial, 0.1)
        search.tell(trial, "pruned")
        searches.append(search)
    tuning = Tuning((("fedavg", "default"), ("fedlc", "default")), graphs, 2)
    return Found(tuning, searches, 1, 20, 0.0)


def test_the_page_is_whole_and_foreign_names_are_only_text() -> None:
    page = render(made(), "fedepd tune fedavg <script>")
    assert "<b>x</b>" not in page
    assert "<script>" not in page.replace("\n<script>", "").split("</main>")[0]
    assert page.count("<figure>") == 2
    assert "Every method had 3 trials of 20 rounds." in page
    opened: list[str] = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert tag in opened

    Balanced().feed(page)


def test_the_best_stands_beside_its_gain() -> None:
    """0.5 by default and 0.6 at best: 60.0, and a gain of 10.0 points."""
    rows = overview(made()).sections[0]
    assert [[cell.text for cell in row] for row in rows] == [
        ["FedAvg", "60.0", "+10.0", "0.1"],
        ["FedLC", "60.0", "+10.0", "0.1"],
    ]


def test_extra_trials_and_ends_are_said() -> None:
    found = made(("email",))
    assert said(found) == [
        "Best values were at an end of what was tried (FedAvg on email: lr; FedLC on email: lr). These were "
        "tried one step further, and every method got 1 more trials, beyond the 2."
    ]
    best = found.searches[0].trials[-1]
    best.state, best.scores = "complete", [0.9]
    assert said(found)[1] == (
        "The best value is at the new end, and no step further was tried: FedAvg on email: lr."
    )


def test_the_same_search_has_the_same_page(tmp_path: Path) -> None:
    assert render(made(), "c") == render(made(), "c")
