"""Contributions add up, and taking away what they name changes the score more than taking away anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedepd
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.methods.fedepd.method import FedEPD
from fedepd.model.explain import TOLERANCE, Explainer, explain, frequent_class
from fedepd.model.explain_page import render
from fedepd.model.export import export
from fedepd.model.model import Model, load_model
from fedepd.model.operating import Operating, Rule
from fedepd.model.reasons import Reason
from fedepd.rng import seeded_numpy
from fedepd.runs.run import run
from fedepd.types import Graph

NAMED = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explain")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    """FedEPD, whose pruning the explanation must see, with a network that keeps neighbours apart."""
    run("synthetic", "fedepd", backbone="sage", rounds=8, clients=3, hidden=16, out=folder / "run")
    return load_model(export(folder / "run", folder / "model"))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return fedepd.load("synthetic")


@pytest.fixture(scope="module")
def explainer(model: Model, graph: Graph) -> Explainer:
    return Explainer(model, graph)


def test_contributions_add_up_to_the_difference_of_the_log_odds(explainer: Explainer) -> None:
    """Exactly with the remainder, and within 1 % (or 0.01) without it. The end is what predict says."""
    for node in map(str, range(0, 1500, 60)):
        case = explainer.case(node)
        total, difference = sum(r.contribution for r in case.reasons), case.log_odds - case.base_log_odds
        assert total + case.remainder == pytest.approx(difference, abs=1e-4)
        assert abs(case.remainder) <= TOLERANCE * max(1.0, abs(difference))
        p = explainer.predictions.probabilities[int(node)]
        assert case.probability == p.max()
        assert case.log_odds == pytest.approx(np.log(p.max() / (1 - p.max())), abs=2e-3)


def log_odds(model: Model, graph: Graph, node: int, label: int) -> float:
    """By the model's own prediction on a whole graph, nothing of an explanation in it."""
    z = model.logits(graph)[node].double()
    others = torch.arange(len(z)) != label
    return float(z[label] - z[others].logsumexp(0))


def changed(graph: Graph, usual: torch.Tensor, node: int, reasons: list[Reason]) -> Graph:
    """The graph with features of the node at their mean, and without its edges to neighbours."""
    x, gone = graph.x.clone(), set()
    for each in reasons:
        if each.kind == "feature":
            at = int(each.name.removeprefix("feature "))
            x[node, at] = usual[at]
        else:
            gone.add(int(each.name))
    a, b = graph.edge_index
    cut = [
        (int(u) == node and int(v) in gone) or (int(v) == node and int(u) in gone)
        for u, v in zip(a, b, strict=True)
    ]
    return replace(graph, x=x, edge_index=graph.edge_index[:, ~torch.tensor(cut)])


@pytest.mark.heavy
def test_taking_away_what_is_named_changes_more_than_taking_away_anything(model: Model, graph: Graph) -> None:
    """Over 100 nodes, three named reasons against three random ones, truly removed from the graph.

    Pruning is switched off, so that removing an edge changes no other edge.
    """
    assert isinstance(model.experiment.method, FedEPD)
    method = replace(model.experiment.method, purify=False)
    plain = replace(model, experiment=replace(model.experiment, method=method))
    explainer, draws = Explainer(plain, graph), seeded_numpy("faithful")
    lost: list[tuple[float, float]] = []
    for node in draws.choice(graph.num_nodes, 100, replace=False).tolist():
        case = explainer.case(str(node))
        label = plain.label_names.index(case.label)
        usable = [r for r in case.reasons if r.kind == "feature" or r.hops == 1]
        named = [r for r in usable if r.contribution > 0][:NAMED]
        other = [usable[i] for i in draws.choice(len(usable), len(named), replace=False)]
        before = log_odds(plain, graph, node, label)
        after = [
            log_odds(plain, changed(graph, explainer.usual, node, r), node, label) for r in (named, other)
        ]
        lost.append((before - after[0], before - after[1]))
    named_loss, random_loss = np.array(lost).T
    assert (named_loss > random_loss).mean() >= 0.9
    assert named_loss.mean() > 5 * abs(random_loss.mean())
    assert named_loss.mean() > 0.5


