"""What fills gaps comes from training rows alone, and new tables get the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedepd.clients.imputing import check_filled, filled, filled_as, filled_together, fills_of, open_rules
from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.fitting import fitted
from fedepd.datasets.roles import Roles
from fedepd.datasets.schema import FeatureSchema
from fedepd.errors import BadData
from fedepd.types import ClientData, Graph

CELLS = [1.0, None, 4.0, 7.0, 100.0, None]
NODES = Table("t", {"id": list_column(list("abcdef")), "n": list_column(CELLS)}, 6)


def graph(impute: str = "median", scale: bool = True) -> Graph:
    schema, _ = fitted(NODES, Roles(impute=impute, scale=scale))  # type: ignore[arg-type]
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    return Graph.make(schema.apply(NODES), torch.tensor([[0, 1], [1, 2]]), y, 2, schema=schema.to_json())


def clients(whole: Graph) -> list[ClientData]:
    """Nodes 0 to 3 train, at two clients: 0 and 1, 2 and 3. Node 4, whose number is 100, tests."""
    train = torch.tensor([True] * 4 + [False] * 2)
    out = []
    for k, rows in enumerate((torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5]))):
        part = replace(
            whole, x=whole.x[rows], y=whole.y[rows], edge_index=torch.zeros(2, 0, dtype=torch.int64)
        )
        mine, none = train[rows], torch.zeros(len(rows), dtype=torch.bool)
        out.append(ClientData(k, part, mine, none, ~mine, rows))
    return out


@pytest.mark.parametrize("scale", [True, False])
def test_only_training_rows_are_used(scale: bool) -> None:
    """Their numbers are 1, 4 and 7: median and mean are 4. With the test row the mean would be 28."""
    for impute in ("median", "mean"):
        whole = graph(impute, scale)
        assert fills_of(clients(whole)) == {0: pytest.approx(4, abs=1e-5)}


def test_the_rows_are_what_the_schema_makes_of_the_table() -> None:
    whole = graph()
    done = filled(whole, fills_of(clients(whole)))
    schema = FeatureSchema.from_json(done.schema)
    assert not open_rules(done)
    assert torch.equal(done.x, schema.apply(NODES))
    assert done.x[1, 0] == done.x[2, 0]  # the median is the number of row 2
    assert torch.equal(torch.cat([each.graph.x for each in filled_together(clients(whole))]), done.x)
    assert filled(whole, {}) is whole


def test_a_graph_with_gaps_gets_the_values_of_a_model() -> None:
    whole = graph()
    done = filled(whole, fills_of(clients(whole)))
    assert torch.equal(filled_as(whole, FeatureSchema.from_json(done.schema)).x, done.x)
    assert filled_as(whole, None) is whole


def test_a_column_without_a_training_number_gets_its_mean() -> None:
    whole = graph(scale=True)
    lonely = [replace(each, train_mask=torch.zeros_like(each.train_mask)) for each in clients(whole)]
    assert fills_of(lonely) == {0: pytest.approx(28)}


def test_a_federation_refuses_gaps() -> None:
    with pytest.raises(BadData, match="the file has missing numbers in column 'n'"):
        check_filled(graph(), "the file")
    check_filled(filled(graph(), {0: 4.0}), "the file")
    broken = replace(graph(), x=torch.tensor(np.ones((6, 5), dtype=np.float32)))
    with pytest.raises(BadData, match="has 5 features, but its schema"):
        open_rules(broken)
