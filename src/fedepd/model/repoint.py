"""Another operating point for a model folder that is there already, without the run that it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedepd.clients.scaling import with_features
from fedepd.datasets import graph_sha256
from fedepd.datasets.npz import read_npz
from fedepd.errors import BadConfig, BadData
from fedepd.files import encoded, json_text, read_bytes, read_json, write_bytes
from fedepd.folders import held
from fedepd.model.aim import Aim
from fedepd.model.card_numbers import operating_point
from fedepd.model.held_out import HeldOut, measured
from fedepd.model.model import (
    CARD,
    CONFIG,
    FORMAT,
    FORMAT_OPERATING,
    OPERATING,
    OPERATING_CURVE,
    Model,
    ids_of,
    read_model,
)
from fedepd.model.of_client import client_number
from fedepd.model.pointed import pointed
from fedepd.model.subject import Files, Subject, labelled_rows, read_subject
from fedepd.report.curves import operating_picture
from fedepd.rng import seeded_numpy
from fedepd.runs.resume import experiment_of
from fedepd.runs.simulation import build
from fedepd.shapes import EXPORT_AGAIN
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

MOST_BYTES = 64 * 2**20
"""Most bytes of a file that is changed."""
HEADING, NEXT = "## Operating point", "## Calibration"
"""The card's section, and the one that it stands before."""


@dataclass(frozen=True, eq=False)
class Known:
    """Nodes whose classes are known, and what the model says about them."""

    predicted: HeldOut
    nodes: int
    """Nodes of their graph; alerts are so many of them."""
    data: str = ""
    """What the graph is called. Empty: it is the run's own."""


def set_point(folder: str | Path, aim: Aim | None, known: Known | None = None) -> None:
    """Give a model folder another operating point, or none.

    The thresholds, the numbers, the picture and the card change together. If that fails, all of them stay.
    If the process is killed meanwhile, the folder is refused until the command is given again.

    Args:
        folder: The model folder.
        aim: What to reach. None: a node is called its likeliest class again.
        known: From ``known_nodes``; needed with an aim.

    Raises:
        BadConfig: The nodes cannot say how to reach the aim, or the folder cannot be written to.
        BadData: The folder is damaged.
    """
    folder = Path(folder)
    with held(folder):
        model = replace(read_model(folder), operating=None)
        config, point = read_json(folder / CONFIG, cure=EXPORT_AGAIN), None
        config = {name: value for name, value in config.items() if name != "operating"} | {"format": FORMAT}
        if aim is not None:
            assert known is not None
            model, point = pointed(model, aim, known.predicted, model.temperatures, known.nodes)
            assert model.operating is not None
            assert point is not None
            point |= {"data": known.data} if known.data else {}
            config |= {"format": FORMAT_OPERATING, "operating": model.operating.as_json()}
        picture = None if point is None else encoded(operating_picture(point, model.label_names))
        card = read_bytes(folder / CARD, MOST_BYTES, EXPORT_AGAIN).decode("utf-8", "replace")
        _change(folder, {
            OPERATING: None if point is None else encoded(json_text(point)),
            OPERATING_CURVE: picture,
            CARD: encoded(with_section(card, operating_point(point, model))),
            CONFIG: encoded(json_text(config)),
        })  # fmt: skip


def with_section(card: str, section: list[str]) -> str:
    """A model card whose section about the operating point is this one; none where it is empty.

    What a person has written elsewhere on the card stays.
    """
    parts = re.split(r"^(?=## )", card, flags=re.MULTILINE)
    kept = [part for part in parts if part.split("\n", 1)[0].rstrip() != HEADING]
    if not section:
        return "".join(kept)
    place = next((at for at, part in enumerate(kept) if part.startswith(NEXT)), len(kept))
    before = "".join(kept[:place]).rstrip("\n")
    new = "\n\n".join([before, HEADING, *section]) + "\n"
    after = "".join(kept[place:])
    return f"{new}\n{after}" if after else new


