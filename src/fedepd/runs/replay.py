"""The clients' own models at the round that was selected for them.

A run folder has them where they are the headline. Other runs keep one model only, and the clients' own ones
would be as large again for every client. So the rounds are run again when one of them is wanted, once.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from fedepd.errors import BadConfig, BadData
from fedepd.rounds.guard import HOME, OPEN
from fedepd.rounds.loop import Round
from fedepd.rounds.pooled import EVERYONE
from fedepd.runs.drive import drive
from fedepd.runs.folder import MODEL, PERSONAL, read_weights
from fedepd.runs.record import write_tensors
from fedepd.runs.selection import below
from fedepd.runs.simulation import Simulation
from fedepd.types import Tensors


def kept_models(folder: Path, simulation: Simulation) -> dict[int, Tensors]:
    """What a run without a global model has kept of the clients' own ones.

    These are their states, without what the server sent.
    """
    return _by_client(read_weights(folder, MODEL), simulation)


def own_models(folder: Path, simulation: Simulation, round: int) -> dict[int, Tensors]:
    """By client, all tensors that its own model had when the ``round`` was evaluated.

    The first call runs all rounds up to this one again. It leaves what it found in the run folder, if that
    can be written.
    """
    if (folder / PERSONAL).is_file():
        return _by_client(read_weights(folder, PERSONAL), simulation)
    found = replayed(simulation, round)
    named = {f"client{k}.{name}": value for k, model in found.items() for name, value in model.items()}
    with suppress(BadConfig):
        write_tensors(folder / PERSONAL, named)
    return found


def _by_client(tensors: Tensors, simulation: Simulation) -> dict[int, Tensors]:
    return {client.client_id: below(tensors, f"client{client.client_id}.") for client in simulation.clients}


class _Reached(Exception):
    pass


def replayed(simulation: Simulation, round: int) -> dict[int, Tensors]:
    """Run up to a round, and take every client's own model as it is evaluated then."""
    if simulation.experiment.privacy.noisy:
        raise BadConfig(
            "the run had noise (dp_epsilon), which is drawn anew each time, so the clients' own models "
            "cannot be made again; export the global model"
        )
    torch.set_num_threads(1)
    progress, found = simulation.start(), dict[int, Tensors]()

    def take(each: Round, _: object) -> None:
        if each.number == round:
            found.update(
                {p.client_id: _own_model(simulation, p.client_id, each) for p in simulation.participants}
            )
            raise _Reached

    try:
        simulation.exchange.prepare()
        with suppress(_Reached):
            drive(simulation.course(), progress, lambda each: progress.add(each, dict), take)
    finally:
        simulation.exchange.close()
    if not found:
        raise BadData(f"the run never reached round {round}, which it says it selected; run again")
    return found


def _own_model(simulation: Simulation, client: int, each: Round) -> Tensors:
    method, secure = simulation.experiment.method, simulation.experiment.privacy.secure
    message = method.message(each.tensors, EVERYONE if secure else client)
    if each.opened is not None:
        opened = torch.zeros(simulation.server.info.num_classes)
        opened[list(each.opened)] = 1
        message = {**message, OPEN: opened}
    own = simulation.exchange.participants[client].models(each.number, message)["personal"]
    return {
        name: value for name, value in own.items() if ".moments." not in name and not name.startswith(HOME)
    }
