"""An audit has both settings side by side, and its gates look at the run's own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from fedepd.errors import BadConfig, UnknownName
from fedepd.files import clean
from fedepd.privacy.audit import MAIN, Audit, Gate, above, audit, main_figures, units
from fedepd.runs.simulation import Simulation

Four = Callable[..., Simulation]
MODEL_ATTACKS = ("membership", "links")


def audited(simulation: Simulation, **more: Any) -> Audit:
    return audit(simulation, simulation.clients, rounds=2, **{"skip": MODEL_ATTACKS, **more})


def test_both_settings_have_the_same_figures(four: Four) -> None:
    steps: list[int] = []
    found = audited(four(), step=steps.append)
    names = [[(f.name, f.tier) for f in found.figures[setting]] for setting in ("off", "on")]
    assert names[0] == names[1]
    assert sum(steps) == units(2, 32, MODEL_ATTACKS) == 2 * (2 + 4)
    off, on = (found.of(setting, "rows.single") for setting in ("off", "on"))
    assert off is not None
    assert on is not None
    assert (off.value, on.value) == (1 / 11, 0)
    assert found.of("on", "membership.auc") is None
    assert (found.privacy["off"].guard, found.privacy["on"].secure, found.notes) == (False, True, [])


def test_secure_sums_alone_hide_whose_rows_they_are_and_not_the_rows(four: Four) -> None:
    """The guard is off, so that rows of one node are in the sum. No update of one client is seen."""
    steps: list[int] = []
    found = audited(four(), secure_alone=True, step=steps.append)
    assert found.settings == ["off", "secure", "on"]
    assert sum(steps) == units(2, 32, MODEL_ATTACKS, secure_alone=True) == 3 * (2 + 4)
    assert (found.privacy["secure"].guard, found.privacy["secure"].secure) == (False, True)
    rows, alone, on = (found.of(setting, "rows.few") for setting in found.settings)
    assert rows is not None and alone is not None and on is not None  # noqa: PT018
    assert rows.cases > alone.cases >= on.cases
    with pytest.raises(BadConfig, match="secure sums alone cannot be audited"):
        audited(four("fedgta"), secure_alone=True)


def test_a_distilled_model_is_asked_for_membership_only(four: Four) -> None:
    steps: list[int] = []
    skip = ("rows", "reidentified", "classes", "recovery", "links")
    found = audited(four(), distil=True, shadows=4, skip=skip, step=steps.append)
    assert sum(steps) == units(2, 4, skip, distil=True) == 2 * (2 + 5) + 5
    assert found.settings == ["off", "on", "distilled"]
    assert {f.name for f in found.figures["distilled"]} == {"membership.auc", "membership.tpr"}
    off, distilled = (found.of(setting, "membership.auc") for setting in ("off", "distilled"))
    assert off is not None and distilled is not None  # noqa: PT018
    assert off.value != distilled.value
    assert "only membership is asked" in found.notes[-1]
    with pytest.raises(BadConfig, match="there is none to ask"):
        audited(four(), distil=True)


def test_the_same_run_has_the_same_figures(four: Four) -> None:
    """NaN is not equal to itself, so the JSON is compared."""
    once, again = (json.dumps(clean(audited(four()).as_json()["figures"])) for _ in range(2))
    assert once == again


def test_it_is_json(four: Four) -> None:
    content = json.loads(json.dumps(clean(audited(four()).as_json()), allow_nan=False))
    assert content["titles"].keys() == {f["name"] for f in content["figures"]["on"]}
    assert content["figures"]["off"][0].keys() == {"name", "tier", "value", "low", "high", "cases", "chance"}
    assert content["privacy"]["on"]["guard"] is True


@pytest.mark.parametrize(
    ("method", "settings", "own"),
    [
        ("fedepd", {}, "off"),
        ("fedepd", {"guard": True}, "off"),
        ("fedepd", {"guard": True, "secure": True}, "on"),
        ("fedgta", {"guard": True}, "on"),
    ],
)
def test_a_run_has_the_setting_whose_protection_it_has(
    four: Four, method: str, settings: dict[str, Any], own: str
) -> None:
    found = audited(four(method, **settings), skip=(*MODEL_ATTACKS, "recovery", "reidentified"))
    assert found.own == own
    assert bool(found.notes) == (method == "fedgta")


def test_a_method_without_a_common_model_is_told_so(four: Four) -> None:
    for settings in ({}, {"widths": "4-12"}):
        found = audited(four("fedproto", **settings), skip=())
        assert "no membership and no links" in found.notes[0]


def test_what_cannot_be_audited(four: Four) -> None:
    with pytest.raises(BadConfig, match="at one client"):
        audited(four("centralised"))
    with pytest.raises(BadConfig, match="dishonest clients"):
        audited(four("fedavg", attack="sign-flip", attackers=1))
    with pytest.raises(BadConfig, match="rounds is 0"):
        audit(four(), [], rounds=0)
    with pytest.raises(UnknownName, match="did you mean 'recovery'"):
        audited(four(), skip=("recover",))


def test_the_three_main_figures(four: Four) -> None:
    found = main_figures(four(), 2)
    assert [[f.name for f in found[setting]] for setting in ("off", "on")] == [list(MAIN)] * 2
    assert [f.tier for f in found["on"]] == ["all"] * 3
    assert found["off"][0].value == 4 / 11
    assert found["on"][0].value == 0
    assert math.isnan(found["on"][1].value)
    assert found["on"][2].value == 0.5


def test_gates(four: Four) -> None:
    """Without protection 1 of 11 rows is of one node, in the tail 1 of 3."""
    open_run = audited(four())
    gates = [Gate.parse(text) for text in ("rows.single=0.05", "rows.single:tail=0.34", "rows.few=0.3636")]
    assert above(open_run, gates) == [
        "rows.single is 0.09091, above 0.05", "rows.few is 0.3636, above 0.3636"
    ]  # fmt: skip
    guarded = audited(four(guard=True, secure=True))
    assert above(guarded, [*gates, Gate.parse("reidentified.rank1=0")]) == []
    assert above(guarded, [Gate("membership.auc", "all", 0.0)]) == []  # not measured


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("reidentified.rank=0.1", "did you mean 'reidentified.rank1'"),
        ("rows.few:tale=0.1", "did you mean 'tail'"),
        ("rows.few", "is no limit"),
        ("rows.few=much", "is no number"),
        ("rows.few=nan", "is no number"),
        ("rows.few=", "is no number"),
    ],
)
def test_gates_that_are_none(text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        Gate.parse(text)
