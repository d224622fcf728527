"""A real browser for pages: headless Chromium that records its console and every request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not both on the path"
    ),
]


@contextmanager
def opened(profile: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = "--disable-background-networking --disable-component-update --disable-sync --no-first-run"
    for flag in f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage {quiet}".split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def visit(browser: Any, url: str) -> None:
    """A page, and nothing in the logs of what was asked for or said before it."""
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(url)


def check_nothing_leaves(browser: Any, url: str) -> None:
    """No word in the console, no request but for the page itself."""
    said = [
        entry for entry in browser.get_log("browser") if not entry["message"].startswith("chrome://")
    ]  # the browser of itself
    assert said == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert url in requested
    assert [address for address in requested if not address.startswith(("file:", "data:"))] == []


def check_fits_a_phone(browser: Any, url: str, script: str = "") -> None:
    """Nothing is wider than the screen, after the script has run."""
    phone = {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        visit(browser, url)
        browser.execute_script(script)
        sizes = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert sizes == [420, 420]
