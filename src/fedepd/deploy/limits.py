"""What a run may ask of a site: ``local/limits.toml`` in the owner's kit. A job cannot see or change it.

The limits are there because a dishonest coordinator can choose settings and a crafted first model that
together reveal most of a site's feature vectors (``fedepd.privacy.recovery``). Measured on the dataset email
(10 sites, sage, one answer), the attack rebuilds this share of all nodes:

    hidden  optimizer  lr     epochs  dropout  weight_decay   rebuilt
    2048    sgd        1e6    1       0        5e-4           85 %
     512    sgd        1e6    1       0        5e-4           74 %
      64    sgd        1e6    1       0        5e-4           23 %
     256    sgd        0.01   3       0 / 0.5  5e-4           62 / 47 %
     256    adam       0.01   1       0.5      5e-4           41 %
     256    adam       0.01   3       0 / 0.5  0              33 / 45 %
     256    adam       0.001  3       0 / 0.5  5e-4           4 / 11 %
     256    adam       0.01   2       0 / 0.5  5e-4           1 / 0 %
     256    adam       0.01   3       0 / 0.5  5e-4           0 / 0 %

So neither a small learning rate nor dropout protects: an attacker gets the effect of a large rate from small
weights. Adam with weight decay does protect. In every step it moves small weights by many times their size,
so the second step no longer sees the crafted weights. The defaults allow only such settings. Each round is
another answer, so the defaults also bound the hidden width and the number of rounds.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.files import read_bytes, read_json, swapped_in, write_bytes
from fedepd.methods import METHODS
from fedepd.network.backbones import BACKBONES
from fedepd.options import option
from fedepd.rounds.guard import FEWEST, OPEN
from fedepd.rounds.questions import asked_of
from fedepd.rounds.statistics import SCALING, scaling_fault
from fedepd.shown import shown
from fedepd.types import Tensors

LIMITS_FILE = "limits.toml"
MOST_BYTES = 64 * 1024
COUNTS = (".count", ".votes", ".size")
"""Suffixes of tensors that count nodes or sites.

They grow with the federation, so their norm is not limited.
"""
CHOICES: dict[str, tuple[str, ...]] = {
    "methods": tuple(name for name, method in METHODS.built_in.items() if not method.merges_clients),
    "backbones": tuple(BACKBONES.built_in),
    "optimizers": ("adam", "sgd"),
}

MEASURED = ("gcn", "sage", "gat", "sgc", "mlp", "h2gcn")
"""The networks that the attack was tried on.

