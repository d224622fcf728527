"""The sum is exact whoever is lost; every lie that a server or a site could tell is refused and named."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.stats import chisquare

from fedepd.errors import BadConfig
from fedepd.privacy.secure_sum import (
    Advert,
    Context,
    SecureSumFailed,
    Site,
    Vector,
    advert_text,
    joined,
    largest,
    pair_key,
    signed_stream,
    split,
    stream,
    survivors_text,
    threshold,
    unmasked,
)

LENGTH = 4


@dataclass(frozen=True)
class Cast:
    """n sites with signing keys, ready for one sum."""

    sites: dict[int, Site]
    context: Context
    keys: dict[int, Ed25519PrivateKey]
    verified: dict[tuple[int, bytes, bytes], bool] = field(default_factory=dict)
    """Who signed what: all sites ask the same, and the answer does not depend on who asks."""

    @classmethod
    def of(
        cls,
        n: int,
        length: int = LENGTH,
        round: int = 1,
        together: int = 1,
        keys: dict[int, Ed25519PrivateKey] | None = None,
    ) -> Cast:
        keys, attempt = keys or {k: Ed25519PrivateKey.generate() for k in range(n)}, 0
        sites = {k: Site("run", round, attempt, k, keys[k].sign) for k in range(n)}
        context = Context(
            "run", round, attempt, tuple(range(n)), threshold(n), (("model", length),), b"m" * 32, together
        )
        return cls(sites, context, keys)

    @property
    def adverts(self) -> dict[int, Advert]:
        return {k: site.advert for k, site in self.sites.items()}

    def verify(self, site: int, text: bytes, signature: bytes) -> bool:
        asked = site, text, signature
        if asked not in self.verified:
            try:
                self.keys[site].public_key().verify(signature, text)
                self.verified[asked] = True
            except InvalidSignature:
                self.verified[asked] = False
        return self.verified[asked]

    def share(self, who: Iterable[int] | None = None) -> dict[int, dict[int, bytes]]:
        """Sealed shares by sender, then receiver."""
        chosen = self.sites if who is None else who
        return {k: self.sites[k].shares(self.context, self.adverts, self.verify) for k in chosen}

    def mask(
        self, sealed: Mapping[int, Mapping[int, bytes]], who: Iterable[int], vectors: Mapping[int, Vector]
    ) -> dict[int, Vector]:
        return {k: self.sites[k].masked(vectors[k], relayed(sealed, k)) for k in who}

    def open(
        self, survivors: Collection[int], signers: Iterable[int], openers: Iterable[int] | None = None
    ) -> dict[int, dict[int, bytes]]:
        """An honest server: if a site was lost, ``signers`` sign the survivors; ``openers`` (or all of them)
        open shares.
        """
        here, lost = list(signers), len(survivors) < len(self.sites)
        signatures = {k: self.sites[k].signed(survivors) for k in here} if lost else {}
        return {
            k: self.sites[k].opened(survivors, signatures) for k in (here if openers is None else openers)
        }


def relayed(sealed: Mapping[int, Mapping[int, bytes]], receiver: int) -> dict[int, bytes]:
    return {sender: shares[receiver] for sender, shares in sealed.items() if sender != receiver}


def vectors_of(n: int, length: int = LENGTH) -> dict[int, Vector]:
    """Large ones of both signs, so that sums modulo 2^64 would show."""
    return {
        k: np.random.default_rng(k).integers(-largest(n), largest(n), length, endpoint=True) for k in range(n)
    }


def summed(n: int, unshared: Collection[int], unmasked_: Collection[int], unopened: Collection[int]) -> None:
    """Sites are lost before their shares, before their masked vector, and after it: the sum is the others'.

    Of the last, every second one has signed the survivors before it is lost.
    """
    cast, vectors = Cast.of(n), vectors_of(n)
    sealed = cast.share(k for k in range(n) if k not in unshared)
    masked = cast.mask(sealed, [k for k in sealed if k not in unmasked_], vectors)
    unsigned = sorted(unopened)[::2]
    signers = [k for k in masked if k not in unsigned]
    opened = cast.open(list(masked), signers, [k for k in masked if k not in unopened])
    shuffled = dict(random.Random(0).sample(sorted(opened.items()), len(opened)))
    found = unmasked(cast.context, cast.adverts, masked, list(sealed), shuffled)
    expected = sum((vectors[k] for k in masked), np.zeros(LENGTH, dtype=np.int64))
    if len(masked) < n:
        expected[-1] = 0  # the last number is summed over all sites or not at all
    assert found.tolist() == expected.tolist()


def patterns(n: int) -> list[tuple[tuple[int, ...], ...]]:
    """Who is lost at which of the three steps, with at most n - t lost in all."""
    out = []
    for size in range(n - threshold(n) + 1):
        for lost in itertools.combinations(range(n), size):
            for steps in itertools.product(range(3), repeat=size):
                out.append(
                    tuple(
                        tuple(k for k, s in zip(lost, steps, strict=True) if s == step) for step in range(3)
                    )
                )
    return out


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_the_sum_is_exact_whoever_is_lost(n: int) -> None:
    """3 sites: t = 3, none may be lost, 1 pattern.

    6 sites: t = 5, one at three steps, 1 + 6 * 3 = 19 patterns.
    """
    for pattern in patterns(n):
        summed(n, *pattern)


def test_the_sum_of_ten_sites_is_exact_whoever_is_lost() -> None:
    """t = 7:

    1 + 10 * 3 + 45 * 9 + 120 * 27 = 3,676 patterns, of which 60 are drawn; the heavy test takes 919.
    """
    every = patterns(10)
    assert len(every) == 3676
    for pattern in random.Random(1).sample(every, 60):
        summed(10, *pattern)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(2))
def test_the_sum_of_ten_sites_is_exact_in_every_pattern(part: int) -> None:
    """Every number of sites that are lost at each step, with a quarter of the choices of who they are.

    In two parts, so that two processes share them.
    """
    every = patterns(10)
    chosen = every[::4]
    assert {tuple(map(len, one)) for one in chosen} == {tuple(map(len, one)) for one in every}
    for pattern in chosen[part::2]:
        summed(10, *pattern)


@pytest.mark.heavy
def test_the_sum_of_a_hundred_sites_is_exact() -> None:
    """t = 67: 33 may be lost, here at random steps."""
    chosen = random.Random(0)
    lost = chosen.sample(range(100), 33)
    step = {k: chosen.randrange(3) for k in lost}
    summed(100, *([k for k in lost if step[k] == s] for s in range(3)))


def test_thresholds() -> None:
    """More than two thirds: 2t - n is then more than a third of n."""
    assert [threshold(n) for n in (3, 4, 5, 10, 100)] == [3, 3, 4, 7, 67]
    assert all(3 * (2 * threshold(n) - n) > n for n in range(3, 1001))


@pytest.mark.hostile
@pytest.mark.parametrize("n", [0, 1, 2, 1001])
def test_two_sites_have_no_secrets(n: int) -> None:
    with pytest.raises(BadConfig, match="3 to 1000 sites"):
        threshold(n)


def test_masked_zeros_are_uniform() -> None:
    """Each of the 8 bytes of 4,096 masked zeros is uniform: chi-square over 256 values, p above 1e-6."""
    cast = Cast.of(3, 4096)
    zeros = {k: np.zeros(4096, dtype=np.int64) for k in range(3)}
    masked = cast.mask(cast.share(), range(3), zeros)
    for vector in masked.values():
        for column in vector.view(np.uint8).reshape(-1, 8).T:
            assert chisquare(np.bincount(column, minlength=256)).pvalue > 1e-6


def test_two_of_three_masked_vectors_tell_nothing_of_the_third() -> None:
    """Without the opened shares the sum of all three still carries three self masks."""
    cast, vectors = Cast.of(3), vectors_of(3)
    masked = cast.mask(cast.share(), range(3), vectors)
    assert bool(np.not_equal(sum(masked.values()), sum(vectors.values())).all())


@pytest.mark.hostile
def test_below_the_threshold_nothing_is_masked() -> None:
    cast, vectors = Cast.of(5), vectors_of(5)
    sealed = cast.share([0, 1, 2])
    with pytest.raises(SecureSumFailed, match=r"only 3 sites go on .* needs 4"):
        cast.mask(sealed, [0], vectors)


@pytest.mark.hostile
def test_below_the_threshold_nothing_is_opened() -> None:
    cast, vectors = Cast.of(5), vectors_of(5)
    masked = cast.mask(cast.share(), range(5), vectors)
    for step in (cast.sites[0].signed, cast.sites[0].opened):
        with pytest.raises(SecureSumFailed, match=r"3 survivors, and it needs 4"):
            step([0, 1, 2])
    opened = cast.open(list(masked), (1, 2, 3))
    with pytest.raises(SecureSumFailed, match=r"3 sites opened their shares .* needs 4"):
        unmasked(cast.context, cast.adverts, masked, range(5), opened)


@pytest.mark.hostile
def test_a_second_set_of_survivors_is_refused() -> None:
    """Two sets that differ by one site would give that site's vector by subtraction."""
    cast, vectors = Cast.of(5), vectors_of(5)
    cast.mask(cast.share(), range(5), vectors)
    cast.sites[0].opened([0, 1, 2, 3, 4])
    for step in (cast.sites[0].signed, cast.sites[0].opened):
        with pytest.raises(SecureSumFailed, match="twice"):
            step([0, 1, 2, 3])
    cast.sites[1].signed([0, 1, 2, 3])
    with pytest.raises(SecureSumFailed, match="twice"):
        cast.sites[1].signed([0, 1, 2, 4])
    with pytest.raises(SecureSumFailed, match="not the list that this site signed"):
        cast.sites[1].opened([0, 1, 2, 3, 4])


