"""The history grows by whole lines, and nothing that was there is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedepd.errors import BadConfig, BadData
from fedepd.model.monitor import HISTORY, add_to_history, check_when, history_of, read_labels


def line(when: str) -> dict[str, Any]:
    return {
        "when": when, "model": "abc", "data": "new.csv", "nodes": 3,
        "figures": {"age": 0.1, "alert rate": None}, "passed": ["age"], "labelled": None,
    }  # fmt: skip


def test_lines_are_added_and_stay_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "monitor"
    assert history_of(folder) == []
    assert add_to_history(folder, line("2026-01")) == [line("2026-01")]
    before = (folder / HISTORY).read_bytes()
    assert add_to_history(folder, line("2026-02")) == [line("2026-01"), line("2026-02")]
    assert (folder / HISTORY).read_bytes().startswith(before)
    assert history_of(folder) == [line("2026-01"), line("2026-02")]
    with pytest.raises(BadConfig, match="has '2026-01' already"):
        add_to_history(folder, line("2026-01"))
    assert len(history_of(folder)) == 2
    (folder / HISTORY).write_text((folder / HISTORY).read_text().rstrip("\n"))  # edited by hand
    assert len(add_to_history(folder, line("2026-03"))) == len(history_of(folder)) == 3


@pytest.mark.parametrize("text", ["{", '{"when": 3}', json.dumps(line("a") | {"figures": {"x": "y"}}), "[]"])
def test_a_damaged_history_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / HISTORY).write_text(text + "\n")
    with pytest.raises(BadData, match="line 1"):
        add_to_history(tmp_path, line("2026-01"))
    assert (tmp_path / HISTORY).read_text() == text + "\n"


def test_a_period_has_a_short_printable_name(tmp_path: Path) -> None:
    assert check_when("2026-02") == "2026-02"
    for wrong in ("", "a" * 61, "a\x1b"):
        with pytest.raises(BadConfig, match="--when is"):
            check_when(wrong)


def test_labels_are_found_by_the_columns_of_the_training_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Konto,art\nk1,mule\nk2,\nk3,clean\n")
    assert read_labels(tmp_path / "a.csv", "Konto", "art") == {"k1": "mule", "k3": "clean"}
    (tmp_path / "b.csv").write_text("id,label\nk1,mule\n")
    assert read_labels(tmp_path / "b.csv", "Konto", "art") == {"k1": "mule"}
    (tmp_path / "c.csv").write_text("id,label\nk1,\n")
    with pytest.raises(BadData, match="holds no label"):
        read_labels(tmp_path / "c.csv", "id", "label")
