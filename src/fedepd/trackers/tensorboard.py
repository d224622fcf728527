"""TensorBoard: event files in a folder, one folder per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedepd.files import MAX_JSON_BYTES, regular_content
from fedepd.shown import markdown_text, slug
from fedepd.trackers.contract import Results, Settings, Tracked

MOST_TEXT = 1_000_000
"""Characters of a file that are shown as text."""


@dataclass(frozen=True)
class TensorBoard:
    """A folder that ``tensorboard --logdir`` shows."""

    folder: Path

    def begin(self, name: str, settings: Settings) -> Tracked:
        from torch.utils.tensorboard import SummaryWriter

        from fedepd.trackers.target import free_folder

        *above, last = (slug(part) for part in name.split("/"))
        target = free_folder(self.folder.joinpath(*above), last)
        writer = SummaryWriter(str(target))
        rows = (f"| {markdown_text(key)} | {markdown_text(value)} |" for key, value in settings.items())
        writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]), 0)
        writer.flush()
        return Events(writer, settings)


@dataclass(frozen=True, eq=False)
class Events:
    """One run's event file."""

    writer: Any
    settings: Settings

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def conclude(self, results: Results) -> None:
        self.log(results.numbers, results.step)
        self._hyperparameters([name for name in results.numbers if name.startswith("test/")])
        for name, png in results.figures.items():
            self.writer.add_image(f"figures/{name}", pixels(png), results.step, dataformats="HWC")
        for path in results.files:
            text = regular_content(path, MAX_JSON_BYTES)[:MOST_TEXT].decode("utf-8", "replace")
            self.writer.add_text(path.name, f"```json\n{text}\n```", results.step)
        self.writer.flush()

    def _hyperparameters(self, names: list[str]) -> None:
        """The settings beside the test scores, in TensorBoard's table of runs."""
        from torch.utils.tensorboard import summary

        hparams: Any = summary.hparams  # torch gives no types for it
        known = {key: "none" if value is None else value for key, value in self.settings.items()}
        for part in hparams(known, dict.fromkeys(names, 0.0)):
            self.writer.file_writer.add_summary(part)

    def close(self, finished: bool) -> None:
        self.writer.close()


def pixels(png: bytes) -> torch.Tensor:
    """A PNG as uint8 [height, width, 3]."""
    import io

    import numpy as np
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(png)).convert("RGB")))
