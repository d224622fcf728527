"""Certificates that do not belong together, or to somebody else.

They are in a kit whose maker signs whatever is in it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from fedepd.cli import main
from fedepd.deploy import kits
from fedepd.deploy.contents import SIGNED
from fedepd.deploy.manifest import write_manifest
from fedepd.errors import BadData

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def pem(key: Any) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def certificate(
    name: str,
    key: Any,
    signer: str,
    signing: Any,
    ca: bool = False,
    start: timedelta = -DAY,
    end: timedelta = DAY,
) -> bytes:
    def subject(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = x509.CertificateBuilder(
        subject(signer), subject(name), key.public_key(), 7, NOW + start, NOW + end
    )
    made = made.add_extension(x509.BasicConstraints(ca, None), critical=True)
    return made.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    return {name: rsa.generate_private_key(65537, 2048) for name in ("root", "own", "other")} | {
        "short": rsa.generate_private_key(65537, 1024),
        "curve": ec.generate_private_key(ec.SECP256R1()),
    }


def remake(kit: Path, keys: dict[str, Any], root: str = "root", **change: Any) -> None:
    """The kit of a maker with own keys; ``change`` says what is wrong about it."""
    signing, own = keys[root], keys["own"]
    made = {
        "startup/rootCA.pem": certificate("federation", signing, "federation", signing, ca=True),
        "startup/client.crt": certificate("bank-a", own, "federation", signing),
        "startup/client.key": pem(own),
    }
    for path, content in {**made, **change}.items():
        (kit / path).write_bytes(content)
    write_manifest(kit, "client", "bank-a", list(SIGNED["client"]), pem(keys["root"]))


def test_a_kit_by_hand_is_a_kit(kit: Path, keys: dict[str, Any]) -> None:
    remake(kit, keys)
    assert kits.open_kit(kit, "client").name == "bank-a"


ROOT, OWN, KEY = "startup/rootCA.pem", "startup/client.crt", "startup/client.key"


def wrong(keys: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    root, own, other = keys["root"], keys["own"], keys["other"]
    good = certificate("bank-a", own, "federation", root)
    return {
        "another's name": ({OWN: certificate("bank-b", own, "federation", root)}, "certificate of bank-b"),
        "a name with an escape": ({OWN: certificate("\x1b[2Jx", own, "federation", root)}, "certificate of"),
        "another's key": ({KEY: pem(other)}, "not the key"),
        "not signed by the root": ({OWN: certificate("bank-a", own, "federation", other)}, "not signed by"),
        "signed by itself": ({OWN: certificate("bank-a", own, "bank-a", own)}, "not signed by"),
        "ended": (
            {OWN: certificate("bank-a", own, "federation", root, start=-2 * DAY, end=-DAY)},
            "expired on",
        ),
        "not yet": ({OWN: certificate("bank-a", own, "federation", root, start=DAY, end=2 * DAY)}, "clock"),
        "two certificates": ({OWN: good + good}, "2 certificates"),
        "no certificate": (
            {OWN: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
            "not a certificate",
        ),
        "no key": (
            {KEY: b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"},
            "not a private key",
        ),
        "a root that may not sign": (
            {ROOT: certificate("federation", root, "federation", root)},
            "may not sign",
        ),
        "a root signed by another": (
            {ROOT: certificate("federation", root, "federation", other, ca=True)},
            "not a root",
        ),
        "a root with an end": (
            {ROOT: certificate("federation", root, "federation", root, True, -2 * DAY, -DAY)},
            "expired on",
        ),
        "another's root": (
            {ROOT: certificate("federation", other, "federation", other, ca=True)},
            "not signed by",
        ),
        "a root with a short key": (
            {ROOT: certificate("federation", keys["short"], "federation", keys["short"], ca=True)},
            "2048",
        ),
        "a root with another key": (
            {ROOT: certificate("federation", keys["curve"], "federation", keys["curve"], ca=True)},
            "2048",
        ),
    }


CASES = [
    "another's name", "a name with an escape", "another's key", "not signed by the root", "signed by itself",
    "ended", "not yet", "two certificates", "no certificate", "no key", "a root that may not sign",
    "a root signed by another", "a root with an end", "another's root", "a root with a short key",
    "a root with another key",
]  # fmt: skip


@pytest.mark.hostile
@pytest.mark.parametrize("case", CASES)
def test_certificates_that_are_not_right(kit: Path, keys: dict[str, Any], case: str) -> None:
    change, says = wrong(keys)[case]
    remake(kit, keys, **change)
    with pytest.raises(BadData, match=says) as caught:
        kits.open_kit(kit, "client")
    assert str(caught.value).isprintable()


def test_join_prints_the_fingerprint_and_an_owner_can_pin_it(
    made_kits: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = x509.load_pem_x509_certificate((kit / ROOT).read_bytes())
    digest = root.fingerprint(hashes.SHA256()).hex()
    command = ["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]
    assert main([*command, "--pin", digest]) == 0
    said = capsys.readouterr().out
    assert digest in said.replace(":", "").lower()
    assert "server localhost:8002" in said


@pytest.mark.hostile
@pytest.mark.parametrize("pin", ["", "00", "0" * 64, "zz" * 32])
def test_a_kit_of_another_federation_than_the_pinned(
    made_kits: Path, kit: Path, pin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check", "--pin", pin])
        == 2
    )
    assert "not the one pinned" in capsys.readouterr().err
    assert not (kit / "local" / "resources.json").exists()


def test_the_authority_signs_for_its_own_federation_only(
    made_kits: Path, kit: Path, keys: dict[str, Any]
) -> None:
    """The manifest of one federation beside the certificates of another."""
    state = json.loads((made_kits / "fed" / "authority" / "federation" / "state" / "cert.json").read_bytes())
    remake(kit, keys)
    write_manifest(kit, "client", "bank-a", list(SIGNED["client"]), state["root_pri_key"].encode())
    with pytest.raises(BadData, match="not signed by the kit's root certificate"):
        kits.open_kit(kit, "client")


@pytest.mark.hostile
def test_join_names_a_state_that_came_with_the_kit(
    made_kits: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Moments of an optimiser, chosen by who made the kit, would undo what the limits are for."""
    words = ["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]
    assert main(words) == 0
    assert "saved state" not in capsys.readouterr().out
    (kit / "state" / "planted-run").mkdir(parents=True)
    assert main(words) == 0
    assert (
        "saved state of earlier runs: planted-run; if this kit is new to you, somebody else put it there"
        in capsys.readouterr().out
    )
