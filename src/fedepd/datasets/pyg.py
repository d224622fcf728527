"""Node datasets of torch_geometric by name, from its raw files: ``pyg:Planetoid/PubMed``, ``pyg:Reddit``.

The files lie in the data folder as torch_geometric leaves them: ``pyg/CLASS`` is the ``root`` that its class
was given, so a folder that it made can be put or linked there. Its processed files (``.pt``) are pickles and
are never opened. torch_geometric itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedepd.datasets.official import read_gnn_benchmark, read_heterophilous
from fedepd.datasets.pyg_readers import (
    EDGES,
    ELLIPTIC,
    NODES,
    read_airports,
    read_attributed,
    read_dgraph,
    read_elliptic,
    read_email_eu,
    read_facebook100,
    read_genius,
    read_geom,
    read_musae,
    read_nell,
    read_planetoid,
    read_polblogs,
    read_reddit,
    read_saint,
    read_wikics,
)
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.shown import shown
from fedepd.types import Graph

PREFIX = "pyg:"
GITHUB = "https://github.com"
GEOM = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data"
MUSAE = "https://graphmining.ai/datasets/ptg"
PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True)
class Source:
    """Where a dataset's raw files are, and who reads them."""

    folder: str
    """The folder of the raw files below the data folder."""
    urls: Mapping[str, str]
    """File -> where torch_geometric gets it. What stands after # is its name in an archive."""
    read: Callable[[Path, str], Graph]
    """From the folder and the graph's name."""
    by_hand: str = ""
    """Where a person must ask for the files. Then they have no other address."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files below the data folder."""
        return tuple(f"{self.folder}/{file}" for file in self.urls)


def read_pyg(name: str, data_dir: Path) -> Graph:
    """One of ``SOURCES`` from its raw files.

    Raises:
        UnknownName: There is no such name. Names are as torch_geometric spells them.
        BadData: A file is missing or cannot be used.
    """
    source = source_of(name)
    if missing := [file for file in source.files if not (data_dir / file).is_file()]:
        or_fetch = f"get it at {source.by_hand}" if source.by_hand else f"run 'fedepd data fetch {name}'"
        raise BadData(
            f"dataset '{name}' is not in '{data_dir}'; put {missing[0]} there, as torch_geometric leaves it, "
            f"or {or_fetch}"
        )
    return source.read(data_dir / source.folder, name)


def source_of(name: str) -> Source:
    """The source of a name that begins with ``pyg:``."""
    if name not in SOURCES:
        kind = name.removeprefix(PREFIX)
        if reason := OUT.get(kind, OUT.get(kind.partition("/")[0])):
            raise BadConfig(f"'{shown(name)}' of torch_geometric is not read: {reason}; {OTHERWISE}")
        raise UnknownName("dataset of torch_geometric", shown(name), SOURCES)
    return SOURCES[name]


# --- the table ----------------------------------------------------------------------------------------------


def _npz(file: str, url: str, read: Callable[[Path, str], Graph], *folder: str) -> Source:
    def of_file(raw: Path, name: str) -> Graph:
        return read(raw / file, name)

    return Source("/".join(("pyg", *folder, "raw")), {file: url}, of_file)


def _planetoid(name: str) -> Source:
    base = f"{GITHUB}/kimiyoung/planetoid/raw/master/data"
    files = [f"ind.{name.lower()}.{part}" for part in PLANETOID]
    return Source(f"pyg/Planetoid/{name}/raw", {file: f"{base}/{file}" for file in files}, read_planetoid)


def _shchur(kind: str, name: str, file: str) -> Source:
    return _npz(
        file, f"{GITHUB}/shchur/gnn-benchmark/raw/master/data/npz/{file}", read_gnn_benchmark, kind, name
    )


def _citation(kind: str, name: str) -> Source:
    url = f"{GITHUB}/abojchevski/graph2gauss/raw/master/data/{name}.npz"
    return _npz(f"{name}.npz", url, read_gnn_benchmark, kind, name)


def _heterophilous(name: str) -> Source:
    url = f"{GITHUB}/yandex-research/heterophilous-graphs/raw/main/data/{name}.npz"
    return _npz(f"{name}.npz", url, read_heterophilous, "HeterophilousGraphDataset", name)


def _geom(kind: str, name: str, *folder: str, listed: bool = False) -> Source:
    place = "/".join(("pyg", kind, *folder, "raw"))
    return Source(
        place, {file: f"{GEOM}/{name}/{file}" for file in (NODES, EDGES)}, partial(read_geom, listed)
    )


def _saint(kind: str, *ids: str) -> Source:
    files = zip(("adj_full.npz", "feats.npy", "class_map.json"), ids, strict=True)
    return Source(f"pyg/{kind}/raw", {file: DRIVE.format(id) for file, id in files}, read_saint)


