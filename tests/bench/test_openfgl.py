from __future__ import annotations

from fedepd.bench.openfgl import FACTORS, beside
from fedepd.datasets import DATASETS
from fedepd.methods import METHODS


def test_a_sentence_names_what_was_measured_and_nothing_else() -> None:
    told = beside("amazon_computers", ["fedavg", "fedepd", "fedproto"])
    assert told.startswith("OpenFGL's round over ours on amazon_computers: fedavg 10.8x, fedproto 8.9x (not")
    assert beside("twin:arxiv", ["fedepd"]) == beside("email", ["fedavg"]) == ""


def test_every_entry_can_be_asked_for() -> None:
    for data, method in FACTORS:
        assert method in METHODS
        assert data in DATASETS or ":" not in data  # graphs of the data folder have no prefix
