"""``reproduce all`` from the command to the page in a real browser."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from chromium import check_fits_a_phone, check_nothing_leaves, needs_browser, visit
from fedepd.cli import main
from fedepd.datasets import synthetic
from fedepd.datasets.npz import write_npz
from fedepd.reproduction.pages.output import Written
from fedepd.reproduction.pages.page import _scope, _titles
from fedepd.reproduction.study.targets import read_targets

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("study")]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every target on a small graph: 116 cells, about 30 seconds of CPU, most of them outside of training.

    Three rounds are the fewest with two evaluations in the last half, which the fluctuation of a curve needs.
    """
    out = tmp_path_factory.mktemp("study")
    graph = synthetic(
        nodes=300, edges=900, classes=6, imbalance=10, smallest=None, features=16, communities=6
    )
    write_npz(graph, out / "small.npz")
    size = ["--seeds", "2", "--rounds", "3", "--evaluate-every", "1", "--clients", "4", "--workers", "1"]
    data = ["--data", str(out / "small.npz")]
    assert main(["reproduce", "all", *data, *size, "--quiet", "--out", str(out)]) == 0
    return out


def test_every_target_has_its_files(study: Path) -> None:
    figures = {"fig-convergence": 2, "fig-efficiency": 2}
    for name in [target.name for target in read_targets("all")]:
        files = {path.name for path in (study / name).iterdir()}
        assert {f"{name}.md", f"{name}.tex", f"{name}.csv"} <= files
        expected = figures.get(name, 1 if name.startswith("fig") else 0)  # ranks need two datasets
        assert [len(list((study / name).glob(f"*{kind}"))) for kind in (".png", ".svg")] == [expected] * 2
        for path in (study / name).glob("*.svg"):
            ET.parse(path)
    assert not list(study.glob("cells/*.failed"))
    assert len(list(study.glob("cells/*"))) == 118


def test_cells_are_shared(study: Path) -> None:
    """15 rows of Table 2; of the 14 of Table 3 fedepd, printed and fedavg are there already; of the 25 of the
    grid one; of the 14 steps all but eight; and one round of FedAvg for the distribution: (15 + 11 + 24 + 8 +
    1) rows of two seeds.
    """
    assert len(list(study.glob("cells/*/summary.json"))) == 2 * (15 + 11 + 24 + 8 + 1)


def test_kept_scores_make_the_pages_but_for_figures_that_need_more(study: Path) -> None:
    """Tables, tests and verdicts of scores are those of the folders, byte for byte."""
    size = ["--seeds", "2", "--rounds", "3", "--evaluate-every", "1", "--clients", "4", "--no-run"]
    again = ["reproduce", "all", "--data", str(study / "small.npz"), *size]
    again += ["--scores", str(study / "kept.csv"), "--out"]
    (study / "with").mkdir()
    (study / "with" / "cells").symlink_to(study / "cells")
    assert main([*again, str(study / "with")]) == 0
    assert main([*again, str(study / "without")]) == 0
    for name in [target.name for target in read_targets("all")]:
        one, other = study / "with" / name, study / "without" / name
        needs_more = name in ("fig-convergence", "fig-distribution", "fig-perclass")
        assert ("only their scores are kept" in (other / f"{name}.md").read_text()) == needs_more
        assert (one / f"{name}.csv").read_bytes() == (other / f"{name}.csv").read_bytes()
        if not needs_more:
            files = sorted(path.name for path in one.iterdir())
            assert files == sorted(path.name for path in other.iterdir())
            assert [(one / file).read_bytes() for file in files] == [
                (other / file).read_bytes() for file in files
            ]
        assert (one / f"{name}.md").read_text() == (study / name / f"{name}.md").read_text()
    count, page = len(list(study.glob("cells/*"))), (study / "without" / "all.html").read_text()
    assert f"{count} runs on small. Of {count} of them only the scores are kept, in kept.csv." in page
    assert "only the scores are kept" not in (study / "with" / "all.html").read_text()


