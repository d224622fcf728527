"""MinCount: what it hides, and what it does not, as its text says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable

from fedepd.deploy.filters import MinCount
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import CLASS_SIZES, Refused, reply_record
from fedepd.errors import BadConfig
from toy import FEATURES, toy_client


def declaration(**sizes: Any) -> Shareable:
    return Shareable(
        {"num_nodes": 31, "num_train": 21, "class_sizes": sizes, "label_names": [], "schema_sha256": ""}
    )


def test_every_count_by_class_of_a_declaration_is_hidden() -> None:
    sizes = {name: np.array([12, 9, 10, 0]) for name in CLASS_SIZES}
    out = MinCount(10).process(declaration(**sizes), None)
    assert [out["class_sizes"][name].tolist() for name in CLASS_SIZES] == [[12, 0, 10, 0]] * 3
    assert all(out["class_sizes"][name].dtype == np.int64 for name in CLASS_SIZES)
    assert (out["num_nodes"], out["num_train"]) == (31, 21)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "value", [np.ones(3), np.ones((3, 3), dtype=np.int64), np.array([True]), np.ones(3, dtype=np.int32)]
)
def test_a_declaration_of_something_else_is_refused(value: Any) -> None:
    with pytest.raises(Refused, match="not a count for each class"):
        MinCount(10).process(declaration(train=value), None)


@pytest.mark.hostile
@pytest.mark.parametrize("k", [0, -1, True, 2.5, "10", None, float("nan")])
def test_a_k_that_hides_nothing_is_refused(k: Any) -> None:
    with pytest.raises(BadConfig, match="whole number"):
        MinCount(k)


def test_classes_stay_visible_in_the_model_and_their_total_in_num_train() -> None:
    """Class 3 of 4 is absent, classes 0 to 2 are below k.

    The signs of the bias update tell them apart after the filter too.
    """
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
    for words in (
        "not which classes a site has",
        "classifier.bias",
        "num_train",
        "does not hide rare classes from the server",
    ):
        assert words in text
