"""Secure sums: a server learns the sum of the sites' vectors, and no site's own vector.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4.
All sites are connected to each other through the server, which relays their messages and cannot read them.
n sites take part, and any t of them can finish the sum. One sum takes these answers of every site:

1. ``advert``  two public keys, made for this sum alone, signed by the site.
2. ``shares``  t-of-n shares of the seeds of its two self masks and of its masking key. Every other site gets
               one of each, encrypted so that only that site can read it.
3. ``masked``  its vector + its self mask + a mask for every pair of sites, mod 2^64. The pair masks cancel in
               the sum.
4. ``signed``  only if a site was lost: its signature of the list of sites whose vectors arrived, the
               survivors. It signs one list.
5. ``opened``  for every survivor a share of its seed, and for every other site a share of its masking key.
               Never both for one site, and only once. A list without some site must be the one that it
               signed, with the signatures of t survivors.

The last ``together`` numbers of a vector have a self mask of their own, from the second seed. Sites open its
shares only if all n sites are in the sum. So these numbers are never summed over some of the sites, and two
such sums cannot be subtracted.

Every derived key is bound to a ``Context``: the run, the round, the attempt, the sites, t, the names and
sizes of the fields, and the message that the site received. A server that shows two sites different things
gets shares that do not decrypt.

What holds and why:

- Sites serve one list of survivors. A list that lacks a site needs t sites that sign it, and the full list
  needs t sites that open for it. An honest site does one or the other. Two groups of t have 2t - n sites in
  common, and ``threshold`` makes that more than n / 3. Fewer dishonest sites cannot help the server.
- So a vector stays hidden behind its self mask or behind its pair masks: the server cannot collect t seed
  shares and t key shares of one site.
- What is opened is a sum over all survivors, who are at least t. Whoever serves a list has pair masks with
  all of it, because it holds the shares of all of it. So no smaller sum is free of masks.
- Keys are made for one sum. A masking key that is opened in this round says nothing about another round.
- All randomness is from the operating system. The seed of the run plays no part.
- The primitives are those of ``cryptography``: X25519, HKDF-SHA256, ChaCha20, ChaCha20-Poly1305, and the
  signature of the site's certificate. The only arithmetic here is Shamir's polynomial modulo a prime, and
  sums modulo 2^64.

What does not hold: with two sites each learns the other's vector by subtraction, so ``threshold`` refuses
n < 3. A site can add any vector it likes. The sum itself may tell a lot, if only one site adds something to a
place in it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedepd.errors import BadConfig, BadMessage

Vector = NDArray[np.int64]
Sign = Callable[[bytes], bytes]
Verify = Callable[[int, bytes, bytes], bool]
"""Whether the signature (third) of these bytes (second) is the site's (first)."""

PRIME = 2**521 - 1
"""Shamir's field.

It is far larger than a secret, so that a wrong share shows: the secret comes out too large.
"""
SECRET, SHARE, NONCE, TAG = 32, 66, 12, 16
"""Bytes of a seed or key, of a share of one, of a nonce, and of an authentication tag."""
SECRETS = 3
"""What a site shares: the seed of its self mask, its masking key, the seed of its second self mask."""
SEALED, OPENED_SHARES = NONCE + SECRETS * SHARE + TAG, 2 * SHARE
"""Bytes of what a site seals for another one, and of what it opens of another one if no site was lost."""
MOST_SITES = 1000
ZEROS = bytes(2**16)


class SecureSumFailed(BadMessage):
    """A message of a secure sum that fails its checks. The sum of this round is not made."""


def threshold(sites: int) -> int:
    """How many sites can finish a sum: more than two thirds, so that no two groups of them are nearly
    disjoint.
    """
    if not 3 <= sites <= MOST_SITES:
        raise BadConfig(
            f"a secure sum needs 3 to {MOST_SITES} sites and there are {sites}; with two, each learns the "
            "other's numbers by subtraction, so run with secure = off among sites that trust each other"
        )
    return 2 * sites // 3 + 1


