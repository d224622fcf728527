"""Distillation: a model that was never trained on a training node, taught by one that was.

Training nodes are learned by heart, most of all those of rare classes, and the model shows it. The pupil sees
none of their labels. It is trained anew, by the same method with the same settings, on all other nodes and
the classes that the teacher predicts for them. It needs no label that the teacher did not have.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fedepd.runs.drive import now
from fedepd.runs.predict import common_model, logits
from fedepd.runs.run import complete
from fedepd.runs.simulation import Simulation, build
from fedepd.types import HIDDEN, ClientData, Tensors


def distilled(simulation: Simulation, teacher: Tensors) -> Tensors:
    """The pupil's model.

    Args:
        simulation: The teacher's run. Its clients are the pupil's.
        teacher: The model of all clients.

    Returns:
        The model of the pupil's last round.
    """
    experiment = simulation.experiment
    # The clients of a simulation have their features as the protocol wants them already. There is nothing to
    # select a round by: the pupil has no labels but the teacher's.
    protocol = replace(experiment.protocol, features="raw", select="last", evaluate_every=10**9)
    clients = [taught(simulation, teacher, each) for each in simulation.clients]
    result = complete(build(replace(experiment, protocol=protocol), clients), None, None, 0, now())
    return common_model(experiment.method, result.tensors)


def taught(simulation: Simulation, teacher: Tensors, client: ClientData) -> ClientData:
    """The client with the teacher's classes of the nodes outside its training, and no others."""
    predicted = logits(simulation.experiment, simulation.server.info, teacher, client.graph).argmax(1)
    others = ~client.train_mask
    graph = replace(client.graph, y=torch.where(others, predicted, HIDDEN))
    none = torch.zeros_like(others)
    return replace(client, graph=graph, train_mask=others, val_mask=none, test_mask=none)
