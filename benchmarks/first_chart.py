"""The time from nothing to a live chart: a new environment, ``pip install``, a run and the board.

``PYTHONPATH=tests:docs python benchmarks/first_chart.py`` installs this tree with its extra ``board`` into a
new environment in a temporary folder. It starts ``fedepd run`` and ``fedepd board`` there, as in two
terminals, and waits until headless Chromium has drawn the first round. It prints the seconds of each step.
It needs selenium, chromium and chromedriver.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from make_gallery import boarded, wait

from chromium import opened

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"


def lap(what: str, command: list[str], folder: Path) -> None:
    start = time.monotonic()
    subprocess.run(command, cwd=folder, check=True)
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)


def first_chart(driver: Any, fedepd: Path, folder: Path) -> None:
    (folder / "runs").mkdir()
    start = time.monotonic()
    command, quiet = [str(fedepd), "run", "--out", "runs/first"], subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet) as run:
        try:
            with boarded(folder / "runs", driver, (str(fedepd),)) as root:
                print(f"the board answers after: {time.monotonic() - start:.1f} s", flush=True)
                wait(driver, "document.querySelector('table.runs tbody tr') !== null")
                driver.get(f"{root}/run?run=first")
                wait(driver, "document.getElementById('live')?.dataset.drawn >= 1")
                print(f"a live chart after: {time.monotonic() - start:.1f} s", flush=True)
                print("the run goes on" if run.poll() is None else "the run has ended")
        finally:
            run.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = folder / "env" / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        lap("a new environment", [sys.executable, "-m", "venv", str(folder / "env")], folder)
        lap(f"pip install {TORCH}", [*pip, TORCH], folder)
        lap("pip install '.[board]'", [*pip, f"{ROOT}[board]"], folder)
        with opened(folder / "profile") as driver:  # a person has a browser that is open
            first_chart(driver, python.parent / "fedepd", folder)


if __name__ == "__main__":
    main()
