"""What left, in words, and what stayed at home."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.test_sums import make_task
from fedepd.deploy.left import NOTHING_IN_IT, by_round, gathered, left, withheld
from fedepd.deploy.limits import expected_message
from fedepd.deploy.preview import ALONE, IN_THE_SUM
from fedepd.deploy.task import FederationTask
from fedepd.methods import METHODS
from fedepd.types import Sizes


def line(what: str, round: int, masked: bool, **fields: int) -> dict[str, Any]:
    return {"what": what, "round": round, "masked": masked, "fields": fields}


def test_bytes_are_added_by_field_and_by_round() -> None:
    """Two rounds of 40 and 4 bytes, keys of 7, and a declaration of zeros in clear."""
    task = make_task(sites=3)
    lines = [
        line("declaration", 0, False, train=24, label_names=0),
        *(
            line("step", r, True, **{"encoder.weight": 40, "encoder.bias": 4, "prototype.sum": 6})
            for r in (1, 2)
        ),
        line("step", 1, True, masks=7),
        line("evaluate", 2, True, global_val=9),
    ]
    found = {each.field: each for each in left(lines, task, expected_message(task, 0))}
    assert list(found) == ["encoder.weight", "train", "prototype.sum", "global_val", "encoder.bias", "masks"]
    assert (found["encoder.weight"].bytes, found["encoder.weight"].times) == (80, 2)
    assert found["encoder.weight"].seen == IN_THE_SUM
    assert found["prototype.sum"].words.startswith("class rows: sums")
    assert found["train"].words == NOTHING_IN_IT
    assert found["train"].seen == ALONE
    assert found["masks"].seen.startswith("random numbers")
    assert found["global_val"].words.startswith("how validation nodes are classified")
    assert by_round(lines)[1] == {"encoder.weight": 40, "encoder.bias": 4, "prototype.sum": 6, "masks": 7}
    whole, names = gathered(list(found.values()))[0]
    assert (whole.bytes, whole.times, names) == (88, 2, ["encoder.weight", "encoder.bias"])


def test_answers_that_are_seen_alone_are_called_so() -> None:
    task = make_task(sites=3, secure=False)
    (found,) = left([line("declaration", 0, False, train=24)], task, expected_message(task, 0))
    assert (found.words, found.seen) == ("training nodes of each class", ALONE)


@pytest.mark.parametrize("method", [n for n, m in METHODS.items() if not m.merges_clients])
def test_every_field_of_every_method_has_words(method: str) -> None:
    secure = not METHODS[method]().needs_single_replies
    task = make_task(method, sites=3, secure=secure)
    message, server, own = expected_message(task, 0), task.server(), task.experiment().method
    tensors = own.server_init(server, server.model.initial(server.info, server.seed))
    names = own.reply_fields(server, tensors)
    lines = [line("step", 1, secure, **{name: 8 for name in [*names, "loss", "num_nodes"]})]
    assert all(each.words for each in left(lines, task, message))


def sizes(train: list[int]) -> Sizes:
    none = torch.zeros(len(train), dtype=torch.int64)
    return Sizes(sum(train), sum(train), torch.tensor(train), none, none)


def why(task: FederationTask, train: list[int], opened: list[bool] | None) -> dict[int, str]:
    flags = None if opened is None else torch.tensor(opened)
    return {each.label: each.why for each in withheld(task, sizes(train), flags)}


def test_closed_classes_that_the_site_has_are_withheld_and_why() -> None:
    """With five nodes here, all sites together have five: then it is the number of sites."""
    task = make_task(sites=3, min_count=5)
    found = why(task, [9, 5, 2, 0], [True, False, False, False])
    assert list(found) == [1, 2]
    assert found[1] == "fewer than 3 sites have it"
    assert found[2].startswith("all sites together have fewer than 5 training nodes of it, or fewer than 3")
    assert why(task, [9, 5, 2, 0], None) == {}


def test_where_answers_are_seen_alone_few_nodes_of_an_open_class_stay_too() -> None:
    task = make_task(sites=3, min_count=5, secure=False)
    assert why(task, [9, 4], [True, True]) == {1: "this site has fewer than 5 of it"}
    assert why(make_task(sites=3, min_count=5), [9, 4], [True, True]) == {}