def _airports(name: str) -> Source:
    urls = {
        file: f"{STRUC2VEC}/{file}" for file in (f"labels-{name}-airports.txt", f"{name}-airports.edgelist")
    }
    return Source(f"pyg/Airports/{name}/raw", urls, read_airports)


def _attributed(name: str, id: str) -> Source:
    urls = {file: f"{DRIVE.format(id)}#{name}.attr/{file}" for file in ATTRIBUTED}
    return Source(f"pyg/AttributedGraphDataset/{name}/raw", urls, read_attributed)


def _linkx(name: str, file: str, read: Callable[[Path, str], Graph]) -> Source:
    return Source(f"pyg/LINKXDataset/{name}/raw", {"data.mat": f"{LINKX}/{file}"}, read)


def _musae(kind: str, file: str, *folder: str) -> Source:
    url = f"{MUSAE}/{'twitch/' if folder else ''}{file}"
    return Source("/".join(("pyg", kind, *folder, "raw")), {file: url}, partial(read_musae, file))


REDDIT = "https://data.dgl.ai/dataset/reddit.zip"
WIKICS = f"{GITHUB}/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json"
DRIVE = "https://drive.usercontent.google.com/download?id={}&confirm=t"
STRUC2VEC = f"{GITHUB}/leoribeiro/struc2vec/raw/master/graph"
LINKX = f"{GITHUB}/CUAI/Non-Homophily-Large-Scale/raw/master/data"
SNAP = "https://snap.stanford.edu/data"
POLBLOGS = "https://netset.telecom-paris.fr/datasets/polblogs.tar.gz"
NELL = "https://www.cs.cmu.edu/~zhiliny/data/nell_data.tar.gz"
ATTRIBUTED = ("attrs.npz", "edgelist.txt", "labels.txt")
SOURCES: dict[str, Source] = {
    PREFIX + name: source
    for name, source in {
        **{f"Planetoid/{name}": _planetoid(name) for name in ("Cora", "CiteSeer", "PubMed")},
        "Coauthor/CS": _shchur("Coauthor", "CS", "ms_academic_cs.npz"),
        "Coauthor/Physics": _shchur("Coauthor", "Physics", "ms_academic_phy.npz"),
        "Amazon/Computers": _shchur("Amazon", "Computers", "amazon_electronics_computers.npz"),
        "Amazon/Photo": _shchur("Amazon", "Photo", "amazon_electronics_photo.npz"),
        **{
            f"CitationFull/{name}": _citation("CitationFull", name.lower())
            for name in ("Cora", "Cora_ML", "CiteSeer", "DBLP", "PubMed")
        },
        "CoraFull": _citation("CoraFull", "cora"),
        "Reddit": Source(
            "pyg/Reddit/raw",
            {f: f"{REDDIT}#{f}" for f in ("reddit_data.npz", "reddit_graph.npz")},
            read_reddit,
        ),
        "Reddit2": _saint(
            "Reddit2",
            "1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
        ),
        "Flickr": _saint(
            "Flickr",
            "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
        ),
        **{f"Airports/{name}": _airports(name.lower()) for name in ("USA", "Brazil", "Europe")},
        "PolBlogs": Source(
            "pyg/PolBlogs/raw", {f: f"{POLBLOGS}#{f}" for f in ("adjacency.tsv", "labels.tsv")}, read_polblogs
        ),
        "EmailEUCore": Source(
            "pyg/EmailEUCore/raw",
            {f"email-Eu-core{f}.txt": f"{SNAP}/email-Eu-core{f}.txt.gz" for f in ("", "-department-labels")},
            read_email_eu,
        ),
        "NELL": Source(
            "pyg/NELL/raw",
            {f"ind.nell.0.001.{f}": f"{NELL}#nell_data/ind.nell.0.001.{f}" for f in PLANETOID},
            read_nell,
        ),
        **{
            f"AttributedGraphDataset/{name}": _attributed(name.lower(), id)
            for name, id in {
                "Wiki": "1EPhlbziZTQv19OsTrKrAJwsElbVPEbiV",
                "Cora": "1FyVnpdsTT-lhkVPotUW8OVeuCi1vi3Ey",
                "CiteSeer": "1d3uQIpHiemWJPgLgTafi70RFYye7hoCp",
                "PubMed": "1DOK3FfslyJoGXUSCSrK5lzdyLfIwOz6k",
                "BlogCatalog": "178PqGqh67RUYMMP6-SoRHDoIBh8ku5FS",
                "Flickr": "1tZp3EB20fAC27SYWwa-x66_8uGsuU62X",
                "TWeibo": "1-2xHDPFCsuBuFdQN_7GLleWa8R_t50qU",
            }.items()
        },
        **{
            f"LINKXDataset/{name}": _linkx(name, f"facebook100/{file}.mat", read_facebook100)
            for name, file in {
                "penn94": "Penn94",
                "reed98": "Reed98",
                "amherst41": "Amherst41",
                "cornell5": "Cornell5",
                "johnshopkins55": "Johns%20Hopkins55",
            }.items()
        },
        "LINKXDataset/genius": _linkx("genius", "genius.mat", read_genius),
        "EllipticBitcoinDataset": Source(
            "pyg/EllipticBitcoinDataset/raw",
            {file: f"https://data.pyg.org/datasets/elliptic/{file}.zip#{file}" for file in ELLIPTIC},
            read_elliptic,
        ),
        "DGraphFin": Source(
            "pyg/DGraphFin/raw", {"dgraphfin.npz": ""}, read_dgraph, by_hand="https://dgraph.xinye.com"
        ),
        "WikiCS": Source("pyg/WikiCS/raw", {"data.json": WIKICS}, read_wikics),
        **{
            f"HeterophilousGraphDataset/{name}": _heterophilous(name.lower().replace("-", "_"))
            for name in ("Roman-empire", "Amazon-ratings", "Minesweeper", "Tolokers", "Questions")
        },
        "Actor": _geom("Actor", "film", listed=True),
        **{
            f"WebKB/{name}": _geom("WebKB", name.lower(), name.lower())
            for name in ("Cornell", "Texas", "Wisconsin")
        },
        **{
            f"WikipediaNetwork/{name}": _geom("WikipediaNetwork", name, name, "geom_gcn")
            for name in ("chameleon", "squirrel")
        },
        **{
            f"Twitch/{name}": _musae("Twitch", f"{name}.npz", name)
            for name in ("DE", "EN", "ES", "FR", "PT", "RU")
        },
        "LastFMAsia": _musae("LastFMAsia", "lastfm_asia.npz"),
        "FacebookPagePage": _musae("FacebookPagePage", "facebook.npz"),
        "GitHub": _musae("GitHub", "github.npz"),
        "DeezerEurope": _musae("DeezerEurope", "deezer_europe.npz"),
    }.items()
}
"""The datasets by name: the class of torch_geometric, and the name that it is given, if any."""

