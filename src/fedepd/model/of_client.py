"""The model of one client of a simulated run, measured on this client's own nodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedepd.datasets import graph_sha256
from fedepd.datasets.remembered import recalled
from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.longtail import Tiers
from fedepd.metrics import pooled
from fedepd.model.aim import Aim
from fedepd.model.calibration import calibrate
from fedepd.model.card import Owned
from fedepd.model.held_out import OTHERWISE, HeldOut, measured, needed_only
from fedepd.model.model import Model
from fedepd.model.operating import Operating
from fedepd.model.pointed import pointed, pointed_together
from fedepd.model.reference import write_reference
from fedepd.model.writing import write_model
from fedepd.report.runs import Run
from fedepd.rounds.calibrate import grid_sums, tier_of_class
from fedepd.rounds.evaluate import sizes
from fedepd.rounds.pooled import EVERYONE
from fedepd.runs.adaptation import in_words
from fedepd.runs.folder import ADAPTED, MODEL, called, read_weights
from fedepd.runs.predict import with_adapted
from fedepd.runs.replay import kept_models, own_models
from fedepd.runs.selection import below
from fedepd.runs.simulation import Simulation
from fedepd.shapes import DAMAGED, TIERS
from fedepd.shown import shown
from fedepd.types import ClientData, Tensors


def export_of_client(
    run: Run, simulation: Simulation, client: str | int, kind: str, out: Path, aim: Aim | None = None
) -> None:
    """Write the personal or adapted model of a client, if it predicts as was measured in the run."""
    method = simulation.experiment.method
    if method.merges_clients:
        raise BadConfig(f"{method.label} has one model for all; export it without --client")
    names = client_names(run, simulation)
    number = client_number(client, names)
    # Where only sums over the clients were measured, the models of all of them must reproduce the sum.
    sums_only = run.sums_only or kind == "adapted"
    wanted = range(len(names)) if sums_only else [number]
    made = adapted_models if kind == "adapted" else personal_models
    models = made(run, simulation, names, wanted)
    check_measured(run, simulation, models, sums_only)
    model, data, opened = models[number], simulation.clients[number], run.summary.get("open_classes")
    write_own(run, model, data, names, out, opened, global_scores(run, model, number), aim)


def client_names(run: Run, simulation: Simulation) -> list[str]:
    """What the clients are called: by their owners, or by their numbers."""
    names = run.dataset.get("owner_names") or []
    count = len(simulation.clients)
    return list(names) if len(names) == count else [f"client {number}" for number in range(count)]


def client_number(client: str | int, names: list[str]) -> int:
    """The client with this name or number."""
    wanted = str(client)
    if wanted in names:
        if names.count(wanted) > 1:
            raise BadConfig(f"several clients are called '{shown(wanted)}'; give a number instead")
        return names.index(wanted)
    if wanted.isdecimal() and wanted.isascii() and len(wanted) < 10 and int(wanted) < len(names):
        return int(wanted)
    raise UnknownName("client", wanted, [*names, *map(str, range(len(names)))])


def personal_models(
    run: Run, simulation: Simulation, names: list[str], wanted: Sequence[int]
) -> dict[int, Model]:
    """The personal models of some clients, from the run folder or by running its rounds again."""

    def made(tensors: dict[int, Tensors]) -> dict[int, Model]:
        return {
            k: _model(run, simulation, tensors[k], simulation.clients[k], names, "personal") for k in wanted
        }

    if not simulation.experiment.method.has_global:
        with suppress(KeyError):  # then what the run has kept is not all that predictions need
            return made(kept_models(run.path, simulation))
    if "personal" not in run.summary["best_rounds"]:
        raise BadData(f"'{shown(run.path.name)}' does not say which round was selected; {DAMAGED}")
    try:
        return made(own_models(run.path, simulation, run.summary["best_rounds"]["personal"]))
    except KeyError as cause:
        raise BadData(f"'{shown(run.path.name)}' lacks the weights {shown(cause)}; {DAMAGED}") from cause


def adapted_models(
    run: Run, simulation: Simulation, names: list[str], wanted: Sequence[int]
) -> dict[int, Model]:
    """The adapted models of some clients. The run folder has what each of them keeps."""
    about = run.summary.get("adapted")
    if about is None:
        raise BadConfig(f"'{shown(run.path.name)}' was run without adapt; run again with --adapt")
    if not about["used"]:
        raise BadConfig(f"{in_words(about)}; export the global model, without --client and --adapted")
    kept, selected = read_weights(run.path, ADAPTED), read_weights(run.path, MODEL)
    models = {}
    for k in wanted:
        own = below(kept, f"client{k}.")
        if not own:
            raise BadData(f"'{called(run.path, ADAPTED)}' lacks the model of {shown(names[k])}; {DAMAGED}")
        client = EVERYONE if run.sums_only else k
        message = simulation.experiment.method.message(selected, client)
        try:
            tensors = with_adapted(message, own)
            models[k] = _model(run, simulation, tensors, simulation.clients[k], names, "adapted")
        except (KeyError, RuntimeError, ValueError) as cause:
            raise BadData(
                f"'{called(run.path, ADAPTED)}' does not fit the run ({shown(cause)}); {DAMAGED}"
            ) from cause
    return models


def _model(
    run: Run, simulation: Simulation, tensors: Tensors, data: ClientData, names: list[str], kind: str
) -> Model:
    experiment, graph = simulation.experiment, simulation.graph
    model = Model(
        experiment=experiment,
        info=simulation.server.info,
        tensors=experiment.method.without_labels(tensors, sizes(data).train),
        label_names=graph.label_names or tuple(map(str, range(graph.num_classes))),
        tiers=tiers_of(run),
        temperatures=dict.fromkeys(TIERS, 1.0),
        schema=FeatureSchema.from_json(graph.schema) if graph.schema else None,
        client=names[data.client_id],
        kind=kind,
        roles=recalled(graph.roles),
        edge_weights=graph.edge_weight is not None,
    )
    return needed_only(model, data.graph)


def tiers_of(run: Run) -> Tiers:
    return Tiers(**{name: tuple(classes) for name, classes in run.summary["tiers"].items()})


def check_measured(run: Run, simulation: Simulation, models: dict[int, Model], sums_only: bool) -> None:
    """Refuse clients' models that predict otherwise than was measured, as ``held_out.check_reproduced``.

    Under the guard only the matrices of test nodes are whole, so only these are compared.
    """
    first = next(iter(models))
    for split in ("test",) if simulation.experiment.privacy.guard else ("val", "test"):
        theirs = run.confusions[f"{models[first].kind}_{split}"]
        ours = [one_client(model, simulation.clients[k]).confusion[split][0] for k, model in models.items()]
        if not np.array_equal(sum(ours), theirs[0 if sums_only else first]):
            raise BadConfig(f"without its training labels a client {OTHERWISE}")


def one_client(model: Model, data: ClientData) -> HeldOut:
    """What a model says about the held-out nodes of one client, whose labels it does not see."""
    return measured([data], lambda client: model.logits(client.graph))


def global_scores(run: Run, model: Model, number: int) -> dict[str, dict[str, Any]]:
    """The global model's scores on the same nodes, if there is one and its scores are known by client."""
    if "global_test" not in run.confusions or run.sums_only:
        return {}
    return {"global model, same nodes": pooled(run.confusions["global_test"][number][None], model.tiers)}


