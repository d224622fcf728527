"""Events: every round once, with its number as the id, and within a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fedepd.board import live
from fedepd.board.catalogue import Catalogue
from fedepd.runs import record

WriteRun = Callable[..., Path]


def parsed(text: str) -> tuple[str, int | None, Any]:
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    number = fields.get("id")
    return fields["event"], None if number is None else int(number), json.loads(fields["data"])


def unfinished(folder: Path, rounds: int) -> Catalogue:
    (folder / "summary.json").unlink()
    record.write_rounds(folder, map(line, range(1, rounds + 1)))
    return Catalogue(folder.parent)


def line(number: int) -> dict[str, Any]:
    sizes = {"bytes_up": {"a": 3, "b": 4}, "bytes_down": {"a": 5}}
    return {"round": number, "loss": 0.5, "seconds": 1.5, **sizes, "val": {"global": {"bacc": 0.25}}}


async def until_end(stream: AsyncIterator[str]) -> list[tuple[str, int | None, Any]]:
    return [parsed(each) async for each in stream]


async def take(stream: AsyncIterator[str], count: int) -> list[tuple[str, int | None, Any]]:
    return [parsed(await anext(stream)) for _ in range(count)]


def test_a_finished_run_is_told_and_ends(write_run: WriteRun) -> None:
    catalogue = Catalogue(write_run("a", rounds=3).parent)
    (entry,) = catalogue.entries()
    found = asyncio.run(until_end(live.rounds(catalogue, entry, 0)))
    assert [each[:2] for each in found] == [
        ("state", None),
        ("round", 1),
        ("round", 2),
        ("round", 3),
        ("end", None),
    ]


def test_a_point_has_sums_of_bytes() -> None:
    found = live.point(line(4))
    assert found == {"round": 4, "loss": 0.5, "seconds": 1.5, "bytes_up": 7, "bytes_down": 5,
                     "val": {"global": {"bacc": 0.25}}}  # fmt: skip


def test_a_round_is_told_within_a_second_and_a_cut_leaves_no_gap(write_run: WriteRun) -> None:
    folder = write_run("a")
    catalogue = unfinished(folder, 2)
    (entry,) = catalogue.entries()

    async def watch() -> None:
        stream = live.rounds(catalogue, entry, 0)
        assert [each[1] for each in await take(stream, 3)] == [None, 1, 2]
        began = time.monotonic()
        waiting = asyncio.create_task(take(stream, 1))
        await asyncio.sleep(0.1)
        record.add_round(folder, line(3))
        assert [each[1] for each in await waiting] == [3]
        assert time.monotonic() - began < 1 + 0.1
        await stream.aclose()  # type: ignore[attr-defined]
        record.add_round(folder, line(4))
        record.add_round(folder, line(5))
        again = live.rounds(catalogue, entry, 3)  # what the browser says it has
        assert [each[1] for each in await take(again, 3)] == [None, 4, 5]

    asyncio.run(watch())


def test_the_end_comes_after_the_last_round(write_run: WriteRun) -> None:
    folder = write_run("a")
    summary = (folder / "summary.json").read_bytes()
    catalogue = unfinished(folder, 1)
    (entry,) = catalogue.entries()

    async def watch() -> list[Any]:
        stream = live.rounds(catalogue, entry, 0)
        await take(stream, 2)
        record.add_round(folder, line(2))
        (folder / "summary.json").write_bytes(summary)
        return await until_end(stream)

    found = asyncio.run(watch())
    assert [each[0] for each in found] == ["state", "round", "end"]
    assert found[-1][2] == {"state": "finished"}


@pytest.mark.hostile
def test_a_line_that_is_none_ends_the_stream_with_a_sentence(write_run: WriteRun) -> None:
    folder = write_run("a")
    catalogue = unfinished(folder, 1)
    (entry,) = catalogue.entries()
    (folder / "rounds.jsonl").write_text('{"round": "<script>"}\n')
    ((kind, _, said),) = asyncio.run(until_end(live.rounds(catalogue, entry, 0)))
    assert kind == "end"
    assert "rounds.jsonl" in said["why"]


@pytest.mark.hostile
def test_no_content_can_begin_an_event_of_its_own() -> None:
    text = live.event("round", {"val": "x\n\nevent: end\ndata: {}\r\n\u2028"}, 1)
    assert text.count("\n") == 4
    assert "\r" not in text


def test_lists_tell_what_changed(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIST_EVERY", 0.01)
    folder = write_run("a")
    write_run("b")
    catalogue = Catalogue(folder.parent)

    async def watch() -> list[Any]:
        stream = live.runs(catalogue)
        first = (await take(stream, 1))[0][2]
        (folder / "summary.json").unlink()
        changed = (await take(stream, 1))[0][2]
        (folder / "config.json").unlink()
        return [first, changed, (await take(stream, 1))[0][2]]

    first, changed, gone = asyncio.run(watch())
    assert list(first) == ["a", "b"]
    assert list(changed) == ["a"]
    assert "stopped" in changed["a"]
    assert gone == {"a": ""}


def test_a_grid_is_sent_anew(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIST_EVERY", 0.01)
    folder = write_run("s/a")
    catalogue = Catalogue(folder.parents[1])

    async def watch() -> list[str]:
        stream = live.study(catalogue, "s")
        first = (await take(stream, 1))[0][2]["grid"]
        write_run("s/b", seed=1)
        return [first, (await take(stream, 1))[0][2]["grid"]]

    first, second = asyncio.run(watch())
    assert "seed 1" not in first
    assert "seed 1" in second
