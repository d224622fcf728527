"""Every format that comes from outside.

What its bytes are like, and the reader that must take them or refuse them.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Read = Callable[[bytes, Path], object]


class Format(NamedTuple):
    kind: str
    """What ``mutate`` may know of it."""
    read: Read
    """The content and an empty folder -> anything; whatever it raises but a refusal is a crash."""


def _file(name: str, read: Callable[[Path], object]) -> Read:
    def write_and_read(content: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return write_and_read


# --- graphs -------------------------------------------------------------------------------------------------


def _graph(path: Path) -> object:
    """Whatever the reader lets through, the doctor must be able to look over."""
    from fedepd.clients.doctor import check
    from fedepd.datasets import describe, read_npz

    graph = read_npz(path)
    return describe(graph), check(graph)


def _packed(content: bytes, folder: Path) -> object:
    """A folder of mapped arrays. Hashes are made to fit, so that changes pass them and meet what follows."""
    _unfold(content, folder / "graph")
    table = folder / "graph" / "graph.json"
    try:
        rows = json.loads(table.read_bytes())
        for name, row in rows["arrays"].items():
            row["sha256"] = hashlib.sha256((table.parent / f"{name}.npy").read_bytes()).hexdigest()
        table.write_text(json.dumps(rows))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    return _graph(folder / "graph")


def _unlabelled(path: Path) -> object:
    from fedepd.datasets.npz import read_unlabelled

    return read_unlabelled(path, 3)


def _client(path: Path) -> object:
    from fedepd.clients.client_file import read_file
    from fedepd.clients.scaling import scaled_together
    from fedepd.clients.split import SplitConfig

    return scaled_together([read_file(path)])[0].client(0, SplitConfig(), 0)


def _clients(content: bytes, folder: Path) -> object:
    from fedepd.clients.clients_dir import joined, read_clients

    _unfold(content, folder / "clients")
    clients = read_clients(folder / "clients")
    return joined(clients)


NODES = b"id,label,site,age,kind\na,good,N,1,x\nb,bad,S,2,y\nc,,N,3,x\nd,good,S,6,y\n"
EDGES = b"source,target\na,b\nb,c\nc,d\n"
REAL_NODES = (
    b"id;label;site;age;balance;opened;kind\na;good;N;1;1.234,5;2025-01-31;x\n"
    b"b;bad;S;n/a;-2,5;01.02.2025;\nc;;N;3;;;x\nd;good;S;6;7;2025-01-01 10:30;y\n"
)
REAL_EDGES = b"from,to,amount\na,b,3.5\nb,zz,\nc,d,7\nzz,yy,1\n"


def _real_tables(role: str) -> Read:
    """The same with gaps, dates, decimal commas, amounts and unknown ends."""

    def read(content: bytes, folder: Path) -> object:
        from fedepd.datasets.schema import FeatureSchema
        from fedepd.datasets.sources import read_sources
        from fedepd.datasets.suggest import suggested
        from fedepd.datasets.tables import Roles, import_files, new_graph

        nodes, edges = folder / "nodes.csv", folder / "edges.csv"
        nodes.write_bytes(content if role == "nodes" else REAL_NODES)
        edges.write_bytes(content if role == "edges" else REAL_EDGES)
        roles = Roles(
            owner="site", one_hot=True, scale=True, impute="median", decimal=",", missing=("-999",),
            dates=True, date_parts=("age", "month", "weekday"), edge_features=True, unknown_ends="external",
            split_by="opened",
        )  # fmt: skip
        suggested(nodes, edges, roles)
        graph, _ = import_files(nodes, edges, roles)
        schema = FeatureSchema.from_json(graph.schema)
        return new_graph(read_sources(nodes, ","), read_sources(edges, ","), schema, graph.num_classes)

    return read


def _tables(nodes: str, edges: str, role: str) -> Read:
    """One of the two tables is foreign, the other is sound."""

    def read(content: bytes, folder: Path) -> object:
        from fedepd.datasets.tables import Roles, import_files

        sound = {"nodes": NODES, "edges": EDGES}
        for what, name in (("nodes", nodes), ("edges", edges)):
            (folder / name).write_bytes(content if what == role else sound[what])
        return import_files(folder / nodes, folder / edges, Roles(owner="site", one_hot=True, scale=True))

    return read


def _graphml(path: Path) -> object:
    from fedepd.datasets.interop import import_graphml
    from fedepd.datasets.tables import Roles

    return import_graphml(path, Roles(one_hot=True))


def _tensors(path: Path) -> object:
    from fedepd.datasets.interop import import_pyg

    return import_pyg(path)


def _matrix(path: Path) -> object:
    from fedepd.datasets.interop import read_features

    return read_features(path)


def _labels(path: Path) -> object:
    from fedepd.datasets.interop import import_matrices

    np.savez(path.parent / "a.npz", x=np.eye(4))
    np.save(path.parent / "x.npy", np.eye(4))
    return import_matrices(path.parent / "a.npz", path.parent / "x.npy", path)


def _mat(path: Path) -> object:
    from fedepd.datasets.official import read_mat

    return read_mat(path)


def _inert(path: Path) -> object:
    from fedepd.datasets.inert import read_inert

    return read_inert(path)


def _pyg(content: bytes, folder: Path) -> object:
    """Raw files of torch_geometric's datasets; every dataset that is whole is read."""
    from fedepd.datasets.pyg import SOURCES, read_pyg
    from fedepd.errors import FedEPDError

    _unfold(content, folder)
    found: list[object] = []
    for name, source in SOURCES.items():
        if all((folder / file).is_file() for file in source.files):
            try:
                found.append(read_pyg(name, folder))
            except FedEPDError as refusal:
                if "\n" in str(refusal):
                    raise
                found.append(refusal)
    return found


