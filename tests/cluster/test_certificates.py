"""The files of a cluster: only their owner can read them, and what is not one of them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.cluster.certificates import CA, CERTIFICATE, KEY, make_certificates, security_of
from fedepd.errors import BadConfig

pytest.importorskip("distributed", reason="needs the extra 'cluster'")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c") / "certificates"
    make_certificates(folder)
    return folder


def test_only_the_owner_can_read_them(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == [CA, CERTIFICATE, KEY]
    assert made.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o600}
    assert b"PRIVATE" not in (made / CA).read_bytes() + (made / CERTIFICATE).read_bytes()


def test_the_node_is_signed_by_the_authority_and_is_none_itself(made: Path) -> None:
    from cryptography import x509

    ca, node = (x509.load_pem_x509_certificate((made / name).read_bytes()) for name in (CA, CERTIFICATE))
    node.verify_directly_issued_by(ca)
    limits = node.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not limits.ca
    assert 360 < (node.not_valid_after_utc - node.not_valid_before_utc).days <= 366


def test_every_connection_must_be_encrypted(made: Path) -> None:
    security = security_of(made)
    assert security.require_encryption
    assert security.tls_worker_key == str(made / KEY)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "c", days=1)
    (tmp_path / "c" / KEY).chmod(0o644)
    with pytest.raises(BadConfig, match="call 'chmod 600' on it"):
        security_of(tmp_path / "c")


@pytest.mark.parametrize("name", [CA, CERTIFICATE, KEY])
def test_a_missing_file_or_a_link_is_refused(name: str, tmp_path: Path) -> None:
    make_certificates(tmp_path / "c", days=1)
    (tmp_path / "c" / name).rename(tmp_path / "moved")
    with pytest.raises(BadConfig, match="fedepd cluster certificates FOLDER"):
        security_of(tmp_path / "c")
    (tmp_path / "c" / name).symlink_to(tmp_path / "moved")
    with pytest.raises(BadConfig, match="not a regular file"):
        security_of(tmp_path / "c")


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(BadConfig, match="not empty"):
        make_certificates(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("days", [0, -1, 4000])
def test_days(days: int, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="from 1 to 3650"):
        make_certificates(tmp_path / "c", days)
