"""The exchange of a deployed run whose server sees sums only: four answers of every site for each sum.

The protocol is ``fedepd.privacy.secure_sum``. A site that dies, is late or sends something broken is lost for
this sum. The sum is made as long as enough sites are left.

The keys of the next sum travel with the last answer of the present one, so that a sum takes three trips.
If a site was lost, there is one more: the others sign who is in the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedepd.deploy.exchange import Agreeing
from fedepd.deploy.intake import Intake
from fedepd.deploy.line import QuorumLost, T
from fedepd.deploy.signing import MAX_SIGNATURE, verifier
from fedepd.deploy.sum_site import bound_to, context_of, packed, packed_advert, read_adverts, what_of
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import (
    KEYS,
    MASKED,
    OPENED,
    PURPOSES,
    SHARES,
    SIGNED,
    Parts,
    Record,
    Refused,
    Sum,
    bytes_part,
    read_sum_answer,
    sites_part,
    sum_record,
)
from fedepd.errors import BadMessage
from fedepd.privacy.secure_sum import (
    OPENED_SHARES,
    SEALED,
    SHARE,
    Advert,
    SecureSumFailed,
    Vector,
    advert_fault,
    survivors_text,
    threshold,
    unmasked,
)
from fedepd.rounds.admission import sizes_fault
from fedepd.rounds.evaluate import evaluated
from fedepd.rounds.guard import FEWEST
from fedepd.rounds.loop import OFFENCES
from fedepd.rounds.pooled import Summed
from fedepd.rounds.questions import ADAPTATION, ADAPTED, FINAL, POINT, asked_before, asked_in
from fedepd.rounds.sums import sizes_of
from fedepd.runs.asking import adapts
from fedepd.runs.selection import offences
from fedepd.types import Sizes, Tensors

Declared = tuple[Sizes, tuple[int, ...]]
"""What the sites declared together, and which sites these are."""


class SumsOverNVFlare(Agreeing):
    names_hashed = True

    def __init__(
        self,
        task: FederationTask,
        declared: Declared | None,
        keys: Mapping[str, str],
        intake: Intake,
        controller: Any,
        fl_ctx: Any,
        abort_signal: Any,
        lines: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(task, intake, controller, fl_ctx, abort_signal)
        self.summed = declared
        self._scored = not task.experiment().privacy.noisy
        self._verify = verifier(keys, task.sites)
        self._offences = offences(lines)
        """In how many sums each site's answers were broken. Like everywhere, three are enough."""
        self._used = {client: int(line["round"]) for line in lines for client in line.get("clients", ())}
        """By client: the last round whose sum it was in."""
        self._agreed: dict[int, Sizes] = {}
        self._next: dict[Sum, dict[int, Advert]] = {}
        """Keys that sites sent in advance."""

    # --- what the round loop asks for -----------------------------------------------------------------------

    def sum_sizes(self, clients: Sequence[int]) -> Summed:
        agreeing = self._agreed_by(clients)
        total, members = self._sum(Sum("sizes", 0), list(clients), {}, agreeing)
        if members:
            sizes, most = sizes_of(total), self.task.max_nodes * len(members)
            if fault := sizes_fault(sizes, self.task.num_classes, most):
                raise BadMessage(f"the sites' sizes cannot be used: their sum of {fault[0]} {fault[1]}")
            self.summed = sizes, members
        return total, members

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        found = self._sum(Sum("step", round), sorted(messages), next(iter(messages.values())))
        self._used |= dict.fromkeys(found[1], round)
        return found

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        """Under noise no site is asked, because scores are not in the budget: matrices of no nodes."""
        if not self._scored:
            names = evaluated(self.task.experiment().method.has_global)
            return np.zeros(len(names) * self.task.num_classes**2, np.int64), tuple(sorted(messages))
        found = self._sum(Sum("evaluate", round), sorted(messages), next(iter(messages.values())))
        self.evaluated = found[1]
        return found

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        which = Sum(question, asked_in(question, self.task.experiment().protocol.rounds))
        agreeing = self._agreed_by(sorted(messages)) if asked_before(question) else None
        return self._sum(which, sorted(messages), next(iter(messages.values())), agreeing)

    def _agreed_by(self, clients: Sequence[int]) -> dict[int, Sizes]:
        """The sites that mean the same as the others. Each is asked until it has said so once."""
        self._agreed |= self._agreeing([client for client in clients if client not in self._agreed])
        return self._agreed

    # --- one sum --------------------------------------------------------------------------------------------

    def _sum(
        self, which: Sum, sites: Sequence[int], message: Tensors, among: Mapping[int, Any] | None = None
    ) -> Summed:
        """The sum over ``sites``, as far as they answer. ``among``: those that may; the others are lost."""
        if len(sites) < FEWEST:
            return np.zeros(0, np.int64), ()
        needed = max(threshold(len(sites)), min(self.task.min_sites, len(sites)))
        what = what_of(self.task, which, message)
        context = context_of(self.task, which, sites, what)
        before = len(self.refusals)
        asked = [k for k in sites if (among is None or k in among) and self._offences.get(k, 0) < OFFENCES]
        adverts = self._keys(which, asked)
        self._need(adverts, needed, KEYS, which.round)
        sealed = self._shares(which, adverts, message)
        self._need(sealed, needed, SHARES, which.round)
        masked = self._masked(which, sealed, context.length)
        self._need(masked, needed, MASKED, which.round)
        complete = len(masked) == len(sites)
        signatures = {} if complete else self._signed(which, masked, context.digest(adverts))
        if not complete:
            self._need(signatures, context.threshold, SIGNED, which.round)
        opened = self._opened(which, masked, sealed, signatures)
        self._need(opened, context.threshold, OPENED, which.round)
        for client in {r.client for r in self.refusals[before:] if not r.absent}:
            self._offences[client] = self._offences.get(client, 0) + 1
        try:
            return unmasked(context, adverts, masked, list(sealed), opened), tuple(sorted(masked))
        except SecureSumFailed as fault:
            raise QuorumLost(f"the {which} cannot be opened: {fault}; resume to try again") from fault

    def _keys(self, which: Sum, sites: Sequence[int]) -> dict[int, Advert]:
        known = self._next.pop(which, {})
        self._next.clear()
        members = self.summed[1] if self.summed is not None else ()
        first = which.purpose == "sizes" or asked_before(which.purpose)
        parts: Parts = {} if first else {"members": np.array(members, np.int64)}
        records = {k: sum_record(which, parts, {}) for k in sites if k not in known}
        found = self._trip(KEYS, which, records, lambda k, parts: self._advert(which, k, parts))
        return dict(sorted({**{k: known[k] for k in sites if k in known}, **found}.items()))

    def _advert(self, which: Sum, site: int, parts: Parts) -> Advert:
        found = read_adverts(parts, "advert")
        if len(found) != 1:
            raise Refused("advert", f"must be one, and {len(found)} came")
        (advert,) = found
        about = bound_to(self.task, which), which.round, which.attempt
        if fault := advert_fault(about, site, advert, self._verify):
            raise Refused("advert", f"holds keys that are {fault}")
        return advert

    def _shares(
        self, which: Sum, adverts: Mapping[int, Advert], message: Tensors
    ) -> dict[int, dict[int, bytes]]:
        """By site, what it sealed for each other one."""
        rows = np.concatenate([packed_advert(advert) for advert in adverts.values()])
        parts: Parts = {"sites": np.array(list(adverts), np.int64), "adverts": rows}

        def record(site: int) -> Record:
            used: Parts = {"used": np.array([self._used.get(site, 0)], np.int64)}
            return sum_record(which, {**parts, **used}, message)

        def read(site: int, answer: Parts) -> dict[int, bytes]:
            return self._rows(answer, "sealed", SEALED, [k for k in adverts if k != site])

        return self._trip(SHARES, which, {k: record(k) for k in adverts}, read)

    def _masked(
        self, which: Sum, sealed: Mapping[int, Mapping[int, bytes]], length: int
    ) -> dict[int, Vector]:
        records: dict[int, Record] = {}
        for site in sealed:
            others = [k for k in sealed if k != site]
            rows = packed([sealed[k][site] for k in others], SEALED)
            parts: Parts = {"sites": np.array(others, np.int64), "sealed": rows}
            records[site] = sum_record(which, parts, {})

        def read(site: int, answer: Parts) -> Vector:
            vector = answer.get("masked")
            if vector is None or vector.dtype != np.int64 or vector.shape != (length,):
                raise Refused("masked", f"must be {length} whole numbers")
            return vector

        return self._trip(MASKED, which, records, read)

    def _signed(self, which: Sum, masked: Mapping[int, Vector], digest: bytes) -> dict[int, bytes]:
        """By site, its signature of the survivors."""
        text = survivors_text(digest, masked)

        def read(site: int, answer: Parts) -> bytes:
            signature: bytes = bytes_part(answer, "signature", MAX_SIGNATURE).tobytes()
            if not self._verify(site, text, signature):
                raise Refused("signature", "must be one of the site's own, of the survivors")
            return signature

        parts: Parts = {"survivors": np.array(sorted(masked), np.int64)}
        return self._trip(SIGNED, which, {k: sum_record(which, parts, {}) for k in sorted(masked)}, read)

    def _opened(
        self,
        which: Sum,
        masked: Mapping[int, Vector],
        sealed: Mapping[int, Any],
        signatures: Mapping[int, bytes],
    ) -> dict[int, dict[int, bytes]]:
        """By site, its share of each site's secrets. Its keys for the next sum are kept."""
        following = self._following(which)
        parts: Parts = {"survivors": np.array(sorted(masked), np.int64)}
        if signatures:
            rows = packed([signatures[k] for k in sorted(signatures)], MAX_SIGNATURE)
            parts |= {"sites": np.array(sorted(signatures), np.int64), "signatures": rows}
        if following is not None:
            code = PURPOSES.index(following.purpose), following.round, following.attempt
            parts["next"] = np.array(code, np.int64)
        ready: dict[int, Advert] = {}

        def read(site: int, answer: Parts) -> dict[int, bytes]:
            if following is not None and "advert" in answer:
                ready[site] = self._advert(following, site, answer)
            return self._rows(answer, "opened", SHARE if signatures else OPENED_SHARES, sorted(sealed))

        asked = sorted(signatures or masked)
        out = self._trip(OPENED, which, {k: sum_record(which, parts, {}) for k in asked}, read)
        if following is not None:
            self._next = {following: ready}
        return out

    def _following(self, which: Sum) -> Sum | None:
        protocol = self.task.experiment().protocol
        last, every = protocol.rounds, protocol.evaluate_every
        if self._scored and which.purpose == "step" and (which.round % every == 0 or which.round == last):
            return Sum("evaluate", which.round)
        if asked_before(which.purpose):
            return Sum("sizes", 0)
        if which.round < last:
            return Sum("step", which.round + 1)
        adapting = adapts(self.task.experiment())
        end = POINT if protocol.aim else FINAL
        following = {"evaluate": ADAPTATION if adapting else end, "step": end, ADAPTED: end, POINT: FINAL}
        purpose = following.get(which.purpose)  # None after the adaptation: it depends on what is found
        return None if purpose is None else Sum(purpose, last)

    def _rows(self, answer: Parts, name: str, width: int, sites: Sequence[int]) -> dict[int, bytes]:
        """One row for each of ``sites``, no more and no less."""
        rows: NDArray[np.uint8] = bytes_part(answer, name, width)
        if sites_part(answer, "sites", len(self.task.sites)) != list(sites) or len(rows) != len(sites):
            raise Refused(name, f"must have a row for each of {len(sites)} sites")
        return {site: row.tobytes() for site, row in zip(sites, rows, strict=True)}

    def _trip(
        self, name: str, which: Sum, records: Mapping[int, Record], read: Callable[[int, Parts], T]
    ) -> dict[int, T]:
        return self._asked(name, records, lambda k, record: read(k, read_sum_answer(record, which)))
