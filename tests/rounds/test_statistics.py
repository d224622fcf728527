from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedepd.clients.scaling import NOTHING, ColumnSums, column_sums
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadData, BadMessage
from fedepd.rounds.guard import NO_PRIVACY, Privacy
from fedepd.rounds.statistics import (
    SCALING,
    SQUARE_LIMBS,
    TOTAL_LIMBS,
    Statistics,
    fault_of,
    in_words,
    limbs,
    own_counts,
    own_sums,
    scaling_fault,
    statistics_layout,
    statistics_of,
    statistics_vector,
    withheld,
)
from fedepd.rounds.sums import Vector, largest, summed
from fedepd.types import ClientData, Unscaled
from toy import toy_client

GUARD = Privacy(guard=True, min_count=5)
SECURE = Privacy(guard=True, min_count=5, secure=True)
SCHEMA = FeatureSchema((FeatureRule("age"), FeatureRule("kind", categories=("x", "y")), FeatureRule("on")))


def client(rows: int = 24, few: int = 0, seed: int = 0) -> ClientData:
    """Column 0 is scaled; columns 1 and 2 are categories x and y, of which ``few`` rows have y."""
    data = toy_client()
    x = torch.zeros(rows, 4)
    x[:, 1], x[:few, 1], x[:few, 2] = 1, 0, 1
    masks = {name: getattr(data, name)[:rows] for name in ("train_mask", "val_mask", "test_mask")}
    graph = replace(
        data.graph,
        x=x,
        y=data.graph.y[:rows],
        edge_index=torch.zeros(2, 0, dtype=torch.int64),
        schema=SCHEMA.to_json(),
    )
    values = np.random.default_rng(seed).normal(40, 10, (rows, 1))
    return replace(data, graph=graph, **masks, unscaled=Unscaled((0,), values))


def vector(data: ClientData, privacy: Privacy = NO_PRIVACY) -> Vector:
    return statistics_vector(own_sums(data, privacy), own_counts(data, (1, 2), privacy))


def together(*vectors: Vector, privacy: Privacy = NO_PRIVACY, most: int = 1000) -> Statistics:
    return statistics_of(summed(list(vectors)), range(len(vectors)), (0,), (1, 2), privacy, most)


@given(st.lists(st.integers(-(2**296), 2**296), min_size=1, max_size=20))
def test_limbs_of_any_numbers_add_up_to_the_limbs_of_their_sum(numbers: list[int]) -> None:
    parts = np.array([limbs(number, TOTAL_LIMBS) for number in numbers], dtype=np.int64)
    total = sum(part << 48 * at for at, part in enumerate(parts.sum(0).tolist()))
    assert total == sum(numbers)


def test_the_largest_sums_of_a_thousand_clients_fit() -> None:
    """2^40 rows of the largest float32. What a client may add is checked by the server (``largest``)."""
    most = float(np.finfo(np.float32).max)
    one = column_sums(np.array([-most]))
    many = ColumnSums(2**40, 2**40 * one.total, 2**40 * one.squares)
    assert fault_of(many) is None
    parts = np.array(limbs(many.total, TOTAL_LIMBS) + limbs(many.squares, SQUARE_LIMBS), dtype=object)
    assert max(abs(parts)) < 2**48 < largest(1000)


def test_the_layout_is_that_of_the_vector() -> None:
    parts = statistics_layout(1, 2)
    assert sum(int(np.prod(shape)) for _, shape in parts) == vector(client()).size == 1 + 7 + 12 + 2


def test_clients_together_have_the_scaling_of_all_rows() -> None:
    clients = [client(seed=seed, rows=rows, few=6) for seed, rows in enumerate((24, 9, 17))]
    found = together(*(vector(each) for each in clients))
    values = np.concatenate([each.unscaled.values[:, 0] for each in clients if each.unscaled])
    assert found.columns[0].rows == 50
    assert found.scaling[:, 0].tolist() == pytest.approx([values.mean(), values.std()], rel=1e-12)
    assert found.counts == (50 - 18, 18)
    assert found.clients == (0, 1, 2)
    again = together(*(vector(each) for each in reversed(clients)))
    assert again.scaling.tobytes() == found.scaling.tobytes()
    assert found.message()[SCALING].dtype == torch.float64


def test_alone_small_numbers_stay_at_home() -> None:
    """4 rows are fewer than 5. Of 24 rows with 3 of y, the 21 of x would tell the 3."""
    assert own_sums(client(rows=4), GUARD) == [NOTHING]
    assert own_counts(client(rows=4), (1, 2), GUARD) == [0, 0]
    assert own_counts(client(few=3), (1, 2), GUARD) == [0, 0]
    assert own_sums(client(few=3), GUARD)[0].rows == 24
    assert own_counts(client(few=5), (1, 2), GUARD) == [19, 5]
    assert own_counts(client(few=0), (1, 2), GUARD) == [24, 0]