@pytest.mark.hostile
@pytest.mark.parametrize("lie", ["another list", "another sum", "another name", "the server", "nobody"])
def test_shares_are_opened_for_a_list_that_enough_survivors_signed(lie: str) -> None:
    """Five sites, t = 4. Site 0 signed that the first four survive, and so did two others.

    The fourth signature is of another list, of another sum, of a site that signed already, the server's, or
    missing.
    """
    cast, four = Cast.of(5), range(4)
    again = Cast.of(5, keys=cast.keys)  # the same sites in another sum
    for each in (cast, again):
        each.mask(each.share(), range(5), vectors_of(5))
    signatures = {k: cast.sites[k].signed(four) for k in range(3)}
    text = survivors_text(cast.context.digest(cast.adverts), four)
    fourth: dict[str, Callable[[], dict[int, bytes]]] = {
        "another list": lambda: {3: cast.sites[3].signed(range(5)), 4: cast.sites[4].signed(range(5))},
        "another sum": lambda: {3: again.sites[3].signed(four)},
        "another name": lambda: {3: signatures[2]},
        "the server": lambda: {3: Ed25519PrivateKey.generate().sign(text)},
        "nobody": dict,
    }
    signatures |= fourth[lie]()
    with pytest.raises(SecureSumFailed, match=r"3 sites signed the survivors .* needs 4"):
        cast.sites[0].opened(four, signatures)
    with pytest.raises(SecureSumFailed, match="twice"):
        cast.sites[0].opened(four, signatures)


