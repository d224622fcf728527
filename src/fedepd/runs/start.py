"""Warm start: the initial weights of a run from a model folder.

Classes and columns are matched by their names. A new class gets fresh weights, and a new column zeros, so
that the network computes what it did before. What the data no longer have is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json, read_tensors
from fedepd.methods import Server, method_class
from fedepd.methods.steps import renamed
from fedepd.network.backbones import AUTO, Backbone
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import weights_sha256
from fedepd.runs.resume import experiment_of
from fedepd.runs.source import Data
from fedepd.shapes import EXPORT_AGAIN, LABELS_FIELDS, MODEL_CONFIG, MODEL_FOLDER, SCHEMA_FIELDS, expect
from fedepd.shown import listed, shown
from fedepd.types import Graph, TaskInfo, Tensors

ARCHITECTURE = ("backbone", "hidden", "head", "layers")
"""The settings that must be the model's."""
SEEN_BEFORE = (
    "start: the model may have been trained on nodes that this run tests on, unless graph, seed and split "
    "are those of its own run; the scores are then too high"
)


@dataclass(frozen=True, eq=False)
class Beginning:
    """What a model folder gives to a new run."""

    model: Backbone
    tensors: Tensors
    """Encoder and classifier."""
    label_names: tuple[str, ...]
    schema: FeatureSchema | None
    num_features: int


def with_start(experiment: Experiment, data: Data) -> tuple[Experiment, Tensors, list[str]]:
    """Initial weights from the model folder that the setting ``start`` names.

    Args:
        experiment: Its ``start`` is a folder.
        data: The run's data.

    Returns:
        The experiment, whose ``start`` is now the hash of the initial weights; these weights; and a sentence
        about everything that was added or left out.

    Raises:
        BadConfig: The network is another one, the method does not begin with one model for all, or noise
            would not cover the training of the model.
        BadData: The folder holds no model, or its columns are not those of the data.
    """
    folder = Path(experiment.protocol.start)
    if experiment.privacy.noisy:
        raise BadConfig(
            "start is given with dp_epsilon, whose budget does not cover the training of that model; leave "
            "one of them out"
        )
    begun = read_beginning(folder)
    if experiment.model.backbone == AUTO:
        experiment = replace(experiment, model=replace(experiment.model, backbone=begun.model.backbone))
    for name in ARCHITECTURE:
        mine, theirs = getattr(experiment.model, name), getattr(begun.model, name)
        if mine != theirs:
            raise BadConfig(
                f"{name} is {shown(mine)}, but the model in '{shown(folder, 300)}' has {shown(theirs)}; give "
                f"--{name} {shown(theirs)}"
            )
    graph = data if isinstance(data, Graph) else data[0].graph
    params, notes = fitted(begun, experiment, graph)
    check_begins(experiment, graph, params)
    protocol = replace(experiment.protocol, start=weights_sha256(params))
    return replace(experiment, protocol=protocol), params, [*notes, SEEN_BEFORE]


def read_beginning(folder: Path) -> Beginning:
    """The model in a folder, as far as a new run needs it."""
    where, names = f"'{shown(folder, 300)}'", MODEL_FOLDER
    if not (folder / names["config"]).is_file() or not (folder / names["labels"]).is_file():
        raise BadData(
            f"start is {where}, which is no model folder; make one with 'fedepd export RUN -o MODEL'"
        )
    files = {}
    for what, fields in (("config", MODEL_CONFIG), ("labels", LABELS_FIELDS), ("schema", SCHEMA_FIELDS)):
        files[what] = read_json(folder / names[what], cure=EXPORT_AGAIN)
        expect(files[what], fields, f"{where}: '{names[what]}'", EXPORT_AGAIN)
    config, columns = files["config"], files["schema"].get("columns")
    tensors = read_tensors(folder / names["weights"], EXPORT_AGAIN)
    if weights_sha256(tensors) != config["weights_sha256"]:
        raise BadData(
            f"{where}: the weights are not what was exported (their sha256 differs); {EXPORT_AGAIN}"
        )
    trained: Experiment = experiment_of(config, where, EXPORT_AGAIN, trained=True)
    info = TaskInfo(**{name: config["info"][name] for name in MODEL_CONFIG["info"]})
    last = method_class(trained.method_name).last_layer
    own = {**tensors, **renamed(tensors, f"{last}.", "classifier.")}
    params = {}
    for name, shape in trained.model.shapes(info).items():
        if name not in own or tuple(own[name].shape) != shape:
            raise BadData(
                f"{where} lacks the weights '{name}' of its network; start from a model of another method"
            )
        params[name] = own[name]
    schema = FeatureSchema.from_json(json.dumps(columns)) if columns else None
    return Beginning(trained.model, params, tuple(files["labels"]["labels"]), schema, info.num_features)


