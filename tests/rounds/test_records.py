"""What goes from one process to another comes out bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedepd.errors import BadData
from fedepd.rounds.records import from_bytes, to_bytes
from fedepd.types import Reply


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, -0.0, 1e-45, math.inf]),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.tensor([0.1], dtype=torch.float64),
    ],
)
def test_a_tensor_keeps_its_bits_and_its_shape(value: torch.Tensor) -> None:
    found = from_bytes(to_bytes({"a": value}))["a"]
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert found.numpy().tobytes() == value.contiguous().numpy().tobytes()


def test_plain_values_stay_and_tables_keep_their_order_and_their_numbers() -> None:
    value = {7: "seven", 3: [None, True, 0.1, 2**60, {"b": 1, "a": 2}]}
    found = from_bytes(to_bytes(value))
    assert found == value
    assert list(found) == [7, 3]
    assert list(found[3][4]) == ["b", "a"]
    assert math.isnan(from_bytes(to_bytes(float("nan"))))


def test_a_reply_and_a_vector() -> None:
    reply = Reply({"w": torch.ones(2)}, 5, 3, {"loss": 1 / 3}, 4, 2, (1, 2), {"w": 8}, {"w": 16})
    found, vector = from_bytes(to_bytes([reply, np.arange(3)]))
    assert torch.equal(found.tensors["w"], torch.ones(2))
    assert {**vars(found), "tensors": 0} == {**vars(reply), "tensors": 0}
    assert vector.dtype == np.int64
    assert vector.tolist() == [0, 1, 2]


def test_a_tensor_for_many_travels_once() -> None:
    """1,000 numbers of 4 bytes for 50 clients: less than two copies of them."""
    message = {"w": torch.zeros(1000)}
    content = to_bytes({k: dict(message) for k in range(50)})
    assert len(content) < 8000
    found = from_bytes(content)
    assert found[0]["w"] is found[49]["w"]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(BadData, match="a message between processes cannot be read"):
        from_bytes(b"nothing")
