"""Names of torch_geometric's datasets, and where their files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedepd
from fedepd.datasets import available
from fedepd.datasets.fetch import fetch, of_pyg
from fedepd.datasets.pyg import OUT, PREFIX, SOURCES, read_pyg, source_of
from fedepd.errors import BadConfig, BadData, UnknownName
from pyg_files import put_planetoid, raw


@pytest.mark.parametrize(
    "name", ["pyg:planetoid/PubMed", "pyg:Planetoid/pubmed", "pyg:", "pyg:Planetoid/../Cora", "pyg:\x1b[2J"]
)
def test_names_are_exact(tmp_path: Path, name: str) -> None:
    for call in (fedepd.load, fetch):
        with pytest.raises(UnknownName, match="unknown dataset of torch_geometric") as caught:
            call(name, tmp_path)
        assert "\x1b" not in str(caught.value)


def test_what_is_missing_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(
        BadData, match=r"put pyg/Reddit/raw/reddit_data\.npz there.*run 'fedepd data fetch pyg:Reddit'"
    ):
        read_pyg("pyg:Reddit", tmp_path)


def test_what_is_there_is_listed(tmp_path: Path) -> None:
    put_planetoid(raw(tmp_path, "Planetoid", "Cora"), "cora", [5, 3, 4])
    listed = [row.name for row in available(tmp_path) if row.name.startswith(PREFIX)]
    assert listed == ["pyg:Planetoid/Cora"]


def test_a_download_lies_where_it_is_read(tmp_path: Path) -> None:
    for name, source in SOURCES.items():
        if source.by_hand:
            continue
        targets = [path for download in of_pyg(name) for path in download.files.values()]
        assert sorted(targets) == sorted(source.files)
        assert all(download.url.startswith("https://") for download in of_pyg(name))
    assert [each.files for each in of_pyg("pyg:Reddit")] == [
        {file: f"pyg/Reddit/raw/{file}" for file in ("reddit_data.npz", "reddit_graph.npz")}
    ]
    assert fetch_is_quiet(tmp_path)


def fetch_is_quiet(folder: Path) -> bool:
    """Nothing is downloaded where everything is there."""
    put_planetoid(raw(folder, "Planetoid", "Cora"), "cora", [5, 3, 4])
    return "all files are already in" in fetch("pyg:Planetoid/Cora", folder)


LOWER = ("CitationFull", "WebKB", "Amazon", "Airports", "AttributedGraphDataset", "LINKXDataset")
"""Classes whose folders have the name in small letters."""


def test_files_lie_as_torch_geometric_lays_them(tmp_path: Path) -> None:
    """Its own classes say where their raw files are. None of them is made, so nothing is downloaded."""
    datasets = pytest.importorskip("torch_geometric.datasets")
    for name, source in SOURCES.items():
        kind, _, own = name.removeprefix(PREFIX).partition("/")
        cls = getattr(datasets, kind)
        made = cls.__new__(cls)
        made.root, made.split, made.geom_gcn_preprocess = str(tmp_path / "pyg" / kind), "public", True
        made.name = {"HeterophilousGraphDataset": own.lower().replace("-", "_")}.get(kind, own)
        made.name = own.lower() if kind in LOWER else made.name
        made.name = "cora" if kind == "CoraFull" else made.name
        if kind == "DGraphFin":  # its file is packed, and lies beside what comes out of it
            assert Path(made.raw_dir) == tmp_path / source.folder
            continue
        names = [made.raw_file_names] if isinstance(made.raw_file_names, str) else made.raw_file_names
        assert Path(made.raw_dir) == tmp_path / source.folder, name
        assert set(source.urls) <= set(names), name
        assert source_of(name) is source


def test_what_a_person_must_ask_for(tmp_path: Path) -> None:
    """Reading and fetching both say where."""
    with pytest.raises(BadData, match=r"or get it at https://dgraph\.xinye\.com"):
        read_pyg("pyg:DGraphFin", tmp_path)
    with pytest.raises(BadData, match=r"only be had by a person at .* put pyg/DGraphFin/raw/dgraphfin\.npz"):
        fetch("pyg:DGraphFin", tmp_path)


@pytest.mark.parametrize("call", [fedepd.load, fetch])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pyg:Yelp", "several classes each"),
        ("pyg:LINKXDataset/wiki", "pickles"),
        ("pyg:GemsecDeezer/HU", "several classes each"),
        ("pyg:AttributedGraphDataset/PPI", "several classes each"),
        ("pyg:MixHopSyntheticDataset/0.0", "a pickle of the oldest kind"),
    ],
)
def test_what_is_not_read_says_why(tmp_path: Path, call: Any, name: str, reason: str) -> None:
    with pytest.raises(BadConfig, match=f"'{name}' of torch_geometric is not read: .*{reason}.*; a graph of"):
        call(name, tmp_path)


def test_every_class_is_in_or_out_or_has_no_classes_of_nodes() -> None:
    """What torch_geometric calls a dataset of one kind of node, but for those of the last set."""
    datasets = pytest.importorskip("torch_geometric.datasets")
    named = {name.removeprefix(PREFIX).partition("/")[0] for name in (*SOURCES, *OUT)}
    assert set(datasets.homo_datasets) - named <= OTHER_TASKS
    assert not {name.removeprefix(PREFIX) for name in SOURCES} & OUT.keys()


OTHER_TASKS = {
    *("QM7b", "QM9", "MD17", "ZINC", "AQSOL", "MoleculeNet", "PCQM4Mv2", "HydroNet", "OMDB", "GitMolDataset"),
    *("MoleculeGPTDataset", "InstructMolDataset", "ProteinMPNNDataset", "BrcaTcga", "NeuroGraphDataset"),
    *("RelLinkPredDataset", "WordNet18", "WordNet18RR", "FB15k_237", "Wikidata5M", "ICEWS18", "GDELT"),
    *("GDELTLite", "GEDDataset", "MNISTSuperpixels", "FAUST", "DynamicFAUST", "ShapeNet", "ModelNet", "CoMA"),
    *("MedShapeNet", "SHREC2016", "TOSCA", "PCPNetDataset", "S3DIS", "GeometricShapes", "Teeth3DS"),
    *("WILLOWObjectClass", "PascalVOCKeypoints", "PascalPF", "AirfRANS", "WebQSPDataset", "CWQDataset"),
}
"""Molecules, shapes, pictures, links of knowledge, and questions: no graph whose nodes have classes."""