def test_the_probability_without_the_named_reasons_is_lower(explainer: Explainer) -> None:
    cases = [explainer.case(str(node)) for node in range(0, 600, 60)]
    assert all(case.without[1] < case.probability for case in cases)
    assert all(len(case.without[0]) == NAMED for case in cases)


def test_alerts_are_the_likeliest_of_all_classes_but_the_most_frequent(
    explainer: Explainer, model: Model
) -> None:
    p = explainer.predictions.probabilities.copy()
    p[:, frequent_class(model)] = 0
    best = np.argsort(-p.max(1), kind="stable")[:5]
    assert explainer.alerts(5) == [(str(i), int(p[i].argmax())) for i in best]
    name = model.label_names[int(model.tiers.tail[-1])]
    column = explainer.predictions.probabilities[:, model.label_names.index(name)]
    assert explainer.alerts(1, name)[0][0] == str(int(column.argmax()))
    among = [str(i) for i in range(20)]
    assert {node for node, _ in explainer.alerts(3, among=among)} <= set(among)


def test_what_cannot_be_explained_is_refused(
    explainer: Explainer, graph: Graph, folder: Path, model: Model
) -> None:
    for wrong, kind in ((lambda: explainer.case("x"), BadData), (lambda: explainer.alerts(0), BadConfig)):
        with pytest.raises(kind):
            wrong()
    with pytest.raises(UnknownName, match="class"):
        explain(model, graph, ["1"], of="no such class")
    run("synthetic", "fedgac", rounds=1, clients=2, hidden=8, out=folder / "gac")
    other = load_model(export(folder / "gac", folder / "gac-model"))
    with pytest.raises(BadConfig, match="predicts by a network of its own"):
        Explainer(other, graph)


def test_the_function_explains_ids_or_alerts(model: Model, graph: Graph) -> None:
    assert [case.node for case in explain(model, graph, ["3", "1"])] == ["3", "1"]
    name = model.label_names[0]
    assert [case.label for case in explain(model, graph, alerts=2, of=name)] == [name, name]


def test_alerts_are_those_of_the_operating_point(model: Model, graph: Graph, explainer: Explainer) -> None:
    """The threshold is the probability of the sixth node of class 4, so that six are alerted."""
    p = explainer.predictions.probabilities[:, 4]
    first = np.argsort(-p, kind="stable")[:6]
    point = Operating(frequent_class(model), (Rule((4,), float(p[first[-1]])),))
    pointed = Explainer(replace(model, operating=point), graph)
    wanted = [(str(node), 4) for node in first]
    assert pointed.alerts(4) == wanted[:4]
    assert pointed.alerts(20) == wanted  # no more than there are
    assert pointed.alerts(20, "4", [wanted[3][0], "0", wanted[1][0]]) == [wanted[1], wanted[3]]
    with pytest.raises(BadConfig, match="alerts none of 1,500 nodes to '5'"):
        pointed.alerts(3, "5")
    asked = pointed.predictions.of([wanted[3][0], str(np.argmin(p)), wanted[1][0]])
    why = pointed.with_reasons(asked, 1).why
    assert why == ("", "", pointed.case(*wanted[1]).in_short())
    assert why[2]
    assert pointed.with_reasons(asked.of([str(np.argmin(p))]), 5).why == ("",)  # there is no alert
    case, before = pointed.case(wanted[5][0]), explainer.case(wanted[5][0], 4)
    assert (case.label, case.alert, before.alert) == ("4", True, None)
    assert case.log_odds == before.log_odds  # the temperature is that of the likeliest class, as predicted
    assert case.as_json()["alert"] is True
    assert case.as_json()["chance"] == pytest.approx(case.probability)  # the rule has no line of its own
    assert pointed.case(wanted[5][0], 5).chance is None  # it is alerted to another class
    assert ", an alert; an average node" in case.sentences()[0]
    page = render([case], pointed.model, "graph")
    assert f"to 4 from a probability of {point.rules[0].threshold:.4g} on." in page
    assert ">Alert</" in page
    assert ">Chance</" in page
