from __future__ import annotations

import torch

from fedepd.network.patterns import csr, dots, with_values


def test_dots_at_the_places_of_a_pattern() -> None:
    """Places (0, 1), (2, 0), (2, 1); what the pattern's own numbers are does not matter."""
    pattern = csr(
        torch.tensor([0, 1, 1, 3], dtype=torch.int32),
        torch.tensor([1, 0, 1], dtype=torch.int32),
        torch.ones(3),
        (3, 2),
    )
    left, right = torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    expected = [1 * 7 + 2 * 8, 3 * 5 + 4 * 6, 3 * 7 + 4 * 8]
    assert dots(pattern, left, right).tolist() == expected
    filled = with_values(pattern, torch.tensor([4.0, 5.0, 6.0]))
    assert filled.to_dense().tolist() == [[0, 4], [0, 0], [5, 6]]
    assert dots(filled, left, right).tolist() == expected
