"""One site: holds its graph and one ``Participant``, answers steps, evaluations and pings. Nothing else leaves the house."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.utils.memory_utils import cleanup_memory

from fedepd.deploy.agreement import schema_sha256
from fedepd.deploy.kits import SITE_FILE
from fedepd.deploy.state import SiteState
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import (
    DECLARE,
    EVALUATE,
    PING,
    STEP,
    TIDY_EVERY,
    Refused,
    confusions_record,
    declaration_record,
    read_message,
    reply_record,
)
from fedepd.errors import BadConfig, FedEPDError
from fedepd.participant import Participant


class SiteExecutor(Executor):  # type: ignore[misc]
    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task
        self._participant: Participant | None = None
        self._states: SiteState | None = None
        self._agreement: tuple[tuple[str, ...], str] = (), ""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(PING, lambda topic, request, fl_ctx: make_reply(ReturnCode.OK))
            try:
                self._start(fl_ctx)
            except FedEPDError as mistake:
                self.log_error(fl_ctx, f"this site takes no part in the run: {mistake}")

    def _start(self, fl_ctx: Any) -> None:
        torch.set_num_threads(1)
        workspace, site = fl_ctx.get_engine().get_workspace(), fl_ctx.get_identity_name()
        task = FederationTask.from_json(self.task)
        settings = workspace.get_file_path_in_site_config(SITE_FILE)
        if not settings:
            raise BadConfig(f"the kit has no local/{SITE_FILE}; start the site with 'fedepd federation join KIT --data FILE.npz'")
        data = site_data(task, site, json.loads(Path(settings).read_bytes())["data"])
        participant = task.participant(data)
        participant.prepare()
        self._states = SiteState(Path(workspace.get_root_dir()) / "state" / task.run, task.identity())
        self._agreement = data.graph.label_names, schema_sha256(data.graph.schema)
        self._participant = participant

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        if self._participant is None or self._states is None:
            return make_reply(ReturnCode.TASK_UNSUPPORTED)
        try:
            if task_name == DECLARE:
                return Shareable(declaration_record(self._participant.sizes, *self._agreement))
            round, message = read_message(shareable)
            if task_name == STEP:
                return self._step(self._participant, self._states, round, message)
            if task_name == EVALUATE:
                self._participant.state = self._states.before(round + 1)
                return Shareable(confusions_record(round, self._participant.evaluate(round, message)))
            return make_reply(ReturnCode.TASK_UNKNOWN)
        except (FedEPDError, Refused, OSError) as fault:
            # The reason stays in the site's own log: an exception's text can hold data.
            self.log_error(fl_ctx, f"{task_name} failed: {fault}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def _step(self, participant: Participant, states: SiteState, round: int, message: dict[str, torch.Tensor]) -> Shareable:
        participant.state = states.before(round)
        reply = participant.step(round, message)
        states.save(round, participant.state)
        if round % TIDY_EVERY == 0:
            cleanup_memory()
        return Shareable(reply_record(reply))