def write_own(
    run: Run,
    model: Model,
    data: ClientData,
    names: list[str],
    out: Path,
    opened: list[int] | None = None,
    others_scores: dict[str, dict[str, Any]] | None = None,
    aim: Aim | None = None,
    together: tuple[Operating, str] | None = None,
) -> None:
    """Calibrate and measure a client's model on its own nodes, and write the model folder.

    ``together``: an operating point that the sites of a federation chose, and the aim in its plan.
    """
    said, counts = one_client(model, data), sizes(data)
    held = (counts.train > 0).numpy()
    known = held | (opened is None) | np.isin(np.arange(len(held)), opened or [])
    (logits, y), tier = said.rows["val"][0], tier_of_class(model.tiers, len(held))
    total = grid_sums(logits.numpy(), y.numpy(), tier, known)
    calibration = calibrate(total, said.test(), model.tiers)
    scores = {"this model": pooled(said.confusion["test"], model.tiers), **(others_scores or {})}
    own_only = [] if opened is None else [k for k in np.flatnonzero(held).tolist() if k not in opened]
    owned = Owned(
        others=tuple(name for k, name in enumerate(names) if k != data.client_id),
        nodes=data.graph.num_nodes,
        edges=data.graph.num_edges,
        train=counts.num_train,
        val=int(counts.val.sum()),
        test=int(counts.test.sum()),
        sha256=graph_sha256(data.graph),
        held=tuple(own_only),
    )
    temperatures = calibration["temperatures"]
    model, point = pointed(model, aim, said, temperatures, data.graph.num_nodes)
    if together is not None:
        model, point = pointed_together(model, *together, said, temperatures)
    write_model(run, model, calibration, out, scores, owned, point)
    write_reference(out, model, data.graph, data.train_mask.nonzero().reshape(-1).numpy())
