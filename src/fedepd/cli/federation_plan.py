"""``fedepd federation plan``, ``inspect`` and ``import``: a plan, from its draft to a site's own tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedepd.cli.console import complain, say, say_json
from fedepd.cli.federation_kits import allow_option, pin_option
from fedepd.cli.parser import Parser, add_edge_columns, add_node_columns
from fedepd.errors import BadConfig
from fedepd.shown import listed, shown


def plan(parser: Parser, arguments: list[str]) -> int:
    from fedepd.datasets.table_files import read_table
    from fedepd.deploy.plan_text import EXAMPLE, drafted, plan_text
    from fedepd.files import write_text

    parser.add_argument("file", metavar="FILE.toml", help="the plan to write; it must not exist yet")
    parser.add_argument(
        "--nodes",
        default=None,
        metavar="FILE",
        help="an example table of nodes, CSV or Parquet, to begin with",
    )
    parser.add_argument("--id", default="id", metavar="COLUMN", help="its column of node ids (default: id)")
    parser.add_argument(
        "--label", default=None, metavar="COLUMN", help="its column of classes (default: label)"
    )
    values = parser.parse(arguments)
    path = Path(values.file)
    if os.path.lexists(path):
        raise BadConfig(f"'{shown(path, 300)}' exists already; edit it, or give another name")
    if values.nodes is None:
        if values.label is not None:
            raise BadConfig("--label is given without --nodes; add the table with --nodes FILE")
        write_text(path, plan_text(EXAMPLE, values.file))
        say(f"written to {values.file}, with example classes and columns; put yours in their place")
    else:
        draft = drafted(read_table(values.nodes), values.id, values.label or "label")
        write_text(path, plan_text(draft.plan, values.file, draft.left_out, draft.doubts))
        say(
            f"written to {values.file}: {len(draft.plan.columns)} columns, "
            f"{len(draft.plan.classes)} classes: {listed(draft.plan.classes, 20)}"
        )
        say(*(f"left out: {each}" for each in draft.left_out))
        say("check the classes: their order, and that no site has another one")
        say(*(f"check: {each}" for each in draft.doubts[1:]))
    say(f"next, 'fedepd federation init --plan {values.file} ...' makes the kits")
    return 0


def inspect(parser: Parser, arguments: list[str]) -> int:
    from fedepd import plugins
    from fedepd.deploy.inspection import inspect, lines
    from fedepd.deploy.kits import check_pin, open_kit
    from fedepd.deploy.owner import check_allowed

    parser.add_argument("kit", metavar="KIT", help="the kit that you got from the coordinator")
    parser.add_argument("--json", action="store_true", help="print only JSON")
    pin_option(parser)
    allow_option(
        parser, "a method or backbone of another package that the plan names, in full: package.module.Class"
    )
    values = parser.parse(arguments)
    kit = open_kit(Path(values.kit), "client")
    if values.pin is not None:
        check_pin(kit, values.pin)
    with plugins.only(check_allowed(values.allow)):
        seen = inspect(kit)
    if values.json:
        say_json(asdict(seen))
    else:
        say(*lines(seen))
    return 0


def import_(parser: Parser, arguments: list[str]) -> int:
    from fedepd.datasets.tables import Roles
    from fedepd.deploy.contents import PLAN
    from fedepd.deploy.kits import open_kit
    from fedepd.deploy.site_import import import_file, import_tables

    _import_options(parser)
    values = parser.parse(arguments)
    tables = values.nodes, values.edges
    if (values.data is not None) == any(tables) or any(tables) != all(tables):
        raise BadConfig("give your tables with --nodes and --edges, or one graph file with --data")
    kit = open_kit(Path(values.kit), "client")
    if kit.plan is None:
        raise BadConfig(
            f"'{shown(values.kit, 300)}' has no plan ({PLAN}); make the graph with 'fedepd data import' and "
            f"give it to 'join' with --data"
        )
    ignore = values.unknown_category == "ignore"
    if values.data is not None:
        if values.map:
            raise BadConfig("--map is given with --data; it renames columns of tables only")
        found = import_file(kit.plan, Path(values.data), ignore)
    else:
        roles = Roles(id=values.id, label=values.label, source=values.source, target=values.target)
        found = import_tables(
            kit.plan, Path(values.nodes), Path(values.edges), roles, _map(values.map), ignore
        )
    path = found.write(Path(values.kit))
    for note in found.notes:
        complain(f"note: {note}")
    say(f"{found.graph.num_nodes:,} nodes, {found.graph.num_edges:,} edges, {len(kit.plan.columns)} columns")
    say(*(f"class {shown(name)}: {count:,} nodes" for name, count in found.counts.items()))
    say(f"written to {path}; next, 'fedepd federation preview {values.kit}' shows what would leave")
    return 0


def _import_options(parser: Parser) -> None:
    parser.add_argument("kit", metavar="KIT", help="your kit; the graph is written into its folder 'data'")
    for flag, text in {
        "--nodes": "your table of nodes, CSV or Parquet",
        "--edges": "your table of edges, CSV or Parquet",
        "--data": "a graph of 'fedepd data import' without --scale, instead of tables",
    }.items():
        parser.add_argument(flag, default=None, metavar="FILE", help=text)
    add_node_columns(parser)
    add_edge_columns(parser)
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="your column OLD is what the plan calls NEW; may be repeated",
    )
    parser.add_argument(
        "--unknown-category",
        choices=("refuse", "ignore"),
        default="refuse",
        help="what to do with a value that the plan lacks; ignore: its features are 0 (default: refuse)",
    )


def _map(given: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        old, new = old.strip(), new.strip()
        if not equals or not old or not new or old in out:
            raise BadConfig(f"--map is '{shown(each)}'; give OLD=NEW, each old name once")
        out[old] = new
    return out
