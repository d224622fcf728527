"""The page in a real browser: everything is there and has a size, sorting works, and nothing leaves it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chromium import check_fits_a_phone, check_nothing_leaves, needs_browser, visit
from fedepd.report import build_report
from hostile_names import PAYLOADS

WriteRun = Callable[..., Path]
pytestmark = needs_browser
UNFOLD = "for (const fold of document.querySelectorAll('details')) fold.open = true"


@pytest.fixture
def url(compared: Path) -> str:
    return compared.as_uri()


def rows(browser: Any) -> list[str]:
    script = (
        "return [...document.querySelector('table').tBodies[0].rows].map(row => row.cells[0].textContent)"
    )
    return list(browser.execute_script(script))


def test_the_page_works(browser: Any, url: str) -> None:
    browser.set_window_size(1000, 800)
    visit(browser, url)
    seen = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].filter(svg => svg.checkVisibility())"
        ".map(svg => svg.dataset.name)"
    )
    assert seen == ["per-class"]
    browser.execute_script(UNFOLD)
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].filter(svg => svg.checkVisibility())"
        ".map(svg => [svg, svg.getBoundingClientRect()])"
        ".map(([svg, box]) => [svg.dataset.name, box.width, box.height])"
    )
    folded = ("confusion-", "curves-")  # one for each method
    assert sum(name.startswith(folded) for name, _, _ in sizes) == 3
    sizes = [each for each in sizes if not each[0].startswith(folded)]
    assert [name for name, _, _ in sizes] == [
        "per-class",
        "tiers",
        "convergence",
        "partition",
        "purification",
        "communication",
    ]
    assert all(width > 600 and height > 80 for _, width, height in sizes)
    tables = browser.execute_script(
        "return [...document.querySelectorAll('table')].map(t => [t.dataset.name, t.tBodies[0].rows.length])"
    )
    decisions = (
        "by-tier",
        "by-class",
        "by-client",
        "at-alerts",
        "alerts-at-clients",
    )  # one of each for each method
    assert {name for name, _ in tables} >= {"by-tier", "by-class", "by-client"}
    tables = [each for each in tables if each[0] not in decisions]
    assert [name for name, _ in tables] == [
        "summary-headline-pooled",
        "summary-personal-pooled",
        "summary-headline-client_mean",
        "summary-personal-client_mean",
        "classes",
        "clients",
        "cost",
        "runs",
    ]
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
    check_fits_a_phone(browser, url, UNFOLD)


def test_a_phone_shows_the_first_figure_whole(browser: Any, url: str) -> None:
    """It is drawn once more, narrow, so that its letters have the size that they have on a wide screen."""
    phone = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        visit(browser, url)
        found = browser.execute_script(
            "return [...document.querySelectorAll('figure > div')].filter(box => box.checkVisibility())"
            ".map(box => [box.querySelector('svg').dataset.name, box.scrollWidth - box.clientWidth])"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert found == [["per-class-narrow", 0]]


def test_paper_gets_everything_and_the_screen_keeps_its_folds(browser: Any, url: str) -> None:
    visit(browser, url)
    count = "return document.querySelectorAll('details:not([open])').length"
    folded = browser.execute_script(count)
    assert folded > 10
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(count) == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(count) == folded


def luminance(browser: Any, css: str, of: str) -> float:
    """From 0 (black) to 1 (white), as WCAG defines it."""
    script = f"return getComputedStyle(document.querySelector('{css}')).{of}"
    parts = [int(each) / 255 for each in re.findall(r"\d+", browser.execute_script(script))[:3]]
    linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_figures_can_be_read(browser: Any, url: str, scheme: str) -> None:
    """Contrast (L1 + 0.05) / (L2 + 0.05) of at least 4.5, WCAG's AA. Figures are drawn in dark grey.

    On a dark page they are turned over by 0.9, which makes 0.9 - 0.8 v of a grey v.
    """
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        visit(browser, url)
        page, text, note, card = (
            luminance(browser, *where)
            for where in (
                ("body", "backgroundColor"),
                ("body", "color"),
                (".note", "color"),
                ("figure > div", "backgroundColor"),
            )
        )
        turned = browser.execute_script(
            "return getComputedStyle(document.querySelector('figure svg')).filter"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (page > 0.5) == (scheme == "light")
    assert turned == ("none" if scheme == "light" else "invert(0.9) hue-rotate(180deg)")
    value = 0x77 / 255  # plots.GREY, the lightest text of a figure
    grey = ((value if scheme == "light" else 0.9 - 0.8 * value) + 0.055) ** 2.4 / 1.055**2.4
    for one, other, least in ((page, text, 4.5), (page, note, 4.5), (card, grey, 3.0)):
        assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= least


HARM = [
    "script",
    "image",
    "attribute",
    "single quote",
    "end of style",
    "end of svg",
    "comment",
    "cdata",
    "javascript",
]


@pytest.mark.hostile
def test_no_name_runs_as_script(browser: Any, write_run: WriteRun) -> None:
    """In labels, datasets, presets, settings, warnings, classes, owners, versions and folder names; and
    the page still works."""
    for place, name in enumerate(HARM):
        text, folder = PAYLOADS[name], f"{place}{PAYLOADS[name].replace('/', '_')}"
        made = write_run(
            folder,
            method=f"m{place}",
            dataset=PAYLOADS["image"],
            label=text,
            preset=text,
            settings={text: text},
        )
        config, summary = (json.loads((made / f"{part}.json").read_text()) for part in ("config", "summary"))
        config["dataset"] |= {"label_names": [text] * 12, "owner_names": [text] * 4}
        (made / "config.json").write_text(json.dumps(config | {"protocol": text}))
        (made / "summary.json").write_text(json.dumps(summary | {"warnings": [text], "protocol": text}))
        (made / "env.json").write_text(json.dumps({text: text, "command": [text]}))
    url = build_report(made.parent).as_uri()
    visit(browser, url)
    for link in browser.find_elements("css selector", "nav a"):
        link.click()
    assert browser.title == f"{len(HARM)} methods on {PAYLOADS['image']}"
    assert browser.execute_script("return document.scripts.length") == 1
    assert (
        browser.execute_script("return document.querySelectorAll('table th button').length") > 40
    )  # our own script ran
    assert browser.current_url.startswith(url)
    check_nothing_leaves(browser, url)


@pytest.mark.hostile
def test_the_policy_stops_what_an_escape_would_miss(browser: Any, compared: Path, tmp_path: Path) -> None:
    """A script, a handler, a style sheet, a frame, a base and a form, planted into the finished page: none
    of them does anything."""
    planted = (
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
        "<style>h1{display:none}</style>"
        "<base href='http://evil.example/'><iframe src='data:text/html,x'></iframe><svg "
        "onload=\"document.title='owned'\"></svg><a id=j "
        "href=\"javascript:document.title='owned'\">x</a><form id=f action='http://evil.example'></form>"
    )
    path = tmp_path / "planted.html"
    path.write_text(compared.read_text().replace("<main>", f"<main>{planted}"))
    url = path.as_uri()
    visit(browser, url)
    browser.execute_script("document.getElementById('j').click(); document.getElementById('f').submit()")
    assert browser.title == "3 methods on toy"
    assert browser.execute_script("return getComputedStyle(document.querySelector('h1')).display") == "block"
    assert browser.execute_script("return document.baseURI") == url
    assert browser.current_url == url
    assert browser.execute_script("return document.querySelectorAll('table th button').length") > 40
    said = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert said.count("Content Security Policy") >= 6
