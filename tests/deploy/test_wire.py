"""Records: what is agreed passes bit for bit, everything else is refused by the name of the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedepd.deploy.wire import (
    Refused,
    confusions_record,
    declaration_record,
    message_record,
    read_confusions,
    read_declaration,
    read_message,
    read_reply,
    reply_record,
    to_tensors,
)
from fedepd.types import Reply, Sizes
from toy import CLASSES


def reply(**more: Any) -> dict[str, Any]:
    return {**reply_record(Reply({"w": torch.arange(6.0).reshape(2, 3)}, 10, 6, {"loss": 0.25}, 4)), **more}


def confusions(**more: Any) -> dict[str, Any]:
    names = [f"{kind}_{split}" for kind in ("global", "personal") for split in ("val", "test")]
    matrices = {name: torch.arange(CLASSES**2).reshape(CLASSES, CLASSES) for name in names}
    record = confusions_record(4, matrices)
    return {**record, "confusions": {**record["confusions"], **more}}


def test_a_reply_comes_back() -> None:
    back = read_reply(reply(), 4)
    assert (back.round, back.num_nodes, back.num_train, dict(back.scalars)) == (4, 10, 6, {"loss": 0.25})
    assert torch.equal(back.tensors["w"], torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 2)])
def test_types_and_shapes_survive(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.ones(shape, dtype=dtype)
    round, back = read_message(message_record(3, {"a": value}))
    assert round == 3
    assert back["a"].dtype == dtype
    assert torch.equal(back["a"], value)


def test_what_comes_in_may_be_read_only_and_is_copied() -> None:
    array = np.ones(3, dtype=np.float32)
    array.flags.writeable = False
    to_tensors({"a": array})["a"].add_(1)
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"round": 3}, "round"),
        ({"round": True}, "round"),
        ({"round": "4"}, "round"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_train": 2.5}, "num_train"),
        ({"scalars": {"loss": 1.0, "age": 3.0}}, "scalars"),
        ({"scalars": {"loss": "low"}}, "scalars"),
        ({"scalars": [1.0]}, "scalars"),
        ({"tensors": [1.0]}, "tensors"),
        ({"tensors": {"w": [1.0]}}, "w"),
        ({"tensors": {"w": np.array([{}], dtype=object)}}, "w"),
        ({"tensors": {"w": np.array(["a"])}}, "w"),
        ({"tensors": {"w": np.array([1 + 2j])}}, "w"),
        ({"tensors": {3: np.ones(1)}}, "3"),
        ({"labels": np.ones(3)}, "reply"),
        ({"num_nodes": 10**400}, "num_nodes"),
        ({"num_nodes": 10**5000}, "num_nodes"),
        ({"num_train": 2**64 - 1}, "num_train"),
        ({"num_train": float("inf")}, "num_train"),
        ({"round": 10**5000}, "round"),
        ({"scalars": {"loss": float("nan")}}, "scalars"),
        ({"scalars": {"loss": float("inf")}}, "scalars"),
        ({"scalars": {"loss": True}}, "scalars"),
        ({"scalars": None}, "scalars"),
        ({"tensors": None}, "tensors"),
        ({"tensors": {"w": np.array(["\x1b[2J"])}}, "w"),
        ({"tensors": {"w": np.zeros(2, dtype=[("a", "f4")])}}, "w"),
        ({"tensors": {"w": np.array([0], dtype="M8[s]")}}, "w"),
        ({"tensors": {"w": np.ones(6, dtype=">f4")}}, "w"),
        ({"tensors": {"w": np.ones(6, dtype=">i8")}}, "w"),
        ({"tensors": {"w": np.ones(6, dtype=np.longdouble)}}, "w"),
        ({"\x1b[2Jdone": 1}, "reply"),
        ({f"field{k}": 1 for k in range(10_000)}, "reply"),
        ({"x" * 10**6: 1}, "reply"),
    ],
)
@pytest.mark.hostile
def test_a_reply_that_is_not_as_agreed_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_reply(reply(**change), 4)
    assert refused.value.field == field
    assert 0 < len(refused.value.reason) < 600
    assert refused.value.reason.isprintable()


def test_a_missing_field_is_refused() -> None:
    record = reply()
    del record["num_train"]
    with pytest.raises(Refused, match="num_nodes"):
        read_reply(record, 4)


def declaration(**changes: Any) -> dict[str, Any]:
    """Ten nodes: five and two train, one each is held out, one has no part."""
    sizes = Sizes(10, 7, torch.tensor([5, 0, 2]), torch.tensor([1, 0, 0]), torch.tensor([0, 0, 1]))
    return {**declaration_record(sizes, ["a", "b", "c"]), **changes}


def counts(**changes: Any) -> dict[str, Any]:
    return {"class_sizes": {**declaration()["class_sizes"], **changes}}


def test_declared_sizes_come_back() -> None:
    said = read_declaration(declaration(), 3, 10)
    sizes = said.sizes
    assert (sizes.num_nodes, sizes.num_train, said.label_names, said.schema_sha256) == (
        10,
        7,
        ("a", "b", "c"),
        "",
    )
    assert [sizes.train.tolist(), sizes.val.tolist(), sizes.test.tolist()] == [
        [5, 0, 2],
        [1, 0, 0],
        [0, 0, 1],
    ]
    assert sizes.train.dtype == torch.int64


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (counts(train=np.array([5, -1, 2])), "train"),
        (counts(train=np.array([5.0, 1.0, 2.0])), "train"),
        (counts(train=np.array([5, 2])), "train"),
        (counts(train=np.array([6, 0, 2])), "train"),
        (counts(train=np.array([2**62, 2**62, 0])), "train"),
        (counts(val=np.array([2**63 - 1, 0, 0])), "val"),
        (counts(val=np.array([3, 0, 0])), "test"),
        (counts(test=np.array([0, 0, 1], dtype=np.uint64)), "test"),
        (counts(test=[0, 0, 1]), "test"),
        (counts(more=np.array([0, 0, 1])), "class_sizes"),
        ({"class_sizes": [5, 0, 2]}, "class_sizes"),
        ({"class_sizes": {}}, "class_sizes"),
        ({"num_nodes": 11}, "num_nodes"),
        ({"num_nodes": 10**9}, "num_nodes"),
        ({"num_nodes": 2**64 - 1}, "num_nodes"),
        ({"num_nodes": 10**400}, "num_nodes"),
        ({"num_nodes": 10**5000}, "num_nodes"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_nodes": 10.0}, "num_nodes"),
        ({"num_nodes": True}, "num_nodes"),
        ({"num_nodes": float("nan")}, "num_nodes"),
        ({"num_nodes": "10"}, "num_nodes"),
        ({"num_nodes": None}, "num_nodes"),
        ({"num_train": 11}, "num_train"),
        ({"num_train": 9}, "test"),
        ({"label_names": ["a"] * 4}, "label_names"),
        ({"label_names": [1]}, "label_names"),
        ({"label_names": "abc"}, "label_names"),
        ({"schema_sha256": "\x1b[2J"}, "schema_sha256"),
        ({"schema_sha256": "a" * 10**6}, "schema_sha256"),
        ({"schema_sha256": None}, "schema_sha256"),
        ({"labels": np.ones(3)}, "reply"),
        ({"\x1b]0;mine\x07": 1}, "reply"),
    ],
)
def test_a_declaration_that_is_not_as_agreed_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_declaration(declaration(**change), 3, 10)
    assert refused.value.field == field
    assert len(refused.value.reason) < 400
    assert refused.value.reason.isprintable()


def test_confusions_come_back() -> None:
    back = read_confusions(confusions(), 4, CLASSES, has_global=True)
    assert back["global_val"].dtype == torch.int64
    assert back["personal_test"].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"global_val": -np.ones((CLASSES, CLASSES), dtype=np.int64)}, "global_val"),
        ({"global_val": np.ones((CLASSES, CLASSES), dtype=np.float32)}, "global_val"),
        ({"global_val": np.ones((CLASSES, 2), dtype=np.int64)}, "global_val"),
        ({"global_val": np.ones((CLASSES, CLASSES), dtype=">i8")}, "global_val"),
        ({"global_val": np.ones((CLASSES, CLASSES), dtype=np.longdouble)}, "global_val"),
        ({"more": np.ones((CLASSES, CLASSES), dtype=np.int64)}, "confusions"),
    ],
)
def test_confusions_that_are_not_as_agreed_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_confusions(confusions(**change), 4, CLASSES, has_global=True)
    assert refused.value.field == field


def test_a_method_without_global_model_sends_no_global_matrix() -> None:
    with pytest.raises(Refused, match="global_test"):
        read_confusions(confusions(), 4, CLASSES, has_global=False)


@pytest.mark.hostile
@pytest.mark.parametrize("shape", [(0,), (1,), (), (3, 2), (1, 0, 2)])
def test_arrays_of_any_strides_become_tensors(shape: tuple[int, ...]) -> None:
    """An array of one number counts as contiguous whatever its stride is, and torch takes no negative one."""
    array = np.arange(float(np.prod(shape))).reshape(shape)
    turned = array[::-1] if shape else array
    assert to_tensors({"w": turned})["w"].tolist() == turned.tolist()