def _numbers(path: Path) -> object:
    from fedepd.datasets.official import read_numbers

    return read_numbers(path, np.int64, columns=2)


def _schema(content: bytes, folder: Path) -> object:
    from fedepd.datasets.columns import Table, list_column
    from fedepd.datasets.edges import find_ends
    from fedepd.datasets.tables import FeatureSchema, Roles

    schema = FeatureSchema.from_json(content.decode("utf-8", "surrogateescape"))
    cells = {
        rule.column: ["2025-01-31", "1.2.2025"] if rule.made else [1.0, 2.0]
        for rule in schema.rules
        if rule.column
    }
    nodes = Table("nodes", {name: list_column(each) for name, each in cells.items()}, 2)
    links = {rule.of: list_column([1.0, 2.0]) for rule in schema.rules if not rule.column and rule.of}
    ends = {"from": list_column(["a", "b"]), "to": list_column(["b", "z"])}
    edges = Table("edges", {**ends, **links}, 2)
    return schema.apply(nodes, find_ends(edges, ["a", "b"], Roles(unknown_ends="external")))


# --- settings, runs, models ---------------------------------------------------------------------------------


def _settings(path: Path) -> object:
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.settings import read_toml

    settings = read_toml(path)
    return Experiment.make(
        str(settings.pop("method", "fedepd")), str(settings.pop("preset", "default")), **settings
    )


def _scores(content: bytes, folder: Path) -> object:
    """Kept scores, as a study reads them. The version is made to fit, so that changes meet what follows."""
    from fedepd.reproduction.study.kept_run import kept_run
    from fedepd.reproduction.study.scores_file import as_text, read_scores, this_version

    current = f"of fedepd {this_version()}\n".encode()
    (folder / "kept.csv").write_bytes(content.replace(b"of fedepd 0.1.0\n", current, 1))
    lines = read_scores(folder / "kept.csv")
    config: Any = dict.fromkeys(("method", "method_label", "preset", "config_hash", "protocol"), "fedavg")
    config |= {"seed": 0, "rounds": 10, "has_global": True, "dataset": {"name": "g", "proxy_features": False}}
    config |= {"experiment": {"protocol": {"select": "val_acc"}}}
    runs = [_taken(partial(kept_run, line, folder, config, "kept.csv")) for line in lines.values()]
    return as_text(lines), runs


def _plan(path: Path) -> object:
    """A plan, as an owner sees it before it trusts the coordinator."""
    from fedepd.deploy.plan import read_plan
    from fedepd.deploy.plan_task import plan_task

    plan = read_plan(path)
    return plan_task(plan, plan.task, [f"site-{k}" for k in range(max(3, plan.min_sites))])


