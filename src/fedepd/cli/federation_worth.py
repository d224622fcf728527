"""``fedepd federation worth``: a site's own page after a run."""

from __future__ import annotations

from pathlib import Path

from fedepd.cli.console import console, progress_bar, say, say_json
from fedepd.cli.parser import Parser

PAGE = "worth.html"


def worth(parser: Parser, arguments: list[str]) -> int:
    from rich import box
    from rich.table import Table

    from fedepd.deploy.taken import take
    from fedepd.deploy.worth import folder_of, steps
    from fedepd.deploy.worth import worth as answer
    from fedepd.deploy.worth_page import render, short_table
    from fedepd.report.document import write_page

    parser.add_argument("kit", metavar="KIT", help="your kit, after a run")
    parser.add_argument("--run", default=None, metavar="NAME", help="the run, if the kit has several")
    parser.add_argument(
        "-o", "--out", default=None, metavar="PAGE.html", help=f"the page (default: KIT/state/RUN/{PAGE})"
    )
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    values = parser.parse(arguments)
    taken = take(Path(values.kit), values.run)
    text = f"training alone, {taken.kit.name}"
    with progress_bar(text, steps(taken), values.quiet or values.json) as advance:
        found = answer(taken, advance)
    page = folder_of(taken) / PAGE if values.out is None else Path(values.out)
    write_page(page, render(found))
    if values.json:
        say_json(found.as_json() | {"page": str(page)})
        return 0
    say(found.verdict.sentence)
    if found.rare:
        say(found.rare)
    if found.models:
        short = short_table(found)
        grid = Table(*short.headers, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in short.sections[0]:
            grid.add_row(*(f"{cell.text} {cell.spread}".strip() for cell in row))
        console().print(grid)
    left = sum(each.bytes for each in found.left)
    say(f"{left:,} bytes left this site; classes kept at home: {len(found.withheld)}")
    say(f"page: {page}")
    return 0
