"""``fedepd board``: a live page of the runs in a folder, on this machine alone."""

from __future__ import annotations

import sys
from contextlib import suppress

from fedepd.cli.console import say
from fedepd.cli.parser import Parser


def board(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd board",
        allow_abbrev=False,
        description="Show the runs in a folder on a live page. Only this machine can open it, by the address "
        "that is printed. Ctrl-C ends it. Needs the extra 'board'.",
    )
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="FOLDER", help="a folder of runs or studies (default: .)"
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: one that is free)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open nothing")
    values = parser.parse(arguments)
    from fedepd.board.serve import serve

    def ready(url: str) -> None:
        say(f"board: {url}")
        sys.stdout.flush()  # who reads a pipe waits for the address, too
        if not values.no_browser:
            import webbrowser

            webbrowser.open(url)

    with suppress(KeyboardInterrupt):  # the usual way to end it
        serve(values.folder, values.port, ready)
    return 0
