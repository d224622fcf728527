"""The signed list of a kit's files: what was changed, added to the list or signed by another is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra 'federation'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fedepd.deploy.manifest import MANIFEST, SIGNATURE, check_files, read_manifest, write_manifest
from fedepd.errors import BadData


@pytest.fixture(scope="module")
def key() -> Any:
    return rsa.generate_private_key(65537, 2048)


def pem(key: Any) -> bytes:
    out: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return out


@pytest.fixture
def kit(tmp_path: Path, key: Any) -> Path:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "a.json").write_text("{}")
    (tmp_path / "b.pem").write_text("key")
    write_manifest(tmp_path, "client", "bank-a", ["local/a.json", "b.pem"], pem(key))
    return tmp_path


def test_a_sound_kit_is_taken(kit: Path, key: Any) -> None:
    manifest = read_manifest(kit, key.public_key())
    assert (manifest.kind, manifest.name, sorted(manifest.files)) == (
        "client",
        "bank-a",
        ["b.pem", "local/a.json"],
    )
    check_files(kit, manifest)


@pytest.mark.hostile
def test_an_altered_file_is_named(kit: Path, key: Any) -> None:
    manifest = read_manifest(kit, key.public_key())
    (kit / "local" / "a.json").write_text("{} ")
    with pytest.raises(BadData, match=r"'local/a\.json' in .* was altered"):
        check_files(kit, manifest)


@pytest.mark.hostile
def test_an_altered_list_is_not_signed(kit: Path, key: Any) -> None:
    table = json.loads((kit / MANIFEST).read_bytes())
    del table["files"]["b.pem"]
    (kit / MANIFEST).write_text(json.dumps(table))
    with pytest.raises(BadData, match="not signed"):
        read_manifest(kit, key.public_key())


@pytest.mark.hostile
@pytest.mark.parametrize("signature", [b"", b"not base64!", b"AAAA"])
def test_a_signature_that_is_none(kit: Path, key: Any, signature: bytes) -> None:
    (kit / SIGNATURE).write_bytes(signature)
    with pytest.raises(BadData):
        read_manifest(kit, key.public_key())


@pytest.mark.hostile
def test_the_signature_of_another_key(kit: Path) -> None:
    other = rsa.generate_private_key(65537, 2048)
    with pytest.raises(BadData, match="not signed"):
        read_manifest(kit, other.public_key())


@pytest.mark.hostile
def test_a_key_that_is_too_short(kit: Path) -> None:
    short = rsa.generate_private_key(65537, 1024)
    with pytest.raises(BadData, match="2048 bits"):
        read_manifest(kit, short.public_key())
