"""What an owner lets a run ask for: ``local/limits.toml`` in the kit. The job does not know it, and cannot
change it.

The coordinator's choices are an attack: settings and a crafted first model rebuilt most of a site's feature
vectors (``fedepd.deploy.recovery``). Share of all nodes of email (10 sites, sage, one answer) that the attack
rebuilds, measured:

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

So a small learning rate is no protection (small weights do what a large rate does), nor is dropout. What
stops the attack is that Adam with weight decay moves small weights by many times their size in every step, so
that the second step meets other weights than the crafted ones. The defaults are those settings; each round is
another answer, so hidden width and rounds are bounded too.
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
from fedepd.runs.experiment import Experiment
from fedepd.shown import shown
from fedepd.types import Tensors

LIMITS_FILE = "limits.toml"
MOST_BYTES = 64 * 1024
COUNTS = (".count", ".votes", ".size")
"""Tensors of a message that count nodes or sites: they grow with the federation and have no largest norm."""
CHOICES: dict[str, tuple[str, ...]] = {
    "methods": tuple(name for name, method in METHODS.built_in.items() if not method.merges_clients),
    "backbones": tuple(BACKBONES.built_in),
    "optimizers": ("adam", "sgd"),
}

MEASURED = ("gcn", "sage", "gat", "sgc", "mlp", "h2gcn")
"""The networks that the attack was tried on: it rebuilds rows of all but sgc, which has no units to switch off.
A network from another package is the owner's to add."""


@dataclass(frozen=True)
class Limits:
    """One line of the file each; what a file leaves out has its default."""

    methods: tuple[str, ...] = option(CHOICES["methods"], "methods that may run here")
    backbones: tuple[str, ...] = option(
        MEASURED, "networks; sage, mlp and h2gcn read a node's own features apart and tell more"
    )
    optimizers: tuple[str, ...] = option(
        ("adam",), "optimisers; add 'sgd' only for a coordinator you trust with your features"
    )
    own_optimizers: bool = option(
        True, "presets 'official' may train by their authors' optimiser (CReFF: sgd)"
    )
    max_hidden: int = option(256, "widest hidden layer; every unit of it can give away one node")
    min_dropout: float = option(0.0, "smallest dropout")
    min_lr: float = option(0.005, "smallest learning rate; a tiny one keeps a crafted model as it was sent")
    max_lr: float = option(0.1, "largest learning rate")
    min_epochs: int = option(2, "fewest local epochs; after one epoch the answer is a plain gradient")
    max_epochs: int = option(50, "most local epochs")
    min_weight_decay: float = option(5e-4, "smallest weight decay; with Adam it moves crafted weights away")
    max_weight_decay: float = option(0.01, "largest weight decay")
    min_rho: float = option(
        0.1, "FedEPD: smallest share of a class's training nodes that a prototype sums up"
    )
    min_train_share: float = option(
        0.1, "smallest share of your nodes to train on; of a handful each answer tells all"
    )
    max_method_number: float = option(
        5000.0, "largest number in the method's own settings; work and memory grow with them"
    )
    max_classes: int = option(1000, "most classes; a site answers with matrices of classes x classes")
    max_rounds: int = option(1000, "most answers to training steps in one run, resumed or not")
    max_evaluations: int = option(
        250, "most evaluations in one run; each tells how the held-out nodes are classified"
    )
    max_message_norm: float = option(
        1000.0, "largest L2 norm of a tensor in a message from the server; honest ones are below 50"
    )
    tell_reasons: bool = option(
        False, "tell the coordinator why a run was refused; otherwise the reason is in your log alone"
    )

    @classmethod
    def read(cls, path: Path) -> Limits:
        where = f"'{shown(path, 200)}'"
        try:
            content = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as cause:
            raise BadConfig(
                f"{where} cannot be used ({shown(cause)}); correct it, or remove it to have the safe limits"
            ) from cause
        known = {f.name: f.default for f in fields(cls)}
        for name in content:
            if name not in known:
                raise UnknownName(f"limit in {where}", shown(name), known)
        return cls(**{name: _checked(name, value, known[name], where) for name, value in content.items()})

    def line(self, name: str) -> str:
        """The limit as it stands in the file."""
        value = getattr(self, name)
        return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"

    def text(self) -> str:
        head = "# What a run may ask of this site; 'fedepd federation join' wrote it once and never overwrites it.\n"
        head += "# A run outside these limits is refused here, before it touches your data. Edit, then join again.\n"
        return head + "".join(f"\n# {f.metadata['help']}\n{self.line(f.name)}\n" for f in fields(self))

    @classmethod
    def write_default(cls, path: Path) -> None:
        """Only where there is no file yet: the owner's word is not overwritten."""
        if os.path.lexists(path):
            raise BadConfig(
                f"'{shown(path, 200)}' is there already; edit it, or remove it to have the safe limits"
            )
        write_bytes(path, cls().text().encode())
        path.chmod(0o600)

    def looser(self) -> list[str]:
        """The lines that permit more than the safe defaults do: an owner sees what somebody else wrote."""
        safe = Limits()
        out = []
        for name in (f.name for f in fields(self)):
            mine, default = getattr(self, name), getattr(safe, name)
            more = (
                set(mine) - set(default)
                if isinstance(mine, tuple)
                else (mine < default if name.startswith("min_") else mine > default)
            )
            if more:
                out.append(self.line(name))
        return out

    def refusal(self, task: FederationTask, allowed: Collection[str] = ()) -> str | None:
        """Why this site takes no part in the run, by the first line that forbids it.

        ``allowed`` are the owner's further classes, by full name. A method or backbone among them need not be
        in the file.
        """
        added = {"methods": METHODS.allowed(allowed), "backbones": BACKBONES.allowed(allowed)}
        for setting, value, limit in self._broken(task.experiment(), task.num_classes):
            if value in added.get(limit, ()):
                continue
            asked = f"{setting} = {json.dumps(value)}"
            return f"the run asks for {shown(asked)}, but this site's {LIMITS_FILE} says '{shown(self.line(limit), 300)}'"
        return None

    def _broken(self, e: Experiment, num_classes: int) -> Iterator[tuple[str, Any, str]]:
        """Setting, its value and the limit that it breaks."""
        own = {f.name: getattr(e.method, f.name) for f in fields(e.method)}
        settings = {
            "classes": num_classes,
            "hidden": e.model.hidden,
            "dropout": e.model.dropout,
            "rho": own.get("rho", 1.0),
        }
        settings |= {name: getattr(e.training, name) for name in ("lr", "epochs", "weight_decay")}
        settings |= {
            "train_share": e.split.train_share,
            "rounds": e.protocol.rounds,
            "evaluations": evaluations(e),
        }
        named = {"methods": e.method_name, "backbones": e.model.backbone, "optimizers": e.training.optimizer}
        for limit, name in named.items():
            if name not in getattr(self, limit):
                yield limit.removesuffix("s"), name, limit
        if own.get("optimizer_own") and not self.own_optimizers:
            yield "optimizer_own", True, "own_optimizers"
        for name, value in settings.items():
            # Written so that a value that is no number (NaN) is outside.
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
        """What is wrong with a message from the server; ``expected`` has the names and shapes of this run's."""
        if message.keys() != expected.keys():
            other = sorted(message.keys() ^ expected.keys())[0]
            return f"the server's message {'holds' if other in message else 'lacks'} '{shown(other)}'; the method's own do not"
        for name, value in message.items():
            want = expected[name]
            if value.dtype != want.dtype or value.shape != want.shape:
                return f"'{name}' in the server's message is {value.dtype} {list(value.shape)}, not {want.dtype} {list(want.shape)}"
            norm = float(torch.linalg.vector_norm(value, dtype=torch.float64))
            if not math.isfinite(norm):
                return f"'{name}' in the server's message holds NaN or infinite values"
            if norm > self.max_message_norm and not name.endswith(COUNTS):
                return f"'{name}' in the server's message has norm {norm:.3g}, but {LIMITS_FILE} says '{self.line('max_message_norm')}'"
        return None