@pytest.mark.hostile
def test_a_list_without_a_site_is_not_opened_unsigned() -> None:
    cast = Cast.of(5)
    cast.mask(cast.share(), range(5), vectors_of(5))
    with pytest.raises(SecureSumFailed, match="not the list that this site signed"):
        cast.sites[0].opened(range(4))


@pytest.mark.hostile
@pytest.mark.parametrize("survivors", [[0, 1, 2, 3, 3], [0, 1, 2, 9], [1, 2, 3, 4], [0, 1, 2, 3, -1]])
def test_survivors_are_sites_of_the_sum_each_once(survivors: list[int]) -> None:
    """A site named twice, an unknown one, or a list without the site that is asked."""
    cast, vectors = Cast.of(5), vectors_of(5)
    cast.mask(cast.share(), range(5), vectors)
    for step in (cast.sites[0].signed, cast.sites[0].opened):
        with pytest.raises(SecureSumFailed, match="not sites of its sum"):
            step(survivors)


@pytest.mark.hostile
def test_no_site_opens_both_secrets_of_another() -> None:
    """Alive or lost: the answer has one share per site, which is its seed's or its key's."""
    cast, vectors = Cast.of(5), vectors_of(5)
    sealed = cast.share()
    cast.mask(sealed, range(4), vectors)
    opened = cast.open([0, 1, 2, 3], range(4))[0]
    seed, key, second = cast.sites[0]._held[4]
    assert opened[4] == key != seed
    assert second not in opened.values()
    assert opened[3] == cast.sites[0]._held[3][0]


