"""The docs site: it builds without a warning, and a page asks nothing of any other machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chromium import check_fits_a_phone, check_nothing_leaves, needs_browser, visit

pytest.importorskip("material", reason="needs the extra 'docs'")

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:@import\s+|url\(\s*)["']?\s*(?:https?:)?//[^"')\s]*""", re.IGNORECASE)
DORMANT = {
    "https://api.github.com/repos/": 'data-md-component="source"',
    "https://api.github.com/users/": 'data-md-component="source"',
    "https://unpkg.com/mermaid": 'class="mermaid"',
}
"""Addresses that the theme's script asks for when a page has this in it. No page of ours has."""
OLD_BROWSERS = "https://unpkg.com/resize-observer-polyfill"
"""Asked for by browsers from before 2020 alone."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


class Loaded(HTMLParser):
    """What a page loads by itself. A link that a reader may follow is not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "srcset", "poster", "data", "action") + (() if tag == "a" else ("href",))
        self.found += [value or "" for name, value in attrs if name in names]


def loaded_by(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return parser.found


def test_what_a_page_loads_is_told_from_what_it_links_to() -> None:
    page = (
        '<link href="https://a/b.css"><script src="//c/d.js"></script>'
        '<a href="https://e">e</a><img src="f.png">'
    )
    assert [name for name in loaded_by(page) if ELSEWHERE.match(name)] == ["https://a/b.css", "//c/d.js"]
    assert IN_STYLES.findall(
        '@import "https://a/b.css"; p { background: url(//c/d.png) } i { a: url(e.png) }'
    ) == [
        '@import "https://a/b.css',
        "url(//c/d.png",
    ]


def test_pages_and_styles_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 20
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert [name for name in loaded_by(html) if ELSEWHERE.match(name)] == [], page.name
        assert IN_STYLES.findall(html) == [], page.name
        assert not [mark for mark in DORMANT.values() if mark in html], page.name
    for style in site.rglob("*.css"):
        assert IN_STYLES.findall(style.read_text(encoding="utf-8")) == [], style.name


def test_scripts_know_no_new_address(site: Path) -> None:
    """Of all scripts that an English page runs; the others are word lists of other languages."""
    known = (*DORMANT, OLD_BROWSERS)
    scripts = [script for script in (site / "assets").rglob("*.js") if "lunr" not in script.parts]
    assert len(scripts) >= 3  # ours, the theme's, its search
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        found = re.findall(
            r"""["'`](https?://[\w./@-]+)""", text
        )  # strings: those of comments are never asked
        assert [address for address in found if not address.startswith(known)] == [], script.name


class TestInABrowser:
    pytestmark = needs_browser

    @pytest.mark.parametrize("page", ["index.html", "reference/python.html"])
    def test_a_page_opened_from_disk_asks_nobody(self, site: Path, browser: Any, page: str) -> None:
        visit(browser, (site / page).as_uri())
        check_nothing_leaves(browser, (site / page).as_uri())

    def test_search_works_from_disk(self, site: Path, browser: Any) -> None:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import WebDriverWait

        visit(browser, (site / "index.html").as_uri())
        browser.find_element(By.NAME, "query").send_keys("keep_one")
        results = WebDriverWait(browser, 10).until(
            lambda page: page.find_elements(By.CSS_SELECTOR, ".md-search-result__item a")
        )
        assert "protocol.html" in " ".join(each.get_attribute("href") for each in results)

    def test_the_home_page_fits_a_phone(self, site: Path, browser: Any) -> None:
        check_fits_a_phone(browser, (site / "index.html").as_uri())
