"""The signed manifest of a kit: a hash of every file that the kit's maker put into it.

What it proves: the holder of the federation's root key wrote these files for this party. A file that was
altered, removed or added on the way is found.

What it does not prove: that the maker is honest, or who the maker is. Whoever made the kit also made its root
certificate, and the signature is checked against that. ``join`` prints the root certificate's fingerprint. An
owner who wants to know whose federation this is compares it with the one that the coordinator gives over
another channel.

The signature is RSA-PSS with SHA-256 over a fixed first line and the manifest's bytes. The root key signs
nothing else that begins with this line.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedepd.errors import BadData
from fedepd.files import parse_json, read_bytes
from fedepd.shown import shown

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
FORMAT = 1
FIRST_LINE = b"fedepd kit manifest 1\n"
"""Put before the signed bytes, so that a signature made for another purpose never fits a manifest."""
MAX_MANIFEST = 64 * 2**10
MAX_FILE = 8 * 2**20
"""Largest size in bytes of one file of a kit. The schema in ``local/federation.json`` is the largest part."""
MIN_KEY_BITS = 2048
SHA256 = re.compile(r"[0-9a-f]{64}")
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)


@dataclass(frozen=True)
class Manifest:
    kind: str
    """server, client or admin."""
    name: str
    """The party's name, as in its certificate."""
    files: dict[str, str]
    """For each path inside the kit, the SHA-256 of the file."""


def write_manifest(kit: Path, kind: str, name: str, paths: list[str], root_key: bytes) -> None:
    """Write the manifest of ``paths`` and their hashes, signed with the root key (PEM)."""
    files = {path: hashlib.sha256(read_bytes(kit / path, MAX_FILE)).hexdigest() for path in sorted(paths)}
    content = json.dumps({"format": FORMAT, "kind": kind, "name": name, "files": files}, indent=1).encode()
    key = serialization.load_pem_private_key(root_key, password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise BadData(
            "the federation's root key is not an RSA key; make the kits again with 'fedepd federation init'"
        )
    signature = base64.b64encode(key.sign(FIRST_LINE + content, PSS, hashes.SHA256()))
    (kit / MANIFEST).write_bytes(content)
    (kit / SIGNATURE).write_bytes(signature)


def read_manifest(kit: Path, root: Any) -> Manifest:
    """The manifest of a kit, refused unless ``root`` signed it.

    ``root`` is the root certificate's public key.
    """
    content, signature = read_bytes(kit / MANIFEST, MAX_MANIFEST), read_bytes(kit / SIGNATURE, MAX_MANIFEST)
    if not isinstance(root, rsa.RSAPublicKey) or root.key_size < MIN_KEY_BITS:
        raise BadData(
            f"the root certificate of '{shown(kit, 300)}' has no RSA key of {MIN_KEY_BITS} bits or more; "
            f"ask for another kit"
        )
    try:
        root.verify(base64.b64decode(signature, validate=True), FIRST_LINE + content, PSS, hashes.SHA256())
    except (InvalidSignature, ValueError) as cause:
        raise BadData(
            f"{MANIFEST} of '{shown(kit, 300)}' is not signed by the kit's root certificate; "
            f"ask for the kit again"
        ) from cause
    return _parsed(content, f"{MANIFEST} of '{shown(kit, 300)}'")


def _parsed(content: bytes, where: str) -> Manifest:
    table = parse_json(content, where)
    wrong = BadData(
        f"{where} does not have the fields of a manifest; ask for a kit made by this version of fedepd"
    )
    if (
        not isinstance(table, dict)
        or sorted(table) != ["files", "format", "kind", "name"]
        or table["format"] != FORMAT
    ):
        raise wrong
    files = table["files"]
    if (
        not isinstance(files, dict)
        or not isinstance(table["name"], str)
        or not isinstance(table["kind"], str)
    ):
        raise wrong
    if not all(isinstance(value, str) and SHA256.fullmatch(value) for value in files.values()):
        raise wrong
    return Manifest(table["kind"], table["name"], files)


def check_files(kit: Path, manifest: Manifest) -> None:
    """Check that every file of the manifest is there and unaltered. The error names the first that is not."""
    for path, expected in manifest.files.items():
        if hashlib.sha256(read_bytes(kit / path, MAX_FILE)).hexdigest() != expected:
            raise BadData(
                f"'{shown(path)}' in '{shown(kit, 300)}' was altered after the kit was made; "
                f"ask for the kit again"
            )
