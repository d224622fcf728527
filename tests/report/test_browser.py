"""The page in a real browser: everything is there and has a size, sorting works, and nothing leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import check_fits_a_phone, check_nothing_leaves, needs_browser, opened, visit
from fedepd.report import build_report

WriteRun = Callable[..., Path]
pytestmark = needs_browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    with opened(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture
def url(write_run: WriteRun) -> str:
    write_run("avg", method="fedavg", label="FedAvg", prunes=False, skill=0.5)
    write_run("gta", method="fedgta", label="FedGTA", prunes=False, skill=0.6, has_global=False)
    return build_report(write_run("epd", skill=0.9, proxy=True).parent).as_uri()


def rows(browser: Any) -> list[str]:
    script = "return [...document.querySelector('table').tBodies[0].rows].map(row => row.cells[0].textContent)"
    return list(browser.execute_script(script))


def test_the_page_works(browser: Any, url: str) -> None:
    browser.set_window_size(1000, 800)
    visit(browser, url)
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(svg => [svg, svg.getBoundingClientRect()])"
        ".map(([svg, box]) => [svg.dataset.name, box.width, box.height])"
    )
    assert [name for name, _, _ in sizes] == ["per-class", "tiers", "convergence", "partition", "purification", "communication"]
    assert all(width > 600 and height > 80 for _, width, height in sizes)
    tables = browser.execute_script("return [...document.querySelectorAll('table')].map(t => [t.dataset.name, t.tBodies[0].rows.length])")
    assert [name for name, _ in tables] == [
        "summary-headline-pooled", "summary-personal-pooled", "summary-headline-client_mean", "summary-personal-client_mean",
        "classes", "cost", "clients", "runs",
    ]  # fmt: skip
    assert all(count >= 3 for _, count in tables)

    accuracy = browser.find_elements("css selector", "table th button")[2]
    assert rows(browser) == ["FedAvg", "FedEPD", "FedGTA †"]
    accuracy.click()
    assert rows(browser) == ["FedEPD", "FedGTA †", "FedAvg"]
    accuracy.click()
    assert rows(browser) == ["FedAvg", "FedGTA †", "FedEPD"]

    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    check_nothing_leaves(browser, url)


def test_nothing_sticks_out_on_a_phone(browser: Any, url: str) -> None:
    check_fits_a_phone(browser, url)
