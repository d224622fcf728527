"""The margin of Eq. 15 by the counts of all clients, by hand and by its limits."""

from __future__ import annotations

import math

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedepd.margin import Margin
from fedepd.methods.fedepd.method import FedEPD
from toy import assert_same, run_rounds, toy_client

HALF = torch.full((3,), 0.5, dtype=torch.float64)
OWN = torch.tensor([4, 2, 0])
ALL = torch.tensor([8.0, 64.0, 1.0])


def test_half_of_it_is_by_the_counts_of_all_clients() -> None:
    """mu = 2 and a gate of 1/2 leave the logarithms. Its own: log(4/4), log(4/2), 0 for the absent class.

    By all counts: log(64/8), log(64/64), log(64/1). In units of log 2: (0, 1, 0) and (3, 0, 6).
    """
    margin = Margin.of(2.0, HALF, OWN, "zero")
    for share, expected in ((0.0, (0, 1, 0)), (0.5, (1.5, 0.5, 3)), (1.0, (3, 0, 6))):
        torch.testing.assert_close(margin.at(share, ALL), torch.tensor(expected) * math.log(2))


def test_without_counts_it_is_the_clients_own() -> None:
    """Before the first prototypes nobody's counts are known. The guard leaves out those of a rare class."""
    margin = Margin.of(2.0, HALF, OWN, "zero")
    assert margin.at(1.0, None) is margin.own
    assert margin.at(1.0, torch.zeros(3)) is margin.own
    guarded = margin.at(1.0, torch.tensor([8.0, 0.0, 64.0]))
    torch.testing.assert_close(guarded, torch.tensor([3.0, 1.0, 0.0]) * math.log(2))


def test_the_gate_scales_both_parts() -> None:
    gate = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    margin = Margin.of(1.0, gate, OWN, "zero")
    torch.testing.assert_close(margin.at(1.0, ALL), torch.tensor([0.0, 0.0, 3.0]) * math.log(2))
    torch.testing.assert_close(margin.at(0.0, ALL), torch.tensor([0.0, 1.0, 0.0]) * math.log(2))


def test_a_client_alone_has_the_counts_of_all() -> None:
    """So from round 2 on nothing changes, and round 1 has no counts at all: the bits are the same."""
    clients = (toy_client(0, one_node_class=True),)
    ends = [run_rounds(FedEPD(common_counts=share), clients, rounds=3)[0][-1] for share in (0.0, 1.0)]
    assert_same(ends[0].tensors, ends[1].tensors)


def test_counts_of_others_change_what_a_client_learns() -> None:
    clients = (toy_client(0, one_node_class=True), toy_client(1, nodes=20, missing_class=True))
    ends = [run_rounds(FedEPD(common_counts=share), clients, rounds=2)[0][-1] for share in (0.0, 1.0)]
    assert ends[0].bytes_up == ends[1].bytes_up
    assert ends[0].bytes_down == ends[1].bytes_down
    with pytest.raises(AssertionError):
        assert_same(ends[0].tensors, ends[1].tensors)


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"common_counts is 1\.5"):
        FedEPD(common_counts=1.5)
