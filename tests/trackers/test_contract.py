"""Each tracker keeps the contract."""

from __future__ import annotations

import inspect

import pytest

from fedepd.trackers.contract import Tracked, Tracker
from fedepd.trackers.mlflow import Entry, MLflow
from fedepd.trackers.tensorboard import Events, TensorBoard
from fedepd.trackers.wandb import OneRun, WeightsAndBiases


@pytest.mark.parametrize(
    ("contract", "cls"),
    [
        *((Tracker, cls) for cls in (TensorBoard, MLflow, WeightsAndBiases)),
        *((Tracked, cls) for cls in (Events, Entry, OneRun)),
    ],
)
def test_every_function_of_the_contract_is_there(contract: type, cls: type) -> None:
    promised = {name: value for name, value in vars(contract).items() if inspect.isfunction(value)}
    promised = {name: value for name, value in promised.items() if not name.startswith("_")}
    assert promised
    for name, function in promised.items():
        assert inspect.signature(getattr(cls, name)) == inspect.signature(function)
