"""A site's part in the secure sums of a run: the protocol, and what the site refuses beyond it.

The protocol itself is ``fedepd.privacy.secure_sum``. Here is what a run adds to it:

- Who takes part in a sum follows from the task and is not the server's to choose. It is everybody in the sum
  of sizes, then whoever was in that sum, and of those the cohort of the round.
- The sites whose vectors are in a sum are remembered on disk (``book``). A step of a round can be repeated,
  because a server may lose its last round. The vectors are then the same. A second sum over other sites would
  show a site's vector by subtraction, so it is refused, also after a restart and in another run.
- Under noise, a repeated step has new noise and is one more release. The site counts it (``limits.Tally``).
- The classes that are open under the guard are remembered too. Another set is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from fedepd.deploy.book import Book, Cohorts
from fedepd.deploy.signing import MAX_SIGNATURE
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import PURPOSES, Parts, Sum, bytes_part, sites_part
from fedepd.errors import BadMessage
from fedepd.privacy.secure_sum import (
    SEALED,
    SECRET,
    Advert,
    Context,
    SecureSumFailed,
    Sign,
    Site,
    Vector,
    Verify,
    threshold,
)
from fedepd.rounds.evaluate import evaluated
from fedepd.rounds.loop import cohort
from fedepd.rounds.questions import QUESTIONS, asked_before, asked_in, asked_of
from fedepd.rounds.statistics import of_method
from fedepd.rounds.sums import Layout, class_rows, layout, matrices_layout, sizes_layout
from fedepd.runs.folder import weights_sha256
from fedepd.types import Tensors

ADVERT = 2 * SECRET + MAX_SIGNATURE
"""Bytes of an advert: two keys and their signature."""
SIZES, OPEN_CLASSES = str(Sum("sizes", 0)), "open classes"
"""What the file calls the sites of the run, and the classes that are open."""


def packed_advert(advert: Advert) -> NDArray[np.uint8]:
    return packed([advert.sharing + advert.masking + advert.signature], ADVERT)


def read_adverts(parts: Parts, name: str) -> list[Advert]:
    rows = [row.tobytes() for row in bytes_part(parts, name, ADVERT)]
    return [Advert(row[:SECRET], row[SECRET : 2 * SECRET], row[2 * SECRET :]) for row in rows]


def packed(rows: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), width)


class SumSite:
    def __init__(
        self, task: FederationTask, client: int, sign: Sign, verify: Verify, book: Book, cohorts: Cohorts
    ) -> None:
        self._task, self._client, self._sign, self._verify = task, client, sign, verify
        self._book, self._cohorts = book, cohorts
        self._server = task.server()
        self._every = task.experiment().protocol.evaluate_every
        self._scored = not task.experiment().privacy.noisy
        self._begun: dict[Sum, Site] = {}
        self._vectors: dict[Sum, Vector] = {}
        self._messages: dict[Sum, bytes] = {}
        """The hash of the message that each sum answers."""

    def sites(self, which: Sum) -> list[int]:
        """Who takes part in a sum."""
        everyone = list(range(len(self._task.sites)))
        if which.purpose == "sizes" or asked_before(which.purpose):
            return everyone
        members = self._book.get(SIZES)
        if members is None:
            raise SecureSumFailed(
                f"the server asks for the {which} before the sizes of all sites were summed; start a new run"
            )
        asked = cohort(everyone, self._server, which.round) if which.purpose == "step" else everyone
        return [site for site in asked if site in members]

    def takes_part(self, which: Sum) -> bool:
        """Whether this site is in the cohort of a sum."""
        return self._client in self.sites(which)

    def keys(self, which: Sum, parts: Parts | None = None) -> Parts:
        """Begin a sum: two keys of this site.

        ``parts`` may name the run's sites. A site that was restarted learns them from it. If they are not
        those that the others know, the others cannot open what this site seals.
        """
        if parts:
            self._learn(sites_part(parts, "members", len(self._task.sites)))
        self._check(which)
        # Two sums can be under way: the present one, and the one after it.
        self._begun = dict([*self._begun.items()][-1:])
        self._vectors = {known: vector for known, vector in self._vectors.items() if known in self._begun}
        self._messages = {known: message for known, message in self._messages.items() if known in self._begun}
        run = bound_to(self._task, which)
        self._begun[which] = Site(run, which.round, which.attempt, self._client, self._sign)
        return {"advert": packed_advert(self._begun[which].advert)}

    def shares(
        self,
        which: Sum,
        parts: Parts,
        what: What,
        vector: Callable[[], Vector],
    ) -> Parts:
        """Check who takes part, compute the vector, and seal this site's secrets for the others."""
        sites = self.sites(which)
        named = sites_part(parts, "sites", len(self._task.sites))
        found = read_adverts(parts, "adverts")
        if len(named) != len(found):
            raise SecureSumFailed(f"the server names {len(named)} sites and sends {len(found)} adverts")
        adverts = dict(zip(named, found, strict=True))
        context = context_of(self._task, which, sites, what)
        sealed = self._of(which).shares(context, adverts, self._verify)
        self._vectors[which], self._messages[which] = vector(), what.message
        order = sorted(sealed)
        return {"sites": np.array(order, np.int64), "sealed": packed([sealed[k] for k in order], SEALED)}

    def masked(self, which: Sum, parts: Parts) -> Parts:
        """This site's vector under its masks."""
        named = sites_part(parts, "sites", len(self._task.sites))
        rows = bytes_part(parts, "sealed", SEALED)
        if len(named) != len(rows):
            raise SecureSumFailed(f"the server names {len(named)} sites and sends {len(rows)} sealed shares")
        site = self._of(which)
        if which not in self._vectors:
            raise SecureSumFailed(f"the server asks for the {which} out of order; it begins with the keys")
        sealed = {k: row.tobytes() for k, row in zip(named, rows, strict=True)}
        return {"masked": site.masked(self._vectors.pop(which), sealed)}

    def signed(self, which: Sum, parts: Parts) -> Parts:
        """This site's signature of the survivors that the server names."""
        survivors = sites_part(parts, "survivors", len(self._task.sites))
        return {"signature": packed([self._of(which).signed(survivors)], MAX_SIGNATURE)}

    def opened(self, which: Sum, parts: Parts) -> Parts:
        """The shares that the sum over the survivors needs. They are remembered first."""
        survivors = sites_part(parts, "survivors", len(self._task.sites))
        shares = self._of(which).opened(survivors, self._signatures(parts))
        self._remember(
            which,
            self._messages[which],
            survivors,
            f"the {which} was summed before, over other sites; two such sums would show a site's numbers",
        )
        del self._begun[which]
        order = sorted(shares)
        width = len(shares[order[0]])
        rows = packed([shares[k] for k in order], width)
        return {"sites": np.array(order, np.int64), "opened": rows}

    def _signatures(self, parts: Parts) -> dict[int, bytes]:
        """The signatures of survivors that the server relays. If no site was lost, there are none."""
        if "signatures" not in parts:
            return {}
        named = sites_part(parts, "sites", len(self._task.sites))
        rows = bytes_part(parts, "signatures", MAX_SIGNATURE)
        if len(named) != len(rows):
            raise SecureSumFailed(f"the server names {len(named)} sites and sends {len(rows)} signatures")
        return {site: row.tobytes() for site, row in zip(named, rows, strict=True)}

    def check_open(self, classes: Sequence[int]) -> None:
        """Refuse another set of open classes than in the run's first message."""
        self._book.check(
            OPEN_CLASSES,
            classes,
            "the server changed which classes are open during the run; start a new run",
        )

    def _learn(self, members: list[int]) -> None:
        if len(members) < threshold(len(self._task.sites)):
            raise SecureSumFailed(
                f"the server names {len(members)} sites of the run, and it needs "
                f"{threshold(len(self._task.sites))}"
            )
        said = "the server changed which sites are in the run; start a new run"
        self._remember(Sum("sizes", 0), b"", members, said)

    def _remember(self, which: Sum, message: bytes, members: list[int], fault: str) -> None:
        """In both memories, or in none if one of them knows other sites."""
        if self._book.differs(str(which), members):
            raise SecureSumFailed(fault)
        if elsewhere := self._cohorts.fault(which.purpose, message, members):
            raise SecureSumFailed(elsewhere)
        self._book.remember(str(which), members)
        self._cohorts.remember(which.purpose, message, members)

    def _check(self, which: Sum) -> None:
        last = self._server.last_round
        due = self._scored and (which.round % self._every == 0 or which.round == last)
        fits = {
            "sizes": which.round == 0,
            "step": 1 <= which.round <= last,
            "evaluate": 1 <= which.round <= last and due,
            **{name: which.round == asked_in(name, last) for name in asked_of(self._task.setting())},
        }
        if not fits.get(which.purpose, False):
            raise BadMessage(f"the server asks for the {which}, which the run does not have")
        if not self.takes_part(which):
            raise SecureSumFailed(
                f"this site takes no part in the {which}; it was not there when sizes were summed, "
                "or it is not in the cohort"
            )

    def _of(self, which: Sum) -> Site:
        if which not in self._begun:
            raise SecureSumFailed(f"the server asks for the {which} out of order; it begins with the keys")
        return self._begun[which]