def test_the_second_mask_is_opened_for_all_sites_together_only() -> None:
    """Of five sites one is lost after its shares: its masks and all first self masks can be taken away.

    What is left of the last number is four unknown masks: it is not the sum of the others.
    """
    cast, vectors = Cast.of(5), vectors_of(5)
    sealed = cast.share()
    masked = cast.mask(sealed, range(4), vectors)
    opened = cast.open(range(4), masked)
    assert {len(share) for each in opened.values() for share in each.values()} == {66}
    whole = replace(cast.context, together=0)  # a server that ignores the rule
    assert whole.digest(cast.adverts) != cast.context.digest(cast.adverts)
    found = unmasked(cast.context, cast.adverts, masked, range(5), opened)
    total = sum((vectors[k] for k in masked), np.zeros(LENGTH, dtype=np.int64))
    assert found[:-1].tolist() == total[:-1].tolist()
    assert found[-1] == 0


@pytest.mark.hostile
def test_a_server_that_forgets_the_rule_gets_other_masks() -> None:
    """It takes all opened secrets away from the last number, too: the second self masks stay in it."""
    cast, vectors = Cast.of(5), vectors_of(5)
    masked = cast.mask(cast.share(), range(4), vectors)
    total = sum((vectors[k] for k in masked), np.zeros(LENGTH, dtype=np.int64))
    seeds = {k: cast.sites[k]._seed for k in masked}
    digest = cast.context.digest(cast.adverts)
    left = sum((masked[k].view(np.uint64) for k in masked), np.zeros(LENGTH, dtype=np.uint64))
    for k, seed in seeds.items():
        left = left - stream(seed, LENGTH)
        pair = pair_key(cast.sites[4]._masking, cast.adverts[k].masking, digest)
        left = left - signed_stream(k, 4, pair, LENGTH)
    assert left.view(np.int64)[:-1].tolist() == total[:-1].tolist()
    assert left.view(np.int64)[-1] != total[-1]


def test_a_site_without_an_advert_is_lost_from_the_start() -> None:
    """5 sites, t = 4: site 3 was unreachable. The threshold stays that of all five."""
    cast, vectors = Cast.of(5), vectors_of(5)
    adverts = {k: advert for k, advert in cast.adverts.items() if k != 3}
    here = sorted(adverts)
    sealed = {k: cast.sites[k].shares(cast.context, adverts, cast.verify) for k in here}
    assert all(3 not in shares for shares in sealed.values())
    masked = cast.mask(sealed, here, vectors)
    opened = cast.open(here, here)
    found = unmasked(cast.context, adverts, masked, here, opened)
    total = sum((vectors[k] for k in here), np.zeros(LENGTH, dtype=np.int64))
    assert found[:-1].tolist() == total[:-1].tolist()


@pytest.mark.hostile
def test_too_few_adverts_begin_nothing() -> None:
    cast = Cast.of(5)
    adverts = {k: cast.adverts[k] for k in (0, 1, 2)}
    with pytest.raises(SecureSumFailed, match=r"only 3 sites begin .* needs 4"):
        cast.sites[0].shares(cast.context, adverts, cast.verify)


