"""A checkpoint is believed whole or not at all, and never costs more than its share."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from fedepd.errors import BadData
from fedepd.longtail import Tiers
from fedepd.rounds.in_process import InProcess
from fedepd.runs import checkpoint
from fedepd.runs.checkpoint import Saver, load, remove, restore, save
from fedepd.runs.folder import checkpoints
from fedepd.runs.selection import Best, Progress
from toy import assert_same

TIERS = Tiers((0,), (1,), (2,))


def some_progress(round: int) -> Progress:
    tensors = {
        "encoder.weight": torch.arange(6.0).reshape(2, 3).t() + round,
        "step": torch.tensor(round),
        "empty": torch.empty(0, 3),
    }
    matrix = np.arange(18).reshape(2, 3, 3) + round
    best = {"global": Best(0.1 + 0.2, round, {"global_val": matrix, "global_test": matrix + 1}, tensors)}
    best["personal"] = Best(
        math.nan,
        1,
        {"personal_val": matrix, "personal_test": matrix},
        {"client0.encoder.weight": torch.ones(2)},
    )
    lines = [
        {"round": r, "loss": math.nan if r == 1 else 1 / 3, "bytes_up": {}, "bytes_down": {}}
        for r in range(1, round + 1)
    ]
    return Progress(tensors, "val_macro_f1", TIERS, best=best, lines=lines)


def some_clients(value: float) -> InProcess:
    clients: Any = InProcess([])
    clients.participants = {
        k: SimpleNamespace(size=1, state={"fit.moments.m": torch.full((4,), value + k)}) for k in (1, 10)
    }
    return cast(InProcess, clients)


def _of(clients: InProcess) -> list[Any]:
    return list(clients.participants.values())


def save_rounds(folder: Path, *rounds: int) -> None:
    saver = Saver(folder, 1, "hash")
    for round in rounds:
        saver._cost = 0.0
        saver.after_round(some_progress(round), some_clients(round), (10.0 * round, 5.0))


def restored(
    folder: Path, config_hash: str = "hash"
) -> tuple[Progress, InProcess, tuple[float, float], list[str]]:
    progress, participants = Progress({}, "val_macro_f1", TIERS), some_clients(-1.0)
    return progress, participants, *restore(folder, config_hash, progress, participants)


def test_everything_comes_back(tmp_path: Path) -> None:
    save_rounds(tmp_path, 3)
    progress, participants, seconds, notes = restored(tmp_path)
    wanted = some_progress(3)
    assert_same(progress.tensors, wanted.tensors)
    assert list(progress.tensors) == list(wanted.tensors) != sorted(wanted.tensors), (
        "sums over tensors round by their order"
    )
    for kind, best in wanted.best.items():
        got = progress.best[kind]
        assert_same(got.tensors, best.tensors)
        assert got.round == best.round
        assert got.score == best.score or (math.isnan(got.score) and math.isnan(best.score))
        assert all(np.array_equal(got.confusions[name], matrix) for name, matrix in best.confusions.items())
    assert [line["round"] for line in progress.lines] == [1, 2, 3]
    assert progress.lines[0]["loss"] is None
    assert progress.lines[2]["loss"] == 1 / 3
    for got, was in zip(_of(participants), _of(some_clients(3)), strict=True):
        assert_same(got.state, was.state)
    assert seconds == (30.0, 5.0)
    assert notes == []


def test_the_newest_and_one_before_it_are_kept(tmp_path: Path) -> None:
    save_rounds(tmp_path, *range(8, 13))
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-000012", "checkpoint-000011"]
    (tmp_path / ".checkpoint-000013.77.part").write_bytes(b"half")
    remove(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_saved_is_a_start_from_the_beginning(tmp_path: Path) -> None:
    progress, participants, seconds, notes = restored(tmp_path)
    assert (progress.lines, seconds, notes) == ([], (0.0, 0.0), [])
    assert _of(participants)[0].state["fit.moments.m"][0] == 0.0


def damages(content: bytes) -> list[bytes]:
    """50 lengths, from nothing to all but a byte, and 200 flipped bits all over the file."""
    draws = np.random.default_rng(0)
    out = [content[: len(content) * k // 50] for k in range(50)]
    out[-1] = content[:-1]
    for place in draws.choice(8 * len(content), 200, replace=False):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << (place % 8)
        out.append(bytes(flipped))
    return out


def test_damage_is_never_loaded_and_the_one_before_is_taken_instead(tmp_path: Path) -> None:
    save_rounds(tmp_path, 4, 5)
    newest = checkpoints(tmp_path)[0]
    whole = newest.read_bytes()
    changed = damages(whole)
    assert len(changed) == 250
    for content in changed:
        newest.write_bytes(content)
        with pytest.raises(BadData, match="'checkpoint-000005' is damaged"):
            load(newest, "hash")
        progress, _, _, notes = restored(tmp_path)
        assert len(progress.lines) == 4
        assert notes == [
            "'checkpoint-000005' is damaged (its checksum differs): continued from round 4 instead"
        ]
    newest.write_bytes(whole)
    assert len(restored(tmp_path)[0].lines) == 5


def test_all_damaged_is_a_start_from_the_beginning_that_says_so(tmp_path: Path) -> None:
    save_rounds(tmp_path, 4, 5)
    for path in checkpoints(tmp_path):
        path.write_bytes(b"")
    progress, _, _, notes = restored(tmp_path)
    assert progress.lines == []
    assert notes[0].endswith("started again from round 1")


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    save_rounds(tmp_path, 4)
    assert "belongs to another run (hash)" in restored(tmp_path, "other")[3][0]


def test_a_checksum_alone_makes_no_checkpoint(tmp_path: Path) -> None:
    """Its own checksum is right, but there is no JSON in it."""
    import hashlib

    from safetensors.torch import save as to_bytes

    content = to_bytes({"server/a": torch.ones(1)})
    (tmp_path / "checkpoint-000001").write_bytes(hashlib.sha256(content).digest() + content)
    with pytest.raises(BadData, match="is not a checkpoint"):
        load(tmp_path / "checkpoint-000001", "hash")


def test_saves_take_a_twentieth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes 1 s and a save 0.5 s: after one the next may come 10 s later.

    So it comes in rounds 1, 11, 21, ...: 5 % and no more.
    """
    now = 100.0
    rounds: list[int] = []

    def slow(folder: Path, round: int, *_: Any) -> None:
        nonlocal now
        now += 0.5
        rounds.append(round)

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    saver = Saver(tmp_path, 1, "hash")
    progress = some_progress(1)
    for round in range(1, 31):
        now += 1.0
        progress.lines.append({"round": round})
        saver.after_round(progress, InProcess([]), (0.0, 0.0))
    assert rounds == [1, 11, 21]


@pytest.mark.parametrize(("every", "wanted"), [(0, []), (1, [3, 4]), (3, [3]), (5, [])])
def test_every(tmp_path: Path, every: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)
    saver = Saver(tmp_path, every, "hash")
    for round in (1, 2, 3, 4):
        saver.after_round(some_progress(round), InProcess([]), (0.0, 0.0))
    assert sorted(int(path.name[-6:]) for path in checkpoints(tmp_path)) == wanted


def test_content_is_plain(tmp_path: Path) -> None:
    """Tensors and JSON: nothing in the file can run."""
    save(tmp_path, 7, {"server/a": torch.ones(2)}, {"config_hash": "hash", "lines": []})
    tensors, about = load(tmp_path / "checkpoint-000007", "hash")
    assert_same(tensors, {"server/a": torch.ones(2)})
    assert about == json.loads('{"config_hash": "hash", "lines": []}')