def fitted(begun: Beginning, experiment: Experiment, graph: Graph) -> tuple[Tensors, list[str]]:
    """The model's weights for the columns and classes of a graph, and what was added or left out."""
    info = TaskInfo(graph.num_features, graph.num_classes, 1)
    fresh = experiment.model.initial(info, experiment.protocol.seed)
    rows, notes = _columns(begun, graph)
    names = graph.label_names or tuple(map(str, range(graph.num_classes)))
    classes = _places(begun.label_names, names)
    if all(place < 0 for place in classes):
        raise BadData(
            f"the data have the classes {listed(names)}, and the model knows none of them; call them as in "
            "its training, or run without start"
        )
    notes += _changes("class", "classes", begun.label_names, names, "begins with fresh weights")
    out: Tensors = {}
    for name, value in begun.tensors.items():
        if name == "encoder.weight":
            out[name] = _rows_at(value, rows, begun.num_features)
        elif name.startswith("classifier."):
            out[name] = _columns_at(value, classes, fresh[name])
        else:
            out[name] = value.clone()
    return out, notes


def _columns(begun: Beginning, graph: Graph) -> tuple[list[int], list[str]]:
    """For each feature of the graph its place among the model's, or -1."""
    if begun.schema is None or not graph.schema:
        if begun.num_features != graph.num_features:
            raise BadData(
                f"the data have {graph.num_features} features but the model was trained on "
                f"{begun.num_features}, and nobody knows which is which; import both from tables, or run "
                "without start"
            )
        return list(range(graph.num_features)), []
    mine = FeatureSchema.from_json(graph.schema)
    notes = _changes(
        "feature", "features", begun.schema.feature_names, mine.feature_names, "begins with weights of zero"
    )
    places = _places(begun.schema.feature_names, mine.feature_names)
    if all(place < 0 for place in places):
        raise BadData("the data have no column that the model was trained on; run without start")
    before = {rule.name: (rule.mean, rule.std) for rule in begun.schema.rules if rule.categories is None}
    other = [
        rule.name
        for rule in mine.rules
        if rule.categories is None and before.get(rule.name, (rule.mean, rule.std)) != (rule.mean, rule.std)
    ]
    if other:
        notes.append(
            f"start: these columns are scaled otherwise than in the model's training: {listed(other)}"
        )
    return places, notes


def _places(known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    place = {name: number for number, name in enumerate(known)}
    return [place.get(name, -1) for name in wanted]


def _changes(one: str, many: str, known: Sequence[str], mine: Sequence[str], how: str) -> list[str]:
    new = [name for name in mine if name not in set(known)]
    gone = [name for name in known if name not in set(mine)]
    out = []
    if new:
        out.append(f"start: a {one} that the model did not know {how}: {listed(new)}")
    if gone:
        out.append(f"start: {many} of the model that the data lack are left out: {listed(gone)}")
    return out


def _rows_at(weight: Tensor, rows: Sequence[int], width: int) -> Tensor:
    """Rows for the graph's features; sage has a second half for a node's own row. A new row is 0."""
    padded = [torch.cat([part, torch.zeros(1, part.shape[1])]) for part in torch.split(weight, width)]
    return torch.cat([part[torch.tensor(rows)] for part in padded])  # -1 is the row of zeros


def _columns_at(value: Tensor, classes: Sequence[int], fresh: Tensor) -> Tensor:
    """Columns for the graph's classes; a new class has those of fresh weights."""
    out = fresh.clone()
    for column, place in enumerate(classes):
        if place >= 0:
            out[..., column] = value[..., place]
    return out


def check_begins(experiment: Experiment, graph: Graph, params: Tensors) -> None:
    """Refuse a method whose clients do not begin with the server's model."""
    info = TaskInfo(graph.num_features, graph.num_classes, 1, experiment.training.weighting)
    server = Server(info, experiment.model, experiment.training, experiment.protocol.seed, 0, 1)
    tensors = experiment.method.server_init(server, params)
    if not all(name in tensors and torch.equal(tensors[name], value) for name, value in params.items()):
        raise BadConfig(
            f"start is given, but {experiment.method.label} has no model that all clients begin with; leave "
            "start out, or choose a method whose headline model is 'global' in 'fedepd methods'"
        )