def test_what_stays_at_home_is_told_to_the_owner() -> None:
    assert withheld(client(rows=4), (1, 2), GUARD) == [
        "this site has fewer than 5 rows here, so nothing about its columns is sent"
    ]
    (said,) = withheld(client(few=3), (1, 2), GUARD)
    assert said.startswith("category 'kind=x', 'kind=y': one of them has fewer than 5 rows here")
    assert withheld(client(few=5), (1, 2), GUARD) == []
    assert withheld(client(few=3), (1, 2), SECURE) == []


def test_categories_without_a_schema_are_one_column() -> None:
    data = client(few=3)
    plain = replace(data, graph=replace(data.graph, schema=""))
    assert own_counts(plain, (1, 2), GUARD) == [0, 0]
    assert withheld(plain, (1, 2), GUARD)[0].startswith("category 1, 2:")


def test_in_a_secure_sum_everything_is_in_the_sum_and_small_totals_are_not_kept() -> None:
    found = together(
        vector(client(rows=4, few=1), SECURE), vector(client(rows=20, few=2), SECURE), privacy=SECURE
    )
    assert found.columns[0].rows == 24
    assert found.counts == (21, None)
    assert in_words(found.saved(SCHEMA.feature_names))[1:] == ["kind=x: 21 rows", "kind=y: fewer than 5 rows"]


def test_a_column_with_few_rows_in_total_is_not_scaled() -> None:
    found = together(vector(client(rows=2), SECURE), vector(client(rows=2), SECURE), privacy=SECURE)
    assert found.columns == (NOTHING,)
    assert found.scaling.tolist() == [[0.0], [1.0]]
    assert found.saved(SCHEMA.feature_names)["columns"][0]["rows"] is None
    assert in_words(found.saved(SCHEMA.feature_names))[0] == "age: not scaled, fewer than 5 rows"


def test_without_the_guard_everything_is_as_it_is() -> None:
    found = together(vector(client(rows=2, few=1)))
    assert found.columns[0].rows == 2
    assert found.counts == (1, 1)


def test_a_client_without_rows_of_a_column_changes_nothing() -> None:
    few, many = vector(client(rows=3), GUARD), vector(client(rows=24), GUARD)
    alone, both = together(many, privacy=GUARD), together(few, many, privacy=GUARD)
    assert both.scaling.tobytes() == alone.scaling.tobytes()


def test_what_is_saved_comes_back() -> None:
    found = together(vector(client(few=6), SECURE), vector(client(few=2, seed=3), SECURE), privacy=SECURE)
    saved = found.saved(SCHEMA.feature_names)
    assert saved["columns"][0]["name"] == "age"
    back = Statistics.read(saved, "the file")
    assert back == found
    assert back.scaling.tobytes() == found.scaling.tobytes()
    assert in_words(found.saved())[0].startswith("column 0: mean ")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ({"total": "12"}, "no whole numbers"),
        ({"total": "0x" + "f" * 201}, "no whole numbers"),
        ({"squares": "-0x1"}, "that no rows have"),
        ({"rows": None}, "that no rows have"),
    ],
)
def test_damaged_statistics_are_refused(spoil: dict[str, object], says: str) -> None:
    saved = together(vector(client())).saved()
    saved["columns"][0] |= spoil
    with pytest.raises(BadData, match=f"the file holds sums.*{says}"):
        Statistics.read(saved, "the file")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (0, -1, "column 0 there are -1 rows"),
        (0, 10**6, "column 0 there are 1000000 rows"),
        (1, 2**47, "the squares are too small"),
        (7, -5, "the squares are too small"),
        (19, -1, "the squares are too small"),
        (19, 2**47, "the numbers are too large"),
        (20, -3, "category 1 has -3 rows"),
        (21, 2000, "category 2 has 2000 rows"),
    ],
)
def test_a_sum_that_no_rows_have_is_refused(at: int, value: int, says: str) -> None:
    """Rows, 7 limbs of the sum, 12 of the squares, 2 categories."""
    total = vector(client())
    total[at] = value
    if at == 1:
        total[8:20] = 0
    with pytest.raises(BadMessage, match=says):
        together(total)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("scaling", "says"),
    [
        (torch.ones(2, 1), "float32"),
        (torch.ones(2, 2, dtype=torch.float64), r"not torch.float64 \[2, 1\]"),
        (torch.tensor([[np.nan], [1.0]], dtype=torch.float64), "no number"),
        (torch.tensor([[1.0], [np.inf]], dtype=torch.float64), "no number"),
        (torch.tensor([[1.0], [0.0]], dtype=torch.float64), "not above 0"),
        (torch.tensor([[1.0], [-1.0]], dtype=torch.float64), "not above 0"),
    ],
)
def test_a_scaling_that_no_site_uses(scaling: torch.Tensor, says: str) -> None:
    import re

    assert re.search(says, str(scaling_fault(scaling, 1)))
    assert scaling_fault(torch.ones(2, 1, dtype=torch.float64), 1) is None
