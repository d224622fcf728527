"""The run folder's files: all or nothing, and never over another run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fedepd.errors import BadConfig
from fedepd.runs.folder import (
    append_line,
    check_new_folder,
    claim_folder,
    clean,
    environment,
    weights_sha256,
    write_arrays,
    write_bytes,
    write_json,
    write_tensors,
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
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append((tmp_path / "a").exists()), sync(handle)))
    write_bytes(tmp_path / "a", b"content")
    assert seen == [False]
    assert (tmp_path / "a").read_bytes() == b"content"


def test_files_can_be_read_by_whoever_the_users_umask_lets_read(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize(
    ("value", "expected"),
    [(float("nan"), None), (float("-inf"), None), (np.float32("nan"), None), (np.int64(3), 3), ((1.5, float("nan")), [1.5, None]),
     ({1: {"a": float("nan")}}, {"1": {"a": None}}), ("text", "text"), (True, True)],
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


def test_json_lines_and_arrays_come_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": float("nan")})
    append_line(tmp_path / "a.jsonl", {"round": 1})
    append_line(tmp_path / "a.jsonl", {"round": 2})
    write_arrays(tmp_path / "a.npz", {"matrix": np.eye(2, dtype=np.int64), "tensor": torch.arange(3)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": None}
    assert (tmp_path / "a.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert file["matrix"].tolist() == [[1, 0], [0, 1]]
        assert file["tensor"].tolist() == [0, 1, 2]


def test_tensors_come_back_even_if_they_share_memory(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "a.safetensors", {"whole": whole, "view": whole.T})
    back = load_file(tmp_path / "a.safetensors")
    assert torch.equal(back["whole"], whole)
    assert torch.equal(back["view"], whole.T)
    assert everything(tmp_path) == ["a.safetensors"]


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
    [('{"config_hash": "abc"}', "already holds this same run"), ('{"config_hash": "xyz"}', r"already holds another run \(xyz\)"),
     ("{", r"already holds another run \(damaged\)"), ("[]", r"already holds another run \(damaged\)")],
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
    check_new_folder(tmp_path / "new")
    assert everything(tmp_path) == []


def test_environment_is_json_and_names_what_a_number_depends_on() -> None:
    found = environment()
    json.dumps(found, allow_nan=False)
    assert {"fedepd", "torch", "numpy", "scipy", "python", "platform", "cpu_count", "threads"} <= found.keys()
