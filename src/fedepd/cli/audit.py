"""``fedepd audit``: what is left to learn about the clients of a simulated run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import complain, console, progress_bar, say, say_json
from fedepd.cli.parser import Parser, add_cluster_options, workers_of
from fedepd.errors import BadConfig

if TYPE_CHECKING:
    from fedepd.privacy.audit import Audit
    from fedepd.privacy.elsewhere import Elsewhere
    from fedepd.runs.jobs import Pool
    from fedepd.runs.source import Source

SHOWN_TIERS = ("all", "tail")
"""The tiers of the table on the terminal. The page and the JSON file have all of them."""


def audit(arguments: list[str]) -> int:
    values = _parser().parse(arguments)
    from fedepd.cli.model import stoppable
    from fedepd.files import write_json
    from fedepd.privacy.attacks import chosen
    from fedepd.privacy.audit import Gate, above, units
    from fedepd.privacy.audit import audit as attack
    from fedepd.privacy.page import lead, render
    from fedepd.report.document import write_page
    from fedepd.runs.folder import AUDIT, AUDIT_PAGE, AUDIT_TRAININGS
    from fedepd.runs.resume import read_config, rebuild, source_of

    folder, pool = Path(values.folder), workers_of(values)
    gates = [Gate.parse(text) for text in values.fail_above]
    skip = [name for name in values.skip.split(",") if name]
    attacks = chosen(skip)
    for name in sorted({gate.name for gate in gates}):
        if not any(name in each.titles for each in attacks.values()):
            raise BadConfig(f"{name} has a limit, but its attack is skipped; leave it out of --skip")
    config = read_config(folder)
    out = folder if values.out is None else Path(values.out)
    source = source_of(folder, config, values.data, values.data_dir)
    workers = pool if isinstance(pool, int) else _elsewhere(pool, source, out / AUDIT_TRAININGS)
    data = source.load()
    simulation = rebuild(folder, data)
    more = {"secure_alone": values.secure_alone, "distil": values.distil}
    total = units(min(values.rounds, config["rounds"]), values.shadows, skip, **more)
    with stoppable(lambda: ""), progress_bar(f"audit of {folder}", total, values.quiet) as advance:
        found = attack(
            simulation, data, rounds=values.rounds, shadows=values.shadows, skip=skip, step=advance,
            workers=workers, **more,
        )  # fmt: skip
    write_page(out / AUDIT_PAGE, render(found))
    write_json(out / AUDIT, found.as_json())
    if not isinstance(workers, int):
        workers.clear()
    if values.json:
        say_json(found.as_json())
    else:
        _show(found)
        say(*lead(found), *found.notes, f"audit: {out / AUDIT}; page: {out / AUDIT_PAGE}")
    if broken := above(found, gates):
        complain(f"with the run's own setting '{found.own}', {'; '.join(broken)}")
        return 1
    return 0


def _elsewhere(pool: Pool, source: Source, folder: Path) -> Elsewhere:
    from fedepd.privacy.elsewhere import Elsewhere

    if source.data is None:
        raise BadConfig("the run's data are a folder of clients, and --cluster needs a graph; audit it here")
    return Elsewhere(pool, source, folder)


def _show(found: Audit) -> None:
    from rich import box
    from rich.table import Table

    from fedepd.privacy.page import table

    content = table(found, SHOWN_TIERS, short=True)
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=content.note, caption_justify="left")
    for header in content.headers:
        grid.add_column(
            header, justify="left" if header in ("Attack", "Tier") else "right", no_wrap=header != "Attack"
        )
    for rows in content.sections:
        last = ""
        for row in rows:
            title, tier, *numbers = (f"{cell.text} {cell.spread}".strip() for cell in row)
            grid.add_row("" if title == last else title, tier, *numbers)
            last = title
        grid.add_section()
    console().print(grid)


def _parser() -> Parser:
    parser = Parser(
        prog="fedepd audit",
        allow_abbrev=False,
        description="Attack a simulated run as its server could, without and with the guard and secure sums, "
        "and print what each attack gets. Writes audit.json and audit.html.",
    )
    parser.add_argument("folder", metavar="RUN", help="the folder given to 'fedepd run --out'")
    parser.add_argument(
        "--data",
        default=None,
        metavar="FILE.npz|FOLDER",
        help="the run's data, if they were moved or came from memory",
    )
    parser.add_argument(
        "--data-dir", default=None, metavar="FOLDER", help="where the datasets are now, if they were moved"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        metavar="N",
        help="rounds of which the server's view is attacked, at most the run's (default: 20)",
    )
    parser.add_argument(
        "--shadows", type=int, default=32, metavar="N", help="shadow models for membership (default: 32)"
    )
    parser.add_argument(
        "--secure-alone", action="store_true", help="attack the run with secure sums and no guard, too"
    )
    parser.add_argument(
        "--distil",
        action="store_true",
        help="attack membership in the model of 'fedepd export --distil', too; it takes three times as long",
    )
    parser.add_argument(
        "--skip",
        default="",
        metavar="A,B",
        help="attacks to leave out: rows, reidentified, classes, recovery, membership, links",
    )
    parser.add_argument(
        "--fail-above",
        action="append",
        default=[],
        metavar="NAME[:TIER]=VALUE",
        help="exit with 1 if a figure of the run's own setting lies above the value, for example "
        "reidentified.rank1=0.05; may be given more than once",
    )
    parser.add_argument(
        "--out", default=None, metavar="FOLDER", help="folder for the two files (default: the run folder)"
    )
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes that train shadow models (default: one per core)",
    )
    add_cluster_options(parser)
    return parser
