"""The only code that downloads. It fetches official raw files from where their authors published them."""

from __future__ import annotations

import gzip
import os
import tarfile
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, cast

from fedepd.arrays import reason
from fedepd.datasets.folder import data_folder
from fedepd.datasets.official import AMAZON, ARXIV_FILES
from fedepd.datasets.pyg import PREFIX, source_of
from fedepd.errors import BadData, UnknownName
from fedepd.files import DAMAGE, swapped_in

MAX_DOWNLOAD = 4 * 2**30
"""Largest size of one file in bytes, packed or not.

The largest of the six datasets has a third of a gigabyte.
"""
TIMEOUT = 60
"""Seconds without a byte after which a download fails."""

HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
# Commits instead of branches, because the files are known to exist at these commits.
RAW_GITHUB = "https://raw.githubusercontent.com"
GPN = f"{RAW_GITHUB}/kaize0409/GPN_Graph-Few-shot/916034b9caa6f0c90d42daa18c213931fb815b6a/few_shot_data"
TAIL_GNN = f"{RAW_GITHUB}/shuaiOKshuai/Tail-GNN/3289bd5628269b72fb948e9f55c5c29a733ae02e/dataset/email"


@dataclass(frozen=True)
class Download:
    """One address, and the files in the data folder that come out of it."""

    url: str
    files: Mapping[str, str]
    """From a member of the archive to a path in the data folder. The member of any other file is ''."""


def _one(url: str, path: str) -> Download:
    return Download(url, {"": path})


def _amazon(name: str) -> tuple[Download, ...]:
    # Choice: the authors' code reads these six files from this folder. The listing that we could see lacks
    # both train.mat files and the test.mat of electronics, so their addresses are not verified.
    files = [f"{AMAZON[name]}_{part}" for part in ("network", "train.mat", "test.mat")]
    return tuple(_one(f"{GPN}/{file}", f"raw/amazon_gpn/{file}") for file in files)


DOWNLOADS: dict[str, tuple[Download, ...]] = {
    # Despite its name, this file is CoraFull. torch_geometric fetches the same file.
    "corafull": (
        _one(
            "https://github.com/abojchevski/graph2gauss/raw/master/data/cora.npz",
            "raw/gnn_benchmark/cora_full.npz",
        ),
    ),
    "arxiv": (
        Download(
            "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            {f"arxiv/raw/{file}": f"raw/ogbn_arxiv/{file}" for file in ARXIV_FILES},
        ),
    ),
    "electronics": _amazon("electronics"),
    "clothing": _amazon("clothing"),
    "roman_empire": (_one(f"{HETEROPHILOUS}/roman_empire.npz", "raw/heterophilous/roman_empire.npz"),),
    # Choice: edges and departments come from SNAP, features from Tail-GNN. Tail-GNN republishes SNAP's two
    # files under the names used here. We have not verified that the two publications agree line for line.
    "email": (
        _one("https://snap.stanford.edu/data/email-Eu-core.txt.gz", "raw/email/edges.txt"),
        _one("https://snap.stanford.edu/data/email-Eu-core-department-labels.txt.gz", "raw/email/labels.txt"),
        _one(f"{TAIL_GNN}/graph.embeddings", "raw/email/graph.embeddings"),
    ),
}


def of_pyg(name: str) -> tuple[Download, ...]:
    """What to download for a dataset of torch_geometric. It lies as that package would leave it."""
    source = source_of(name)
    if source.by_hand:
        raise BadData(
            f"'{name}' can only be had by a person at {source.by_hand}; put {', '.join(source.files)} "
            f"into the data folder"
        )
    members: dict[str, dict[str, str]] = {}
    for file, address in source.urls.items():
        url, _, member = address.partition("#")
        members.setdefault(url, {})[member] = f"{source.folder}/{file}"
    return tuple(Download(url, files) for url, files in members.items())


def fetch(name: str, data_dir: str | Path | None = None) -> str:
    """Download the missing files of an official dataset. Returns a sentence that says what was fetched.

    Files that are already there are kept.
    """
    if name not in DOWNLOADS and not name.startswith(PREFIX):
        raise UnknownName("dataset to fetch", name, DOWNLOADS)
    downloads = of_pyg(name) if name.startswith(PREFIX) else DOWNLOADS[name]
    folder = data_folder(data_dir)
    fetched = []
    for download in downloads:
        targets = {member: folder / path for member, path in download.files.items()}
        if not all(path.is_file() for path in targets.values()):
            _download(download.url, targets)
            fetched += [path.name for path in targets.values()]
    if not fetched:
        return f"{name}: all files are already in '{folder}'"
    return f"{name}: fetched {', '.join(fetched)} into '{folder}'"


def _download(url: str, targets: Mapping[str, Path]) -> None:
    folder = next(iter(targets.values())).parent
    archive = folder / f".download.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response, archive.open("wb") as file:
            _copy(response, file)
            expected = response.headers.get("Content-Length")
        if expected is not None and archive.stat().st_size != int(expected):
            raise OSError(f"got {archive.stat().st_size} of {expected} bytes")
        _unpack(archive, url, targets)
    except (*DAMAGE, tarfile.TarError, HTTPException) as error:
        places = ", ".join(f"'{path}'" for path in targets.values())
        cure = f"download it on a machine with a network and put it at {places}"
        raise BadData(f"cannot download {url} ({reason(error)}); {cure}") from None
    finally:
        archive.unlink(missing_ok=True)


def _unpack(archive: Path, url: str, targets: Mapping[str, Path]) -> None:
    """Write each target whole or not at all."""
    for member, path in targets.items():
        if member and zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped, zipped.open(member) as source:
                _write(source, path)
        elif member:
            _write_from_tar(archive, member, path)
        elif url.endswith(".gz"):
            with gzip.open(archive) as source:
                _write(source, path)
        else:
            with archive.open("rb") as source:
                _write(source, path)


def _write_from_tar(archive: Path, member: str, path: Path) -> None:
    """Nothing else of the archive is unpacked, and a link is no file."""
    with tarfile.open(archive) as packed:
        for each in packed:
            if each.offset_data + each.size > MAX_DOWNLOAD:
                raise OSError(f"it has more than {MAX_DOWNLOAD // 2**30} GB")
            if each.isfile() and each.name.removeprefix("./") == member:
                with cast(IO[bytes], packed.extractfile(each)) as source:
                    return _write(source, path)
    raise OSError(f"it holds no file '{member}'")


def _copy(source: Any, target: IO[bytes]) -> None:
    """Copy a stream of at most ``MAX_DOWNLOAD`` bytes.

    Neither a server nor a packed file can fill the disk.
    """
    left = MAX_DOWNLOAD
    while part := source.read(2**20):
        left -= len(part)
        if left < 0:
            raise OSError(f"it has more than {MAX_DOWNLOAD // 2**30} GB")
        target.write(part)


def _write(source: IO[bytes] | gzip.GzipFile, path: Path) -> None:
    with swapped_in(path) as file:
        _copy(source, file)
