"""Asks the board as a browser would, without a network."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedepd.board.app import Board, make_app
from fedepd.board.catalogue import Catalogue
from fedepd.board.guard import Guard, Secret

PORT = 8123
HOST = f"127.0.0.1:{PORT}"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


class Asker:
    """A board of a folder, and a browser that knows its secret unless it is told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.secret = Secret(PORT)
        self.board = Board(Catalogue(folder), self.secret)
        self.app: Guard = make_app(self.board)

    @property
    def cookie(self) -> str:
        return f"{self.secret.cookie}={self.secret.token}"

    def get(self, path: str, method: str = "GET", body: bytes = b"", **headers: str | None) -> Answer:
        known: dict[str, str | None] = {"host": HOST, "cookie": self.cookie}
        sent = {**known, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return asyncio.run(_asked(self.app, path, method, body, sent))

    def post(self, path: str, body: str, **headers: str | None) -> Answer:
        data = body.encode()
        usual: dict[str, str | None] = {"origin": f"http://{HOST}", "content_length": str(len(data))}
        return self.get(path, "POST", data, **{**usual, **headers})


async def _asked(app: Any, path: str, method: str, body: bytes, headers: dict[str, str | None]) -> Answer:
    route, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": route, "raw_path": route.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value is not None],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    messages: list[Any] = []
    sent = False

    async def receive() -> Any:
        nonlocal sent
        if sent:
            await asyncio.sleep(3600)
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    content = b"".join(each.get("body", b"") for each in messages[1:])
    return Answer(messages[0]["status"], head, content.decode("utf-8", "replace"))
