from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.methods.parts.views import dropped_view, without_columns
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import to_scipy
from toy import FEATURES, make_client, toy_client


def test_without_loss_it_is_the_same_view() -> None:
    client = make_client(FedAvg(), toy_client())
    assert dropped_view(client, client.prepared, 0.0, 0.0) is client.prepared


def test_the_operator_is_that_of_the_kept_graph() -> None:
    """Symmetric, and P' = D'^-1/2 (A' + I) D'^-1/2 has the diagonal 1 / (degree + 1) of the kept edges."""
    client = make_client(FedAvg(), toy_client())
    view = dropped_view(client, client.prepared, 0.5, 0.0)
    dense = to_scipy(view.operator.matrix).toarray()
    whole = to_scipy(client.prepared.operator.matrix).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert ((dense > 0) <= (whole > 0)).all()
    assert 0 < (dense > 0).sum() < (whole > 0).sum()
    np.testing.assert_allclose(np.diag(dense), 1 / (dense > 0).sum(1), rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_zero_columns_are_zero_rows_of_the_weight(sparse: bool) -> None:
    """(X M) W = X (M W), so P relu of either is the same."""
    data, model = toy_client(sparse=sparse), Backbone(hidden=8, dropout=0.0)
    kept = torch.tensor([1.0, 0.0] * (FEATURES // 2))
    client = make_client(FedAvg(), data, model)
    params = model.init(client.info, torch.Generator().manual_seed(0))
    masked = {**params, "encoder.weight": kept[:, None] * params["encoder.weight"]}
    changed = without_columns(data, kept)
    assert changed.graph.is_sparse == sparse
    ours, theirs = model.predict(params, model.inputs(changed)), model.predict(masked, client.prepared)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_every_round_has_its_own_view() -> None:
    client = make_client(FedAvg(), toy_client())
    drawn = [
        to_scipy(dropped_view(each, each.prepared, 0.5, 0.0).operator.matrix).toarray()
        for each in (client, client, replace(client, round=2))
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