@dataclass(frozen=True)
class What:
    """What is summed, and the message that it answers."""

    layout: Layout
    together: int
    """How many numbers at the end are summed over all sites or not at all."""
    message: bytes
    """SHA-256 of the message."""


def what_of(task: FederationTask, which: Sum, message: Tensors) -> What:
    """The same at the server and at every site, if they have the same task and the same message."""
    method, server = task.experiment().method, task.server()
    digest = bytes.fromhex(weights_sha256(message))
    if which.purpose == "sizes":
        return What(sizes_layout(task.num_classes), 0, digest)
    if which.purpose in QUESTIONS:
        return What(QUESTIONS[which.purpose].layout(task.setting()), 0, digest)
    if which.purpose == "evaluate":
        return What(matrices_layout(evaluated(method.has_global), task.num_classes), 0, digest)
    fields = method.reply_fields(replace(server, round=which.round), of_method(message))
    parts = layout(method, server.info, fields)
    return What(parts, class_rows(parts), digest)


def bound_to(task: FederationTask, which: Sum) -> str:
    """What the keys of a sum are for, beside its round: a run with all its settings, and a purpose."""
    return json.dumps([task.run, task.identity(), which.purpose])


def context_of(task: FederationTask, which: Sum, sites: Sequence[int], what: What) -> Context:
    """What the masks of a sum are bound to: the run, the sites, and what is summed."""
    fields = tuple((name, prod(shape)) for name, shape in what.layout)
    t = threshold(len(sites))
    return Context(
        bound_to(task, which),
        which.round,
        which.attempt,
        tuple(sites),
        t,
        fields,
        what.message,
        what.together,
    )


def used_round(parts: Parts, which: Sum) -> int:
    """The last round whose sum this site was in, as the server says; 0 if there is none."""
    found, last = parts.get("used"), which.round - 1 if which.purpose == "step" else which.round
    if found is None or found.dtype != np.int64 or found.shape != (1,) or not 0 <= found[0] <= last:
        raise BadMessage(
            f"the server does not say which sum this site was in before the {which}; "
            "use the same fedepd version"
        )
    return int(found[0])


def following_sum(parts: Parts) -> Sum | None:
    """The sum after the present one, if the server's message names it: purpose, round and attempt."""
    code = parts.get("next")
    if code is None:
        return None
    if code.dtype != np.int64 or code.shape != (3,) or not 0 <= code[0] < len(PURPOSES) or min(code[1:]) < 0:
        raise BadMessage("the server names no usable next sum; use the same fedepd version")
    return Sum(PURPOSES[int(code[0])], int(code[1]), int(code[2]))