@dataclass(frozen=True)
class Context:
    """What all sites of one sum must agree on, and what every derived key is bound to."""

    run: str
    round: int
    attempt: int
    sites: tuple[int, ...]
    """Whoever takes part, ascending."""
    threshold: int
    fields: tuple[tuple[str, int], ...]
    """Names and lengths of the parts of the vector, in order."""
    message: bytes
    """SHA-256 of what the site received from the server in this round."""
    together: int = 0
    """How many numbers at the end of the vector are opened only if all sites are in the sum."""

    @property
    def length(self) -> int:
        return sum(size for _, size in self.fields)

    def digest(self, adverts: Mapping[int, Advert]) -> bytes:
        """SHA-256 of all of it. JSON with sorted keys says unambiguously where each part ends."""
        keys = {str(site): (advert.sharing + advert.masking).hex() for site, advert in adverts.items()}
        what = [
            self.run,
            self.round,
            self.attempt,
            self.sites,
            self.threshold,
            self.fields,
            self.message.hex(),
            self.together,
            keys,
        ]
        return hashlib.sha256(b"fedepd secure sum 2" + json.dumps(what, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Advert:
    """The two public keys of a site for one sum, and the site's signature of them."""

    sharing: bytes
    masking: bytes
    signature: bytes


def advert_text(run: str, round: int, attempt: int, site: int, sharing: bytes, masking: bytes) -> bytes:
    """The bytes that a site signs.

    They name the run, round and attempt: an old advert cannot be used again.
    """
    return json.dumps(["fedepd advert 1", run, round, attempt, site, sharing.hex(), masking.hex()]).encode()


def advert_fault(about: tuple[str, int, int], site: int, advert: Advert, verify: Verify) -> str | None:
    """What is wrong with a site's keys for the sum of this run, round and attempt; None if nothing is."""
    if not verify(site, advert_text(*about, site, advert.sharing, advert.masking), advert.signature):
        return "not signed by the site for this sum"
    if advert.sharing == advert.masking or not (
        exchangeable(advert.sharing) and exchangeable(advert.masking)
    ):
        return "not two keys with which a secret can be agreed"
    return None


def survivors_text(digest: bytes, survivors: Collection[int]) -> bytes:
    """The bytes that a site signs. The digest of the context names this sum and the keys of all sites."""
    return json.dumps(["fedepd survivors 1", digest.hex(), sorted(survivors)]).encode()


@lru_cache(maxsize=4096)
def exchangeable(key: bytes) -> bool:
    """Whether a secret can be agreed with the holder of a public key.

    With a point of low order everybody gets zero, and ``cryptography`` refuses to go on. Where all sites of a
    sum are in one process, as in a rehearsal, the first one's answer is that of all.
    """
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


class Site:
    """One site's part in one sum. Each step happens once and in order; anything else is refused."""

    def __init__(self, run: str, round: int, attempt: int, site: int, sign: Sign) -> None:
        self._about, self._site, self._sign = (run, round, attempt), site, sign
        self._sharing, self._masking = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._seed, self._second = secrets.token_bytes(SECRET), secrets.token_bytes(SECRET)
        keys = public_bytes(self._sharing), public_bytes(self._masking)
        self.advert = Advert(*keys, sign(advert_text(run, round, attempt, site, *keys)))
        self._steps = ["shares", "masked", "opened"]
        self._list: set[int] | None = None

    def shares(self, context: Context, adverts: Mapping[int, Advert], verify: Verify) -> dict[int, bytes]:
        """For every other site with an advert, the sealed shares of this site's secrets."""
        self._next("shares")
        self._check_context(context, adverts, verify)
        self._context, self._adverts, self._digest = context, dict(adverts), context.digest(adverts)
        self._verify = verify
        here, t = sorted(adverts), context.threshold
        secrets_ = (self._seed, private_bytes(self._masking), self._second)
        parts = [split(secret, here, t) for secret in secrets_]
        shares = {site: tuple(part[site] for part in parts) for site in here}
        self._held = {self._site: shares[self._site]}
        return {site: self._seal(site, b"".join(shares[site])) for site in here if site != self._site}

    def masked(self, vector: Vector, sealed: Mapping[int, bytes]) -> Vector:
        """The vector under its masks.

        ``sealed``: what the other sites that go on have sealed for this one.
        """
        self._next("masked")
        if vector.dtype != np.int64 or vector.shape != (self._context.length,):
            raise SecureSumFailed(
                f"the vector has type {vector.dtype} and shape {list(vector.shape)}, "
                f"but this sum is over {self._context.length} whole numbers"
            )
        self._check_range(vector)
        for site, secret in sealed.items():
            self._held[site] = self._unseal(site, secret)
        if len(self._held) < self._context.threshold:
            raise SecureSumFailed(
                f"only {len(self._held)} sites go on with the sum of round {self._context.round}, "
                f"and it needs {self._context.threshold}"
            )
        out = vector.view(np.uint64) + self_mask(self._seed, self._second, self._context)
        for site in self._held:
            if site != self._site:
                key = pair_key(self._masking, self._adverts[site].masking, self._digest)
                out += signed_stream(self._site, site, key, self._context.length)
        return out.view(np.int64)

    def signed(self, survivors: Collection[int]) -> bytes:
        """This site's signature of a list of survivors. It then opens shares for no other."""
        if self._steps != ["opened"] or self._list is not None:
            self._out_of_order("signed")
        self._list = self._survivors(survivors)
        return self._sign(survivors_text(self._digest, self._list))

    def opened(
        self, survivors: Collection[int], signatures: Mapping[int, bytes] | None = None
    ) -> dict[int, bytes]:
        """A share of the seed of every survivor and of the masking key of every site that was lost after its
        shares. If no site of the sum was lost, also a share of every second seed.

        ``signatures``: of the survivors, if a site was lost.
        """
        self._next("opened")
        alive, everyone = self._survivors(survivors), set(self._context.sites)
        if alive != (self._list or everyone):
            raise SecureSumFailed(
                f"the survivors of round {self._context.round} are not the list that this site signed"
            )
        if alive == everyone:
            return {site: seed + second for site, (seed, _, second) in self._held.items()}
        text, given = survivors_text(self._digest, alive), signatures or {}
        agreed = [site for site in alive & given.keys() if self._verify(site, text, given[site])]
        if len(agreed) < self._context.threshold:
            raise SecureSumFailed(
                f"{len(agreed)} sites signed the survivors of round {self._context.round} that this site was "
                f"told, and it needs {self._context.threshold}; the server may have told others another list"
            )
        return {site: self._held[site][0 if site in alive else 1] for site in self._held}

    def _survivors(self, named: Collection[int]) -> set[int]:
        alive = set(named)
        if len(alive) != len(named) or not alive <= self._held.keys() or self._site not in alive:
            raise SecureSumFailed(
                f"the survivors of round {self._context.round} are not sites of its sum, "
                "or this site is not among them"
            )
        if len(alive) < self._context.threshold:
            raise SecureSumFailed(
                f"the sum of round {self._context.round} has {len(alive)} survivors, "
                f"and it needs {self._context.threshold}"
            )
        return alive

    def _next(self, step: str) -> None:
        if not self._steps or self._steps[0] != step:
            self._out_of_order(step)
        del self._steps[0]

    def _out_of_order(self, step: str) -> NoReturn:
        raise SecureSumFailed(
            f"the server asks for '{step}' out of order or twice in round {self._about[1]}; "
            "each step is done once"
        )

    def _check_context(self, context: Context, adverts: Mapping[int, Advert], verify: Verify) -> None:
        if (context.run, context.round, context.attempt) != self._about:
            raise SecureSumFailed("the keys of this site were made for another run, round or attempt")
        if context.sites != tuple(sorted(set(context.sites))) or self._site not in context.sites:
            raise SecureSumFailed("the sites of the sum are not in order, or this site is not among them")
        if context.threshold != threshold(len(context.sites)):
            raise SecureSumFailed(
                f"the threshold is {context.threshold}, not {threshold(len(context.sites))}"
            )
        if not adverts.keys() <= set(context.sites) or adverts.get(self._site) != self.advert:
            raise SecureSumFailed("the adverts are not those of the sites of this sum")
        if len(adverts) < context.threshold:
            raise SecureSumFailed(
                f"only {len(adverts)} sites begin the sum of round {context.round}, "
                f"and it needs {context.threshold}"
            )
        if not 0 <= context.together <= context.length:
            raise SecureSumFailed("the part that is opened for all sites only is longer than the vector")
        for site, advert in adverts.items():
            if fault := advert_fault(self._about, site, advert, verify):
                raise SecureSumFailed(f"the keys of site {site} are {fault}")
        if len({key for each in adverts.values() for key in (each.sharing, each.masking)}) < 2 * len(adverts):
            raise SecureSumFailed("two sites have the same key, so one of them has copied it")

    def _check_range(self, vector: Vector) -> None:
        most = largest(len(self._context.sites))
        if vector.size and (int(vector.max()) > most or int(vector.min()) < -most):
            raise SecureSumFailed(
                f"a number of this site is too large for the sum: {len(self._context.sites)} such numbers "
                "could overflow; scale the features, or lower lr"
            )

    def _seal(self, site: int, shares: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE)
        return nonce + self._box(self._site, site, site).encrypt(nonce, shares, self._digest)

    def _unseal(self, site: int, sealed: bytes) -> tuple[bytes, ...]:
        if site == self._site or site not in self._adverts or len(sealed) != SEALED:
            raise SecureSumFailed(f"the shares said to be of site {site} are not shares of this sum")
        try:
            opened = self._box(site, self._site, site).decrypt(sealed[:NONCE], sealed[NONCE:], self._digest)
        except InvalidTag as cause:
            raise SecureSumFailed(
                f"the shares of site {site} do not open: "
                "the server showed that site another model, or changed them"
            ) from cause
        return tuple(opened[start : start + SHARE] for start in range(0, SECRETS * SHARE, SHARE))

    def _box(self, sender: int, receiver: int, peer: int) -> ChaCha20Poly1305:
        """The cipher from sender to receiver; both derive the same key, one for each direction."""
        secret = self._sharing.exchange(X25519PublicKey.from_public_bytes(self._adverts[peer].sharing))
        return ChaCha20Poly1305(derived(secret, b"shares %d to %d " % (sender, receiver) + self._digest))


def unmasked(
    context: Context,
    adverts: Mapping[int, Advert],
    masked: Mapping[int, Vector],
    sharers: Collection[int],
    opened: Mapping[int, Mapping[int, bytes]],
) -> Vector:
    """The server's part: the sum of the vectors behind ``masked``.

    Args:
        context: As the sites have it.
        adverts: Every site's public keys.
        masked: The masked vectors of the survivors.
        sharers: The sites whose shares were relayed, so that the masks of all pairs of them are in the
        vectors.
        opened: What each site that still answered opened for the survivors.

    Returns:
        The sum over the survivors, int64. If a site was lost, the numbers that are summed over all sites
        only are zero.

    Raises:
        SecureSumFailed: Too few sites opened, or a secret that was put together is not the site's.
    """
    digest, complete = context.digest(adverts), masked.keys() == set(context.sites)
    total = np.zeros(context.length, dtype=np.uint64)
    for vector in masked.values():
        total += vector.view(np.uint64)
    for site in sorted(sharers):
        shares = {giver: each[site] for giver, each in opened.items() if site in each}
        if len(shares) < context.threshold:
            raise SecureSumFailed(
                f"{len(shares)} sites opened their shares of site {site} in round {context.round}, "
                f"and the sum needs {context.threshold}"
            )
        chosen = dict(sorted(shares.items())[: context.threshold])
        secret = joined({giver: share[:SHARE] for giver, share in chosen.items()}, site)
        if site in masked:
            second = joined({g: share[SHARE:] for g, share in chosen.items()}, site) if complete else b""
            total -= self_mask(secret, second, context)
            continue
        key = X25519PrivateKey.from_private_bytes(secret)
        if public_bytes(key) != adverts[site].masking:
            raise SecureSumFailed(f"the opened shares of site {site} do not make its masking key")
        for other in masked:
            pair = pair_key(key, adverts[other].masking, digest)
            total -= signed_stream(other, site, pair, context.length)
    if not complete:
        total[context.length - context.together :] = 0
    return total.view(np.int64)


def largest(sites: int) -> int:
    """The largest whole number that a site may add: as many of them as there are sites do not overflow."""
    return int((2**63 - 1) // sites)


def split(secret: bytes, sites: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Shamir's shares: a random polynomial of degree threshold - 1 with the secret at 0, seen at site + 1."""
    powers = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {site: _at(site + 1, powers).to_bytes(SHARE, "big") for site in sites}


def _at(x: int, powers: Sequence[int]) -> int:
    value = 0
    for power in reversed(powers):
        value = (value * x + power) % PRIME
    return value


def joined(shares: Mapping[int, bytes], of: int) -> bytes:
    """The secret of site ``of`` from exactly threshold shares: Lagrange's polynomial at 0."""
    points = {site + 1: int.from_bytes(share, "big") for site, share in shares.items()}
    total = 0
    for x, value in points.items():
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total = (total + value * above * pow(below, -1, PRIME)) % PRIME
    if total >= 2 ** (8 * SECRET):
        raise SecureSumFailed(
            f"the opened shares of site {of} do not fit together; one of the sites sent a wrong share"
        )
    return total.to_bytes(SECRET, "big")


def pair_key(own: X25519PrivateKey, other: bytes, digest: bytes) -> bytes:
    """The key of the mask that two sites share in this sum."""
    return derived(own.exchange(X25519PublicKey.from_public_bytes(other)), b"mask " + digest)


def self_mask(seed: bytes, second: bytes, context: Context) -> NDArray[np.uint64]:
    """A site's own mask. Without the second seed, the numbers of ``together`` stay masked."""
    mask = stream(seed, context.length)
    if not second or not context.together:
        return mask
    start = context.length - context.together
    return np.concatenate([mask[:start], mask[start:] + stream(second, context.together)])


def signed_stream(site: int, other: int, key: bytes, length: int) -> NDArray[np.uint64]:
    """The pair's mask, with opposite signs at the two sites."""
    mask = stream(key, length)
    return mask if site < other else np.uint64(0) - mask


def stream(key: bytes, length: int) -> NDArray[np.uint64]:
    """ChaCha20's key stream as whole numbers. A key makes one stream, so that the nonce can be zero."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    out = np.empty(length, dtype="<u8")
    for start in range(0, out.nbytes, len(ZEROS)):  # in parts that fit into the processor's cache
        part = out.view(np.uint8)[start : start + len(ZEROS)]
        cipher.update_into(ZEROS[: len(part)], part.data)
    return out.astype(np.uint64, copy=False)


def derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=SECRET, salt=None, info=info).derive(secret)


def public_bytes(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def private_bytes(key: X25519PrivateKey) -> bytes:
    return key.private_bytes_raw()
