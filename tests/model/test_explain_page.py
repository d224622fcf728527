"""The page of explained cases: everything on it is text, and pictures have every node once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fedepd.model.explain_page import places, render
from fedepd.model.reasons import Case, Reason

NEIGHBOURS = tuple(
    Reason("neighbour", f"k{i}", 0.5 - i / 10, hops=1 + i % 2, label="clean", probability=0.9)
    for i in range(30)
)
CASE = Case(
    node="<script>alert(1)</script>",
    label="mule & co",
    probability=0.8,
    log_odds=1.5,
    base_log_odds=0.0,
    reasons=(Reason("feature", "$x^2$", 1.0, "<b>", "a"), *NEIGHBOURS),
    remainder=-0.01,
    steps=32,
    without=(("$x^2$",), 0.3),
    edges=(("<script>alert(1)</script>", "k0"), ("k0", "k1"), ("k0", "k2")),
)
MODEL: Any = SimpleNamespace(
    experiment=SimpleNamespace(method=SimpleNamespace(label="FedEPD")), operating=None
)


def test_names_are_text_and_every_case_has_a_figure() -> None:
    page = render([CASE, replace(CASE, node="k9", reasons=(), edges=())], MODEL, "bank")
    assert "<script>alert" not in page
    assert "&lt;b&gt;" in page
    assert page.count('data-name="why"') == 2
    assert "Why: 2 nodes of bank" in page
    assert "mule &amp; co, probability 0.800" in page
    assert "0 more neighbours" not in page
    assert "6 more neighbours contribute less" in page


def test_importances_are_not_called_contributions() -> None:
    page = render([replace(CASE, by="gnnexplainer")], MODEL, "bank")
    assert "importances from 0 to 1 by PyG" in page
    assert "do not add up" in page
    assert "6 more neighbours matter less" in page
    assert "ontribution" not in page
    assert "log-odds" not in page


def test_a_case_without_neighbours_has_no_neighbourhood() -> None:
    """A network that reads no edges has columns alone."""
    reason = Reason("feature", "segment", 1.0, "sme", "retail")
    page = render([replace(CASE, node="k9", reasons=(reason,), edges=())], MODEL, "bank")
    assert "segment = sme (usual: retail)" in page
    assert "No neighbour is a reason" in page
    assert "its neighbours around it" not in page
    assert page.count('data-name="why"') == 1
    assert "its neighbours around it" in render([CASE], MODEL, "bank")


def test_rings_of_the_picture_are_by_steps() -> None:
    spots = places(CASE, NEIGHBOURS)
    assert set(spots) == {CASE.node, *(each.name for each in NEIGHBOURS)}
    assert len(set(spots.values())) == len(spots)
    assert spots[CASE.node] == (0.0, 0.0)
    radius = {
        each.name: round((spots[each.name][0] ** 2 + spots[each.name][1] ** 2) ** 0.5, 6)
        for each in NEIGHBOURS
    }
    assert {radius[each.name] for each in NEIGHBOURS if each.hops == 1} == {1.05}
    assert {radius[each.name] for each in NEIGHBOURS if each.hops == 2} == {2.1}