OTHERWISE = "a graph of your own comes in by 'fedepd data import'"
SEVERAL = "its nodes have several classes each, and fedepd needs one"
KINDS = "it has nodes of several kinds"
MANY = "it has many graphs, each with a class or classes of its own"
NO_CLASSES = "its nodes have no classes"
MADE = "it has no files, because torch_geometric makes it"
PT = "its raw files are pickles (.pt)"
OUT: dict[str, str] = {
    **dict.fromkeys(("Yelp", "AmazonProducts", "GemsecDeezer", "PPI"), SEVERAL),
    **dict.fromkeys(
        (f"AttributedGraphDataset/{name}" for name in ("PPI", "Facebook", "Twitter", "MAG")), SEVERAL
    ),
    **dict.fromkeys(("CityNetwork", "LINKXDataset/wiki"), PT),
    "MixHopSyntheticDataset": "its edges are a pickle of the oldest kind, which holds objects of numpy",
    "WikipediaNetwork/crocodile": "what is to be predicted is an amount, not a class",
    "GraphLandDataset": "its features are fitted to its own training set, but its tables can be imported",
    "EllipticBitcoinTemporalDataset": "it is one step of time of pyg:EllipticBitcoinDataset",
    "Entities": "its edges are statements of many kinds, and its nodes have no features",
    "TAGDataset": "its features are made by a language model",
    "KarateClub": "it has 34 nodes, too few to be divided among clients",
    **dict.fromkeys(
        ("OGB_MAG", "DBLP", "IMDB", "AMiner", "HGBDataset", "RCDD", "MovieLens", "LastFM", "Taobao"), KINDS
    ),
    **dict.fromkeys(("TUDataset", "GNNBenchmarkDataset", "LRGBDataset", "UPFD", "MalNetTiny"), MANY),
    **dict.fromkeys(
        ("SNAPDataset", "SuiteSparseMatrixCollection", "JODIEDataset", "MyketDataset", "BitcoinOTC"),
        NO_CLASSES,
    ),
    **dict.fromkeys(
        ("BAShapes", "FakeDataset", "StochasticBlockModelDataset", "RandomPartitionGraphDataset"), MADE
    ),
    **dict.fromkeys(("ExplainerDataset", "InfectionDataset"), MADE),
}
"""Why the other node datasets of torch_geometric are not read, by class or by class and name."""
