"""Makes the README's pictures of the report and the board.

``PYTHONPATH=tests python docs/make_screenshots.py`` runs the commands of the gallery's first shelf and opens
both pages in headless Chromium. What a first screen shows becomes an SVG file with letters
(``docs/screenshot.js``): small text that git can compare, not dots. It needs selenium, chromium and
chromedriver. ``--runs FOLDER`` takes runs that are there, with their report.html.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from make_gallery import boarded, in_scratch, plain, run, shelves, wait

from chromium import opened

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1200, 900
"""Pixels of a screen."""
MOST = 150_000
"""Most bytes of a picture."""
SHOWN = "runs/bank"


def take(name: str, driver: Any) -> None:
    """Keep what the browser shows."""
    script = (HERE / "screenshot.js").read_text(encoding="utf-8")
    svg = plain(driver.execute_script(f"{script}; return toSvg({WIDTH}, {HEIGHT})"))
    if len(svg.encode()) > MOST:
        sys.exit(f"{name} has {len(svg.encode()):,} bytes; at most {MOST:,} are kept")
    (HERE / "screens").mkdir(exist_ok=True)
    (HERE / "screens" / f"{name}.svg").write_text(svg, encoding="utf-8")


def make(runs: Path, profile: Path) -> None:
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    with opened(profile) as driver:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.get((runs / "report.html").resolve().as_uri())
        take("report", driver)
        with boarded(runs, driver) as root:
            driver.get(f"{root}/run?run=fedepd-seed0")
            for place in ("live", "figures"):
                wait(driver, f"document.getElementById('{place}')?.dataset.drawn > 0")
            take("board", driver)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="runs that are there")
    values = parser.parse_args()
    given = values.runs.resolve() if values.runs else None
    with in_scratch() as scratch:
        for command in () if given else shelves()[0].commands:
            run(command)
        make(given or scratch / SHOWN, scratch / "profile")


if __name__ == "__main__":
    main()
