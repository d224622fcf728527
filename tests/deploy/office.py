"""A federation in one process: real executors with real kits, the server's exchange, NVFlare's bytes between.

What is left out are NVFlare's processes and the network. A test can lose or change any answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.utils import fobs

from deploy.test_through_records import cross
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.executor import SiteExecutor
from fedepd.deploy.intake import Intake
from fedepd.deploy.kits import site_keys
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.sums import SumsOverNVFlare
from fedepd.deploy.task import FederationTask
from fedepd.rounds.loop import Round
from fedepd.runs.drive import drive
from fedepd.runs.folder import Json
from toy import toy_clients

Change = Callable[[str, str, Any], Any]
"""What becomes of a site's answer to a task; None if it is lost."""


def unchanged(site: str, task: str, answer: Any) -> Any:
    return answer


class Office:
    """``kits``: the folder with the sites' kits."""

    def __init__(self, kits: Path, task: FederationTask, change: Change = unchanged) -> None:
        self.kits, self.task, self.change = kits, task, change
        self.log: dict[str, list[str]] = {site: [] for site in task.sites}
        self.asked: list[tuple[str, str]] = []
        self.sites = {site: self.start(site) for site in task.sites}
        ping = lambda targets, *_, **__: {site: make_reply("OK") for site in targets}  # noqa: E731
        engine = SimpleNamespace(
            get_clients=lambda: [SimpleNamespace(name=site) for site in task.sites],
            new_context=lambda: None,
            send_aux_request=ping,
        )
        self.context = SimpleNamespace(get_engine=lambda: engine)
        self.exchange = self.connect(None)

    def connect(self, declared: Any, lines: Sequence[Mapping[str, Any]] = ()) -> SumsOverNVFlare:
        """The server, or the server again after a restart."""
        stop, keys = SimpleNamespace(triggered=False), site_keys(self.kits / self.task.sites[0])
        reach = Intake(2**30), self, self.context, stop
        self.exchange = SumsOverNVFlare(self.task, declared, keys, *reach, lines)
        return self.exchange

    def start(self, site: str) -> SiteExecutor:
        """A site, or a site again after a restart."""
        kit = self.kits / site
        workspace = SimpleNamespace(
            get_file_path_in_site_config=lambda name: str(kit / "local" / name),
            get_root_dir=lambda: str(kit),
        )
        engine = SimpleNamespace(
            get_workspace=lambda: workspace, register_aux_message_handler=lambda *a: None
        )
        context = SimpleNamespace(get_engine=lambda: engine, get_identity_name=lambda: site)
        made = SiteExecutor(self.task.to_json())
        made.log_error = lambda fl_ctx, text: self.log[site].append(text)
        made.handle_event(EventType.START_RUN, context)
        made.handle_event(EventType.END_RUN, context)  # its bounds on bytes hold for a whole process
        return made

    def ask(self, site: str, name: str, record: Mapping[str, Any]) -> Any:
        answer = self.sites[site].execute(name, cross(dict(record)), None, None)
        return fobs.loads(fobs.dumps(answer))

    # --- what the exchange uses of NVFlare's controller -----------------------------------------------------

    def broadcast(self, task: Any, fl_ctx: Any, targets: list[str], min_responses: int) -> None:
        (site,) = targets
        self.asked.append((site, task.name))
        answer = self.change(site, task.name, self.ask(site, task.name, task.data))
        if answer is not None:
            task.result_received_cb(SimpleNamespace(result=answer), fl_ctx)

    def cancel_task(self, task: Any, fl_ctx: Any) -> None:
        pass

    def run(self, ledger: Ledger | None = None, folder: Path | None = None) -> Ledger:
        """All rounds, as the controller drives them."""
        ledger = ledger or Ledger(self.task)

        def add(each: Round) -> Json:
            ledger.together = self.exchange.summed
            return ledger.add(each, evaluated=self.exchange.evaluated)

        try:
            saves = [] if folder is None else [lambda *_: ledger.save(folder)]
            drive(ledger.course(self.exchange, folder), ledger.progress, add, *saves)
        finally:
            self.exchange.close()
        return ledger


def furnish(kits: Path, sites: list[str], **more: Any) -> list[Path]:
    """Write each site's client file and tell its kit where it is."""
    files = []
    for site, client in zip(sites, toy_clients(len(sites), **more), strict=True):
        files.append(kits / f"{site}.npz")
        write_client_file(client, files[-1])
        (kits / site / "local" / "fedepd.json").write_text(json.dumps({"data": str(files[-1])}))
    return files


def answer_of(record: Mapping[str, Any], **parts: Any) -> Shareable:
    """A site's answer with other parts."""
    return Shareable({**record, "parts": {**record["parts"], **parts}})
