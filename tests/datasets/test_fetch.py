"""Downloads from file: addresses; no test needs a network."""

from __future__ import annotations

import gzip
import http.client
import importlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedepd.datasets.fetch import DOWNLOADS, Download, fetch
from fedepd.datasets.official import RAW_FILES
from fedepd.errors import BadData, UnknownName

fetching = importlib.import_module("fedepd.datasets.fetch")  # the package has a function of this name too


def test_every_official_file_has_an_address() -> None:
    assert DOWNLOADS.keys() == RAW_FILES.keys()
    for name, downloads in DOWNLOADS.items():
        assert sorted(path for download in downloads for path in download.files.values()) == sorted(
            RAW_FILES[name]
        )
        assert all(download.url.startswith("http") for download in downloads)


def test_plain_and_gzipped_files_and_zip_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain.txt").write_text("plain")
    with gzip.open(tmp_path / "packed.txt.gz", "wt") as file:
        file.write("packed")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("top/one.csv", "one")
        archive.writestr("top/two.csv", "two")
    downloads = (
        Download((tmp_path / "plain.txt").as_uri(), {"": "raw/a/plain.txt"}),
        Download((tmp_path / "packed.txt.gz").as_uri(), {"": "raw/a/packed.txt"}),
        Download(
            (tmp_path / "all.zip").as_uri(), {"top/two.csv": "raw/b/2.csv", "top/one.csv": "raw/b/1.csv"}
        ),
    )
    monkeypatch.setitem(DOWNLOADS, "email", downloads)
    data = tmp_path / "data"
    assert "fetched plain.txt, packed.txt, 2.csv, 1.csv" in fetch("email", data)
    content = {str(path.relative_to(data)): path.read_text() for path in data.rglob("*") if path.is_file()}
    assert content == {
        "raw/a/plain.txt": "plain",
        "raw/a/packed.txt": "packed",
        "raw/b/1.csv": "one",
        "raw/b/2.csv": "two",
    }


def tarred(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, content in members.items():
            each = tarfile.TarInfo(name.replace("__", "/"))
            each.size = len(content)
            packed.addfile(each, io.BytesIO(content))
    return path


def test_members_of_a_tar_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may begin with './', as tar writes it. Nothing else is unpacked."""
    archive = tarred(tmp_path / "all.tar.gz", **{"./one": b"1", "top__two": b"2", "..__three": b"3"})
    members = {"one": "raw/1", "top/two": "raw/2"}
    monkeypatch.setitem(DOWNLOADS, "email", (Download(archive.as_uri(), members),))
    assert "fetched 1, 2" in fetch("email", tmp_path / "data")
    content = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.parent.name == "raw"}
    assert content == {"1": "1", "2": "2"}
    assert not list(tmp_path.rglob("three"))


@pytest.mark.hostile
def test_a_tar_archive_with_a_link_or_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in place of the file, and a member before it that is larger than a download may be."""
    monkeypatch.setattr(fetching, "MAX_DOWNLOAD", 2**20)
    link = tarfile.TarInfo("one")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as packed:
        packed.addfile(link)
    tarred(tmp_path / "large.tar.gz", zero=bytes(2**21), one=b"1")
    for file, why in (("link.tar.gz", "no file 'one'"), ("large.tar.gz", "it has more than")):
        download = Download((tmp_path / file).as_uri(), {"one": "raw/1"})
        monkeypatch.setitem(DOWNLOADS, "email", (download,))
        with pytest.raises(BadData, match=why):
            fetch("email", tmp_path / "data")
        assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_what_is_there_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").write_text("new")
    monkeypatch.setitem(DOWNLOADS, "email", (Download((tmp_path / "new").as_uri(), {"": "raw/old"}),))
    monkeypatch.setenv("FEDEPD_DATA", str(tmp_path))
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "old").write_text("old")
    assert "already" in fetch("email")
    assert (tmp_path / "raw" / "old").read_text() == "old"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/cora.npz", "http://no-such-host.invalid/cora.npz"])
def test_without_a_network_the_sentence_names_address_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setitem(DOWNLOADS, "corafull", (Download(url, {"": "raw/gnn_benchmark/cora_full.npz"}),))
    with pytest.raises(BadData) as caught:
        fetch("corafull", tmp_path)
    assert url in str(caught.value)
    assert str(tmp_path / "raw" / "gnn_benchmark" / "cora_full.npz") in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("file", "member"), [("x.gz", ""), ("x.zip", "a.csv")])
def test_damaged_download_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, member: str
) -> None:
    (tmp_path / file).write_bytes(b"<html>not found</html>")
    monkeypatch.setitem(DOWNLOADS, "arxiv", (Download((tmp_path / file).as_uri(), {member: "raw/a.csv"}),))
    with pytest.raises(BadData, match="cannot download"):
        fetch("arxiv", tmp_path / "data")
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_archive_without_the_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("other.csv", "1")
    monkeypatch.setitem(
        DOWNLOADS, "arxiv", (Download((tmp_path / "x.zip").as_uri(), {"a.csv": "raw/a.csv"}),)
    )
    with pytest.raises(BadData, match=r"a\.csv"):
        fetch("arxiv", tmp_path / "data")


@pytest.mark.parametrize("name", ["synthetic", "emial"])
def test_names_that_cannot_be_fetched(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName, match="email"):
        fetch(name, tmp_path)


@pytest.mark.hostile
def test_a_download_without_end_is_given_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed or not: 2 MB of zeros where 1 is allowed."""
    monkeypatch.setattr(fetching, "MAX_DOWNLOAD", 2**20)
    (tmp_path / "x.txt").write_bytes(bytes(2**21))
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2**21)))
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", bytes(2**21))
    for file, member in (("x.txt", ""), ("x.gz", ""), ("x.zip", "a.csv")):
        monkeypatch.setitem(
            DOWNLOADS, "arxiv", (Download((tmp_path / file).as_uri(), {member: "raw/a.csv"}),)
        )
        with pytest.raises(BadData, match="it has more than"):
            fetch("arxiv", tmp_path / "data")
        assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


@pytest.mark.hostile
@pytest.mark.parametrize("length", ["many", "-1", "1e9", "\x1b[31m"])
def test_a_server_that_lies_about_the_length(
    length: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer(io.BytesIO):
        headers: ClassVar = {"Content-Length": length}

    monkeypatch.setattr(fetching.urllib.request, "urlopen", lambda *_, **__: Answer(b"abc"))
    monkeypatch.setitem(DOWNLOADS, "arxiv", (Download("http://x.invalid/x.txt", {"": "raw/a.csv"}),))
    with pytest.raises(BadData, match="cannot download") as caught:
        fetch("arxiv", tmp_path / "data")
    assert "\x1b" not in str(caught.value)


@pytest.mark.hostile
def test_a_server_that_does_not_speak_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise http.client.BadStatusLine("\x1b[2J")

    monkeypatch.setattr(fetching.urllib.request, "urlopen", broken)
    monkeypatch.setitem(DOWNLOADS, "arxiv", (Download("http://x.invalid/x.txt", {"": "raw/a.csv"}),))
    with pytest.raises(BadData, match="cannot download") as caught:
        fetch("arxiv", tmp_path / "data")
    assert "\x1b" not in str(caught.value)
