"""Which settings of FedEPD change nothing.

Every field is tried under every combination that stops one, bit for bit.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from fedepd.errors import BadConfig
from fedepd.methods.fedepd.method import PAPER, FedEPD
from fedepd.types import ClientData
from toy import run_rounds, toy_client

OTHERS: dict[str, tuple[Any, ...]] = {
    "mu": (2.0, 0.0),
    "gamma": (0.25,),
    "rho": (0.4, 1.0),
    "teleport": (0.9, 1.0),
    "walk_steps": (0, 1),
    "calibration_epochs": (0, 1),
    "sign": ("minus", "plus"),
    "margin_in": ("both", "calibration"),
    "absent": ("zero", "exclude", "eps"),
    "consensus_by": ("rehearsal", "injection"),
    "rehearsal_prior": (0.0, 1.0),
    "elites": ("train", "any"),
    "gate": ("labelled", "constant"),
    "isolated_gate": (0.0, 1.0),
    "prune": ("by_vote", "always"),
    "score": ("fused", "random"),
    "prototype_encoder": ("received", "local"),
    "holders": (0.5, 0.0),
    "common_counts": (0.0, 1.0),
    "purify": (True, False),
    "consensus": (True, False),
    "recalibrate": (True, False),
}
"""Values to try for each setting, besides the one that it has."""

PRINTED = FedEPD(**FedEPD.presets["printed"])
METHODS = {
    "default": FedEPD(),
    "few elites": FedEPD(rho=0.4),
    "printed": PRINTED,
    "printed, elites among all nodes": replace(PRINTED, elites="any", rho=1.0),
    "printed, no walk": replace(PRINTED, rho=0.4, walk_steps=0),
    "printed, walk that begins anew": replace(PRINTED, rho=0.4, teleport=1.0),
    "without purification": FedEPD(purify=False),
    "without consensus": FedEPD(consensus=False),
    "without recalibration": FedEPD(recalibrate=False),
    "no calibration steps": FedEPD(calibration_epochs=0),
    "printed, no calibration steps": replace(PRINTED, calibration_epochs=0),
    "no margin": FedEPD(mu=0.0),
    "no margin, absent classes excluded": FedEPD(mu=0.0, absent="exclude"),
    "gate by homophily": FedEPD(gate="labelled"),
}


@cache
def clients() -> tuple[ClientData, ...]:
    """Classes of different sizes, one of them absent at the second client.

    The first client has a training node without neighbours.
    """
    first, second = toy_client(0, one_node_class=True), toy_client(1, nodes=20, missing_class=True)
    lonely = int(first.train_mask.nonzero()[-1])
    edges = first.graph.edge_index
    kept = edges[:, (edges != lonely).all(0)]
    return replace(first, graph=replace(first.graph, edge_index=kept)), second


@cache
def bits(method: FedEPD) -> bytes:
    """All that two rounds leave at the server and at the clients. Calibration begins in the second."""
    rounds, exchange = run_rounds(method, clients(), rounds=2)
    tensors = {
        f"{number}.{name}": value for number, r in enumerate(rounds) for name, value in r.tensors.items()
    }
    for k, participant in exchange.participants.items():
        tensors |= {f"client {k}.{name}": value for name, value in participant.state.items()}
    return b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors))


def varied(method: FedEPD, name: str) -> list[FedEPD]:
    """The method with each other value of the setting that it accepts."""
    found = []
    for value in OTHERS[name]:
        try:
            found += [replace(method, **{name: value})] if value != getattr(method, name) else []
        except BadConfig:  # elites = any under rehearsal
            continue
    return found


def test_every_setting_is_tried() -> None:
    assert OTHERS.keys() == {f.name for f in fields(FedEPD)}


@pytest.mark.parametrize("case", METHODS)
def test_a_setting_changes_bits_unless_it_is_said_to_be_idle(case: str) -> None:
    method = METHODS[case]
    acting = {name for name in OTHERS if any(bits(other) != bits(method) for other in varied(method, name))}
    silent = {name for name in OTHERS if varied(method, name)} - acting
    assert not acting & method.idle().keys()
    assert silent <= method.idle().keys()


def test_the_reason_is_a_setting_that_acts() -> None:
    for method in METHODS.values():
        assert not set(method.idle().values()) & method.idle().keys()


def test_no_preset_but_an_ablation_leaves_much_idle() -> None:
    """The default rehearses with every training node; the paper's parts inject.

    Each leaves idle what belongs to the other.
    """
    assert FedEPD().idle() == {
        "gamma": "consensus_by",
        "isolated_gate": "gate",
        "teleport": "rho",
        "walk_steps": "rho",
    }
    assert FedEPD(**PAPER).idle() == {"rehearsal_prior": "consensus_by"}