def test_claims_are_counted_by_both_scorings(study: Path) -> None:
    """Two seeds tell nothing, so every verdict of the two tables is the same by either scoring."""
    lines = [
        line
        for name in ("table2", "table3")
        for line in (study / name / f"{name}-verdicts.csv").read_text().splitlines()[1:]
    ]
    found = [sum(line.startswith(f"{scoring},") for line in lines) for scoring in ("headline", "openfgl")]
    assert found[0] == found[1] > 0
    counted = f"0 hold, 0 do not hold, {found[0]} cannot be told"
    told = (
        f"For table2 and table3 alone: by our scores {counted}; scored as OpenFGL does by default, {counted}."
    )
    assert told in (study / "all.html").read_text()


def test_one_target_says_its_title_and_its_protocol_once(study: Path) -> None:
    """On the page of all targets a protocol stands at its end; files beside it keep theirs."""
    size = ["--seeds", "2", "--rounds", "3", "--evaluate-every", "1", "--clients", "4"]
    data = ["--data", str(study / "small.npz")]
    assert main(["reproduce", "table2", *data, *size, "--no-run", "--quiet", "--out", str(study)]) == 0
    page = (study / "table2.html").read_text()
    body = page[page.index("<body>") : page.index("<summary><h3>Commands</h3>")]
    assert body.count("Table 2: all methods on all datasets") == 1
    assert body.count("split floor 60/20/20") == 1
    assert body.index('data-name="table2-headline-all"') < body.index("split floor 60/20/20")
    assert "split floor 60/20/20" in (study / "table2" / "table2.md").read_text()


@pytest.mark.browser
@needs_browser[1]
def test_the_page_works(browser: Any, study: Path) -> None:
    url = (study / "all.html").as_uri()
    browser.set_window_size(1000, 800)
    visit(browser, url)
    images = browser.execute_script(
        "return [...document.querySelectorAll('figure img')].map(i => [i.dataset.name, i.naturalWidth, "
        "i.getBoundingClientRect().width])"
    )
    assert len(images) == 8
    assert all(natural > 200 and shown > 300 for _, natural, shown in images)
    links = browser.execute_script(
        "return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))"
    )
    assert links == [*(f"#{target.name}" for target in read_targets("all")), "#verdicts", "#protocol"]
    assert all(
        browser.execute_script("return document.querySelector(arguments[0]) !== null", link) for link in links
    )

    table = "table[data-name='table2-headline-all']"
    first = f'return document.querySelector("{table}").tBodies[0].rows[0].cells[0].textContent'
    assert browser.execute_script(first) == "FedAvg"
    button = browser.find_elements("css selector", f"{table} th button")[1]
    browser.execute_script("arguments[0].click()", button)
    values = browser.execute_script(
        f'return [...document.querySelector("{table}").tBodies[0].rows]'
        ".map(r => Number(r.cells[1].dataset.value))"
    )
    assert len(values) == 13
    assert values == sorted(values, reverse=True)

    assert (
        browser.execute_script(
            "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length"
        )
        == 0
    )
    check_nothing_leaves(browser, url)
    check_fits_a_phone(browser, url)


def test_a_proxy_graph_is_named_once_and_as_such_though_a_target_has_no_run_of_it(
    make_results: Any, tmp_path: Path
) -> None:
    """A target without a run does not know of proxy features; whichever comes first, the page says so."""
    run, waiting = make_results({("a", "x"): [50]}, proxies=["x"]), make_results({("a", "x"): [None]})
    for order in ((run, waiting), (waiting, run)):
        written = [Written(results, tmp_path, {}, {}, {}, []) for results in order]
        assert (
            _scope(written, "fedepd")
            == "1 run (1 more have no result) on x (proxy features). Made by: fedepd"
        )
        assert _titles(written) == {"x": "x ‡"}  # over the columns of the verdicts
