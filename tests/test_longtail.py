from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedepd.errors import BadConfig, BadData
from fedepd.longtail import Tiers, bins, class_order, imbalance_ratio, label_divergence, tiers

class_sizes = st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any)


def test_imbalance_ratio_ignores_classes_that_do_not_occur() -> None:
    """107 nodes in the largest class, 1 in the smallest that occurs (the paper's Email: 107.0)."""
    assert imbalance_ratio([3, 107, 0, 1]) == 107.0
    assert imbalance_ratio([5]) == 1.0


def test_class_order_is_by_size_then_number() -> None:
    assert class_order([2, 5, 2, 7, 5]) == [3, 1, 4, 0, 2]


def test_all_kinds_of_input_agree() -> None:
    sizes = [4, 9, 1]
    assert tiers(sizes) == tiers(np.array(sizes)) == tiers(torch.tensor(sizes)) == Tiers((1,), (0,), (2,))


def test_tiers_by_hand() -> None:
    """100 nodes, order 1 0 2 ... 9: 30 + 20 = 50 hold half, so the head is {1, 0}.

    30 % of ten classes is the last three.
    """
    sizes = [20, 30, 10, 9, 8, 7, 6, 5, 3, 2]
    assert tiers(sizes) == Tiers(head=(1, 0), medium=(2, 3, 4, 5, 6), tail=(7, 8, 9))


def test_head_takes_one_class_more_when_half_is_missed_by_one_node() -> None:
    """49 of 100 are not half."""
    assert tiers([49, 26, 25]).head == (0, 1)
    assert tiers([50, 25, 25]).head == (0,)


def test_tiers_of_few_classes() -> None:
    assert tiers([4]) == Tiers((0,), (), ())
    assert tiers([1, 1]) == Tiers((0,), (), (1,))
    assert tiers([1, 1, 1]) == Tiers((0, 1), (), (2,))
    assert tiers([1, 0, 9, 0]) == Tiers((2,), (), (0,)), "classes without nodes are in no tier"


def test_head_wins_where_the_shares_overlap() -> None:
    """The head needs three of four equal classes, the tail asks for two: one is left for it."""
    assert tiers([1, 1, 1, 1], head_share=0.7, tail_share=0.5) == Tiers((0, 1, 2), (), (3,))


def test_bins_by_hand() -> None:
    """Seven classes in three bins: 3 + 2 + 2."""
    assert bins([7, 6, 5, 4, 3, 2, 1], count=3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert bins([1, 2, 0], count=10) == [[1], [0]]


@given(class_sizes)
def test_tiers_and_bins_hold_every_occurring_class_once_in_order(sizes: list[int]) -> None:
    order = [c for c in class_order(sizes) if sizes[c]]
    cut = tiers(sizes)
    assert [*cut.head, *cut.medium, *cut.tail] == order
    assert [c for part in bins(sizes) for c in part] == order
    half = sum(sizes) / 2
    assert sum(sizes[c] for c in cut.head) >= half > sum(sizes[c] for c in cut.head[:-1])
    lengths = [len(b) for b in bins(sizes)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("sizes", [[], [0, 0], [3, -1], [[1, 2]]])
def test_unusable_sizes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(BadData, match="class sizes"):
        tiers(sizes)


def test_unusable_shares_are_refused() -> None:
    with pytest.raises(BadConfig, match=r"head_share is 1\.5"):
        tiers([1, 2], head_share=1.5)
    with pytest.raises(BadConfig, match="tail_share is 0"):
        tiers([1, 2], tail_share=0)
    with pytest.raises(BadConfig, match="number of bins is 0"):
        bins([1, 2], count=0)


def test_label_divergence_is_0_for_the_same_shares_and_1_for_others() -> None:
    assert label_divergence(np.array([1, 2, 0]), np.array([2, 4, 0])) == pytest.approx(0, abs=1e-12)
    assert label_divergence(np.array([5, 0]), np.array([0, 7])) == pytest.approx(1)
    assert label_divergence(np.array([0, 0]), np.array([1, 1])) is None
