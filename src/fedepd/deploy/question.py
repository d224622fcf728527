"""One question of the server to several sites, as one NVFlare task per site.

A task can reach a site in two ways. NVFlare's own way is to post it: a site asks for tasks again and again,
and asks once more before it sends a result. That takes about a fifth of a second. The other way is to send it
as a request that the site answers at once. NVFlare hands a request to the same executor, through the same
filters of the owner. Where a request breaks off, the task is posted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReservedKey, ReservedTopic, ReturnCode
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.signal import Signal

from fedepd.deploy.wire import Record

BROKEN_OFF = (ReturnCode.COMMUNICATION_ERROR, ReturnCode.TIMEOUT, ReturnCode.ERROR)
"""What NVFlare says in place of a site's answer if it could not bring one."""


class Question:
    def __init__(
        self,
        name: str,
        controller: Any,
        fl_ctx: Any,
        abort_signal: Any,
        heard: Callable[[str], None],
        refused: Callable[[str], bool],
    ) -> None:
        """``heard`` is told every site that answered. ``refused`` says whether a site's answer was dropped
        before it could be read.
        """
        self._name, self._controller, self._fl_ctx = name, controller, fl_ctx
        self._heard, self._refused = heard, refused
        self._over = Signal(parent=abort_signal)
        self._posted: dict[int, Task] = {}
        self.answers: dict[int, Any] = {}
        """For each client: its record, or a text that says why there is none."""
        self.ready = threading.Condition()

    def post(self, client: int, site: str, record: Record) -> None:
        """The site finds the task when it asks for one."""

        def received(client_task: Any, fl_ctx: Any) -> None:
            self._answered(client, site, client_task.result)

        # One task per site: a broadcast would send the first site's message to all of them.
        task = Task(name=self._name, data=Shareable(record), result_received_cb=received)
        with self.ready:
            if not self._over.triggered and client not in self.answers:
                self._posted[client] = task
                self._controller.broadcast(task, self._fl_ctx, targets=[site], min_responses=1)

    def send(self, client: int, site: str, record: Record, seconds: float) -> None:
        """The site gets the task at once. It has this many seconds, and so has each way."""
        threading.Thread(
            target=self._send, args=(client, site, record, seconds), name=f"fedepd-{site}", daemon=True
        ).start()

    def _send(self, client: int, site: str, record: Record, seconds: float) -> None:
        engine = self._fl_ctx.get_engine()
        request = Shareable(record)
        request.set_header(ReservedHeaderKey.TASK_NAME, self._name)
        request.set_header(ReservedHeaderKey.TASK_ID, str(uuid4()))
        context = engine.new_context()
        context.put(ReservedKey.RUN_ABORT_SIGNAL, self._over, private=True, sticky=False)
        answers = engine.send_aux_request(
            [site], ReservedTopic.DO_TASK, request, seconds, context, optional=True
        )
        answer = (answers or {}).get(site)
        if answer is not None and answer.get_return_code() not in BROKEN_OFF:
            self._answered(client, site, answer)
        elif not self._refused(site):
            self.post(client, site, record)

    def _answered(self, client: int, site: str, answer: Any) -> None:
        self._heard(site)
        with self.ready:
            self.answers.setdefault(client, answer)
            self.ready.notify_all()

    def close(self) -> None:
        """What has not been answered is not waited for any longer."""
        with self.ready:
            self._over.trigger(True)
        for client, task in self._posted.items():
            if isinstance(self.answers.get(client, ""), str):
                self._controller.cancel_task(task, fl_ctx=self._fl_ctx)
