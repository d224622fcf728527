"""``fedepd federation model`` and ``leave``: what an owner takes home, and how it goes."""

from __future__ import annotations

from pathlib import Path

import torch

from fedepd.cli.console import complain, say
from fedepd.cli.parser import Parser
from fedepd.shown import listed, shown


def model(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.taken import take
    from fedepd.model.of_site import SiteModel, export_of_site, scaled_schema
    from fedepd.model.pointed import point_in_words
    from fedepd.runs.folder import check_new_run

    parser.add_argument("kit", metavar="KIT", help="your kit")
    parser.add_argument("-o", "--out", required=True, metavar="MODEL", help="new folder for the model")
    parser.add_argument("--run", default=None, metavar="NAME", help="name of the run, if there were several")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--personal", action="store_true", help="your site's own model instead of the model of all sites"
    )
    instead.add_argument(
        "--adapted",
        action="store_true",
        help="the model of all sites as your site has adapted it, after a run with --adapt",
    )
    values = parser.parse(arguments)
    check_new_run(Path(values.out))
    torch.set_num_threads(1)
    taken = take(Path(values.kit), values.run)
    task, kind = taken.task, "personal" if values.personal else "adapted" if values.adapted else "global"
    schema = taken.data.graph.schema
    site = SiteModel(
        run=task.run,
        experiment=task.experiment(),
        info=task.info(),
        sites=task.sites,
        data=taken.data,
        sites_sha256=task.sites_sha256(),
        kind=kind,
        tensors=taken.model(kind),
        rounds={name: round for name, round in taken.rounds.items() if round},
        tiers=taken.tiers,
        opened=taken.opened,
        label_names=task.label_names or taken.data.graph.label_names,
        schema=scaled_schema(schema, taken.means) if taken.means else schema,
        point=taken.point if kind == "global" else None,
    )
    export_of_site(site, Path(values.out))
    out = Path(values.out)
    if (aim := task.experiment().protocol.aim) and site.point is None:
        why = "the sites found none" if taken.point is None else "it is one of the model of all sites"
        complain(f"note: this model has no operating point for the plan's aim '{shown(aim)}': {why}")
    say(*point_in_words(out))
    say(f"model of run {task.run}: {out}; model card: {out / 'README.md'}")
    say(f"to use it: 'fedepd predict {out} --nodes nodes.csv --edges edges.csv'")
    return 0


def leave(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import open_kit
    from fedepd.deploy.leave import books, end_site, remove_state
    from fedepd.deploy.taken import runs_in

    parser.add_argument("kit", metavar="KIT", help="your kit")
    parser.add_argument(
        "--remove-state",
        action="store_true",
        help="also remove what your site keeps of its runs, models included",
    )
    values = parser.parse(arguments)
    folder = Path(values.kit)
    kit = open_kit(folder, "client")
    ended = end_site(folder)
    say(f"site {kit.name} has stopped" if ended else f"site {kit.name} was not running")
    say("a run that is under way goes on without it, if enough sites are left")
    if values.remove_state:
        removed = remove_state(folder)
        say(f"removed the state of: {listed(removed)}" if removed else "there was no state to remove")
        if books(folder).is_dir():
            say(f"kept: {books(folder)}, the books of what your site has answered, in case you join again")
    elif runs := runs_in(folder):
        say(f"state of runs: {listed(runs)}, in {folder / 'state'}; --remove-state removes it")
    say(f"to come back: 'fedepd federation join {folder} --data FILE.npz'")
    return 0
