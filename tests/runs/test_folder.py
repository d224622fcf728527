"""The run folder's files: all or nothing, and never over another run."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedepd
from fedepd.errors import BadConfig
from fedepd.files import clean, write_bytes
from fedepd.runs.folder import (
    CALIBRATION,
    FILES,
    check_new_run,
    checkpoint_path,
    checkpoints,
    claim_folder,
    copy_finished,
    round_of,
    weights_sha256,
)


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "a", b"old")

    def broken(_: int) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(BadConfig, match=r"a' \(disk full\); 3 bytes are needed"):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert everything(tmp_path) == ["a"]


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    sync = os.fsync

    def watched(handle: int) -> None:
        seen.append((tmp_path / "a").exists())
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    write_bytes(tmp_path / "a", b"content")
    assert seen == [False]
    assert (tmp_path / "a").read_bytes() == b"content"


def test_files_can_be_read_by_whoever_the_users_umask_lets_read(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None), (float("-inf"), None), (np.float32("nan"), None), (np.int64(3), 3),
        ((1.5, float("nan")), [1.5, None]), ({1: {"a": float("nan")}}, {"1": {"a": None}}), ("text", "text"),
        (True, True),
    ],
)  # fmt: skip
def test_json_holds_null_where_a_number_is_not_finite(value: Any, expected: Any) -> None:
    assert clean(value) == expected


LEAVES = st.floats() | st.integers() | st.text(max_size=3) | st.none()


@settings(max_examples=50)
@given(
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    )
)
def test_clean_content_is_always_strict_json(value: Any) -> None:
    json.dumps(clean(value), allow_nan=False)


def test_weights_hash_sees_names_shapes_types_and_bits_but_not_order() -> None:
    a, b = torch.zeros(2, 3), torch.ones(3)
    one = weights_sha256({"a": a, "b": b})
    assert weights_sha256({"b": b, "a": a}) == one
    assert weights_sha256({"a": a.T.contiguous().T, "b": b}) == one  # same values, other memory layout
    tiny = b.clone()
    tiny[0] = torch.nextafter(tiny[0], torch.tensor(2.0))
    others = [
        {"a": a, "c": b},
        {"a": a.reshape(3, 2), "b": b},
        {"a": a.to(torch.int32), "b": b},
        {"a": a, "b": tiny},
        {"a": a},
    ]
    assert len({one, *(weights_sha256(other) for other in others)}) == 6


def test_a_new_folder_is_made_with_its_parents_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    claim_folder(tmp_path / "a" / "b", "0" * 12)
    claim_folder(tmp_path / "a" / "b", "0" * 12)
    assert everything(tmp_path / "a" / "b") == []


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('{"config_hash": "abc"}', "already holds this same run"),
        ('{"config_hash": "xyz"}', r"already holds another run \(xyz\)"),
        ("{", r"already holds another run \(damaged\)"), ("[]", r"already holds another run \(damaged\)"),
    ],
)  # fmt: skip
def test_a_folder_with_a_run_is_refused(tmp_path: Path, config: str, says: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(BadConfig, match=says):
        claim_folder(tmp_path, "abc")
    assert (tmp_path / "config.json").read_text() == config


def test_a_folder_with_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadConfig, match="is not empty"):
        claim_folder(tmp_path, "abc")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for path, says in (
        (tmp_path / "a", "is a file"),
        (tmp_path / "a" / "b", "cannot write to the output folder"),
    ):
        with pytest.raises(BadConfig, match=says):
            claim_folder(path, "abc")


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    check_new_run(tmp_path / "new")
    assert everything(tmp_path) == []


@pytest.mark.hostile
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "deep"])
def test_a_config_that_is_none_still_fills_a_folder(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    ways: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to(path.name),
        "deep": lambda: path.write_text("[" * 100_000),
    }
    ways[kind]()
    with pytest.raises(BadConfig, match=r"already holds another run \(damaged\)|is not empty"):
        check_new_run(tmp_path, "hash")


SOURCE = Path(fedepd.__file__).parent
OWNERS = {
    "runs/folder.py": "the run folder",
    "model/model.py": "the model folder",
    "shapes.py": "the files of a model folder that a run can begin with",
}
"""Who may name these files, and of which folder."""
NAMED = re.compile(
    rf"(?<![\w.-])({'|'.join(map(re.escape, (*FILES, CALIBRATION)))})(?!\w)|checkpoint-(?!every)"
)


def texts(tree: ast.AST) -> list[str]:
    """All texts of a module that are not docstrings."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]


def test_only_the_owner_names_the_files_of_a_run() -> None:
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if any(NAMED.search(text) for text in texts(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert found == OWNERS.keys()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('open("x/config.json")', True),
        ('f"{a}/summary.json"', True),
        ('glob("checkpoint-*")', True),
        ('print("--checkpoint-every")', False),
        ('x = "local/log_config.json"', False),
        ('x = "runs.jsonl"', False),
        ('"Reads config.json."', False),
    ],
)
def test_what_counts_as_naming_a_file(line: str, named: bool) -> None:
    assert any(NAMED.search(text) for text in texts(ast.parse(line))) == named


def test_a_finished_run_is_copied_without_its_checkpoints(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    for folder in (run, out):
        folder.mkdir()
    for file in (*FILES, "checkpoint-000002", ".lock"):
        (run / file).write_text(file)
    copy_finished(run, out)
    assert everything(out) == sorted(FILES)
    assert all((out / file).read_text() == file for file in FILES)


def test_checkpoints_are_found_newest_first_and_by_their_exact_name(tmp_path: Path) -> None:
    for round in (9, 10, 1_000_000):
        checkpoint_path(tmp_path, round).touch()
    for other in ("checkpoint-1", "checkpoint-000011.part", "checkpoint-00000x"):
        (tmp_path / other).touch()
    assert [round_of(path) for path in checkpoints(tmp_path)] == [1_000_000, 10, 9]
