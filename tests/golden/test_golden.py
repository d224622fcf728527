"""The bits of every method, preset and federation on this kind of machine, and their numbers on any.

Keyed by torch's version, the kernels, and the processor's maker and vector width. A machine without a key has
its bits unchecked, and says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedepd.methods import METHODS
from golden.cases import FEDERATIONS, ROUGH, RUNS, SLOW, machine, near, pin_federation, pin_run

VALUES = json.loads((Path(__file__).parent / "values.json").read_text())
BITS = VALUES["bits"].get(machine(), {})
UNKNOWN = (
    f"no golden bits for '{machine()}'; 'python tests/golden/renew.py' on the commit before yours makes them"
)


def test_everything_is_pinned() -> None:
    assert VALUES["runs"].keys() == RUNS.keys()
    everything = {*RUNS, *(f"federation:{method}" for method in FEDERATIONS)}
    assert any(bits.keys() == everything for bits in VALUES["bits"].values())


def test_the_adapted_runs_have_adapted_models() -> None:
    """Of every method with a model for all. The runs themselves are held to these values below."""
    adapted = [name for name in RUNS if name.endswith(":adapted")]
    assert adapted == [f"{method}:default:adapted" for method, cls in METHODS.items() if cls.has_global]
    for name in adapted:
        assert "client0.adapt.weight" in VALUES["runs"][name]["norms"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.heavy] * (name in SLOW)) for name in RUNS]
)
def test_a_run_is_what_it_was(name: str) -> None:
    now, was = pin_run(name), VALUES["runs"][name]
    assert now["config_hash"] == was["config_hash"]
    assert now["metrics"].keys() == was["metrics"].keys()
    assert all(near(now["metrics"][metric], was["metrics"][metric]) for metric in was["metrics"])
    assert now["norms"].keys() == was["norms"].keys()
    tolerance = 0.03 if name in ROUGH else 1e-3
    assert all(near(now["norms"][tensor], was["norms"][tensor], tolerance) for tensor in was["norms"])
    if name not in BITS:
        pytest.skip(UNKNOWN)
    assert now["bits"] == BITS[name]


@pytest.mark.parametrize("method", FEDERATIONS)
def test_a_rehearsed_federation_is_what_it_was(method: str) -> None:
    if f"federation:{method}" not in BITS:
        pytest.skip(UNKNOWN)
    assert pin_federation(method) == BITS[f"federation:{method}"]
