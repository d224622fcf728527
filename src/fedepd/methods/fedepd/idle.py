"""Which settings of FedEPD change nothing under the others.

A run with one of them would equal a run without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedepd.methods.fedepd.method import FedEPD

MARGIN = ("mu", "sign", "margin_in", "absent", "gate", "isolated_gate", "common_counts")
WALK = ("teleport", "walk_steps")
OF_THEM = ("rehearsal_prior", "elites", "prototype_encoder", "holders", "common_counts")
PROTOTYPES = ("consensus_by", "gamma", "rho", *WALK, *OF_THEM)


def idle_settings(method: FedEPD) -> dict[str, str]:
    """Each setting that changes no bit of a run, whatever its value, and the setting that is the reason."""
    return _of_purification(method) | _of_prototypes(method) | _of_margin(method)


def _of_purification(method: FedEPD) -> dict[str, str]:
    return {} if method.purify else {"prune": "purify", "score": "purify"}


def _of_prototypes(method: FedEPD) -> dict[str, str]:
    """Prototypes are sent even where no calibration step uses them, so what shapes them still acts there."""
    if not method.recalibrate:
        return dict.fromkeys((*PROTOTYPES, "consensus"), "recalibrate")
    if not method.consensus:
        return dict.fromkeys(PROTOTYPES, "consensus")
    idle = _of_walk(method)
    if method.calibration_epochs == 0:
        return idle | dict.fromkeys(("gamma", "rehearsal_prior"), "calibration_epochs")
    return idle | {"gamma" if method.rehearses else "rehearsal_prior": "consensus_by"}


def _of_walk(method: FedEPD) -> dict[str, str]:
    """The walk ranks nodes.

    If it never leaves its start, the training nodes of the class all have the same rank.
    """
    idle = {}
    if method.teleport == 1:
        idle = dict.fromkeys(("walk_steps", "elites"), "teleport")
    elif method.walk_steps == 0:
        idle = dict.fromkeys(("teleport", "elites"), "walk_steps")
    if method.rho == 1 and method.elites == "train":
        idle |= dict.fromkeys(WALK, "rho")  # every training node is taken, so their order does not matter
    return idle


def _of_margin(method: FedEPD) -> dict[str, str]:
    """The margin is in the base loss, in the calibration loss, in both or in none."""
    if not method.recalibrate:
        return dict.fromkeys((*MARGIN, "calibration_epochs"), "recalibrate")
    if method.calibration_epochs == 0 and method.margin_in == "calibration":
        return dict.fromkeys((name for name in MARGIN if name != "margin_in"), "calibration_epochs")
    idle = {} if method.gate == "labelled" else {"isolated_gate": "gate"}
    if method.mu == 0:
        # All margins are 0. What is left is that absent = "exclude" takes classes out of the softmax.
        idle |= dict.fromkeys(("sign", "gate", "isolated_gate", "common_counts"), "mu")
        idle |= {} if method.absent == "exclude" else {"margin_in": "mu"}
    return idle
