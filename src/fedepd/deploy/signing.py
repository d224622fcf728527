"""Signatures of sites, by the keys of their kits.

A site signs the keys that it makes for a secure sum. The other sites check the signature against the public
key that ``init`` wrote into every kit for every site. The kit's signed manifest covers that list. So a server
cannot put its own key in a site's place, unless it made the kits.

The signature is RSA-PSS with SHA-256 over a fixed first line and the text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedepd.deploy.credentials import MAX_PEM, read_certificate
from fedepd.deploy.manifest import MIN_KEY_BITS
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_bytes
from fedepd.privacy.secure_sum import Sign, Verify
from fedepd.shown import shown

FIRST_LINE = b"fedepd secure sum\n"
"""Put before the signed bytes, so that a signature made for another purpose never fits."""
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
MAX_SIGNATURE = 512
"""Bytes of the longest signature: RSA with 4096 bits."""
FORM = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def public_key(kit: Path, stem: str = "client") -> str:
    """The public key of a kit's certificate as text, as every other kit holds it."""
    return base64.b64encode(
        read_certificate(kit, f"startup/{stem}.crt").public_key().public_bytes(*FORM)
    ).decode()


def read_public(text: object, site: str) -> rsa.RSAPublicKey:
    """A site's public key from that text."""
    fault = BadData(f"the key of site '{shown(site)}' in the kit cannot be used; ask for the kit again")
    if not isinstance(text, str) or len(text) > MAX_PEM:
        raise fault
    try:
        found = serialization.load_der_public_key(base64.b64decode(text, validate=True))
    except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm) as cause:
        raise fault from cause
    if not isinstance(found, rsa.RSAPublicKey) or not MIN_KEY_BITS <= found.key_size <= 8 * MAX_SIGNATURE:
        raise fault
    return found


def key_fingerprint(text: str) -> str:
    """To compare two owners' view of a site's key over another channel."""
    return ":".join(f"{byte:02X}" for byte in sha256(base64.b64decode(text)).digest()[:16])


def signer(kit: Path) -> Sign:
    """Signs with the kit's private key. Zeros fill the signature up to ``MAX_SIGNATURE`` bytes."""
    key: Any = serialization.load_pem_private_key(
        read_bytes(kit / "startup" / "client.key", MAX_PEM), password=None
    )
    return lambda text: bytes(key.sign(FIRST_LINE + text, PSS, hashes.SHA256())).ljust(MAX_SIGNATURE, b"\0")


def verifier(keys: Mapping[str, str], sites: Sequence[str]) -> Verify:
    """Checks the signatures of the sites, which are numbered as in ``sites``."""
    if missing := [site for site in sites if site not in keys]:
        raise BadConfig(
            f"the kit does not hold the key of site '{shown(missing[0])}', so that secure sums are not "
            "possible; make the kits again with this version of fedepd, or run with secure = false"
        )
    known = {number: read_public(keys[site], site) for number, site in enumerate(sites)}

    def verify(site: int, text: bytes, signature: bytes) -> bool:
        if site not in known or len(signature) != MAX_SIGNATURE:
            return False
        end = (known[site].key_size + 7) // 8
        try:
            known[site].verify(signature[:end], FIRST_LINE + text, PSS, hashes.SHA256())
        except InvalidSignature:
            return False
        return True

    return verify
