"""Checks of a kit's certificates and key.

They must parse, belong together, be issued to the named party and be valid today.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from fedepd.errors import BadData
from fedepd.files import read_bytes
from fedepd.shown import shown

ROOT = "startup/rootCA.pem"
MAX_PEM = 64 * 2**10
MAX_COMMON_NAME = 64
"""A certificate's common name holds at most this many characters. Longer host names are cut."""


def root_certificate(kit: Path) -> x509.Certificate:
    """The federation's root certificate. It must be signed by itself and allowed to sign others."""
    root = read_certificate(kit, ROOT)
    try:
        root.verify_directly_issued_by(root)
        may_sign = root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound) as cause:
        raise BadData(
            f"'{ROOT}' in '{shown(kit, 300)}' is not a root certificate; ask for the kit again"
        ) from cause
    if not may_sign:
        raise BadData(f"'{ROOT}' in '{shown(kit, 300)}' may not sign certificates; ask for the kit again")
    return root


def fingerprint(root: x509.Certificate) -> str:
    return ":".join(f"{byte:02X}" for byte in root.fingerprint(hashes.SHA256()))


def check_credentials(kit: Path, root: x509.Certificate, stem: str, name: str) -> None:
    """Check that ``startup/STEM.crt`` belongs to ``name``, is signed by the root and is valid today.

    ``startup/STEM.key`` must be its private key.
    """
    path = f"startup/{stem}.crt"
    own = read_certificate(kit, path)
    try:
        own.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError) as cause:
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is not signed by the kit's root certificate; "
            f"ask for the kit again"
        ) from cause
    names = [str(each.value) for each in own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name[:MAX_COMMON_NAME]]:
        found = ", ".join(shown(each) for each in names) or "nobody"
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is the certificate of {found}, not of '{shown(name)}'; "
            f"ask for the kit again"
        )
    for certificate, where in ((root, ROOT), (own, path)):
        _check_dates(certificate, where, kit)
    _check_key(kit, f"startup/{stem}.key", own.public_key())


def _check_dates(certificate: x509.Certificate, path: str, kit: Path) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        ended = certificate.not_valid_after_utc.date().isoformat()
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' expired on {ended}; ask the coordinator for a new kit"
        )
    if now < certificate.not_valid_before_utc:
        begins = certificate.not_valid_before_utc.isoformat()
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is not valid before {begins}; check this machine's clock"
        )


def _check_key(kit: Path, path: str, public: Any) -> None:
    try:
        key = serialization.load_pem_private_key(read_bytes(kit / path, MAX_PEM), password=None)
    except (ValueError, TypeError) as cause:
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is not a private key; ask for the kit again"
        ) from cause
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is not the key of the certificate beside it; "
            f"ask for the kit again"
        )


def read_certificate(kit: Path, path: str) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificates(read_bytes(kit / path, MAX_PEM))
    except ValueError as cause:
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' is not a certificate; ask for the kit again"
        ) from cause
    if len(found) != 1:
        raise BadData(
            f"'{path}' in '{shown(kit, 300)}' holds {len(found)} certificates instead of one; "
            f"ask for the kit again"
        )
    return found[0]