def _unfold(content: bytes, folder: Path) -> None:
    """A folder's files from one JSON table of names and base64.

    Names stay inside, whatever the mutator made of them.
    """
    try:
        files = {str(name): base64.b64decode(text) for name, text in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        files = {}
    for name, data in files.items():
        path = folder / name
        if ".." not in name and "\0" not in name and not name.startswith("/") and len(name) < 80:
            with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):  # a name is also a folder
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    folder.mkdir(exist_ok=True)


def _run(content: bytes, folder: Path) -> object:
    """What ``fedepd report`` and ``fedepd resume`` read of a run folder."""
    from fedepd.report.runs import read_runs
    from fedepd.report.tables import rich_table
    from fedepd.runs.resume import experiment_of, read_config

    _unfold(content, folder / "run")
    (run,) = read_runs(folder / "run")
    found = [
        run.env,
        run.clients,
        run.rounds,
        run.confusions,
        run.calibration,
        run.partition,
        rich_table([run]),
    ]
    return found, experiment_of(read_config(folder / "run"))


def _model(content: bytes, folder: Path) -> object:
    from fedepd.model.model import load_model

    _unfold(content, folder / "model")
    model = load_model(folder / "model")
    return model.predict(_small_graph(model.info.num_features))


@cache
def _small_graph(features: int) -> Any:
    import torch

    from fedepd.types import Graph

    return Graph.make(
        torch.ones(4, max(1, min(features, 1000))), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 2, 0])
    )


def _checkpoint(path: Path) -> object:
    """The checksum in front is made to fit: a stranger can make one too."""
    from fedepd.runs import checkpoint

    content = path.read_bytes()
    path.write_bytes(hashlib.sha256(content).digest() + content)
    return checkpoint.load(path, "0123456789ab")


def _kit(content: bytes, folder: Path) -> object:
    """``federation.json`` of a kit, after its signature was found right."""
    from fedepd import files
    from fedepd.deploy import about

    (folder / "local").mkdir()
    (folder / "local" / "federation.json").write_bytes(content)
    about.check_about(files.read_json(folder / "local" / "federation.json"), "federation.json")
    return None


# --- messages -----------------------------------------------------------------------------------------------

KNOWN = {"round": 1, "num_classes": 3, "has_global": True, "most_nodes": 10_000}
"""What the reading side knows by itself, by the names of the readers' parameters."""


def _message(reader: str) -> Read:
    """A record as JSON: an array is ``{"array": [type, shape, base64]}``."""

    def read(content: bytes, folder: Path) -> object:
        from fedepd.deploy import wire

        function: Any = getattr(wire, reader)
        wanted = [name for name in inspect.signature(function).parameters][1:]
        return function(as_record(content), **{name: KNOWN[name] for name in wanted if name in KNOWN})

    return read


def _sum(content: bytes, folder: Path) -> object:
    """A server's message of a secure sum, as a site reads it. Every part is read, whatever the first is."""
    from fedepd.deploy import sum_site, wire
    from fedepd.privacy.secure_sum import SEALED

    which, parts, _ = wire.read_sum(as_record(content))
    readers: list[Callable[[], object]] = [
        lambda: wire.sites_part(parts, "sites", 5),
        lambda: wire.sites_part(parts, "survivors", 5),
        lambda: wire.sites_part(parts, "members", 5),
        lambda: sum_site.read_adverts(parts, "adverts"),
        lambda: wire.bytes_part(parts, "sealed", SEALED),
        lambda: sum_site.used_round(parts, which),
        lambda: sum_site.following_sum(parts),
    ]
    return [_taken(read) for read in readers]


def _sum_answer(content: bytes, folder: Path) -> object:
    """A site's message of a secure sum, as the server reads it."""
    from fedepd.deploy import sum_site, wire
    from fedepd.privacy.secure_sum import OPENED_SHARES, SEALED

    parts = wire.read_sum_answer(as_record(content), wire.Sum("step", 1))
    readers: list[Callable[[], object]] = [
        lambda: sum_site.read_adverts(parts, "advert"),
        lambda: wire.sites_part(parts, "sites", 5),
        lambda: wire.bytes_part(parts, "sealed", SEALED),
        lambda: wire.bytes_part(parts, "opened", OPENED_SHARES),
    ]
    return [_taken(read) for read in readers]


def _taken(read: Callable[[], object]) -> object:
    from fedepd.deploy.wire import Refused
    from fedepd.errors import FedEPDError

    try:
        return read()
    except (FedEPDError, Refused) as refusal:
        return refusal