@pytest.mark.hostile
@pytest.mark.parametrize("together", [-1, LENGTH + 1])
def test_the_part_for_all_sites_is_within_the_vector(together: int) -> None:
    cast = Cast.of(3, together=together)
    with pytest.raises(SecureSumFailed, match="longer than the vector"):
        cast.share()


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [
        {"together": 2},
        {"message": b"x" * 32},
        {"fields": (("other", LENGTH),)},
        {"fields": (("model", LENGTH - 1), ("more", 1))},
    ],
)
def test_a_server_that_shows_two_models_gets_nothing(change: dict[str, Any]) -> None:
    cast, vectors = Cast.of(3), vectors_of(3)
    sealed = cast.share([0, 1])
    other = replace(cast.context, **change)
    sealed[2] = cast.sites[2].shares(other, cast.adverts, cast.verify)
    with pytest.raises(SecureSumFailed, match="the shares of site 2 do not open"):
        cast.sites[0].masked(vectors[0], relayed(sealed, 0))


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [{"run": "other"}, {"round": 2}, {"attempt": 1}],
)
def test_keys_of_one_round_serve_no_other(change: dict[str, Any]) -> None:
    cast = Cast.of(3)
    with pytest.raises(SecureSumFailed, match="made for another run, round or attempt"):
        cast.sites[0].shares(replace(cast.context, **change), cast.adverts, cast.verify)


@pytest.mark.hostile
def test_a_replayed_advert_is_refused() -> None:
    """The server gives site 0 the keys that site 1 signed for an earlier round, whose secrets are open."""
    old, new = Cast.of(3, round=1), Cast.of(3, round=2)
    replayed = Cast(new.sites, new.context, {**new.keys, 1: old.keys[1]})
    adverts = {**new.adverts, 1: old.sites[1].advert}
    with pytest.raises(SecureSumFailed, match="keys of site 1 are not signed"):
        new.sites[0].shares(new.context, adverts, replayed.verify)


@pytest.mark.hostile
@pytest.mark.parametrize("swapped", [1, 2])
def test_a_key_of_the_server_is_refused(swapped: int) -> None:
    """The server puts keys of its own in the place of a site's, with a signature that is not the site's."""
    cast, server = Cast.of(3), Ed25519PrivateKey.generate()
    adverts = {**cast.adverts, swapped: Site("run", 1, 0, swapped, server.sign).advert}
    with pytest.raises(SecureSumFailed, match=f"keys of site {swapped} are not signed"):
        cast.sites[0].shares(cast.context, adverts, cast.verify)


@pytest.mark.hostile
@pytest.mark.parametrize("threshold_", [0, 1, 2, 4])
def test_the_threshold_is_not_the_servers_to_choose(threshold_: int) -> None:
    cast = Cast.of(3)
    with pytest.raises(SecureSumFailed, match=f"threshold is {threshold_}, not 3"):
        cast.sites[0].shares(replace(cast.context, threshold=threshold_), cast.adverts, cast.verify)


@pytest.mark.hostile
@pytest.mark.parametrize("sites", [(0, 1, 2, 2), (2, 1, 0), (1, 2, 3)])
def test_the_cohort_is_a_set_with_this_site(sites: tuple[int, ...]) -> None:
    cast = Cast.of(3)
    with pytest.raises(SecureSumFailed, match="not in order, or this site is not among them"):
        cast.sites[0].shares(replace(cast.context, sites=sites), cast.adverts, cast.verify)


@pytest.mark.hostile
@pytest.mark.parametrize("flip", [0, 12, 40, 100, 209, 225])
def test_a_changed_share_does_not_open(flip: int) -> None:
    """A bit of the nonce (12 bytes), of one of the three shares (66 each), or of the tag (16)."""
    cast, vectors = Cast.of(3), vectors_of(3)
    sealed = cast.share()
    spoilt = bytearray(sealed[1][0])
    spoilt[flip] ^= 1
    with pytest.raises(SecureSumFailed, match="shares of site 1 do not open"):
        cast.sites[0].masked(vectors[0], {1: bytes(spoilt), 2: sealed[2][0]})


