"""Makes the gallery: ``PYTHONPATH=tests python docs/make_gallery.py`` runs commands and keeps figures.

``docs/gallery.toml`` says what is shown: shelves of figures, each with its commands. The commands run one
after another in one new folder, on data that the package brings along. Their figures become SVG files in
``docs/gallery``. Figures of the board are taken from headless Chromium. ``--page`` only writes
``docs/gallery.md`` anew. ``--shelf TITLE`` runs all commands up to that shelf's and makes its figures alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import urllib.parse
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST, PAGE, FOLDER = (ROOT / "docs" / name for name in ("gallery.toml", "gallery.md", "gallery"))
MOST = 60_000
"""Most bytes of a figure."""
INTRODUCTION = """# Gallery

Every figure that the package draws, with the command under it that made it. For whoever wants to know what
there is to see.

The commands run in an empty folder, in the order of this page, on data that the package brings along. The
runs are short, so that anybody can make them again. These figures show what is drawn. They do not show which
method is better: [Results](results.md) does that. `PYTHONPATH=tests python docs/make_gallery.py` makes this
page and its figures.
"""
STYLE = "<style>*{stroke-linejoin: round; stroke-linecap: butt}</style>"
"""What the pages' style sheet says of figures. A file of its own must bring it along."""


@dataclass(frozen=True)
class Picture:
    file: str
    """The name of the file in ``FOLDER``, without its ending."""
    words: str
    drawn: str
    """The function that draws it, from below ``fedepd``."""
    page: str
    """Where the commands have put it: a page or an SVG file (a pattern of names), or a path of the board."""
    name: str = ""
    """What the figure is called on its page."""
    by: int = -1
    """Which command of the shelf made it."""
    varies: bool = False
    """It shows seconds, so no two of it are alike."""


@dataclass(frozen=True)
class Shelf:
    title: str
    words: str
    commands: tuple[str, ...]
    pictures: tuple[Picture, ...]
    board: str = ""
    """The folder whose board shows the pictures, if they are the board's."""


def shelves() -> tuple[Shelf, ...]:
    return tuple(
        Shelf(
            each["title"],
            each["words"],
            tuple(each["commands"]),
            tuple(Picture(**picture) for picture in each["picture"]),
            each.get("board", ""),
        )
        for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["shelf"]
    )


def left_out() -> dict[str, str]:
    """Drawing functions that are not shown, and why."""
    found: dict[str, str] = tomllib.loads(LIST.read_text(encoding="utf-8"))["left_out"]
    return found


def page() -> str:
    """Under each figure stands the command that made it. What has to run before stands above."""
    parts = [INTRODUCTION]
    for shelf in shelves():
        parts.append(f"## {shelf.title}\n\n{wrapped(shelf.words)}\n")
        own = {shelf.commands[each.by] for each in shelf.pictures}
        if before := [command for command in shelf.commands if command not in own]:
            parts.append(block(*before))
        for each in shelf.pictures:
            told = " It shows seconds, so yours will differ." if each.varies else ""
            parts.append(
                f"![{each.file.replace('-', ' ')}](gallery/{each.file}.svg)\n\n"
                + wrapped(f"{each.words}{told} Drawn by `{each.drawn}`.")
                + f"\n\n{block(shelf.commands[each.by])}"
            )
    reasons = [wrapped(f"- `{name}`: {why}", "  ") for name, why in left_out().items()]
    return "\n".join([*parts, "## What is not shown\n\n" + "\n".join(reasons) + "\n"])


def block(*commands: str) -> str:
    return "```\n" + "\n".join(broken(command) for command in commands) + "\n```\n"


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def broken(command: str) -> str:
    """A command in lines that fit a page, broken before an option."""
    lines = [""]
    for part in re.split(r" (?=--?[a-z])", command):
        if lines[-1] and len(lines[-1]) + len(part) > 76:
            lines.append("   ")
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def run(command: str) -> None:
    """One command, in this process: a new one would import everything again. 1 means a limit is passed."""
    from fedepd.cli import main

    print(f"$ {command}", flush=True)
    code = main(shlex.split(command)[1:])
    if code not in (0, 1):
        sys.exit(f"'{command}' ended with {code}")


