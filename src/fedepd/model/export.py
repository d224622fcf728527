"""Turns a finished run into a model folder: weights, labels, schema, metrics, calibration and a model
card."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedepd.datasets.remembered import recalled
from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig, BadData
from fedepd.files import write_json
from fedepd.methods import Server
from fedepd.model.aim import Aim
from fedepd.model.calibration import calibrate
from fedepd.model.held_out import OTHERWISE, HeldOut, check_reproduced, measured, needed_only
from fedepd.model.model import PROBE_NODES, Model, check_model, probe
from fedepd.model.of_client import export_of_client, tiers_of
from fedepd.model.pointed import pointed
from fedepd.model.reference import FEW, write_reference
from fedepd.model.writing import write_model
from fedepd.report.agreement import CHANGED
from fedepd.report.runs import Run, read_run
from fedepd.rounds.guard import NEVER, class_axes, with_own_columns
from fedepd.rounds.questions import FINAL
from fedepd.runs import folder as run_folder
from fedepd.runs.distil import distilled
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import called, check_new_run, read_weights, weights_sha256
from fedepd.runs.predict import check_common, common_model
from fedepd.runs.pruning import check_not_pruned
from fedepd.runs.resume import experiment_of, rebuild
from fedepd.runs.simulation import Simulation
from fedepd.shapes import DAMAGED, EVERY, FLAG, NUMBER, ROUND_NUMBER, TEXT, TIERS, expect, whole
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, TaskInfo, Tensors

EXPORTED: dict[str, Any] = {"best_rounds": {EVERY: ROUND_NUMBER}, "proxy_features": FLAG, "config_hash": TEXT}
DATA_OF_EXPORTED: dict[str, Any] = {
    **dict.fromkeys(("nodes", "edges", "features", "classes"), whole()),
    "imbalance_ratio": (NUMBER,),
    "sha256": TEXT,
}
OTHER_SHA256 = f"its sha256 differs from {run_folder.SUMMARY}'s"
UNMEASURED = {
    "temperatures": dict.fromkeys(TIERS, 1.0),
    "unmeasured": (
        "The model is not calibrated: all temperatures are 1. The scores above were not checked again "
        "either. Both need the graphs, and the graphs of a federation stay at its sites."
    ),
}
BY_SUMS = (
    "The temperatures were found from sums over the sites, on {nodes} validation nodes. Their effect on test "
    "nodes is not measured. The scores above were not checked again either. Both need the graphs, and the "
    "graphs of a federation stay at its sites."
)


def export(
    folder: str | Path,
    out: str | Path,
    data: Graph | str | Path | None = None,
    data_dir: str | Path | None = None,
    distil: bool = False,
    client: str | int | None = None,
    adapted: bool = False,
    aim: Aim | None = None,
) -> Path:
    """Write the model of a finished run to a new folder.

    Calibration is measured on the run's data, so they must be available. A federation's graphs stay at its
    sites, so its model is not calibrated.

    Args:
        folder: The run folder.
        out: The new folder.
        data: Needed only where the run was given a graph from memory, or its file has moved.
        data_dir: The folder with the datasets' files, if it has moved.
        distil: Train a new model on predicted classes only, and write that. It tells less about the training
            nodes, and scores lower (docs/privacy.md). This takes three times as long as the run.
        client: Write the personal model of this client, given by its number or its owner's name. It is
            measured on the client's own nodes. Where the run folder does not hold it, the rounds are run
            again, once.
        adapted: With ``client``, write the model of all clients as this client has adapted it. The run must
            have had the setting ``adapt``.
        aim: What the model's decisions shall reach: costs, a recall or a number of alerts. The operating
            point is chosen on validation nodes, saved with the model, and applied where it predicts.
            Without it a node is called its likeliest class.

    Returns:
        The new folder.

    Raises:
        BadConfig: ``out`` is there already, the method has no model for all clients, there is no such
            client, or validation nodes cannot say how to reach the aim.
        BadData: The run folder is damaged or unfinished, or its data have changed.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> folder = fedepd.export("runs/first", "model")
        >>> sorted(path.name for path in folder.iterdir())[:3]
        ['README.md', 'calibration.json', 'config.json']
    """
    if adapted and client is None:
        raise BadConfig("an adapted model is one client's own; say whose with --client")
    run, out = read_run(folder), Path(out)
    check_new_run(out)
    check_whole(run)
    if "sites" in run.config:
        if aim is not None:
            raise BadConfig(
                f"'{folder}' is the run of a federation, and an operating point needs the scores of single "
                "validation nodes, which stay at its sites; export it without --cost, --recall and --alerts, "
                "or give the plan an aim, and 'fedepd federation model' has its point"
            )
        for name, given in (("--data", data is not None), ("--distil", distil)):
            if given:
                raise BadConfig(
                    f"'{folder}' is the run of a federation, whose graphs stay at its sites; export it "
                    f"without {name}"
                )
        if client is not None:
            raise BadConfig(
                f"'{folder}' is the run of a federation, whose sites keep their own models; at the site, "
                "'fedepd federation model KIT' writes one"
            )
        write_model(run, of_federation(run), calibration_of_federation(run), out)
        return out
    simulation = rebuild(Path(folder), data, data_dir)
    check_not_pruned(simulation.experiment, "a model would meet graphs that are not pruned")
    if distil:
        simulation.experiment.check_clean("a distilled model is trained anew, on clean graphs")
    if client is not None:
        if distil:
            raise BadConfig("a distilled model is one of all clients; give either --distil or --client")
        export_of_client(run, simulation, client, "adapted" if adapted else "personal", out, aim)
        return out
    graph = simulation.graph
    model = uncalibrated(run, simulation.experiment, simulation.server.info, graph.label_names, graph.schema)
    model = replace(model, roles=recalled(graph.roles), edge_weights=graph.edge_weight is not None)
    model, predicted = fit_for_all(simulation, model)
    guarded = simulation.experiment.privacy.guard
    if not guarded:  # there the clients measured with their own columns of closed classes
        check_reproduced(run, predicted)
    if distil:
        pupil = replace(model, tensors=distilled(simulation, model.tensors), distilled=True)
        model, predicted = fit_for_all(simulation, pupil)
    privacy, opened = simulation.experiment.privacy, run.summary.get("open_classes")
    opened = None if simulation.experiment.method.merges_clients else opened
    calibration = calibrate(
        predicted.validation_sums(model.tiers, privacy, opened), predicted.test(), model.tiers
    )
    model, point = pointed(model, aim, predicted, calibration["temperatures"], graph.num_nodes)
    own_scores = predicted.scores(model.tiers) if distil or guarded else None
    write_model(run, model, calibration, out, own_scores, point=point)
    trained = torch.cat([client.global_ids[client.train_mask] for client in simulation.clients])
    write_reference(out, model, graph, trained.sort().values.numpy(), max(FEW, privacy.min_count))
    # The report draws diagrams from these files, of the run's own model. If the run folder is read-only, only
    # these diagrams are missing.
    with suppress(BadConfig):
        if not distil:
            write_json(run.path / run_folder.CALIBRATION, calibration)
            if point is not None:
                write_json(run.path / run_folder.OPERATING, point)
    return out


def check_whole(run: Run) -> None:
    """Check what an export needs beyond a report, and that the final weights have the summary's hash."""
    summary, config = (f"'{called(run.path, file)}'" for file in (run_folder.SUMMARY, run_folder.CONFIG))
    expect(run.summary, EXPORTED, summary)
    if run.headline not in run.summary["best_rounds"]:
        raise BadData(f"{summary} has no best round of its headline model; {DAMAGED}")
    expect(run.dataset, DATA_OF_EXPORTED, f"{config}: 'dataset'")
    # Reading run.rounds also checks that the best round is among them.
    if not run.rounds or "weights_sha256" not in run.summary:
        return
    if weights_sha256(read_weights(run.path, run_folder.FINAL)) != run.summary["weights_sha256"]:
        name = called(run.path, run_folder.FINAL)
        raise BadData(f"'{name}' is not what the run ended with ({OTHER_SHA256}); {CHANGED}")


