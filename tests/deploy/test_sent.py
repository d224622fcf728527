"""The site's own book of what left the house."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedepd.deploy.sent import SENT, Sent, read_sent, record_bytes, vector_bytes
from fedepd.deploy.wire import Sum
from fedepd.errors import BadData


def test_a_vector_has_eight_bytes_a_number_and_weights_belong_to_their_field() -> None:
    layout = (("w", (2, 3)), ("w/weight", (1,)), ("loss", (1,)))
    assert vector_bytes(layout) == {"w": 8 * 7, "loss": 8}


def test_a_record_has_the_bytes_of_its_arrays_numbers_and_texts() -> None:
    record = {"round": 3, "tensors": {"w": np.zeros(5, np.float32)}, "scalars": {"loss": 0.5}}
    assert record_bytes(record) == {"round": 8, "w": 20, "loss": 8}
    assert record_bytes({"label_names": ["ab", "c"], "schema_sha256": "x" * 64}) == {
        "label_names": 3,
        "schema_sha256": 64,
    }


def test_every_line_is_read_again(tmp_path: Path) -> None:
    assert read_sent(tmp_path) == []
    sent, which = Sent(tmp_path), Sum("step", 2)
    sent.note("declaration", 0, {"num_nodes": 8})
    sent.note_masks(which, {"advert": np.zeros((1, 10), np.uint8)})
    sent.note_vector(which, (("w", (2,)),))
    assert read_sent(tmp_path) == [
        {"what": "declaration", "round": 0, "masked": False, "fields": {"num_nodes": 8}},
        {"what": "step", "round": 2, "masked": True, "fields": {"masks": 10}},
        {"what": "step", "round": 2, "masked": True, "fields": {"w": 16}},
    ]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "line", ["[]", "{", '{"what": "step"}', '{"what": 1, "round": 0, "masked": false, "fields": {}}', "3"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    Sent(tmp_path).note("declaration", 0, {})
    with (tmp_path / SENT).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadData, match="line 2"):
        read_sent(tmp_path)
