"""Two rows over the same seeds. tests/reproduction/judging/test_statistics.py has more of their numbers."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from fedepd.errors import BadData
from fedepd.report.paired import compare_seeds, holm, paired_half_width, paired_p


def test_the_interval_is_paired_by_seed() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t with two degrees of freedom: 4.3027 / √3 = 2.4842."""
    found = compare_seeds([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert (found.difference, found.n) == (2.0, 3)
    assert found.half_width == pytest.approx(2.4842, abs=1e-4)


def test_too_few_or_missing_seeds_tell_nothing() -> None:
    assert isnan(paired_half_width(np.array([1.0, 2.0])))
    found = compare_seeds([1.0, float("nan"), 3.0, 4.0], [0.0, 5.0, float("nan"), 1.0])
    assert (found.n, found.difference) == (2, 2.0)
    assert isnan(found.half_width)
    with pytest.raises(BadData, match="one row has 2 scores and the other 1"):
        compare_seeds([1.0, 2.0], [1.0])


def test_the_test_goes_with_the_interval() -> None:
    """Scaled so that the interval of 1, 2, 3 (mean 2, half width 2.4842) just ends at 0: p is 0.05."""
    differences = np.array([1.0, 2.0, 3.0])
    assert paired_p(differences + 0.4842) == pytest.approx(0.05, abs=1e-4)
    assert paired_p(differences) > 0.05 > paired_p(differences + 0.5)
    assert isnan(paired_p(differences[:2]))


def test_a_spread_of_nothing_counts_as_much_as_is_said() -> None:
    """Three times 1: sure. With a spread of 1, t is √3 with 2 degrees of freedom: p = 0.2254."""
    same = np.ones(3)
    assert paired_p(same) == 0.0
    assert paired_p(0 * same) == 1.0
    assert paired_p(same, least=1.0) == pytest.approx(0.2254, abs=1e-4)


def test_holm_multiplies_the_smallest_most() -> None:
    """0.01 · 3, then the larger of that and 0.02 · 2, then of that and 0.2."""
    assert holm([0.2, 0.01, 0.02]) == pytest.approx([0.2, 0.03, 0.04])
