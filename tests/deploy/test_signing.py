"""Signatures of sites: by the kit's key, for this purpose, checked against the list in every kit."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.deploy.kits import open_kit, site_keys
from fedepd.deploy.signing import (
    FIRST_LINE,
    FORM,
    MAX_SIGNATURE,
    key_fingerprint,
    public_key,
    read_public,
    signer,
    verifier,
)
from fedepd.errors import BadConfig, BadData

SITES = ("bank-a", "bank-b")


def test_a_kit_signs_and_every_other_kit_verifies(made_kits: Path) -> None:
    sign = signer(made_kits / "fed" / "bank-a")
    verify = verifier(site_keys(made_kits / "fed" / "bank-b"), SITES)
    signature = sign(b"keys")
    assert len(signature) == MAX_SIGNATURE
    assert verify(0, b"keys", signature)
    assert not verify(1, b"keys", signature)  # another site's
    assert not verify(0, b"other", signature)
    assert not verify(2, b"keys", signature)  # nobody's
    assert not verify(0, b"keys", signature[:256])
    assert not verify(0, b"keys", bytes(MAX_SIGNATURE))
    assert not verify(0, FIRST_LINE + b"keys", signature)


def test_every_kit_holds_the_same_keys_and_they_are_the_certificates(made_kits: Path) -> None:
    kits = [open_kit(made_kits / "fed" / site, "client") for site in SITES]
    assert kits[0].keys == kits[1].keys == open_kit(made_kits / "fed" / "server", "server").keys
    assert kits[0].keys == {site: public_key(made_kits / "fed" / site) for site in SITES}
    assert len({key_fingerprint(key) for key in kits[0].keys.values()}) == 2


@pytest.mark.hostile
@pytest.mark.parametrize("text", [None, 3, "", "not base64!", base64.b64encode(b"x" * 300).decode()])
def test_a_key_that_is_none(text: object) -> None:
    with pytest.raises(BadData, match=r"key of site 'a\?' in the kit cannot be used"):
        read_public(text, "a\x07")


@pytest.mark.hostile
def test_a_key_of_another_kind_or_too_short() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    curve = ec.generate_private_key(ec.SECP256R1())
    for key in (short, curve):
        with pytest.raises(BadData, match="cannot be used"):
            read_public(base64.b64encode(key.public_key().public_bytes(*FORM)).decode(), "a")


def test_a_kit_without_a_sites_key_says_so() -> None:
    with pytest.raises(BadConfig, match="does not hold the key of site 'a', so that secure sums"):
        verifier({}, ("a",))


def test_a_key_whose_bits_are_no_multiple_of_eight(tmp_path: Path) -> None:
    """2055 bits: a signature has 257 bytes. With 256 of them every honest advert of the site was refused."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2055)
    (tmp_path / "startup").mkdir()
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "startup" / "client.key").write_bytes(key.private_bytes(*form))
    text = base64.b64encode(key.public_key().public_bytes(*FORM)).decode()
    assert verifier({"a": text}, ("a",))(0, b"keys", signer(tmp_path)(b"keys"))
