"""The answer: each of the three is reached by a case, and it names its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.ended import ended
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.difference import Measured, difference
from fedepd.deploy.taken import Taken, completed, take
from fedepd.deploy.worth import NOT_WORTH, UNKNOWN, WORTH, judged, steps, worth
from fedepd.errors import BadData
from fedepd.files import clean
from fedepd.rounds.statistics import SCALING
from fedepd.runs.folder import weights_sha256
from fedepd.types import Unscaled
from toy import toy_client


@pytest.fixture(scope="module")
def taken(five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Class 2 has one training node at each site, so it is closed."""
    folder = tmp_path_factory.mktemp("ended") / "fed"
    ended(five_kits, folder, data={"one_node_class": True}, min_count=5)
    return take(folder / "a")


def told(gained: int, lost: int, nodes: int) -> tuple[str, str]:
    """Two classes of ``nodes`` each. The federation's model wins and loses nodes of the first one."""
    y = np.repeat([0, 1], nodes)
    alone, joined = y.copy(), y.copy()
    alone[:gained] = 1
    joined[gained : gained + lost] = 1
    gain = difference(y, alone, joined, [0, 1])
    own, theirs = (1 - (count / nodes) / 2 for count in (gained, lost))
    found = judged(gain, own, theirs, "the federation's model")
    assert found.gain == gain
    return found.answer, found.sentence


def test_a_gain_that_can_be_told_is_worth_it() -> None:
    """30 of 100 nodes of one of two classes: balanced accuracy 85 and 100 %, a difference of 15 points.

    The terms are 1/200. With two more of them the variance is 32/200^2, so half the interval is 5.54 points.
    """
    answer, sentence = told(30, 0, 100)
    assert answer == WORTH
    assert sentence == (
        "Joining was worth it: the federation's model has a balanced accuracy of 100.0 % on your 200 test "
        "nodes, and one trained here alone 85.0 % (difference +15.0 points, 95 % interval +9.5 to +20.5)."
    )


def test_a_loss_that_can_be_told_is_not_worth_it() -> None:
    answer, sentence = told(0, 30, 100)
    assert answer == NOT_WORTH
    assert sentence.startswith("Joining was not worth it: the federation's model has a balanced accuracy of")
    assert "difference -15.0 points, 95 % interval -20.5 to -9.5" in sentence


def test_a_gain_below_a_point_is_not_worth_it() -> None:
    """Of 2,000 nodes of a class two are won and two are lost: at best 0.2 points."""
    answer, sentence = told(2, 2, 2000)
    assert answer == NOT_WORTH
    assert sentence.endswith("; it gains less than 1 point.")


def test_few_nodes_cannot_tell() -> None:
    answer, sentence = told(2, 1, 5)
    assert answer == UNKNOWN
    assert sentence.startswith("It cannot be told: the federation's model has")
    assert sentence.endswith("the interval goes from a loss to a gain.")


def test_the_ends_of_an_interval_decide() -> None:
    def of(low: float, high: float) -> str:
        return judged(Measured((low + high) / 2, low, high, 9), 0.5, 0.5, "m").answer

    assert of(0.001, 0.2) == WORTH
    assert of(0.0, 0.2) == UNKNOWN
    assert of(-0.2, 0.0099) == NOT_WORTH
    assert of(-0.2, 0.01) == UNKNOWN


def test_all_parts_are_there(taken: Taken) -> None:
    done: list[int] = []
    found = worth(taken, done.append)
    assert sum(done) == steps(taken) == 4
    assert [each.name for each in found.models] == ["alone", "federation", "adapted"]
    assert found.verdict.gain is not None
    assert found.verdict.gain.nodes == int(taken.data.test_mask.sum())
    assert [(each.label, each.train) for each in found.withheld] == [(2, 1)]
    assert found.opened == [0, 1]
    assert set(found.rounds) == {0, 1, 2, 3}
    assert found.facts["sites"] == "a, b, c"
    assert found.facts["own certificate"].startswith("valid from ")
    sent = {n: v for n, v in taken.message.items() if n != "guard.open"}
    assert found.facts["selected model, sha256"] == weights_sha256(sent)
    content = json.loads(json.dumps(clean(found.as_json())))
    assert content["verdict"]["sentence"] == found.verdict.sentence
    assert content["models"][0].keys() == {"name", "label", "about", "used", "scores", "found"}


def test_without_test_nodes_it_cannot_be_told(taken: Taken) -> None:
    blind = replace(taken.data, test_mask=torch.zeros_like(taken.data.test_mask))
    found = worth(replace(taken, data=blind))
    assert found.verdict.answer == UNKNOWN
    assert found.verdict.sentence.startswith("It cannot be told: this site has no test node")
    assert found.rare == ""


def test_without_training_nodes_there_is_nothing_to_compare_with(taken: Taken) -> None:
    idle = replace(taken.data, train_mask=torch.zeros_like(taken.data.train_mask))
    found = worth(replace(taken, data=idle))
    assert found.verdict.sentence.startswith("It cannot be told: this site has no training node")
    assert [each.name for each in found.models] == ["federation"]


def test_columns_that_the_sites_scale_together_are_scaled_as_in_the_run(taken: Taken) -> None:
    """Column 1 was sent with mean 2 and deviation 4: a raw 10 becomes 2."""
    raw = np.full((taken.data.graph.num_nodes, 1), 10.0)
    data = replace(taken.data, unscaled=Unscaled((1,), raw))
    scaling = {SCALING: torch.tensor([[2.0], [4.0]], dtype=torch.float64)}
    made = completed(data, taken.task, scaling[SCALING], "it", "cure")
    assert made.unscaled is None
    assert bool((made.graph.x[:, 1] == 2.0).all())
    assert completed(taken.data, taken.task, None, "it", "cure") is taken.data
    for none in (None, torch.tensor([[2.0], [0.0]], dtype=torch.float64)):
        with pytest.raises(BadData, match="it does not say how columns are scaled; cure"):
            completed(data, taken.task, none, "it", "cure")


def test_a_site_without_rare_test_nodes_is_told_so(five_kits: Path, tmp_path: Path) -> None:
    ended(five_kits, tmp_path / "fed", "fedavg", data={"missing_class": True}, min_count=1, min_holders=1)
    found = worth(take(tmp_path / "fed" / "b"))
    assert set(found.tiers.tail) == {1, 2}  # two classes occur: head and tail; one that does not is tail
    assert "Of your rare nodes (tail, " in found.rare
    write_client_file(toy_client(), tmp_path / "x.npz")  # another file changes nothing here
    assert worth(take(tmp_path / "fed" / "b")).verdict == found.verdict
