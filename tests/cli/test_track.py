"""``fedepd track`` and the option ``--track``."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.cli import main
from fedepd.trackers import content

pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")
RUN = ["run", "fedavg", "--rounds", "2", "--clients", "3", "--hidden", "8", "--backbone", "gcn", "--quiet"]


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds. tests/trackers has them."""
    monkeypatch.setattr(content, "_drawings", lambda run: ())


def test_a_run_is_tracked_live_and_again_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time is a run of its own at the tracker. Both have the same numbers."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs, out = tmp_path / "logs", tmp_path / "first"
    assert main([*RUN, "--out", str(out), "--track", f"tensorboard:{logs}"]) == 0
    assert main(["track", str(out), "--to", f"tensorboard:{logs}"]) == 0
    assert f"1 run sent to tensorboard:{logs}" in capsys.readouterr().out
    read = [EventAccumulator(str(logs / name)) for name in ("first", "first-2")]
    for each in read:
        each.Reload()
    scalars = [
        {
            tag: [(point.step, point.value) for point in each.Scalars(tag)]
            for tag in each.Tags()["scalars"]
        }
        for each in read
    ]  # fmt: skip
    assert scalars[0] == scalars[1]
    assert [step for step, _ in scalars[0]["round/loss"]] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["track", "FOLDER", "--to", "comet:x"], "no tracker 'comet'"),
        (["track", "FOLDER", "--to", "tensorboard:logs"], "holds no run"),
        (["track", "FOLDER"], "required: --to"),
        ([*RUN, "--track", "tensorboard:logs"], "give an output folder"),
        ([*RUN, "--track", "comet:x"], "no tracker 'comet'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(tmp_path) if word == "FOLDER" else word for word in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
