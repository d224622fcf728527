"""TensorBoard's own reader finds what was logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.trackers.contract import Results
from fedepd.trackers.tensorboard import TensorBoard, pixels

pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")


def test_tensorboard_reads_what_was_logged(tmp_path: Path, results: Results) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = TensorBoard(tmp_path).begin("study/one", {"protocol.rounds": 3, "model.head": "a|b", "start": None})
    for step in (1, 2):
        run.log({"round/loss": 1 / step}, step)
    read = EventAccumulator(str(tmp_path / "study" / "one"), size_guidance={"images": 0})
    read.Reload()
    assert [(each.step, each.value) for each in read.Scalars("round/loss")] == [(1, 1.0), (2, 0.5)]
    run.conclude(results)
    run.close(True)
    read.Reload()
    tags = read.Tags()
    assert results.numbers.keys() <= set(tags["scalars"])
    (score,) = read.Scalars("test/global/pooled/bacc")
    assert score.value == pytest.approx(results.numbers["test/global/pooled/bacc"])
    assert score.step == results.step
    assert set(tags["images"]) == {f"figures/{name}" for name in results.figures}
    texts = {f"{name}/text_summary" for name in ("settings", "config.json", "summary.json")}
    assert texts <= set(tags["tensors"])
    assert b"a\\|b" in read.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]
    assert "_hparams_/session_start_info" in read.summary_metadata


def test_nothing_is_written_into_the_folder_of_another_run(tmp_path: Path) -> None:
    for _ in range(2):
        TensorBoard(tmp_path).begin("../one", {}).close(True)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == ["one", "one-2", "unnamed"]


def test_a_figure_in_dots(results: Results) -> None:
    picture = pixels(results.figures["convergence"])
    assert picture.shape[1:] == (round(8.6 * 110), 3)
    assert picture.float().mean() > 200  # on white
