"""An exported model, and its predictions for the nodes of a new graph."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.clients.imputing import filled_as
from fedepd.clients.scaling import with_features
from fedepd.datasets.columns import Table, needs
from fedepd.datasets.remembered import recalled
from fedepd.datasets.tables import FeatureSchema, Roles
from fedepd.errors import BadConfig, BadData
from fedepd.files import clean, encoded, read_json, read_tensors, write_bytes
from fedepd.longtail import Tiers
from fedepd.model.operating import Operating
from fedepd.rng import seeded
from fedepd.rounds.calibrate import probabilities, tier_of_class
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import weights_sha256
from fedepd.runs.predict import logits, logits_at
from fedepd.runs.resume import experiment_of
from fedepd.shapes import (
    EXPORT_AGAIN,
    LABELS_FIELDS,
    MODEL_CONFIG,
    MODEL_FOLDER,
    SCHEMA_FIELDS,
    TIERS,
    expect,
)
from fedepd.shown import csv_text, listed, shown, whole
from fedepd.types import ClientData, Graph, TaskInfo, Tensors

FORMAT, FORMAT_OPERATING, FORMAT_WEIGHTS = 1, 2, 3
"""The format of a model folder. It is raised when an older version would misread the folder: a version that
does not know operating points would call nodes otherwise, and so would one that overlooks weights of
edges."""
CONFIG, WEIGHTS, LABELS, SCHEMA = MODEL_FOLDER.values()
METRICS, CALIBRATION, CARD = "metrics.json", "calibration.json", "README.md"
OPERATING, OPERATING_CURVE = "operating.json", "operating.svg"
"""The files of a model folder. A run folder is another one, even where a file has the same name."""
PROBE_NODES = 64


@dataclass(frozen=True, eq=False)
class Predictions:
    node_ids: tuple[str, ...]
    classes: NDArray[np.int64]
    """What each node is called: the likeliest class, or what the model's operating point decides: [n]."""
    probabilities: NDArray[np.float64]
    """Calibrated probabilities: [n, C]."""
    label_names: tuple[str, ...]
    abstain_below: float = 0.0
    ranks: NDArray[np.int64] | None = None
    """With an operating point: the order in which to look at the nodes, 1 first, [n]."""
    alerts: NDArray[np.bool_] | None = None
    """With an operating point: which nodes are alerted, [n]."""
    chances: NDArray[np.float64] | None = None
    """With an operating point that has thresholds: how likely an alert to the node is right, [n]."""
    why: tuple[str, ...] = ()
    """What moved the model, in one line for each node where somebody asked. Empty: nobody did."""

    @property
    def labels(self) -> list[str | None]:
        """What each node is called. None where its likeliest class is less likely than ``abstain_below``."""
        sure = self.probabilities.max(1) >= self.abstain_below
        return [
            self.label_names[c] if known else None
            for c, known in zip(self.classes.tolist(), sure.tolist(), strict=True)
        ]

    def of(self, ids: Sequence[str]) -> Predictions:
        """The predictions for these nodes, in this order. Their ranks are among themselves."""
        place = {node: number for number, node in enumerate(self.node_ids)}
        if unknown := [node for node in ids if node not in place]:
            first, last = shown(self.node_ids[0]), shown(self.node_ids[-1])
            raise BadData(f"there is no node '{shown(unknown[0])}'; nodes are called '{first}' to '{last}'")
        rows = [place[node] for node in ids]
        return replace(
            self,
            node_ids=tuple(ids),
            classes=self.classes[rows],
            probabilities=self.probabilities[rows],
            ranks=None if self.ranks is None else self.ranks[rows].argsort().argsort() + 1,
            alerts=None if self.alerts is None else self.alerts[rows],
            chances=None if self.chances is None else self.chances[rows],
            why=tuple(self.why[row] for row in rows) if self.why else (),
        )

    def table(self) -> dict[str, list[Any]]:
        """The columns id, label and probability of the label, and then a probability for each class.

        With an operating point also its rank, whether it is an alert, and how likely that alert is right.
        Where somebody asked for reasons, also these.
        """
        columns: dict[str, list[Any]] = {
            "id": list(self.node_ids),
            "label": self.labels,
            "probability": self.probabilities[np.arange(len(self.classes)), self.classes].tolist(),
        }
        if self.ranks is not None and self.alerts is not None:
            columns["rank"] = self.ranks.tolist()
            columns["alert"] = ["yes" if each else "no" for each in self.alerts.tolist()]
        if self.chances is not None:
            columns["chance"] = self.chances.tolist()
        if self.why:
            columns["why"] = list(self.why)
        return columns | {
            f"p({name})": self.probabilities[:, c].tolist() for c, name in enumerate(self.label_names)
        }


