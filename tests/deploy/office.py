"""A federation in one process: real executors with real kits, the server's exchange, NVFlare's bytes between.

What is left out are NVFlare's processes and the network. A test can lose or change any answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.fuel.utils import fobs

from deploy.test_through_records import cross
from fedepd.clients.client_file import Unscaled, write_client_file
from fedepd.deploy.exchange import OverNVFlare
from fedepd.deploy.executor import SiteExecutor
from fedepd.deploy.intake import Intake
from fedepd.deploy.kits import site_keys
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.sums import SumsOverNVFlare
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import ENGINE_FIELD, PING
from fedepd.rounds.loop import Round
from fedepd.runs.drive import drive
from fedepd.runs.folder import Json
from fedepd.types import ClientData
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
        self._one_by_one = threading.Lock()
        engine = SimpleNamespace(
            get_clients=lambda: [SimpleNamespace(name=site) for site in task.sites],
            new_context=FLContext,
            send_aux_request=self.send_aux_request,
        )
        self.context = SimpleNamespace(get_engine=lambda: engine)
        self.exchange: Any = self.connect(None)

    def connect(self, declared: Any, lines: Sequence[Mapping[str, Any]] = ()) -> Any:
        """The server, or the server again after a restart."""
        stop, keys = SimpleNamespace(triggered=False), site_keys(self.kits / self.task.sites[0])
        reach = Intake(2**30), self, self.context, stop
        if self.task.experiment().privacy.secure:
            self.exchange = SumsOverNVFlare(self.task, declared, keys, *reach, lines)
        else:
            self.exchange = OverNVFlare(self.task, declared or {}, *reach)
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

    def answer(self, site: str, name: str, record: Mapping[str, Any]) -> Any:
        """What arrives at the server. A lost answer is a failure, so that no test waits for a deadline."""
        with self._one_by_one:
            self.asked.append((site, name))
            answer = self.change(site, name, self.ask(site, name, record))
        return make_reply(ReturnCode.TASK_ABORTED) if answer is None else answer

    # --- what the exchange uses of NVFlare's controller and engine ------------------------------------------

    def broadcast(self, task: Any, fl_ctx: Any, targets: list[str], min_responses: int) -> None:
        (site,) = targets
        answer = self.answer(site, task.name, task.data)
        task.result_received_cb(SimpleNamespace(result=answer), fl_ctx)

    def send_aux_request(
        self, targets: list[str], topic: str, request: Shareable, *_: Any, **__: Any
    ) -> dict[str, Any]:
        if topic == PING:
            return {site: make_reply(ReturnCode.OK) for site in targets}
        (site,), record = targets, {name: value for name, value in request.items() if name != ENGINE_FIELD}
        return {site: self.answer(site, request.get_header(ReservedHeaderKey.TASK_NAME), record)}

    def cancel_task(self, task: Any, fl_ctx: Any) -> None:
        pass

    def run(self, ledger: Ledger | None = None, folder: Path | None = None) -> Ledger:
        """All rounds, as the controller drives them."""
        ledger = ledger or Ledger(self.task)

        def add(each: Round) -> Json:
            if isinstance(self.exchange, OverNVFlare):
                ledger.declare(self.exchange.sizes)
                return ledger.add(each, self.exchange.counts, self.exchange.evaluated)
            ledger.together = self.exchange.summed
            return ledger.add(each, evaluated=self.exchange.evaluated)

        try:
            saves = [] if folder is None else [lambda *_: ledger.save_round(folder)]
            ledger.measure(self.exchange, folder)
            drive(ledger.course(self.exchange, folder), ledger.progress, add, *saves)
            ledger.conclude(self.exchange)
        finally:
            self.exchange.close()
        return ledger


def furnish(kits: Path, sites: list[str], scaled: tuple[int, ...] = (), **more: Any) -> list[Path]:
    """Write each site's client file and tell its kit where it is.

    The columns ``scaled`` are yet to be scaled. Each site's numbers are larger than those of the one before.
    """
    files = []
    for site, client in zip(sites, toy_clients(len(sites), **more), strict=True):
        files.append(kits / f"{site}.npz")
        write_client_file(client, files[-1], raw_columns(client, scaled) if scaled else None)
        (kits / site / "local" / "fedepd.json").write_text(json.dumps({"data": str(files[-1])}))
    return files


def raw_columns(client: ClientData, scaled: tuple[int, ...]) -> Unscaled:
    """The toy's own features, but as if each site measured them around another mean."""
    values = client.graph.x[:, list(scaled)].to_dense().numpy().astype(float)
    return Unscaled(scaled, 40 + 10 * client.client_id + 7 * values)


def answer_of(record: Mapping[str, Any], **parts: Any) -> Shareable:
    """A site's answer with other parts."""
    return Shareable({**record, "parts": {**record["parts"], **parts}})