It rebuilds rows of all but sgc, which has no units to switch off. The owner may add a network from another
package.
"""


@dataclass(frozen=True)
class Limits:
    """One field per line of the file. A line that is left out has its default."""

    methods: tuple[str, ...] = option(CHOICES["methods"], "methods that may run here")
    backbones: tuple[str, ...] = option(
        MEASURED,
        "networks that may run here; sage, mlp and h2gcn keep a node's own features apart and reveal more",
    )
    optimizers: tuple[str, ...] = option(
        ("adam",),
        "optimisers that may run here; add 'sgd' only for a coordinator you trust with your features",
    )
    own_optimizers: bool = option(
        True, "whether presets 'authors_values' may use their authors' optimiser (CReFF: sgd)"
    )
    max_hidden: int = option(256, "widest hidden layer; each of its units can reveal one node")
    min_dropout: float = option(0.0, "smallest dropout")
    min_lr: float = option(
        0.005, "smallest learning rate; with a tiny one a crafted model stays as it was sent"
    )
    max_lr: float = option(0.1, "largest learning rate")
    min_epochs: int = option(2, "fewest local epochs; with one epoch the answer is a plain gradient")
    max_epochs: int = option(50, "most local epochs")
    min_weight_decay: float = option(5e-4, "smallest weight decay; with Adam it moves crafted weights away")
    max_weight_decay: float = option(0.01, "largest weight decay")
    min_rho: float = option(0.1, "FedEPD: smallest share of a class's training nodes that make its prototype")
    min_train_share: float = option(
        0.1, "smallest share of your nodes to train on; with only a few, each answer reveals them all"
    )
    max_method_number: float = option(
        5000.0, "largest number in the method's own settings; work and memory grow with these numbers"
    )
    max_classes: int = option(1000, "most classes; a site answers with matrices of size classes x classes")
    max_rounds: int = option(1000, "most training steps answered in one run, counting all its resumed parts")
    max_evaluations: int = option(
        250, "most evaluations in one run; each reveals how the held-out nodes are classified"
    )
    guard: bool = option(
        True,
        "whether a run must keep classes with few training nodes or few holders at home (--guard); a run "
        "with noise (--dp-epsilon) sends nothing by class and is let in, too",
    )
    secure: bool = option(
        True, "whether a run of three or more sites must show the coordinator sums only (--secure)"
    )
    new_cohorts: bool = option(
        False,
        "secure: whether your data may be summed again with other sites; the difference of two such sums can "
        "show one site's numbers",
    )
    min_count: int = option(5, "guard: fewest training nodes of a class over all sites, if it is sent")
    min_holders: int = option(3, "guard: fewest sites that have a class, if it is sent")
    max_message_norm: float = option(
        1000.0, "largest L2 norm of a tensor in a message from the server; honest ones are below 50"
    )
    tell_reasons: bool = option(
        False, "tell the coordinator why a run was refused; otherwise the reason is only in your log"
    )

    @classmethod
    def read(cls, path: Path) -> Limits:
        where = f"'{shown(path, 200)}'"
        try:
            content = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as cause:
            raise BadConfig(
                f"{where} cannot be read ({shown(cause)}); correct it, or remove it to get the safe limits"
            ) from cause
        known = {f.name: f.default for f in fields(cls)}
        for name in content:
            if name not in known:
                raise UnknownName(f"limit in {where}", shown(name), known)
        return cls(**{name: _checked(name, value, known[name], where) for name, value in content.items()})

    def line(self, name: str) -> str:
        """The limit as a line of the file."""
        value = getattr(self, name)
        return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"

    def text(self) -> str:
        head = "# What a run may ask of this site. 'fedepd federation join' writes this file only once.\n"
        head += "# This site refuses a run outside these limits before the run touches your data.\n"
        head += "# After a change, join again.\n"
        return head + "".join(f"\n# {f.metadata['help']}\n{self.line(f.name)}\n" for f in fields(self))

    @classmethod
    def write_default(cls, path: Path) -> None:
        """Write the safe limits where there is no file yet. The owner's own limits are never overwritten."""
        if os.path.lexists(path):
            raise BadConfig(
                f"'{shown(path, 200)}' exists already; edit it, or remove it to get the safe limits"
            )
        write_bytes(path, cls().text().encode())
        path.chmod(0o600)

    def looser(self) -> list[str]:
        """The lines that permit more than the safe defaults.

        An owner must see them: someone else may have written them.
        """
        safe = Limits()
        return [self.line(f.name) for f in fields(self) if self._permits_more(f.name, getattr(safe, f.name))]

    def _permits_more(self, name: str, default: Any) -> bool:
        mine = getattr(self, name)
        if isinstance(mine, tuple):
            return not set(mine) <= set(default)
        required = name.startswith("min_") or name in ("guard", "secure")
        return bool(mine < default if required else mine > default)

    def refusal(self, task: FederationTask, allowed: Collection[str] = ()) -> str | None:
        """Why this site refuses the run, by the first limit that it breaks; None if it takes part.

        ``allowed`` are the owner's further classes, by full name. A method or backbone among them need not be
        in the file.
        """
        added = {"methods": METHODS.allowed(allowed), "backbones": BACKBONES.allowed(allowed)}
        for setting, value, limit in self._broken(task):
            if value in added.get(limit, ()):
                continue
            asked, line = shown(f"{setting} = {json.dumps(value)}"), shown(self.line(limit), 300)
            return f"the run asks for {asked}, but this site's {LIMITS_FILE} says '{line}'"
        return None

    def _broken(self, task: FederationTask) -> Iterator[tuple[str, Any, str]]:
        """Each setting that breaks a limit, its value and the limit's name."""
        e, sites = task.experiment(), len(task.sites)
        own = {f.name: getattr(e.method, f.name) for f in fields(e.method)}
        settings = {
            "classes": task.num_classes,
            "hidden": max(e.method.network_of(e.model, site, {}).widest for site in range(sites)),
            "dropout": e.model.dropout,
            "rho": own.get("rho", 1.0),
        }
        settings |= {name: getattr(e.training, name) for name in ("lr", "epochs", "weight_decay")}
        settings |= {
            "train_share": e.split.train_share,
            "rounds": e.protocol.rounds,
            "evaluations": evaluations(task),
        }
        named = {"methods": e.method_name, "backbones": e.model.backbone, "optimizers": e.training.optimizer}
        for limit, name in named.items():
            if name not in getattr(self, limit):
                yield limit.removesuffix("s"), name, limit
        if self.guard and not e.privacy.guard and not e.privacy.noisy:
            yield "guard", False, "guard"
        if self.secure and not e.privacy.secure and sites >= FEWEST:
            yield "secure", False, "secure"
        if e.privacy.guard:
            settings |= {"count": e.privacy.min_count, "holders": e.privacy.min_holders}
        if own.get("optimizer_own") and not self.own_optimizers:
            yield "optimizer_own", True, "own_optimizers"
        if own.get("dropout_own") and self.min_dropout > 0:
            yield "dropout_own", True, "min_dropout"
        for name, value in settings.items():
            # "not >=" instead of "<", so that NaN is outside as well.
            if hasattr(self, f"min_{name}") and not value >= getattr(self, f"min_{name}"):
                yield name, value, f"min_{name}"
            if hasattr(self, f"max_{name}") and not value <= getattr(self, f"max_{name}"):
                yield name, value, f"max_{name}"
        for name, value in own.items():
            if isinstance(value, int | float) and not abs(value) <= self.max_method_number:
                yield name, value, "max_method_number"

    def message_fault(
        self, message: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
    ) -> str | None:
        """What is wrong with a message from the server; None if nothing is.

        ``expected`` is a message of this run with the right names and shapes.
        """
        for name in sorted(message.keys() ^ expected.keys()):
            what = "holds" if name in message else "lacks"
            return f"the server's message {what} '{shown(name)}', unlike the messages of the run's method"
        for name, value in message.items():
            where, want = f"'{name}' in the server's message", expected[name]
            if value.dtype != want.dtype or value.shape != want.shape:
                found, needed = f"{value.dtype} {list(value.shape)}", f"{want.dtype} {list(want.shape)}"
                return f"{where} is {found}, not {needed}"
            if name == OPEN and not bool(((value == 0) | (value == 1)).all()):
                return f"{where} holds numbers that are neither 0 nor 1"
            if name == SCALING:
                if fault := scaling_fault(value, want.shape[1]):
                    return f"{where} {fault}"
                continue  # means and deviations have the size of the owners' numbers
            if not value.is_floating_point():  # a question checks the range of its own entries
                continue
            norm = float(torch.linalg.vector_norm(value, dtype=torch.float64))
            if not math.isfinite(norm):
                return f"{where} holds NaN or infinite values"
            if norm > self.max_message_norm and not name.endswith(COUNTS):
                limit = self.line("max_message_norm")
                return f"{where} has norm {norm:.3g}, but {LIMITS_FILE} says '{limit}'"
        return None


