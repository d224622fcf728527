"""``fedepd federation demo``: a federation of four banks on this machine, from their tables to their models.

Every step is a command that a coordinator or an owner would type. It is shown, and then run.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedepd.cli.console import say
from fedepd.cli.parser import Parser
from fedepd.errors import BadConfig

LOST = "west"
"""The bank whose machine dies during the run."""
UNKNOWN = "south"
"""The bank with a category that the plan lacks."""


def demo(parser: Parser, arguments: list[str]) -> int:
    from fedepd.runs.folder import check_new_run

    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="rounds (default: 30)")
    parser.add_argument(
        "--lose",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="kill one of the four sites during the run (default: yes)",
    )
    parser.add_argument(
        "-o",
        "--out",
        default=None,
        metavar="FOLDER",
        help="keep tables, kits and results in this new folder (default: keep nothing)",
    )
    values = parser.parse(arguments)
    if not 2 <= values.rounds <= 1000:
        raise BadConfig(f"--rounds is {values.rounds}; give 2 to 1000")
    with ExitStack() as stack:
        folder = values.out or stack.enter_context(tempfile.TemporaryDirectory())
        check_new_run(Path(folder))
        Path(folder).mkdir(parents=True, exist_ok=True)
        return 0 if Demo(Path(folder), values.rounds, LOST if values.lose else "").play() else 1


class Demo:
    def __init__(self, folder: Path, rounds: int, victim: str) -> None:
        self.folder, self.rounds, self.victim = folder, rounds, victim
        self.started = time.perf_counter()

    def play(self) -> bool:
        """True if the federation reached the simulation's digest, and every site that lived has a model."""
        from fedepd.deploy.demo_tables import BANKS, write_banks
        from fedepd.deploy.loopback import Parties

        self.banks = write_banks(self.folder / "tables")
        self._prepare()
        kits = {name: self.folder / "fed" / name for name in ("server", "admin", *BANKS)}
        with Parties(kits, self._run_party) as federation:
            self._say("the server and the sites start, each in a process of its own")
            federation.wait(180)
            self._say(f"{len(BANKS)} sites are connected by mutual TLS on one port")
            end = self._train(federation)
            if end["state"] != "done":
                say(f"the run ended without results: {end.get('error', end['state'])}")
                return False
            self._type("federation", "fetch", self._at("fed/admin"), "-o", self._at("run"))
        same = self._compare(end["digest"])
        found = [self._go_home(bank) for bank in BANKS if bank != self.victim]
        self._tell_leaks()
        self._say("all processes are stopped")
        return same and all(found)

    # --- before the first round -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        from fedepd.deploy.demo_tables import BANKS
        from fedepd.deploy.loopback import free_port

        example = self.banks["north"].nodes
        words = ("--nodes", str(example), "--id", "account", "--label", "fraud")
        self._type("federation", "plan", self._at("task.toml"), *words)
        plan = self.folder / "task.toml"
        text = re.sub(r"(?m)^rounds = \d+$", f"rounds = {self.rounds}", plan.read_text())
        plan.write_text(re.sub(r"(?m)^min_sites = \d+$", "min_sites = 3", text))
        self._say(f"the coordinator edits task.toml: rounds = {self.rounds}, min_sites = 3")
        where = ("--host", "localhost", "--port", str(free_port()), "-o", self._at("fed"))
        self._type("federation", "init", "--plan", str(plan), "--sites", ",".join(BANKS), *where)
        self._type("federation", "inspect", self._at(f"fed/{UNKNOWN}"))
        for bank in BANKS:
            self._import(bank)

    def _import(self, bank: str) -> None:
        files = self.banks[bank]
        tables = ("--nodes", str(files.nodes), "--edges", str(files.edges), "--id", "account")
        words = ["federation", "import", self._at(f"fed/{bank}"), *tables, "--label", "fraud"]
        if bank == UNKNOWN:
            self._type(*words, refused=True)
            words += ["--unknown-category", "ignore"]
        self._type(*words)

    # --- the run --------------------------------------------------------------------------------------------

    def _run_party(self, name: str) -> subprocess.Popen[bytes]:
        kit = self.folder / "fed" / name
        words = ["federation", "start" if name == "server" else "join", str(kit)]
        say(f"$ {shlex.join(['fedepd', *words])}")
        with (kit / "console.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "fedepd", *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True, env=dict(os.environ),
            )  # fmt: skip

    def _train(self, federation: Any) -> dict[str, Any]:
        from fedepd.deploy import admin

        kit, alive = self.folder / "fed" / "admin", [self.victim] if self.victim else []
        self._type("federation", "submit", str(kit))

        def tell(now: dict[str, Any]) -> None:
            self._say(admin.describe(now))
            if alive and now.get("state") == "training" and now["round"] >= min(2, self.rounds - 1):
                federation.kill(alive.pop())
                self._say(f"the machine of {self.victim} dies; the others go on")

        return admin.supervise(kit, admin.last_job(kit), tell)

    def _compare(self, digest: str) -> bool:
        """The same task over the same files in this process must give the same bits."""
        from fedepd.deploy import admin
        from fedepd.deploy.contents import SITE_DATA
        from fedepd.deploy.rehearse import rehearse_like

        self.task = admin.last_job(self.folder / "fed" / "admin").task
        self.files = [self.folder / "fed" / site / SITE_DATA for site in self.task.sites]
        expected = rehearse_like(self.task, self.files, self.folder / "run").digest()
        say(f"federation {digest}", f"simulation {expected}")
        same = bool(digest == expected)
        say("the two results are equal bit for bit" if same else "THE DIGESTS DIFFER")
        return same

    # --- what an owner takes home ---------------------------------------------------------------------------

    def _go_home(self, bank: str) -> bool:
        files, kit, model = self.banks[bank], self._at(f"fed/{bank}"), self._at(f"model-{bank}")
        self._type("federation", "model", kit, "-o", model)
        out, new = self._at(f"{bank}-predictions.csv"), (str(files.new_nodes), str(files.new_edges))
        tables = ("--nodes", new[0], "--edges", new[1], "--id", "account")
        self._type("predict", model, *tables, "-o", out)
        with Path(out).open() as rows:
            said = {row["id"]: row["label"] for row in csv.DictReader(rows)}
        kinds = sorted(set(files.truth.values()))
        found = [self._found(said, files.truth, kind) for kind in kinds]
        say(f"of {bank}'s {len(said)} new accounts it finds " + ", ".join(found))
        self._type("federation", "worth", kit)
        return said.keys() == files.truth.keys()

    def _found(self, said: dict[str, str], truth: dict[str, str], kind: str) -> str:
        there = [name for name, true in truth.items() if true == kind]
        return f"{sum(said[name] == kind for name in there)} of {len(there)} {kind}"

    def _tell_leaks(self) -> None:
        """The audit's three main figures, without guard and sums and with the run's own settings."""
        from fedepd.clients.clients_dir import read_paths
        from fedepd.clients.scaling import scaled_together
        from fedepd.privacy.audit import main_figures
        from fedepd.runs.simulation import build

        rounds = min(self.rounds, 10)
        clients = scaled_together(read_paths(self.files, "the banks"))
        found = main_figures(build(self.task.experiment(), clients), rounds)
        say(f"what the coordinator could learn in {rounds} rounds, without guard and sums -> with them:")
        for off, on in zip(found["off"], found["on"], strict=True):
            told = f"{_told(off)} -> {_told(on)}"
            if off.name == "classes.auc" and math.isnan(off.value):
                told = "not to be asked here, every site has every class"
            say(f"  {WORDS.get(off.name, off.name)}: {told}")
        say("'fedepd audit RUN' has all figures, also what the model itself gives away")

    # --- showing and running commands -----------------------------------------------------------------------

    def _at(self, name: str) -> str:
        return str(self.folder / name)

    def _say(self, text: str) -> None:
        say(f"{time.perf_counter() - self.started:.1f} s: {text}")

    def _type(self, *words: str, refused: bool = False) -> None:
        """Show a command and run it. Anything but the expected outcome ends the demo."""
        from fedepd.cli.dispatch import main

        say("", f"$ {shlex.join(['fedepd', *words])}")
        sys.stdout.flush()
        code = main(words)
        sys.stderr.flush()
        if (code != 0) != refused:
            raise BadConfig(f"'fedepd {words[0]} {words[1]}' ended with code {code}; the demo stops here")


WORDS = {
    "rows.few": "class rows of fewer nodes than the guard's minimum",
    "reidentified.rank1": "rows of one node that name their node",
    "classes.auc": "a site's classes told by its update (area; 0.5 is guessing)",
}


def _told(figure: Any) -> str:
    if math.isnan(figure.value):
        return "nothing sent"
    if figure.name.endswith(".auc"):
        return f"{figure.value:.2f}"
    return f"{round(figure.value * figure.cases)} of {figure.cases}"
