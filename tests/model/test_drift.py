"""What has drifted passes a limit, and what has not does not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedepd
from fedepd.errors import BadConfig, BadData
from fedepd.model.drift import Limits, Watched, chance, stability_index, watch
from fedepd.model.model import Model, ids_of, load_model
from fedepd.model.operating import Alerted, Operating, Rule
from fedepd.model.reference import Reference, read_reference, reference_of
from fedepd.model.subject import Subject
from fedepd.rng import seeded_numpy
from fedepd.types import Graph


def test_the_index_by_hand() -> None:
    """Shares 0.5 and 0.5 against 3 of 4 and 1 of 4: 0.25 ln 1.5 - 0.25 ln 0.5 = 0.25 ln 3."""
    assert stability_index([0.5, 0.5], np.array([3, 1])) == pytest.approx(0.25 * math.log(3))
    assert stability_index([0.5, 0.5], np.array([2, 2])) == 0
    assert math.isfinite(stability_index([1.0, 0.0], np.array([0, 4])))


def test_a_share_that_is_not_known_is_no_shift_by_itself() -> None:
    """Below 10 % anything is possible: 5 of 100 shift nothing, and 40 of 100 are held against 10 %."""
    assert stability_index([0.95, None], np.array([95, 5]), 0.1) == pytest.approx(0, abs=1e-9)
    shifted = stability_index([0.9, None], np.array([60, 40]), 0.1)
    assert shifted == pytest.approx(stability_index([0.9, 0.1], np.array([60, 40])))


def test_chance_covers_the_index_of_samples_without_drift() -> None:
    """Of 400 samples of 60 rows from ten equal bins, about 1 % lies above; by the normal rule at most 3 %."""
    draws = seeded_numpy("chance")
    shares = [0.1] * 10
    above = [
        stability_index(shares, draws.multinomial(60, shares)) > chance(10, 60, 10**9) for _ in range(400)
    ]
    assert np.mean(above) < 0.06
    assert chance(1, 60, 100) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Reference, Graph]:
    place = tmp_path_factory.mktemp("drift")
    fedepd.run("synthetic", "fedavg", rounds=5, clients=2, hidden=16, out=place / "run")
    folder = Path(fedepd.export(place / "run", place / "model"))
    reference = read_reference(folder)
    assert reference is not None
    return load_model(folder), reference, fedepd.load("synthetic")


def watched(made: tuple[Model, Reference, Graph], graph: Graph, **more: object) -> Watched:
    return watch(made[0], made[1], Subject(graph, ids_of(graph)), **more)  # type: ignore[arg-type]


def test_the_training_graph_itself_has_not_drifted(made: tuple[Model, Reference, Graph]) -> None:
    found = watched(made, made[2])
    assert found.passed == []
    assert len(found.figures) == 64 + 4
    assert max(each.value or 0 for each in found.figures[:64]) < 0.05


def test_a_column_a_degree_and_an_edge_that_changed_are_named(made: tuple[Model, Reference, Graph]) -> None:
    """Column 3 is moved by three of its deviations, and half of the edges go."""
    graph = made[2]
    x = graph.x.to_dense().clone()
    x[:, 3] += 3 * x[:, 3].std()
    moved = watched(made, replace(graph, x=x))
    assert "feature 3" in {each.name for each in moved.passed}
    assert not {f"feature {i}" for i in range(64) if i != 3} & {each.name for each in moved.passed}
    few = watched(made, replace(graph, edge_index=graph.edge_index[:, ::6]))
    assert "degree" in {each.name for each in few.passed}
    draws = torch.from_numpy(seeded_numpy("edges").integers(0, graph.num_nodes, (2, graph.num_edges)))
    mixed = watched(made, Graph.make(graph.x, draws, graph.y, graph.num_classes))
    assert "edges predicted alike" in {each.name for each in mixed.passed}


def test_labels_that_came_later_measure_calibration(made: tuple[Model, Reference, Graph]) -> None:
    model, _, graph = made
    names = [model.label_names[c] for c in graph.y.tolist()]
    right = watched(made, graph, labels={str(i): names[i] for i in range(0, 1500, 2)})
    assert right.labelled is not None
    assert right.labelled["nodes"] == 750
    said = model.predict(graph).classes
    assert right.labelled["accuracy"] == pytest.approx((said == graph.y.numpy())[::2].mean())
    wrong = {str(i): model.label_names[(int(said[i]) + 1) % 10] for i in range(1500)}
    found = watched(made, graph, labels=wrong)
    assert "calibration error" in {each.name for each in found.passed}
    for labels, words in (({"0": "zebra"}, "does not know"), ({"x": names[0]}, "none of the labels")):
        with pytest.raises(BadData, match=words):
            watched(made, graph, labels=labels)


def test_only_new_nodes_count(made: tuple[Model, Reference, Graph]) -> None:
    model, reference, graph = made
    found = watch(model, reference, Subject(graph, ids_of(graph)[:100]))
    assert found.nodes == 100


def test_limits_are_read_from_one_text() -> None:
    assert Limits.read("psi=0.5, ece=0.2") == Limits(psi=0.5, ece=0.2)
    assert Limits.read("") == Limits()
    for text, words in (
        ("psi", "NAME=NUMBER"), ("zebra=1", "no limit 'zebra'"), ("psi=-1", "above 0"), ("alerts=1", "ratio"),
        ("ece=nan", "above 0"),
    ):  # fmt: skip
        with pytest.raises(BadConfig, match=words):
            Limits.read(text)


def test_the_alert_rate_is_that_of_the_operating_point(made: tuple[Model, Reference, Graph]) -> None:
    """A point that alerts 75 of 1,500 nodes is held against the share that it alerted before."""
    model, reference, graph = made
    p = np.sort(model.predict(graph).probabilities[:, 4])[::-1]
    point = Operating(0, (Rule((4,), float(p[74])),), alerted=Alerted(0.05, 400))
    ids = ids_of(graph)
    truth = {node: str(c) for node, c in zip(ids, graph.y.tolist(), strict=True)}

    def rate(operating: Operating, known: Reference = reference) -> Watched:
        return watch(replace(model, operating=operating), known, Subject(graph, ids), labels=truth)

    found = rate(point)
    (alerts,) = [each for each in found.figures if each.kind == "alerts"]
    assert (alerts.value, alerts.before, alerts.passed) == (0.05, 0.05, False)
    assert (
        found.alert == f"Alerts are those of the model's operating point: to 4 from a probability of "
        f"{point.rules[0].threshold:.4g} on."
    )
    raised = found.labelled or {}
    said = model.predict(graph).probabilities[:, 4] >= p[74]
    assert (raised["alerts"], raised["cases"]) == (75, int((graph.y == 4).sum()))
    assert raised["right"] == int((said & (graph.y == 4).numpy()).sum())
    classes = [each.value for each in watched(made, graph).figures if each.kind == "classes"]
    assert [each.value for each in found.figures if each.kind == "classes"] == classes  # whatever the point
    far = rate(replace(point, alerted=Alerted(0.01, 400)))
    assert [each.name for each in far.passed] == ["alert rate"]
    unknown = rate(replace(point, alerted=None))
    assert not unknown.passed
    assert "does not say how many nodes" in unknown.notes[0]
    own = reference_of(replace(model, operating=point), graph, np.arange(1500))
    assert own.alerted == Alerted(0.05, 1500)
    assert "alerted" not in own.as_json()
    assert not rate(
        replace(point, alerted=Alerted(0.01, 400)), replace(reference, alerted=own.alerted)
    ).passed
