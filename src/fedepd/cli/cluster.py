"""``fedepd cluster``: workers on one or several machines, for compare, reproduce, tune and attack."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedepd.cli.console import mention, say
from fedepd.cli.parser import Parser


def cluster(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd cluster",
        allow_abbrev=False,
        description="Workers on one or several machines, for compare, reproduce, tune and attack. Needs the "
        "extra 'cluster'.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    made = actions.add_parser("certificates", help="make the files with which the machines know each other")
    made.add_argument("folder", metavar="FOLDER", help="a new folder; copy it to every machine by a safe way")
    made.add_argument("--days", type=int, default=365, metavar="N", help="valid for N days (default: 365)")
    run = actions.add_parser("start", help="start a scheduler with workers, or workers that join one")
    run.add_argument("--certificates", required=True, metavar="FOLDER", help="what 'certificates' made")
    run.add_argument("--workers", type=int, default=2, metavar="N", help="runs at a time here (default: 2)")
    run.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="IP",
        help="the one address of this machine to listen on (default: 127.0.0.1, this machine alone)",
    )
    run.add_argument(
        "--port", type=int, default=8786, metavar="N", help="the scheduler's port (default: 8786)"
    )
    run.add_argument(
        "--join", default=None, metavar="tls://HOST:PORT", help="start workers alone, for this scheduler"
    )
    values = parser.parse(arguments)
    return _certificates(values) if values.action == "certificates" else _start(values)


def _certificates(values: argparse.Namespace) -> int:
    from fedepd.cluster.certificates import make_certificates

    folder = Path(values.folder)
    make_certificates(folder, values.days)
    say(
        f"certificates: {folder}",
        "whoever has this folder can run programs on every machine of the cluster; keep it to yourself",
    )
    return 0


def _start(values: argparse.Namespace) -> int:
    from fedepd.cluster.pool import check_address
    from fedepd.cluster.start import start

    if values.join is not None:
        check_address(values.join)

    def ready(address: str) -> None:
        count = f"{values.workers} worker" + ("" if values.workers == 1 else "s")
        mention(f"cluster: {count} at {address}; stop with Ctrl-C")

    start(Path(values.certificates), values.workers, values.host, values.port, values.join, ready)
    return 0