def _site_statistics(path: Path) -> object:
    """What a site remembers of the scaling, and would show its owner."""
    from fedepd.deploy.measured import measured_in_words, read_measured

    found = read_measured(path.parent)
    return found and measured_in_words(found)


def _run_statistics(path: Path) -> object:
    """The statistics in the summary of a run that was fetched."""
    from fedepd.files import read_json
    from fedepd.rounds.statistics import Statistics, in_words
    from fedepd.runs.folder import STATISTICS_FIELDS
    from fedepd.shapes import expect

    saved = read_json(path)
    expect(saved, STATISTICS_FIELDS, "the summary")
    return in_words(saved), Statistics.read(saved, "the summary").scaling


def _book(path: Path) -> object:
    """What a site remembers of its sums, as it is after a restart."""
    from fedepd.deploy.book import Book

    book = Book(path)
    return book.get("sizes of round 0"), book.differs("step of round 1", [0, 1, 2])


def as_record(content: bytes) -> Any:
    try:
        return _with_arrays(json.loads(content))
    except (ValueError, RecursionError):
        return content  # not a record at all


def _with_arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_arrays(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"array"}:
        return {key: _with_arrays(each) for key, each in value.items()}
    try:
        kind, shape, data = value["array"]
        return np.frombuffer(base64.b64decode(data), dtype=kind).reshape(shape)
    except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError):
        return value


FORMATS: dict[str, Format] = {
    "plan": Format("text", _file("task.toml", _plan)),
    "npz": Format("zip", _file("a.npz", _graph)),
    "npz-unlabelled": Format("zip", _file("a.npz", _unlabelled)),
    "client": Format("zip", _file("a.npz", _client)),
    "clients": Format("folder", _clients),
    "packed": Format("folder", _packed),
    "csv-nodes": Format("text", _tables("nodes.csv", "edges.csv", "nodes")),
    "csv-edges": Format("text", _tables("nodes.csv", "edges.csv", "edges")),
    "csv-real-nodes": Format("text", _real_tables("nodes")),
    "csv-real-edges": Format("text", _real_tables("edges")),
    "parquet": Format("bytes", _tables("nodes.parquet", "edges.csv", "nodes")),
    "graphml": Format("text", _file("a.graphml", _graphml)),
    "pt": Format("zip", _file("a.pt", _tensors)),
    "npy": Format("npy", _file("y.npy", _labels)),
    "npy-features": Format("npy", _file("a.npy", _matrix)),
    "scipy": Format("zip", _file("a.npz", _matrix)),
    "mat": Format("bytes", _file("a.mat", _mat)),
    "inert": Format("bytes", _file("ind.cora.x", _inert)),
    "pyg": Format("folder", _pyg),
    "numbers": Format("text", _file("edges.txt", _numbers)),
    "schema": Format("json", _schema),
    "toml": Format("text", _file("a.toml", _settings)),
    "scores": Format("text", _scores),
    "run": Format("folder", _run),
    "model": Format("folder", _model),
    "checkpoint": Format("safetensors", _file("checkpoint-000001", _checkpoint)),
    "kit": Format("json", _kit),
    "wire-message": Format("json", _message("read_message")),
    "wire-declaration": Format("json", _message("read_declaration")),
    "wire-reply": Format("json", _message("read_reply")),
    "wire-confusions": Format("json", _message("read_confusions")),
    "wire-sum": Format("json", _sum),
    "wire-sum-answer": Format("json", _sum_answer),
    "site-statistics": Format("json", _file("statistics.json", _site_statistics)),
    "run-statistics": Format("json", _file("statistics.json", _run_statistics)),
    "sums-book": Format("text", _file("r.sums.jsonl", _book)),
}


# --- the contract -------------------------------------------------------------------------------------------


def crash_of(name: str, content: bytes) -> str | None:
    """None if the reader takes or refuses the content as it should; else what went wrong, in a line."""
    from fedepd.deploy.wire import Refused
    from fedepd.errors import FedEPDError

    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        FORMATS[name].read(content, folder)
    except (FedEPDError, Refused) as refusal:
        return None if "\n" not in str(refusal) else "a refusal of more than one line"
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in place if "/fedepd/" in frame.filename] or place
        where = f"{Path(ours[-1].filename).name}:{ours[-1].name}"
        return f"{type(error).__name__} in {where}: {' '.join(str(error).split())[:120]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None