@dataclass(frozen=True, eq=False)
class Model:
    """A model that was exported, ready to predict.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> model = fedepd.load_model(fedepd.export("runs/first", "model"))
        >>> predictions = model.predict(fedepd.load("synthetic"))
        >>> len(predictions.labels), predictions.probabilities.shape
        (1500, (1500, 10))
    """

    experiment: Experiment
    """The settings that it was trained under."""
    info: TaskInfo
    """The numbers of features, classes and clients."""
    tensors: Tensors
    """The weights, and no tensor that changes no prediction."""
    label_names: tuple[str, ...]
    """What the classes are called, in order."""
    tiers: Tiers
    """Which classes are head, medium and tail."""
    temperatures: dict[str, float]
    """What the logits are divided by, for each tier of the predicted class."""
    schema: FeatureSchema | None = None
    """How columns become features. None if the training data did not come from tables."""
    distilled: bool = False
    """Whether the weights were distilled from the run's, so that they tell less about its training nodes."""
    client: str = ""
    """Whose model it is, if it was made for one client. Empty if it is the model of all."""
    kind: str = "global"
    """The model of all, the client's ``personal`` one, or the global one ``adapted`` to the client."""
    operating: Operating | None = None
    """How probabilities become decisions. None: a node is called its likeliest class."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Which columns of the training tables were the ids, classes and ends, where that is known."""
    edge_weights: bool = False
    """Whether edges counted by weights in training."""

    def predict(self, graph: Graph, abstain_below: float = 0.0) -> Predictions:
        """Classify every node. The graph's own labels are not looked at.

        Edges are purified as in training, over the whole graph as if it were one client. A node without edges
        is classified by its features alone.

        Args:
            graph: A graph with the features that the model was trained on.
            abstain_below: A node whose likeliest class has a smaller probability gets no label.

        Returns:
            The likeliest class and the calibrated probabilities of every node. A model with an operating
            point decides by that, and also gives ranks and alerts.

        Raises:
            BadConfig: ``abstain_below`` is not a probability.
            BadData: The graph has other features than the model was trained on.
        """
        if not 0 <= abstain_below <= 1:
            raise BadConfig(f"abstain_below is {abstain_below}; a probability lies between 0 and 1")
        graph = self.check_features(graph)
        own = self.logits(with_features(graph, self.experiment.protocol.features)).numpy().astype(np.float64)
        p, ids = self.calibrated(own), ids_of(graph)
        if self.operating is None:
            return Predictions(ids, own.argmax(1), p, self.label_names, abstain_below)
        said = self.operating.decide(p)
        order = said.ranks, said.alerts, said.chances
        return Predictions(ids, said.classes, p, self.label_names, abstain_below, *order)

    def calibrated(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated probabilities [n, C] from logits [n, C].

        Args:
            logits: As ``logits`` gives them.

        Returns:
            [n, C].
        """
        return probabilities(logits, self.temperatures, tier_of_class(self.tiers, self.info.num_classes))

    def check_features(self, graph: Graph) -> Graph:
        """Refuse a graph with other features than the model was trained on.

        Args:
            graph: Any graph.

        Returns:
            The graph. Missing numbers that waited for a value have the one of the training.

        Raises:
            BadData: Their number, or how they were made from columns, is another. Or edges have weights
                where those of the training had none, or the other way round.
        """
        if graph.num_features != self.info.num_features:
            raise BadData(
                f"graph '{shown(graph.name)}' has {graph.num_features} features but the model was trained on "
                f"{self.info.num_features}; give the same columns in the same order"
            )
        self._check_weights(graph)
        graph = filled_as(graph, self.schema)
        if self.schema is not None and graph.schema and FeatureSchema.from_json(graph.schema) != self.schema:
            raise BadData(
                f"the features of graph '{shown(graph.name)}' were made from other columns, categories or "
                "scales than the model's; give the tables themselves with --nodes and --edges"
            )
        return graph

    def _check_weights(self, graph: Graph) -> None:
        has = graph.edge_weight is not None
        if has != self.edge_weights and self.experiment.protocol.edges:
            here, there = ("weights", "none") if has else ("no weights", "some")
            cure = "without --edge-weight" if has else "with the --edge-weight of the training"
            raise BadData(
                f"the edges of graph '{shown(graph.name)}' have {here}, but those of the model's training "
                f"had {there}; import the graph {cure}"
            )

    def logits(self, graph: Graph) -> Tensor:
        """Logits of a graph, as a client without any training node would have them.

        Args:
            graph: Its features are as the protocol wants them.

        Returns:
            [n, C], not calibrated.
        """
        return logits(self.experiment, self.info, self.tensors, graph)

    def logits_at(self, data: ClientData) -> Tensor:
        """Logits as a client with these data would have them.

        Args:
            data: The client's data; a method may use its training labels.

        Returns:
            [n, C], not calibrated.
        """
        return logits_at(self.experiment, self.info, self.tensors, data)


def ids_of(graph: Graph) -> tuple[str, ...]:
    """What the nodes are called: as in their tables, or by their numbers."""
    return tuple(map(str, range(graph.num_nodes) if graph.node_ids is None else graph.node_ids.tolist()))


def load_model(folder: str | Path) -> Model:
    """Read the model in a folder that ``fedepd.export`` wrote.

    Args:
        folder: The model folder.

    Returns:
        The model, checked against its settings and the hash of its weights.

    Raises:
        BadData: The folder holds no model, or is damaged.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> model = fedepd.load_model(fedepd.export("runs/first", "model"))
        >>> model.info.num_classes
        10
    """
    folder = Path(folder)
    model = read_model(folder)
    told = _read(folder, OPERATING, {}) if (folder / OPERATING).is_file() else None
    applied = None if model.operating is None else model.operating.as_json()
    if told is not None and (applied is None or any(told.get(name) != applied[name] for name in applied)):
        raise BadData(
            f"'{shown(folder, 300)}/{OPERATING}' tells of another operating point than '{CONFIG}' has, so a "
            "change of it was interrupted; give it again with 'fedepd point'"
        )
    return model


def read_model(folder: Path) -> Model:
    """The model in a folder, whatever the folder tells about its operating point."""
    config, where = _read(folder, CONFIG, {}), f"'{shown(folder, 300)}/{CONFIG}'"
    if config.get("format") not in (FORMAT, FORMAT_OPERATING, FORMAT_WEIGHTS):
        found, known = shown(config.get("format"), 20), f"{FORMAT} to {FORMAT_WEIGHTS}"
        raise BadData(f"{where} has format {found}, this version reads {known}; export the run again")
    expect(config, MODEL_CONFIG, where, EXPORT_AGAIN)
    if config.get("edge_weights", False) != (config["format"] == FORMAT_WEIGHTS):
        has = "" if config.get("edge_weights") else "no "
        raise BadData(f"{where} has format {config['format']} and {has}weights of edges; {EXPORT_AGAIN}")
    if config["format"] != FORMAT_WEIGHTS and ("operating" in config) != (
        config["format"] == FORMAT_OPERATING
    ):
        has = "an" if "operating" in config else "no"
        raise BadData(f"{where} has format {config['format']} and {has} operating point; {EXPORT_AGAIN}")
    tensors = read_tensors(folder / WEIGHTS, EXPORT_AGAIN)
    if weights_sha256(tensors) != config["weights_sha256"]:
        raise BadData(
            f"'{shown(folder, 300)}/{WEIGHTS}' is not what was exported (its sha256 differs); {EXPORT_AGAIN}"
        )
    made_from = _read(folder, SCHEMA, SCHEMA_FIELDS)
    model = Model(
        experiment=experiment_of(config, where, EXPORT_AGAIN, trained=True),
        info=TaskInfo(**{name: config["info"][name] for name in MODEL_CONFIG["info"]}),
        tensors=tensors,
        label_names=tuple(_read(folder, LABELS, LABELS_FIELDS)["labels"]),
        tiers=Tiers(**{name: tuple(config["tiers"][name]) for name in TIERS}),
        temperatures={name: float(config["temperatures"][name]) for name in TIERS},
        schema=FeatureSchema.from_dict(made_from) if made_from.get("columns") else None,
        distilled=config.get("distilled", False),
        client=config.get("client", ""),
        kind=config.get("kind", "global"),
        operating=Operating.of_json(config["operating"]) if _regular(config.get("operating")) else None,
        roles=recalled(json.dumps(made_from.get("roles", {}))),
        edge_weights=config.get("edge_weights", False),
    )
    if ("operating" in config) != (model.operating is not None):
        raise BadData(f"{where}: the operating point has rows of different lengths; {EXPORT_AGAIN}")
    check_model(model, f"'{shown(folder, 300)}'", EXPORT_AGAIN)
    return model


def _regular(operating: dict[str, Any] | None) -> bool:
    """Whether there is an operating point whose costs, if it has any, are a table."""
    return operating is not None and len({len(row) for row in operating.get("costs", [])}) <= 1


def _read(folder: Path, name: str, shape: Any) -> dict[str, Any]:
    if not os.path.lexists(folder / name):
        raise BadData(
            f"'{shown(folder, 300)}' is not a model folder (it has no {name}); make one with 'fedepd export "
            "RUN -o MODEL'"
        )
    content: dict[str, Any] = read_json(folder / name, cure=EXPORT_AGAIN)
    expect(content, shape, f"'{shown(folder, 300)}/{name}'", EXPORT_AGAIN)
    return content


def check_model(model: Model, where: str, cure: str) -> None:
    """Refuse labels, tiers, columns and weights that do not fit together, before anything is computed with
    them."""
    info, sizes = model.info, {name: value.numel() for name, value in model.tensors.items()}
    classes = [*model.tiers.head, *model.tiers.medium, *model.tiers.tail]
    if (
        len(model.label_names) != info.num_classes
        or max(classes, default=0) >= info.num_classes
        or len(set(classes)) < len(classes)
    ):
        raise BadData(f"{where}: the labels or tiers do not fit {info.num_classes} classes; {cure}")
    if model.operating is not None and not model.operating.fits(info.num_classes):
        raise BadData(f"{where}: the operating point does not fit {info.num_classes} classes; {cure}")
    if model.schema is not None and len(model.schema.feature_names) != info.num_features:
        raise BadData(f"{where}: the columns do not make {info.num_features} features; {cure}")
    network = model.experiment.method.network_of(model.experiment.model, 0, model.tensors)
    shapes = network.shapes(info)
    for name, shape in shapes.items():
        value = model.tensors.get(name)
        if value is not None and (tuple(value.shape), value.dtype) != (shape, torch.float32):
            raise BadData(f"{where}: the weights '{name}' have another shape than the settings need; {cure}")
    if sum(map(math.prod, shapes.values())) > sum(sizes.values()):
        raise BadData(f"{where}: there are fewer weights than the settings need; {cure}")
    if broken := [name for name, value in model.tensors.items() if not bool(torch.isfinite(value).all())]:
        raise BadData(f"{where}: the weights '{shown(broken[0])}' are not finite; {cure}")
    try:
        fits = model.logits(probe(info)).shape == (PROBE_NODES, info.num_classes)
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as cause:
        raise BadData(f"{where}: the weights do not fit the settings ({shown(cause)}); {cure}") from cause
    if not fits:
        raise BadData(f"{where}: the weights do not fit the settings; {cure}")


def probe(info: TaskInfo) -> Graph:
    """A random graph, to try predictions on."""
    draws, n = seeded("export", "probe"), PROBE_NODES
    x, edges = (
        torch.randn(n, info.num_features, generator=draws),
        torch.randint(n, (2, 4 * n), generator=draws),
    )
    return Graph.make(x, edges, torch.arange(n) % info.num_classes, info.num_classes, part=True)


def schema_of(model: Model) -> FeatureSchema:
    """How columns become features, or one sentence if the model does not know that."""
    if model.schema is None:
        raise BadConfig(
            "the model does not know how columns become features (its data did not come from tables); give "
            "--data FILE.npz"
        )
    return model.schema


def table_notes(schema: FeatureSchema, table: Table, roles: Roles) -> list[str]:
    """A sentence about everything in a table of nodes that a model does not use or does not know."""
    known = {roles.id, roles.label, roles.owner, *(rule.column for rule in schema.rules)}
    unused = [name for name in table.columns if name not in known]
    notes = (
        [f"columns that are ignored, because training had none such: {listed(unused, 20)}"] if unused else []
    )
    for rule in schema.rules:
        texts = schema.texts(rule, table) if rule.categories is not None else []
        unknown = [text for text in texts if text and text not in (rule.categories or ())]
        if unknown:
            what = f"{len(unknown):,} rows have a '{shown(rule.name)}' that was not seen in training"
            notes.append(f"{what}, such as '{shown(unknown[0])}'; it is encoded as zeros")
    return notes


def as_csv(predictions: Predictions, fit: Callable[[str], str] = whole) -> str:
    """The predictions as CSV. ``fit`` makes ids and labels safe to show.

    Text that a spreadsheet would take for a formula gets an apostrophe in front (``shown.csv_text``).
    """
    table = predictions.table()
    return csv_text([list(table), *zip(*table.values(), strict=True)], fit)


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write CSV, Parquet or JSON lines, by the suffix of the name. An abstention is an empty cell, or null.

    Only in CSV, an id or label that a spreadsheet would take for a formula gets an apostrophe in front (see
    ``shown.csv_text``).
    """
    if path.suffix == ".csv":
        content = encoded(as_csv(predictions))
    elif path.suffix == ".jsonl":
        table = predictions.table()
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        content = encoded("".join(json.dumps(clean(row), ensure_ascii=False) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        content = _parquet(predictions)
    else:
        raise BadConfig(
            f"cannot tell the format of '{path}'; give a name that ends in .csv, .parquet or .jsonl"
        )
    write_bytes(path, content)


def _parquet(predictions: Predictions) -> bytes:
    arrow, parquet, file = needs("pyarrow"), needs("pyarrow.parquet"), io.BytesIO()
    labels = [None if label is None else whole(label) for label in predictions.labels]
    table = predictions.table() | {
        "id": [*map(whole, predictions.node_ids)],
        "label": arrow.array(labels, arrow.string()),
    }
    table = {whole(name): column for name, column in table.items()}
    parquet.write_table(arrow.table(table), file)
    return file.getvalue()
