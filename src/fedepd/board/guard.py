"""Who may ask the board anything: a browser on this machine that was given the secret, and no other page.

The board starts processes. So a page from elsewhere that the same browser has open must not reach it.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""No script but ours and the charts' own. The charts write styles into their elements, so styles may be."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser hides the origin of our own forms, too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MOST_BODY = 64 * 2**10
"""Most bytes of a form that is sent."""


@dataclass(frozen=True)
class Secret:
    """What a browser must know. The token is in the address that is opened; then a cookie keeps it."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """A name of its own for each port, because browsers share cookies between ports."""
        return f"fedepd-board-{self.port}"

    @property
    def form(self) -> str:
        """What every form must hold. A page that cannot read ours does not know it."""
        return hmac.new(self.token.encode(), b"form", "sha256").hexdigest()

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def is_token(self, given: str) -> bool:
        return same(given, self.token)


def same(given: str, expected: str) -> bool:
    """Compared in a time that says nothing about how much is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


class Guard:
    """Asks every request for its host, its secret and its origin before the board sees it."""

    def __init__(self, app: ASGIApp, secret: Secret) -> None:
        self._app, self._secret = app, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope) if scope["type"] == "http" else PlainTextResponse("", 400)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why the request is not answered, or None."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._secret.hosts:
            return PlainTextResponse("This address is not the board's.\n", 400)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("The board does not know this method.\n", 405)
        if scope["method"] == "POST":
            return self._refused_post(headers, hosts[0])
        if self._secret.is_token(_token_in(scope["query_string"])):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._secret.cookie, self._secret.token, httponly=True, samesite="strict")
            return answer
        return None if self._has_cookie(headers) else _stranger()

    def _refused_post(self, headers: Headers, host: str) -> Response | None:
        """A form comes from a page of ours, or from nobody."""
        if headers.get("origin") != f"http://{host}":
            return PlainTextResponse("This form was not sent by the board's own page.\n", 403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("This form was not sent by the board's own page.\n", 403)
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MOST_BODY:
            return PlainTextResponse(f"A form has at most {MOST_BODY:,} bytes.\n", 413)
        return None if self._has_cookie(headers) else _stranger()

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self._secret.cookie in found and self._secret.is_token(found[self._secret.cookie].value)


def _token_in(query: bytes) -> str:
    try:
        return parse_qs(query.decode("latin-1"), max_num_fields=200).get("token", [""])[0]
    except ValueError:
        return ""


def _stranger() -> Response:
    return PlainTextResponse("Open the address that 'fedepd board' printed: it holds the key.\n", 403)