def calibration_of_federation(run: Run) -> dict[str, Any]:
    """The temperatures that the sites found together. Their effect was not measured, it needs the graphs."""
    final = run.summary.get(FINAL, {})
    if "temperatures" not in final:
        return UNMEASURED
    found = {name: final[name] for name in ("temperatures", "validation_nodes")}
    return {**found, "unmeasured": BY_SUMS.format(nodes=f"{found['validation_nodes']:,}")}


def of_federation(run: Run) -> Model:
    """The model of a federation.

    Its graphs are not here, so a random graph shows which tensors predictions need.
    """
    experiment, data = experiment_of(run.config), run.dataset
    info = TaskInfo(
        data["features"], data["classes"], len(run.config["sites"]), experiment.training.weighting
    )
    model = uncalibrated(run, experiment, info, tuple(data.get("label_names") or ()), "")
    model = replace(model, edge_weights=data.get("edge_weights", False))
    check_model(model, f"'{shown(run.path.name)}'", DAMAGED)
    graph, n = probe(info), PROBE_NODES
    model = needed_only(model, graph)
    none = torch.zeros(n, dtype=torch.bool)
    if not torch.equal(
        model.logits(graph), model.logits_at(ClientData(0, graph, ~none, none, none, torch.arange(n)))
    ):
        raise BadConfig(f"without its training labels a site {OTHERWISE}")
    return model