@pytest.mark.hostile
@pytest.mark.parametrize(("sender", "receiver"), [(1, 2), (0, 1), (2, 0)])
def test_a_share_of_another_pair_does_not_open(sender: int, receiver: int) -> None:
    """As if sealed by 1 for 0: what 1 sealed for 2, what 0 itself sealed for 1, and what 2 sealed for 0."""
    cast, vectors = Cast.of(4), vectors_of(4)
    sealed = cast.share()
    wrong = {**relayed(sealed, 0), 1: sealed[sender][receiver]}
    with pytest.raises(SecureSumFailed, match="shares of site 1 do not open"):
        cast.sites[0].masked(vectors[0], wrong)


@pytest.mark.hostile
@pytest.mark.parametrize("sealed", [b"", b"x" * 225, b"x" * 227])
def test_shares_of_another_size_are_refused(sealed: bytes) -> None:
    cast, vectors = Cast.of(3), vectors_of(3)
    own = cast.share()
    with pytest.raises(SecureSumFailed, match="not shares of this sum"):
        cast.sites[0].masked(vectors[0], {**relayed(own, 0), 1: sealed})


@pytest.mark.hostile
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_could_overflow_is_refused(sign: int) -> None:
    """n times the largest stays within 63 bits; one more would not."""
    cast = Cast.of(3)
    sealed = cast.share()
    vector = np.array([0, 0, 0, sign * (largest(3) + 1)])
    with pytest.raises(SecureSumFailed, match="too large for the sum"):
        cast.sites[0].masked(vector, relayed(sealed, 0))
    assert 3 * largest(3) <= 2**63 - 1 < 3 * (largest(3) + 1)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "vector", [np.zeros(3, dtype=np.int64), np.zeros(4), np.zeros((1, 4), dtype=np.int64)]
)
def test_a_vector_of_another_form_is_refused(vector: Vector) -> None:
    cast = Cast.of(3)
    sealed = cast.share()
    with pytest.raises(SecureSumFailed, match="over 4 whole numbers"):
        cast.sites[0].masked(vector, relayed(sealed, 0))


@pytest.mark.hostile
def test_steps_happen_in_order_and_once() -> None:
    cast, vectors = Cast.of(3), vectors_of(3)
    with pytest.raises(SecureSumFailed, match="out of order"):
        cast.sites[0].masked(vectors[0], {})
    sealed = cast.share()
    with pytest.raises(SecureSumFailed, match="out of order or twice"):
        cast.sites[0].shares(cast.context, cast.adverts, cast.verify)
    cast.mask(sealed, range(3), vectors)
    with pytest.raises(SecureSumFailed, match="out of order or twice"):
        cast.sites[0].masked(vectors[0], relayed(sealed, 0))


@pytest.mark.hostile
def test_a_wrong_share_is_noticed() -> None:
    """The secret comes out as a random number below 2^521, which is almost surely no 256-bit one."""
    cast, vectors = Cast.of(5), vectors_of(5)
    masked = cast.mask(cast.share(), range(5), vectors)
    opened = cast.open(list(masked), masked)
    opened[0][2] = bytes(65) + b"\x01"
    with pytest.raises(SecureSumFailed, match="shares of site 2 do not fit together"):
        unmasked(cast.context, cast.adverts, masked, range(5), opened)


def test_shares_below_the_threshold_fit_every_secret() -> None:
    """2 of 3 shares: with the third chosen freely any secret can come out, so that the two tell nothing."""
    shares = split(b"\x00" * 31 + b"\x07", (0, 1, 2), 3)
    assert joined(shares, 0) == b"\x00" * 31 + b"\x07"
    with pytest.raises(SecureSumFailed):
        joined({0: shares[0], 1: shares[1]}, 0)


def test_a_key_stream_is_chacha20s() -> None:
    """RFC 8439, A.1, test vector 1: key, nonce and counter zero; the block begins 76 b8 e0 ad a0 f1 3d 90."""
    assert stream(bytes(32), 1).tobytes().hex() == "76b8e0ada0f13d90"


