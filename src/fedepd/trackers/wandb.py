"""Weights & Biases: a folder ``wandb`` that ``wandb sync`` can send, or the user's own server.

Choice: offline, unless the environment variable ``WANDB_MODE`` says otherwise. A program that says nothing
about other machines should not talk to one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedepd.shown import slug
from fedepd.trackers.contract import Results, Settings, Tracked

PROJECT = "fedepd"
"""Where runs go, if neither the target nor ``WANDB_PROJECT`` names another project."""
PRIVATE = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
"""What is set before the package is imported: offline, and no report of errors to its makers."""
OFF = {
    "console": "off",  # what the program prints
    "disable_git": True,
    "host": "fedepd",  # in place of the name of the machine
    "disable_code": True,
    "save_code": False,
    "silent": True,
    "x_disable_stats": True,  # load of the machine
    "x_disable_meta": True,  # names of machine, user and program
    "x_disable_machine_info": True,
    "x_save_requirements": False,  # all installed packages
}
"""What Weights & Biases would note beside what it is given. The run folder does not hold it."""


@dataclass(frozen=True)
class WeightsAndBiases:
    """A project."""

    project: str

    def begin(self, name: str, settings: Settings) -> Tracked:
        import wandb

        *above, _ = name.split("/")
        run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT") or PROJECT,
            name=name,
            group="/".join(above) or None,
            config=dict(settings),
            reinit="create_new",  # several runs of a study are open at the same time
            settings=wandb.Settings(**OFF),
        )
        return OneRun(run, slug(name))


@dataclass(frozen=True, eq=False)
class OneRun:
    """One run."""

    run: Any
    name: str

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def conclude(self, results: Results) -> None:
        import wandb
        from PIL import Image

        self.run.summary.update(dict(results.numbers))
        self.run.log(
            {
                f"figures/{name}": wandb.Image(Image.open(io.BytesIO(png)))
                for name, png in results.figures.items()
            }
        )
        held = wandb.Artifact(self.name, type="run")
        for path in results.files:
            held.add_file(str(path))
        self.run.log_artifact(held)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)
