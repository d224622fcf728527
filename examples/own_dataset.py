"""A dataset of your own: a function that returns a Graph. Run it with 'python examples/own_dataset.py'."""

from __future__ import annotations

import torch

import fedepd
from fedepd.testing import check_dataset


def villages() -> fedepd.Graph:
    """Villages: 600 people in 30 villages, who mostly know their neighbours; four trades of uneven size."""
    draws = torch.Generator().manual_seed(7)
    trade = torch.multinomial(torch.tensor([0.60, 0.25, 0.10, 0.05]), 600, replacement=True, generator=draws)
    village = torch.arange(600) // 20
    # Two people know each other often within a village, and more often within a trade.
    chance = 0.10 * (village[:, None] == village) + 0.01 * (trade[:, None] == trade)
    edges = torch.nonzero(torch.rand(600, 600, generator=draws) < chance).t()  # [2, pairs], both directions
    tools = torch.eye(4, 8)[trade] + 0.6 * torch.randn(
        600, 8, generator=draws
    )  # what they own tells the trade
    return fedepd.Graph.make(
        tools, edges, trade, name="villages", label_names=("farmer", "smith", "miller", "scribe")
    )


if __name__ == "__main__":
    check_dataset(villages)
    result = fedepd.run(villages(), "fedepd", clients=5, rounds=20)
    score = result.metrics["global"]["pooled"]["bacc"]
    print(f"FedEPD on villages: balanced accuracy {100 * score:.1f} %")