LOW_ORDER = {
    "zero": bytes(32),
    "one": (1).to_bytes(32, "little"),
    "p": (2**255 - 19).to_bytes(32, "little"),
    "p + 1": (2**255 - 18).to_bytes(32, "little"),
    "order 8": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
}
"""Points with which every exchange ends in zero (RFC 7748, section 6.1)."""


@pytest.mark.hostile
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order_is_refused_and_its_site_is_named(point: str, which: int) -> None:
    """Site 1 signs it itself. ``cryptography`` would raise a ValueError at every other site."""
    cast = Cast.of(5)
    keys = [cast.adverts[1].sharing, cast.adverts[1].masking]
    keys[which] = LOW_ORDER[point]
    adverts = {**cast.adverts, 1: signed_by(cast, 1, *keys)}
    with pytest.raises(SecureSumFailed, match="keys of site 1 are not two keys with which a secret can be"):
        cast.sites[0].shares(cast.context, adverts, cast.verify)


@pytest.mark.hostile
def test_copied_keys_are_refused() -> None:
    """Of another site, or one key for both purposes."""
    cast = Cast.of(5)
    own, other = cast.adverts[1], cast.adverts[2]
    cases = {"two sites have the same key": (other.sharing, other.masking)}
    cases |= {"keys of site 1 are not two keys": (own.sharing, own.sharing)}
    for number, (says, keys) in enumerate(cases.items()):
        adverts = {**cast.adverts, 1: signed_by(cast, 1, *keys)}
        with pytest.raises(SecureSumFailed, match=says):
            cast.sites[3 + number].shares(cast.context, adverts, cast.verify)


def signed_by(cast: Cast, site: int, sharing: bytes, masking: bytes) -> Advert:
    return Advert(sharing, masking, cast.keys[site].sign(advert_text("run", 1, 0, site, sharing, masking)))


@pytest.mark.hostile
def test_other_survivors_for_each_site_open_nothing() -> None:
    """Ten sites, t = 7. Without signatures a dishonest server got the sum over sites 0 to 5, fewer than t.

    These six are told of nine sites, without site 9. Sites 6 to 8 are to be dead, but nobody may hear of more
    than three dead ones. Each of the six hears of two, the three hear of the two others, site 9 of all
    three: 4 + 2 + 1 = 7 shares of each one's masking key. But now nobody finds seven signatures of its list:
    there are seven lists, and at most two sites sign the same one.
    """
    cast, vectors, dead = Cast.of(10), vectors_of(10), (6, 7, 8)
    sealed = cast.share()
    told = {k: set(range(9 if k < 6 else 10)) for k in range(10)}
    for k in range(10):
        shown = {sender: row for sender, row in relayed(sealed, k).items() if sender in told[k]}
        cast.sites[k].masked(vectors[k], shown)
    lost = {k: {dead[k % 3], dead[(k + 1) % 3]} for k in range(6)}
    lost |= {k: set(dead) - {k} for k in range(6, 10)}
    lists = {k: tuple(sorted(told[k] - lost[k])) for k in range(10)}
    assert (len(set(lists.values())), max(Counter(lists.values()).values())) == (7, 2)
    signatures = {k: cast.sites[k].signed(lists[k]) for k in range(10)}
    for k in range(10):
        with pytest.raises(SecureSumFailed, match=r"[12] sites signed the survivors .* needs 7"):
            cast.sites[k].opened(lists[k], signatures)


@pytest.mark.hostile
def test_the_full_list_and_another_are_not_both_opened() -> None:
    """Ten sites, t = 7. Four are told that all survive and open for it; that needs no signatures.

    The other six are told that site 9 is lost. They are too few to open its masking key. Had seven been told
    so, only three would be left, too few for its self mask.
    """
    cast = Cast.of(10)
    cast.mask(cast.share(), range(10), vectors_of(10))
    assert all(cast.sites[k].opened(range(10)) for k in (6, 7, 8, 9))
    signatures = {k: cast.sites[k].signed(range(9)) for k in range(6)}
    for k in range(6):
        with pytest.raises(SecureSumFailed, match=r"6 sites signed the survivors .* needs 7"):
            cast.sites[k].opened(range(9), signatures)
