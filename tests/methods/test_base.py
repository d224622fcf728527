"""What a step may read: random numbers by name, and the defaults of a method that says nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import make_client, make_server, toy_client, toy_clients


def test_draws_depend_on_seed_purpose_round_and_client_alone() -> None:
    client = make_client(FedAvg(), toy_client())
    first = client.draws("edges").random(4).tolist()
    assert client.draws("edges").random(4).tolist() == first  # nothing is remembered
    others = [
        client.draws("nodes"),
        replace(client, round=2).draws("edges"),
        replace(client, seed=1).draws("edges"),
        replace(client, data=replace(client.data, client_id=1)).draws("edges"),
    ]
    assert all(other.random(4).tolist() != first for other in others)
    assert torch.equal(
        torch.rand(3, generator=client.torch_draws("edges")),
        torch.rand(3, generator=client.torch_draws("edges")),
    )


def test_the_server_s_draws_are_no_client_s() -> None:
    clients = toy_clients(2)
    server = replace(make_server(clients, Backbone(hidden=8), Training()), round=1)
    drawn = torch.rand(4, generator=server.torch_draws("noise"))
    for data in clients:
        client = make_client(FedAvg(), data)
        assert not torch.equal(torch.rand(4, generator=client.torch_draws("noise")), drawn)


def test_other_training_settings_leave_the_client_as_it_was() -> None:
    client = make_client(FedAvg(), toy_client())
    assert client.trained_by(lr=0.5).training == replace(client.training, lr=0.5)
    assert client.training == Training()


def test_a_method_that_says_nothing_sends_all_and_trains_on_all_edges() -> None:
    method, data = FedAvg(), toy_client()
    tensors = {"encoder.weight": torch.ones(2)}
    assert method.message(tensors, 3) is tensors
    assert method.complete_from(50) == 1
    assert method.averages
    model = Backbone(hidden=8)
    assert method.training_edges(data, method.prepare(data, model), tensors) is data.graph.edge_index
