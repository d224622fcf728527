"""Rows on the wire are counted as they are, by every way in which a method declares them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedepd.privacy.rows import row_figures, rows_of
from fedepd.privacy.view import View, watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation

Four = Callable[..., Simulation]


def shares(view: View) -> dict[tuple[str, str], tuple[int, int]]:
    """Hits and cases."""
    found = row_figures(view)
    return {(f.name, f.tier): (round(f.value * f.cases) if f.cases else 0, f.cases) for f in found}


@pytest.mark.parametrize("method", ["fedepd", "fedproto", "creff", "fedspray"])
def test_rows_of_few_nodes_are_counted(four: Four, method: str) -> None:
    """Of the twelve pairs of client and class, one has no training node, one has 1, one has 2 and two have 4.

    FedEPD sends sums, FedProto and FedSpray means, CReFF two kinds of gradients of the classes it has.
    """
    found = shares(watch(four(method), Privacy(), 3))
    assert found["rows.single", "all"] == (1, 11)
    assert found["rows.few", "all"] == (4, 11)
    assert found["rows.single", "tail"] == (1, 3)
    assert found["rows.few", "tail"] == (2, 3)
    assert found["rows.few", "medium"] == (0, 0)


@pytest.mark.parametrize("method", ["fedepd", "fedproto", "creff", "fedspray"])
def test_with_guard_and_sums_no_row_is_of_few(four: Four, method: str) -> None:
    """All classes have five training nodes and three clients; the sum has one row for each."""
    found = shares(watch(four(method), Privacy(guard=True, secure=True), 3))
    assert found["rows.single", "all"] == found["rows.few", "all"] == (0, 3)


def test_a_closed_class_has_no_row(four: Four) -> None:
    """The rarest class has ten training nodes: below eleven it is closed."""
    view = watch(four(), Privacy(guard=True, secure=True, min_count=11), 2)
    assert {row.label for row in rows_of(view, view.rounds[-1])} == {0, 1}


def test_a_method_without_rows_has_none(four: Four) -> None:
    assert shares(watch(four("fedavg"), Privacy(), 1))["rows.few", "all"] == (0, 0)


def test_a_row_is_what_was_sent(four: Four) -> None:
    """CReFF sends one matrix for each class that is there; the last client has two classes."""
    view = watch(four("creff"), Privacy(), 3)
    seen = view.rounds[-1]
    mine = [row for row in rows_of(view, seen) if row.source == 3 and row.field == "gradient.weight"]
    assert [(row.label, row.nodes) for row in mine] == [(0, 9), (1, 9)]
    assert torch.equal(mine[1].value, seen.replies[3].tensors["gradient.weight"][1])