def evaluations(task: FederationTask) -> int:
    """How often a run evaluates: every ``evaluate_every`` rounds, after the last one, and for each question.

    Under noise only questions are asked, and they are answered by zeros. Scores are not in its budget.
    """
    e, asked = task.experiment(), len(asked_of(task.setting()))
    if e.privacy.noisy:
        return asked
    rounds, every = e.protocol.rounds, e.protocol.evaluate_every
    return rounds // every + (rounds % every > 0) + asked


def expected_message(task: FederationTask, client_id: int) -> Tensors:
    """The first message of an honest server in this run. Names and shapes are the same in every round."""
    server, e = task.server(), task.experiment()
    tensors = e.method.server_init(server, server.model.initial(server.info, server.seed))
    opened = {OPEN: torch.zeros(task.num_classes)} if e.privacy.guard else {}
    scaling = {SCALING: torch.ones(2, len(task.scaled), dtype=torch.float64)} if task.scaled else {}
    return {**e.method.message(tensors, client_id), **scaling, **opened}


def check_limits(kit: Path, looser: bool) -> None:
    """Refuse limits that permit more than the safe ones, unless the owner asks for them with ``looser``.

    Whoever made the kit may have written them.
    """
    path = kit / "local" / LIMITS_FILE
    if looser or not os.path.lexists(path):
        return
    if lines := Limits.read(path).looser():
        told = f"'{shown(path, 200)}' permits more than the safe limits: {shown('; '.join(lines), 300)}"
        raise BadConfig(f"{told}; add --looser-limits to 'join' if you wrote these lines, or remove the file")


