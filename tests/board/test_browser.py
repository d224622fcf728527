"""The board in a real browser: the list, a run that goes on, a comparison, the form. Nothing goes out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import needs_browser, visit
from fedepd.runs import record
from report.conftest import write_run as written

WriteRun = Callable[..., Path]
pytestmark = needs_browser


class Page:
    """A browser at a board."""

    def __init__(self, driver: Any, address: str, folder: Path) -> None:
        self.driver, self.folder = driver, folder
        self.root = address.partition("/?")[0]
        visit(driver, address)

    def go(self, path: str) -> None:
        self.driver.get(self.root + path)

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def wait(self, script: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.ask(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def check_quiet(self) -> None:
        """No word in the console, which names every breach of the policy, and no request to elsewhere."""
        assert [
            entry for entry in self.driver.get_log("browser") if "chrome://" not in entry["message"]
        ] == []
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        own = (self.root, "data:", "blob:", "about:", "chrome")
        assert [url for url in asked if not url.startswith(own)] == []


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One board for all tests here."""
    base = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        write = written.__wrapped__(base, patch)  # type: ignore[attr-defined]
        for seed in range(3):
            write(f"s/epd{seed}", seed=seed, skill=0.9)
            write(f"s/avg{seed}", method="fedavg", label="FedAvg", seed=seed, skill=0.3)
        write("kit/fraud-20261118-192938", dataset="federation north+south+east+west")
        folder = write("going", rounds=9)
    (folder / "summary.json").rename(base / "summary.json")
    record.write_rounds(folder, map(line, (1, 2)))
    command = [sys.executable, "-m", "fedepd", "board", str(base / "runs"), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as board:
        assert board.stdout is not None
        try:
            yield Page(browser, board.stdout.readline().removeprefix("board: ").strip(), base)
        finally:
            board.terminate()


def line(number: int) -> dict[str, Any]:
    val = {"global": {"acc": 0.5, "bacc": 0.4, "macro_f1": 0.1 * number}}
    return {
        "round": number,
        "loss": 1 / number,
        "seconds": 0.1,
        "bytes_up": {"w": 9},
        "bytes_down": {},
        "val": val,
    }


def test_the_list_is_there_and_live(page: Page) -> None:
    page.go("/")
    assert "token" not in page.driver.current_url
    page.wait("document.querySelector('table.runs').dataset.live === 'yes'")
    assert page.ask("document.querySelectorAll('table.runs tbody tr').length") == 8
    assert page.ask("document.getElementById('counts').textContent") == "1 stopped, 7 finished"
    page.check_quiet()


def test_rounds_appear_as_they_are_written(page: Page) -> None:
    page.go("/run?run=going")
    page.wait("document.getElementById('live').dataset.drawn === '2'")
    names = "[...document.querySelectorAll('#live figure')].map(each => each.dataset.name).sort().join()"
    assert page.ask(names) == "bytes,loss,seconds,val"
    page.wait("document.getElementById('figures').dataset.drawn === '2'")
    folder = page.folder / "runs" / "going"
    for number in range(3, 10):
        record.add_round(folder, line(number))
    page.wait("document.getElementById('round').textContent === '9'")
    page.wait("document.getElementById('live').dataset.drawn === '9'")
    points = "document.querySelectorAll('#live figure[data-name=val] .scatterlayer .point').length"
    page.wait(f"{points} === 2 * 9")  # balanced accuracy and macro-F1; accuracy is hidden at first
    (page.folder / "summary.json").rename(folder / "summary.json")
    page.wait("document.getElementById('state').textContent === 'finished'")
    page.check_quiet()


FITTING = (
    "[...document.querySelectorAll('figure > div')].map(box => "
    "[box.clientWidth, box.clientHeight, box.querySelector('.main-svg').clientWidth])"
)


def test_a_chart_is_as_wide_as_its_box(page: Page) -> None:
    """The first chart came alone, as wide as the page, and was drawn anew before it had shrunk."""
    page.driver.set_window_size(1300, 900)
    for _ in range(3):
        page.go("/run?run=s/epd0")
        page.wait("document.getElementById('figures').dataset.drawn === '5'")
        page.wait("document.getElementById('live').dataset.drawn === '20'")
        time.sleep(0.5)
        found = page.ask(FITTING)
        assert [width for width, _, _ in found] == [drawn for _, _, drawn in found]
        assert len({width for width, _, _ in found}) == 1
    heights = [height for _, height, _ in found]
    assert heights[5] > heights[0]  # twelve classes below each other need more than the usual height


def test_the_list_cuts_nothing_off(page: Page) -> None:
    """A name is not broken into single letters where there is room, and the state is in sight."""
    page.driver.set_window_size(1300, 900)
    page.go("/")
    page.wait("document.querySelector('table.runs').dataset.live === 'yes'")
    box = "document.querySelector('table.runs').parentElement"
    assert page.ask(f"{box}.scrollWidth <= {box}.clientWidth")
    rows = page.ask("[...document.querySelectorAll('table.runs tbody tr')].map(row => row.clientHeight)")
    assert max(rows) < 70  # two lines have 60 pixels, and three 82


def test_all_figures_of_a_run_are_drawn_and_can_be_taken_away(page: Page) -> None:
    page.go("/run?run=s/epd0")
    page.wait("document.getElementById('figures').dataset.drawn === '5'")
    page.wait("document.getElementById('live').dataset.drawn === '20'")
    sizes = (
        "[...document.querySelectorAll('figure .main-svg')].map(each => each.getBoundingClientRect().width)"
    )
    assert min(page.ask(sizes)) > 200
    assert page.ask("document.querySelectorAll('.take button').length") == 2 * (4 + 5)
    for kind, begins in (("svg", "data:image/svg+xml"), ("png", "data:image/png;base64,")):
        script = (
            f"const done = arguments[0]; Plotly.toImage(document.querySelector('#figures figure > div'),"
            f"{{format: '{kind}', width: 400, height: 300}}).then(done, error => done(String(error)))"
        )
        assert page.driver.execute_async_script(script).startswith(begins)
    page.check_quiet()


def test_ticked_runs_are_compared(page: Page) -> None:
    page.go("/")
    page.wait("document.querySelector('table.runs').dataset.live === 'yes'")
    page.ask("document.querySelectorAll('tr[data-id^=\"s/\"] input').forEach(box => { box.checked = true; })")
    page.ask("document.querySelector('form button').click()")
    page.wait("location.pathname === '/compare' && document.readyState === 'complete'")
    assert "FedEPD is ahead of FedAvg" in page.ask("document.querySelector('main').textContent")
    page.wait("document.getElementById('figures').dataset.drawn === '2'")
    page.check_quiet()


@pytest.mark.parametrize("path", ["/", "/run?run=s/epd0", "/compare?study=s", "/study?folder=s"])
def test_pages_fit_a_phone(page: Page, path: str) -> None:
    phone = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        page.go(path)
        if "run=" in path:
            page.wait("document.getElementById('figures').dataset.drawn === '5'")
        assert page.ask("[innerWidth, document.documentElement.scrollWidth]") == [400, 400]
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_the_form_says_why_a_run_did_not_start(page: Page) -> None:
    page.driver.set_page_load_timeout(240)
    page.go("/new?method=fedavg")
    page.wait("document.querySelector('#new') !== null", 240)
    page.ask("document.querySelector('[name=rounds]').value = '-4'")
    page.ask("document.querySelector('[name=name]').value = 'wrong'")
    page.ask("document.querySelector('#new [type=submit]').click()")
    page.wait("document.querySelector('.warned')?.textContent.includes('rounds')", 240)
    assert not (page.folder / "runs" / "wrong").exists()
