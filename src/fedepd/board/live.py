"""Server-sent events: rounds as they are written, and lists as they change.

An event of a round has the round's number as its id. A browser that was cut off names the last id that it
has seen, so it misses no round and gets none twice.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio import sleep, to_thread

from fedepd.board.catalogue import Catalogue, Entry
from fedepd.board.pages import grid_html, row_html
from fedepd.errors import FedEPDError
from fedepd.files import clean
from fedepd.runs.follow import Follower
from fedepd.shown import shown

LOOK_EVERY = 0.3
"""Seconds between two looks at a run's rounds."""
LIST_EVERY = 1.0
BEAT = 15.0
"""Seconds after which a comment is sent, so that a closed connection is noticed."""
MOST_STREAMS = 32
Closing = Callable[[], bool]
"""Whether the board is about to end. A stream that did not ask would keep it waiting."""


def never() -> bool:
    return False


def event(kind: str, content: Any, number: int | None = None) -> str:
    """One event. JSON has no raw line end, so the content is one line whatever it holds."""
    head = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{head}data: {json.dumps(clean(content))}\n\n"


def point(line: dict[str, Any]) -> dict[str, Any]:
    """What the curves show of a round."""
    return {
        "round": line["round"],
        "loss": line.get("loss"),
        "seconds": line.get("seconds"),
        **{way: sum(line.get(way, {}).values()) for way in ("bytes_up", "bytes_down")},
        "val": {shown(model): {shown(name): value for name, value in scores.items()}
                for model, scores in line.get("val", {}).items()},
    }  # fmt: skip


async def rounds(
    catalogue: Catalogue, entry: Entry, after: int, closing: Closing = never
) -> AsyncIterator[str]:
    """The rounds of a run from ``after`` on. It ends when the run does, or the board."""
    follower, state, quiet = Follower(catalogue.path(entry), after), "", 0.0
    while not closing():
        try:
            now = await to_thread.run_sync(catalogue.state_of, entry)  # before the last rounds are read
            lines = await to_thread.run_sync(follower.more)
        except FedEPDError as mistake:
            yield event("end", {"state": "refused", "why": shown(mistake, 400)})
            return
        if now != state:
            state = now
            yield event("state", {"state": state})
        for line in lines:
            yield event("round", point(line), line["round"])
        if lines:
            continue
        if state in ("finished", "refused"):
            yield event("end", {"state": state})
            return
        quiet += LOOK_EVERY
        if quiet >= BEAT:
            quiet = 0.0
            yield ": still here\n\n"
        await sleep(LOOK_EVERY)


async def changes(look: Callable[[], dict[str, str]], kind: str, closing: Closing) -> AsyncIterator[str]:
    """What ``look`` gives at first, and then each part that has changed. A part that is gone is empty."""
    before: dict[str, str] = {}
    quiet = 0.0
    while not closing():
        now = await to_thread.run_sync(look)
        changed = {name: now.get(name, "") for name in {**before, **now} if before.get(name) != now.get(name)}
        before = now
        if changed:
            yield event(kind, changed)
        quiet = 0.0 if changed else quiet + LIST_EVERY
        if quiet >= BEAT:
            quiet = 0.0
            yield ": still here\n\n"
        await sleep(LIST_EVERY)


def runs(catalogue: Catalogue, closing: Closing = never) -> AsyncIterator[str]:
    return changes(lambda: {each.id: row_html(each) for each in catalogue.entries()}, "rows", closing)


def study(catalogue: Catalogue, folder: str, closing: Closing = never) -> AsyncIterator[str]:
    return changes(lambda: {"grid": grid_html(catalogue.entries(), folder)}, "grid", closing)
