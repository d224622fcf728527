"""The files with which the machines of a cluster know each other: one authority, and one certificate for all.

Whoever has the folder can run programs at every worker. So it is made for one cluster, and its files are
readable by their owner alone.
"""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path
from typing import Any

from fedepd.errors import BadConfig
from fedepd.files import write_bytes
from fedepd.folders import claim_folder
from fedepd.shown import shown

CA, CERTIFICATE, KEY = "ca.pem", "certificate.pem", "key.pem"
DAYS = 365


def make_certificates(folder: Path, days: int = DAYS) -> None:
    """Write the three files into a new folder. The authority's own key is not kept.

    Args:
        folder: A folder that is empty or does not exist.
        days: How long the certificate is valid.

    Raises:
        BadConfig: The folder cannot be used, or the number of days.
    """
    if not 1 <= days <= 3650:
        raise BadConfig(f"days is {days}; give a number from 1 to 3650")
    x509, hashes, serialization, ec, NameOID = _cryptography()
    claim_folder(folder)
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "node")}
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedepd cluster authority")])

    def signed(name: str, subject: Any, is_authority: bool) -> bytes:
        built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
        built = built.public_key(keys[name].public_key()).serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - datetime.timedelta(minutes=5))
        built = built.not_valid_after(now + datetime.timedelta(days=days))
        limits = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
        built = built.add_extension(limits, critical=True)
        found = built.sign(keys["authority"], hashes.SHA256())
        return bytes(found.public_bytes(serialization.Encoding.PEM))

    node = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedepd cluster node")])
    plain = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    contents = {
        CA: signed("authority", issuer, True),
        CERTIFICATE: signed("node", node, False),
        KEY: keys["node"].private_bytes(plain[2], plain[1], plain[0]),
    }
    os.chmod(folder, 0o700)
    for name, content in contents.items():
        write_bytes(folder / name, content)
        os.chmod(folder / name, 0o600)


def security_of(folder: Path) -> Any:
    """Dask's ``Security`` from such a folder. Every connection is encrypted, and both ends are known."""
    from fedepd.cluster.dask import distributed

    for name in (CA, CERTIFICATE, KEY):
        path = folder / name
        try:
            status = path.lstat()
        except OSError as cause:
            raise BadConfig(
                f"'{shown(path, 300)}' cannot be read ({cause.strerror}); "
                "'fedepd cluster certificates FOLDER' makes such a folder"
            ) from cause
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(f"'{shown(path, 300)}' is not a regular file; give another --certificates")
        if name == KEY and status.st_mode & 0o077:
            raise BadConfig(f"others can read '{shown(path, 300)}'; call 'chmod 600' on it")
    files = {"tls_ca_file": str(folder / CA)}
    for role in ("client", "worker", "scheduler"):
        files |= {f"tls_{role}_cert": str(folder / CERTIFICATE), f"tls_{role}_key": str(folder / KEY)}
    return distributed().Security(require_encryption=True, **files)


def _cryptography() -> tuple[Any, ...]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as cause:
        raise BadConfig(
            "certificates need the package cryptography; install it with: pip install 'fedepd[cluster]'"
        ) from cause
    return x509, hashes, serialization, ec, NameOID