def _change(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Write files, or remove them where there is no content. If one fails, all become as they were."""
    before = {
        name: read_bytes(folder / name, MOST_BYTES, EXPORT_AGAIN) if (folder / name).exists() else None
        for name in files
    }
    done: list[str] = []
    try:
        for name, content in files.items():
            done.append(name)
            _put(folder / name, content)
    except BaseException:
        for name in reversed(done):
            with suppress(BadConfig, OSError):
                _put(folder / name, before[name])
        raise


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        write_bytes(path, content)


# --- the nodes ----------------------------------------------------------------------------------------------


def known_nodes(folder: str | Path, files: Files, labels: Mapping[str, str] | None = None) -> Known:
    """What a model says about nodes whose classes are known.

    Of the graph of the model's own run, validation nodes choose and test nodes measure, as in an export. Of
    another graph, half of the labelled nodes of each class choose and the others measure.

    Args:
        folder: The model folder.
        files: The graph. An npz file has its labels.
        labels: Classes by the ids of nodes, where they are not in the npz file.

    Raises:
        BadConfig: The graph is the part that one client has trained on.
        BadData: A file cannot be used, or a label names no class of the model.
    """
    folder = Path(folder)
    model, config = read_model(folder), read_json(folder / CONFIG, cure=EXPORT_AGAIN)
    if labels is None and files.data is not None:
        graph = read_npz(files.data, part=True)
        if files.context is None and files.context_nodes is None:
            own = _of_run(folder, model, config, graph)
            if own is not None:
                return own
        labels = _own_labels(graph)
    if labels is None:
        raise BadConfig("the classes of the nodes are not known; give --labels FILE, or --data FILE.npz")
    return _halves(model, read_subject(model, files), labels)


def _own_labels(graph: Graph) -> dict[str, str]:
    names = graph.label_names or tuple(map(str, range(graph.num_classes)))
    pairs = zip(ids_of(graph), graph.y.tolist(), strict=True)
    return {node: names[c] for node, c in pairs if c != HIDDEN}


def _of_run(folder: Path, model: Model, config: dict[str, Any], graph: Graph) -> Known | None:
    """The run's own validation and test nodes, if this is its graph."""
    of_run, *of_client = config.get("data_sha256", [""])
    sha256 = graph_sha256(with_features(graph, model.experiment.protocol.features))
    if sha256 in of_client:
        raise BadConfig(
            f"graph '{shown(graph.name)}' holds the nodes that the model was trained on, and they would "
            "choose the point too well; give other nodes, or make the model again with the aim"
        )
    if sha256 != of_run:
        return None
    simulation = build(experiment_of(config, f"'{shown(folder, 300)}/{CONFIG}'", EXPORT_AGAIN), graph)
    if simulation.config["config_hash"] != config["config_hash"]:
        raise BadData(f"'{shown(folder, 300)}/{CONFIG}' was changed; {EXPORT_AGAIN}")
    clients, nodes = simulation.clients, simulation.graph.num_nodes
    if model.client:
        names = simulation.config["dataset"]["owner_names"] or [f"client {k}" for k in range(len(clients))]
        clients = [clients[client_number(model.client, names)]]
        nodes = clients[0].graph.num_nodes
    return Known(measured(clients, lambda client: model.logits(client.graph)), nodes)


def _halves(model: Model, subject: Subject, labels: Mapping[str, str]) -> Known:
    """Choice: half of each class measures, because the nodes that chose a threshold reach their aim by
    themselves. The odd one chooses."""
    graph = with_features(model.check_features(subject.graph), model.experiment.protocol.features)
    place = {node: number for number, node in enumerate(ids_of(graph))}
    among, y = labelled_rows(model, subject.asked, labels)
    rows = np.array([place[subject.asked[each]] for each in among], dtype=np.int64)
    chooses = np.zeros(len(rows), dtype=bool)
    for c in np.unique(y).tolist():
        of_class = np.flatnonzero(y == c)
        drawn = seeded_numpy("operating point", "halves", c, len(of_class)).permutation(of_class)
        chooses[drawn[: (len(drawn) + 1) // 2]] = True
    logits = model.logits(graph)[torch.from_numpy(rows)]
    parts = {
        split: [(logits[torch.from_numpy(part)], torch.from_numpy(y[part]))]
        for split, part in (("val", chooses), ("test", ~chooses))
    }
    return Known(HeldOut(parts, {}), len(subject.asked), subject.graph.name)