def evaluations(e: Experiment) -> int:
    """How often a run evaluates: every so many rounds, and after the last."""
    rounds, every = e.protocol.rounds, e.protocol.evaluate_every
    return rounds // every + (rounds % every > 0)


def expected_message(task: FederationTask, client_id: int) -> Tensors:
    """A message of this run as an honest server would begin: names and shapes stay the same in every round."""
    server, method = task.server(), task.experiment().method
    return method.message(
        method.server_init(server, server.model.initial(server.info, server.seed)), client_id
    )


def check_limits(kit: Path, looser: bool) -> None:
    """Refuse limits that permit more than the safe ones, unless the owner says so; whoever made the kit may have written them."""
    path = kit / "local" / LIMITS_FILE
    if looser or not os.path.lexists(path):
        return
    if lines := Limits.read(path).looser():
        told = f"'{shown(path, 200)}' permits more than the safe limits: {shown('; '.join(lines), 300)}"
        raise BadConfig(f"{told}; add --looser-limits to 'join' if you wrote that, or remove the file")


def ensure_limits(kit: Path) -> Limits:
    """The limits of a kit; the safe ones are written where there are none."""
    path = kit / "local" / LIMITS_FILE
    if not os.path.lexists(path):
        Limits.write_default(path)
    return Limits.read(path)


class Tally:
    """How often a site answered in one run: a restart or a resumed job does not begin again at 0."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._most = {"rounds": limits.max_rounds, "evaluations": limits.max_evaluations}
        found = read_json(path, MOST_BYTES) if path.exists() else dict.fromkeys(self._most, 0)
        whole = isinstance(found, dict) and found.keys() == self._most.keys()
        if not whole or not all(type(given) is int and given >= 0 for given in found.values()):
            raise BadData(
                f"'{shown(path, 200)}' does not count this site's answers; restore it, or remove it if you know why"
            )
        self._given: dict[str, int] = dict(found)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add(self, what: str) -> None:
        """Count one more answer before it is computed; refuses the one that is too many."""
        if self._given[what] >= self._most[what]:
            raise BadConfig(
                f"this site gave {self._given[what]} answers, and {LIMITS_FILE} says '{self._limits.line('max_' + what)}'"
            )
        self._given[what] += 1
        # Not flushed to disk, which costs more than the step: only a power failure can undo it, no server.
        with swapped_in(self._path, flush=False) as file:
            file.write(json.dumps(self._given).encode())


def _checked(name: str, value: Any, default: Any, where: str) -> Any:
    """``value`` if it is of the default's kind; a wrong kind is refused, never guessed at."""
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
