"""MinCount: what it hides, and what it does not, as its text says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable

from fedepd.deploy import filters
from fedepd.deploy.filters import MinCount
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import Refused, reply_record
from fedepd.errors import BadConfig
from toy import FEATURES, toy_client

DECLARED = ("train", "val", "test")


def test_every_count_by_class_of_a_declaration_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the declaration's fields are called."""
    monkeypatch.setattr(filters, "record_kind", lambda record: "train")
    sizes = {name: np.array([12, 9, 10, 0]) for name in DECLARED}
    out = MinCount(10).process(Shareable({"num_nodes": 31, "num_train": 21, **sizes}), None)
    assert [out[name].tolist() for name in DECLARED] == [[12, 0, 10, 0]] * 3
    assert all(out[name].dtype == np.int64 for name in DECLARED)
    assert (out["num_nodes"], out["num_train"]) == (31, 21)


@pytest.mark.hostile
@pytest.mark.parametrize("value", [np.ones(3), np.ones((3, 3), dtype=np.int64), np.array(["a"]), np.ones(3, dtype=np.int32)])
def test_a_declaration_of_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(filters, "record_kind", lambda record: "train")
    with pytest.raises(Refused, match="not a count for each class"):
        MinCount(10).process(Shareable({"num_nodes": 31, "train": value}), None)


@pytest.mark.hostile
@pytest.mark.parametrize("k", [0, -1, True, 2.5, "10", None, float("nan")])
def test_a_k_that_hides_nothing_is_refused(k: Any) -> None:
    with pytest.raises(BadConfig, match="whole number"):
        MinCount(k)


def test_classes_stay_visible_in_the_model_and_their_total_in_num_train() -> None:
    """Class 3 of 4 is absent, classes 0 to 2 are below k: the signs of the bias update tell them apart after the filter too."""
    data = toy_client(0, nodes=24)
    task = FederationTask("r", "fedepd", "default", {"hidden": 8, "rounds": 1}, FEATURES, 4, ("a",))
    server, method = task.server(), task.experiment().method
    message = method.message(method.server_init(server, server.model.initial(server.info, server.seed)), 0)
    participant = task.participant(replace(data, graph=replace(data.graph, num_classes=4)))
    record = Shareable(reply_record(participant.step(1, message)))
    hidden = MinCount(1000).process(record, None)
    assert not hidden["tensors"]["prototype.count"].any()
    update = torch.from_numpy(hidden["tensors"]["classifier.bias"]) - message["classifier.bias"]
    assert float(update[3]) < float(update[:3].min())
    assert hidden["num_train"] == int(data.train_mask.sum())


def test_the_text_says_so() -> None:
    text = " ".join((MinCount.__doc__ or "").split())
    for words in ("not which classes a site has", "classifier.bias", "num_train", "no protection of rare classes"):
        assert words in text