def uncalibrated(
    run: Run, experiment: Experiment, info: TaskInfo, label_names: tuple[str, ...], schema: str
) -> Model:
    """The model of the selected round, with all temperatures 1."""
    method = experiment.method
    check_common(method, "export")
    tensors = read_weights(run.path, run_folder.MODEL)
    stated = run.summary.get("weights_sha256")
    if (
        run.headline == "global"
        and run.summary["best_round"] == run.summary["rounds"]
        and stated not in (None, weights_sha256(tensors))
    ):
        name = called(run.path, run_folder.MODEL)
        raise BadData(f"'{name}' is not the last round's model ({OTHER_SHA256}); {CHANGED}")
    return Model(
        experiment=experiment,
        info=info,
        tensors=common_model(method, shared_part(run, experiment, info, tensors)),
        label_names=label_names or tuple(map(str, range(info.num_classes))),
        tiers=tiers_of(run),
        temperatures=dict.fromkeys(TIERS, 1.0),
        schema=FeatureSchema.from_json(schema) if schema else None,
    )


def shared_part(run: Run, experiment: Experiment, info: TaskInfo, tensors: Tensors) -> Tensors:
    """The server's tensors. After a guarded run, the columns of closed classes are such that the classes are
    never predicted: the trained columns stayed at the clients."""
    if not experiment.privacy.guard or experiment.method.merges_clients:
        return tensors
    nobody = torch.zeros(info.num_classes, dtype=torch.bool)
    named = run.summary.get("open_classes", [])
    if any(each >= info.num_classes for each in named):
        raise BadData(f"'{called(run.path, run_folder.SUMMARY)}' names an open class that is none; {DAMAGED}")
    opened = nobody.clone()
    opened[named] = True
    training, rounds = experiment.training, experiment.protocol.rounds
    server = Server(info, experiment.model, training, experiment.protocol.seed, rounds, rounds)
    fields = experiment.method.reply_fields(server, tensors)
    out = with_own_columns(tensors, fields, {}, opened, nobody)
    biases = [name for name in class_axes(fields, out) if out[name].ndim == 1]
    return {**out, **{name: torch.where(opened, out[name], NEVER) for name in biases}}


def fit_for_all(simulation: Simulation, model: Model) -> tuple[Model, HeldOut]:
    """The model without what it does not need, and what it says about the clients' held-out nodes."""
    model = needed_only(model, simulation.clients[0].graph)
    return model, measured(simulation.clients, lambda client: model.logits(client.graph))
