"""What a click can do: start a run, stop one that the board started, resume one that stopped."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from fedepd.board import form
from fedepd.board.catalogue import Catalogue, Entry
from fedepd.board.guard import MOST_BODY, Secret, same
from fedepd.board.processes import Processes
from fedepd.board.settings import Settings
from fedepd.errors import BadConfig
from fedepd.shown import shown, slug


class Actions:
    """The forms, and what is done with what they send."""

    def __init__(self, catalogue: Catalogue, secret: Secret) -> None:
        self._catalogue, self._secret = catalogue, secret
        self.processes, self._settings = Processes(catalogue.root), Settings()

    def routes(self) -> list[Any]:
        posts = {"/start": self._start, "/stop": self._stop, "/resume": self._resume}
        return [
            Route("/new", self.new),
            *(Route(path, self._posted(do), methods=["POST"]) for path, do in posts.items()),
        ]

    def new(self, request: Request) -> Response:
        """An empty form."""
        method = request.query_params.get("method", form.FIRST)
        about = self._about(method)
        taken = {each.id for each in self._catalogue.entries()}
        names = (f"{slug(method)}-{number}" for number in range(1, len(taken) + 2))
        free = next(name for name in names if name not in taken)
        return HTMLResponse(form.form_page(method, about, self._secret.form, free))

    def buttons(self, entry: Entry) -> str:
        """What can be done with a run now."""
        found = []
        has_let_go = entry.state == "stopped" and self.processes.is_ending(entry.id)
        if self.processes.is_ours(entry.id) and not has_let_go:
            found.append(form.button("/stop", entry.id, "Stop", self._secret.form))
        elif entry.state == "stopped" and not entry.sites:
            found.append(form.button("/resume", entry.id, "Resume", self._secret.form))
        return f'<div class="actions">{"".join(found)}</div>' if found else ""

    def starting(self, name: str) -> Response | None:
        """A page for a run that was started here and has written nothing; None for any other."""
        failure = self.processes.failure(name)
        if failure or self.processes.is_starting(name):
            return HTMLResponse(form.starting_page(name, failure))
        return None

    def _about(self, method: str) -> form.Json:
        if not method.isidentifier() or len(method) > 80:
            raise BadConfig(f"there is no method '{shown(method)}'; 'fedepd methods' lists them")
        return self._settings.of(method)

    def _posted(self, do: Any) -> Any:
        async def answer(request: Request) -> Response:
            sent = await _sent(request)
            if not same(sent.get("form", ""), self._secret.form):
                return PlainTextResponse("This form was not made by the board.\n", 403)
            name = await run_in_threadpool(do, sent)
            return RedirectResponse(f"/run?{urlencode({'run': name})}", 303)

        return answer

    def _start(self, sent: dict[str, str]) -> str:
        method, name = sent.get("method", ""), sent.get("name", "").strip()
        options = form.asked(sent, self._about(method))
        self.processes.start(name, method, options)
        return name

    def _stop(self, sent: dict[str, str]) -> str:
        name = sent.get("run", "")
        self.processes.stop(name)
        return name

    def _resume(self, sent: dict[str, str]) -> str:
        entry = self._catalogue.entry(sent.get("run", ""))
        if entry.state != "stopped" or entry.sites:
            raise BadConfig(
                f"'{entry.name}' is not a stopped run of this machine, so it cannot be resumed here"
            )
        self.processes.resume(entry.id)
        return entry.id


async def _sent(request: Request) -> dict[str, str]:
    """The fields of a form. The guard has looked at its length; what comes is counted again."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise BadConfig(f"a form has at most {MOST_BODY:,} bytes; send less")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=500)
    except ValueError as cause:
        raise BadConfig("the form cannot be read; open it again") from cause
    return {name: values[-1] for name, values in fields.items()}
