"""Which tracker is meant, and what is refused before a run begins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedepd.errors import BadConfig
from fedepd.trackers.target import free_folder, tracker_of, without_password


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "write it as"),
        ("tensorboard", "without a place"),
        ("tensorboard:", "without a place"),
        ("wandb:", "without a place"),
        ("comet:x", "no tracker 'comet'"),
        ("tensorboard:a\nb", "write it as"),
        ("tensorboard:" + "a" * 1000, "write it as"),
        ("mlflow:folder", "no address of MLflow"),
        ("mlflow:file:///folder", "no address of MLflow"),
        ("mlflow:sqlite:m.db", "no address of MLflow"),
        ("wandb:a/b", "no name of a project"),
        ("wandb:" + "a" * 101, "no name of a project"),
    ],
)
def test_what_is_no_tracker_is_refused_in_one_sentence(target: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said) as caught:
        tracker_of(target)
    assert "\n" not in str(caught.value)


def test_something_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadConfig, match="write it as"):
        tracker_of(3)  # type: ignore[arg-type]


def test_a_file_is_no_folder_for_tensorboard(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(BadConfig, match="is a file; give a folder"):
            tracker_of(f"tensorboard:{tmp_path / place}")


@pytest.mark.parametrize(
    ("target", "module"),
    [
        ("tensorboard:logs", "torch.utils.tensorboard"),
        ("mlflow:sqlite:///m.db", "mlflow"),
        ("wandb", "wandb"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    target: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadConfig, match=rf"pip install 'fedepd\[{target.split(':')[0]}\]'"):
        tracker_of(target)


def test_a_password_is_not_shown() -> None:
    assert without_password("mlflow:postgresql://me:secret@host/db") == "mlflow:postgresql://me:***@host/db"
    assert without_password("tensorboard:logs") == "tensorboard:logs"
    with pytest.raises(BadConfig) as caught:
        tracker_of("mlflow:ftp://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_free_folder_has_a_name_that_nothing_has(tmp_path: Path) -> None:
    assert free_folder(tmp_path, "first").name == "first"
    (tmp_path / "first").mkdir()
    (tmp_path / "first-2").mkdir()
    assert free_folder(tmp_path, "first").name == "first-3"
