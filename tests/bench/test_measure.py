"""One measurement: its graph, its medians and its parts."""

from __future__ import annotations

from fedepd.bench.measure import blocks, measure, median


def test_blocks_give_every_client_its_own_part() -> None:
    graph = blocks(clients=4, nodes=400, edges=1600, classes=5, features=8)
    assert graph.owner is not None
    src, dst = graph.edge_index
    assert graph.num_nodes == 400
    assert graph.num_edges == 1600
    assert bool((graph.owner[src] == graph.owner[dst]).all())


def test_the_first_round_is_left_out() -> None:
    assert median([9.0, 1.0, 3.0, 2.0]) == 2.0
    assert median([9.0]) == 9.0


def test_a_measurement_adds_up() -> None:
    row = measure(
        {"clients": 2, "nodes": 200, "edges": 600, "classes": 3, "features": 8},
        "fedepd",
        3,
        settings={"partition": "owner"},
    )
    assert row["round"] > 0
    assert row["round"] <= 3 * (row["train"] + row["aggregate"] + row["evaluate"])
    assert row["rss_mb"] > 50