def ensure_limits(kit: Path) -> Limits:
    """The limits of a kit. If there are none, the safe ones are written first."""
    path = kit / "local" / LIMITS_FILE
    if not os.path.lexists(path):
        Limits.write_default(path)
    return Limits.read(path)


class Tally:
    """Counts a site's answers in one run. A restarted site or a resumed job continues the count.

    ``durable``: also after a power failure. A privacy budget needs it.
    """

    def __init__(self, path: Path, limits: Limits, durable: bool = False) -> None:
        self._path, self._limits, self._durable = path, limits, durable
        self._most = {"rounds": limits.max_rounds, "evaluations": limits.max_evaluations}
        found = read_json(path, MOST_BYTES) if path.exists() else dict.fromkeys(self._most, 0)
        whole = isinstance(found, dict) and found.keys() == self._most.keys()
        if not whole or not all(type(given) is int and given >= 0 for given in found.values()):
            raise BadData(
                f"'{shown(path, 200)}' does not hold the count of this site's answers; "
                f"restore it, or remove it if you know how it was damaged"
            )
        self._given: dict[str, int] = dict(found)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def steps(self) -> int:
        """How many training steps were answered."""
        return self._given["rounds"]

    def add(self, what: str) -> None:
        """Count one more answer before it is computed. Refuses it if the limit is reached."""
        if self._given[what] >= self._most[what]:
            limit = self._limits.line(f"max_{what}")
            raise BadConfig(
                f"this site already gave {self._given[what]} answers, and {LIMITS_FILE} says '{limit}'"
            )
        self._given[what] += 1
        # Without noise it is not flushed to disk, because that costs more than the step. A power failure can
        # undo the count, a server cannot.
        with swapped_in(self._path, flush=self._durable) as file:
            file.write(json.dumps(self._given).encode())


def _checked(name: str, value: Any, default: Any, where: str) -> Any:
    """``value``, if it has the type of the default. Any other type is refused, not converted."""
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadConfig(
                f"{name} in {where} is not a list of names; write it as {Limits().line(name)[:60]}"
            )
        for each in value:
            if each not in CHOICES[name]:
                raise UnknownName(f"name under {name} in {where}", shown(each), CHOICES[name])
        return tuple(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadConfig(f"{name} in {where} is {shown(value)}; write true or false")
        return value
    kinds = int if isinstance(default, int) else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 2**63:
        wanted = "a whole number" if isinstance(default, int) else "a finite number"
        raise BadConfig(f"{name} in {where} is {shown(value)}; write {wanted}, 0 or more")
    return type(default)(value)
