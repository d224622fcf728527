from __future__ import annotations

from fedepd.methods.centralised import Centralised
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import model_part
from toy import assert_same, run_rounds, toy_client


def test_the_runner_is_told_to_merge() -> None:
    assert Centralised.merges_clients
    assert not FedAvg.merges_clients


def test_on_one_client_it_is_fedavg_and_sends_nothing() -> None:
    """With K = 1 averaging is the identity, so FedAvg is plain training, bit for bit."""
    for sparse in (False, True):
        mine, exchange = run_rounds(Centralised(), [toy_client(sparse=sparse)])
        theirs, _ = run_rounds(FedAvg(), [toy_client(sparse=sparse)])
        assert_same(model_part(exchange.participants[0].state), theirs[-1].tensors)
        assert [(r.bytes_up, r.bytes_down) for r in mine] == [({}, {})] * 3
        for ours, reference in zip(mine, theirs, strict=True):
            assert ours.confusions is not None
            assert reference.confusions is not None
            assert (ours.confusions[0]["personal_test"] == reference.confusions[0]["global_test"]).all()