def taken(picture: Picture, scratch: Path) -> str:
    """A figure that a command has written: a file of its own, or the first of its name on a page."""
    written = sorted(scratch.glob(picture.page))
    if not written:
        sys.exit(f"no command has written {picture.page}")
    text = written[0].read_text(encoding="utf-8")
    if picture.page.endswith(".html"):
        found = re.search(rf'<svg role="img"[^>]* data-name="{picture.name}.*?</svg>', text, re.DOTALL)
        if found is None:
            sys.exit(f"{picture.page} has no figure '{picture.name}'")
        text = found[0]
    return plain(text)


def plain(svg: str) -> str:
    """A figure as a file of its own: on white, with shorter numbers, without names that nothing refers to."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    meant = set(re.findall(r"#([\w-]+)", svg))
    svg = numbered(re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in meant else "", svg))
    head, _, rest = svg.partition(">")
    head = re.sub(r' style="[^"]*"', "", head)
    style = "" if STYLE[7:20] in rest else STYLE
    return f'{head} style="background: #fff">{style}{rest.rstrip()}\n'


@contextmanager
def boarded(
    folder: Path, driver: Any, fedepd: tuple[str, ...] = (sys.executable, "-m", "fedepd")
) -> Iterator[str]:
    """A board of the folder that the browser has entered. Gives its address."""
    command = [*fedepd, "board", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as board:
        assert board.stdout is not None
        try:
            address = board.stdout.readline().removeprefix("board: ").strip()
            driver.get(address)
            yield address.partition("/?")[0]
        finally:
            board.terminate()


def wait(driver: Any, question: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, 120, 0.1).until(lambda driver: driver.execute_script(f"return {question}"))


def from_board(pictures: tuple[Picture, ...], folder: Path, scratch: Path) -> Iterator[tuple[Picture, str]]:
    """Figures of the board, as its own button SVG gives them."""
    from chromium import opened

    with opened(scratch / "profile") as driver, boarded(folder, driver) as root:
        for each in pictures:
            driver.get(root + each.page)
            box = f"document.querySelector('figure[data-name={each.name}] .js-plotly-plot')"
            wait(driver, f"{box} !== null")
            driver.set_script_timeout(60)
            asked = f"Plotly.toImage({box}, {{format: 'svg', width: 800, height: 450}})"
            answer = driver.execute_async_script(f"{asked}.then(arguments[0])")
            yield each, plain(urllib.parse.unquote(answer.partition(",")[2]))


def numbered(svg: str) -> str:
    """Ids come from chance (plotly) or the clock (names of runs). Counted, they are the same each time."""
    names = dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg))
    for number, name in enumerate(sorted(names, key=svg.index)):
        svg = re.sub(rf'(id="|#){re.escape(name)}(?=["\')&])', rf"\g<1>p{number}", svg)
    return svg


@contextmanager
def in_scratch() -> Iterator[Path]:
    """In a new folder for a while, without data that others lack."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        os.environ["FEDEPD_DATA"] = "none"
        (Path(name) / "docs").symlink_to(ROOT / "docs")
        yield Path(name)


def make(only: str = "") -> None:
    chosen = shelves()
    if only:
        chosen = chosen[: [shelf.title for shelf in chosen].index(only) + 1]
    with in_scratch() as scratch:
        for shelf in chosen:
            for command in () if shelf.board else shelf.commands:
                run(command)
            if only in ("", shelf.title):
                keep(shelf, scratch)


def keep(shelf: Shelf, scratch: Path) -> None:
    found = (
        from_board(shelf.pictures, scratch / shelf.board, scratch)
        if shelf.board
        else ((each, taken(each, scratch)) for each in shelf.pictures)
    )
    for each, svg in found:
        if len(svg.encode()) > MOST:
            sys.exit(f"{each.file} has {len(svg.encode()):,} bytes; at most {MOST:,} are kept")
        (FOLDER / f"{each.file}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page alone, not the figures")
    parser.add_argument("--shelf", default="", metavar="TITLE", help="make the figures of this shelf alone")
    values = parser.parse_args()
    if not values.page:
        make(values.shelf)
    PAGE.write_text(page(), encoding="utf-8")
