"""The page in a real browser: everything is there and has a size, sorting works, and nothing leaves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedepd.report import build_report

WriteRun = Callable[..., Path]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not both on the path"),
]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = "--disable-background-networking --disable-component-update --disable-sync --no-first-run"
    for flag in f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage {quiet}".split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


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
    browser.get("about:blank")
    browser.get_log("performance")  # what the browser's own start page asked for
    browser.get(url)
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
    said = [entry for entry in browser.get_log("browser") if not entry["message"].startswith("chrome://")]  # the browser of itself
    assert said == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert url in requested
    assert [address for address in requested if not address.startswith(("file:", "data:"))] == []


def test_nothing_sticks_out_on_a_phone(browser: Any, url: str) -> None:
    phone = {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.get(url)
    assert browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [420, 420]
