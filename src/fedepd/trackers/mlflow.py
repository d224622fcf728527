"""MLflow: a database or a server that takes runs.

The client is used, and not the functions that people call in their scripts. Those also note the user's name,
the script and the state of git.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedepd.trackers.contract import Results, Settings, Tracked

EXPERIMENT = "fedepd"
"""Where runs go, if ``MLFLOW_EXPERIMENT_NAME`` names no other experiment."""
AT_ONCE = 100
"""MLflow takes at most so many settings with one request. Of numbers it takes more."""
LONGEST_VALUE = 6000
"""Characters of a setting that MLflow takes."""
PRIVATE = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it reports its use to its makers otherwise
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # seven are usual, and take minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""What is set before MLflow is imported: it reports nothing, and gives up on a dead server in time."""


@dataclass(frozen=True)
class MLflow:
    """A place that ``mlflow ui --backend-store-uri`` shows."""

    uri: str

    @cached_property
    def client(self) -> Any:
        from mlflow import MlflowClient

        for name in ("alembic", "mlflow"):  # they tell about every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self.client.get_experiment_by_name(name)
        return str(self.client.create_experiment(name) if found is None else found.experiment_id)

    def begin(self, name: str, settings: Settings) -> Tracked:
        from mlflow.entities import Param

        run = self.client.create_run(self.experiment, run_name=name).info.run_id
        values = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in settings.items()]
        for some in _parts(values):
            self.client.log_batch(run, params=some)
        return Entry(self.client, run)


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + AT_ONCE] for start in range(0, len(values), AT_ONCE))


@dataclass(frozen=True, eq=False)
class Entry:
    """One run."""

    client: Any
    run: str

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        values = [Metric(key, value, now, step) for key, value in numbers.items()]
        for some in _parts(values):
            self.client.log_batch(self.run, metrics=some)

    def conclude(self, results: Results) -> None:
        self.log(results.numbers, results.step)
        for path in results.files:
            self.client.log_artifact(self.run, str(path))
        with tempfile.TemporaryDirectory(prefix="fedepd-") as spare:
            for name, png in results.figures.items():
                path = Path(spare) / f"{name}.png"
                path.write_bytes(png)
                self.client.log_artifact(self.run, str(path), "figures")

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")
