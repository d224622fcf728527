from __future__ import annotations

import json
from collections.abc import Callable
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedepd.metrics import wilson
from fedepd.report.numbers import (
    bin_accuracy,
    bytes_by_field,
    convergence,
    mean_std,
    pruned_share,
    prunings,
    same_clients,
    same_partition,
)
from fedepd.report.runs import group, read_run, read_runs

WriteRun = Callable[..., Path]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_mean_std_is_numpys_and_skips_what_was_not_measured(values: list[float]) -> None:
    mean, std = mean_std([*values, float("nan")])
    assert mean == pytest.approx(np.mean(values))
    assert std == pytest.approx(np.std(values, ddof=1))


def test_one_seed_has_no_spread() -> None:
    assert mean_std([0.5])[0] == 0.5
    assert isnan(mean_std([0.5])[1])
    assert isnan(mean_std([float("nan")])[0])


@pytest.mark.parametrize("seeds", [1, 2])
def test_bin_intervals(write_run: WriteRun, seeds: int) -> None:
    """Classes 0 and 1 have 8 and 5 of 10 right, class 2 is never tested, and more seeds of the same nodes
    narrow nothing.

    Wilson, z = 1.96, n = 10, so z²/n = 0.38416:
    8 of 10: (0.8 + 0.19208) / 1.38416 = 0.71674, ± sqrt(0.16 * 0.38416 + 0.38416² / 4) / 1.38416 = 0.22658:
    0.49016 to 0.94332. 5 of 10: 0.5 ± sqrt(0.25 * 0.38416 + 0.38416² / 4) / 1.38416 = 0.26341: 0.23659 to
    0.76341. Both in one bin: mean 0.65, below sqrt(0.30984² + 0.26341²) / 2 = 0.20334, above sqrt(0.14332²
    + 0.26341²) / 2 = 0.14994.
    """
    confusion = np.zeros((1, 3, 3), dtype=np.int64)
    confusion[0, :2] = [[8, 2, 0], [5, 5, 0]]
    for seed in range(seeds):
        folder = write_run(f"a{seed}", seed=seed, sizes=(50, 50, 3), clients=1, confusion=confusion)
    only = group(read_runs(folder.parent))[0]
    mean, low, high = bin_accuracy(only, [[0], [0, 1], [1, 2], [2]])
    np.testing.assert_allclose(mean, [0.8, 0.65, 0.5, np.nan])
    np.testing.assert_allclose(low, [0.49016, 0.44666, 0.23659, np.nan], atol=2e-5)
    np.testing.assert_allclose(high, [0.94332, 0.79994, 0.76341, np.nan], atol=2e-5)
    assert (low[0], high[0]) == pytest.approx([float(end) for end in wilson(np.array(8), np.array(10))])


def test_convergence_is_over_the_evaluated_rounds(write_run: WriteRun) -> None:
    """The fixture's score is f(round) + 0.01 * seed: mean f + 0.01 and deviation 0.01 over seeds 0, 1, 2."""
    for seed in range(3):
        folder = write_run(f"a{seed}", seed=seed, rounds=12)
    rounds, mean, std = convergence(group(read_runs(folder.parent))[0])
    assert rounds == [5, 10, 12]
    np.testing.assert_allclose(mean, [0.8 * (1 - np.exp(-r / 6)) + 0.01 for r in rounds])
    np.testing.assert_allclose(std, 0.01)


def test_bytes_are_summed_over_rounds_and_averaged_over_seeds(write_run: WriteRun) -> None:
    """20 rounds of 200,000, 40,000 and 400 bytes, in each of two seeds."""
    write_run("a0")
    only = group(read_runs(write_run("a1", seed=1).parent))[0]
    assert bytes_by_field(only, "up") == pytest.approx(
        {"model": 4_000_000, "prototype_sum": 800_000, "elite_count": 8_000}
    )


def test_groups_with_the_same_clients_and_pruning_are_found(write_run: WriteRun) -> None:
    write_run("a")
    write_run("b", preset="printed")
    write_run("c", method="fedavg", label="FedAvg", prunes=False)
    folder = write_run("d", method="fedgta", label="FedGTA", prunes=False, clients=3)
    groups = group(read_runs(folder.parent))
    assert [[each.label for each in same] for same in same_clients(groups)] == [
        ["FedAvg", "FedEPD", "FedEPD (printed)"],
        ["FedGTA"],
    ]
    (found, clients), *others = prunings(groups)
    assert [each.label for each in found] == ["FedEPD", "FedEPD (printed)"]
    assert not others
    assert [pruned_share(client) for client in clients] == pytest.approx([0.30, 0.32, 0.34, 0.36])


def test_groups_that_hold_the_same_nodes_share_a_partition(write_run: WriteRun) -> None:
    """Whatever edges they have: those of a run without edges are fewer."""
    write_run("a")
    folder = write_run("b", preset="printed")
    write_run("c", method="fedgta", label="FedGTA", prunes=False, clients=3)
    clients = json.loads((folder / "clients.json").read_text())
    (folder / "clients.json").write_text(
        json.dumps([{**client, "edges": 0, "edges_kept": 0} for client in clients])
    )
    groups = group(read_runs(folder.parent))
    assert [[each.first.path.name for each in same] for same in same_partition(groups)] == [["a", "b"], ["c"]]
    assert len(same_clients(groups)) == 3


def test_a_client_without_edges_has_no_pruned_share(write_run: WriteRun) -> None:
    client = read_run(write_run("a")).clients[0] | {"edges": 0, "edges_kept": 0}
    assert isnan(pruned_share(client))
