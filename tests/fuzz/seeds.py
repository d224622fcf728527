"""One sound file for each format, from which all changes start.

``PYTHONPATH=src:tests python -m fuzz.seeds`` writes those that are not there yet.
"""

from __future__ import annotations

import base64
import io
import json
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.corpus import FOLDER, write_case
from fuzz.formats import EDGES, NODES, REAL_EDGES, REAL_NODES


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def dense(n: int = 4) -> dict[str, Any]:
    """A path of n nodes, two features, two classes."""
    nodes = np.arange(n)
    x = np.stack([nodes % 2, nodes], 1).astype(np.float32)
    return {"edge_index": np.stack([nodes[:-1], nodes[1:]]), "y": nodes % 2, "x": x}


def scores() -> bytes:
    """Kept scores of two cells: one with every model, one with personal models of one round alone."""
    from fedepd.reproduction.study.scores_file import COLUMNS

    rows = []
    for number in range(2):
        line = {name: "" if number and "personal" not in name else ".25" for name in COLUMNS}
        line |= {name: "4" for name, text in line.items() if text and name.endswith((".round", ".right"))}
        line |= {name: "" if number else text for name, text in line.items() if name.startswith("other.")}
        line |= {"other.global.round": "" if number else "6", "other.personal.round": "4" if number else "6"}
        line |= {"cell": f"{number:012x}", "method": "fedavg", "preset": "default", "dataset": "email"}
        line |= {"seed": "0", "clients": "3", "tested": "9", "bytes_up": "800", "bytes_down": "900"}
        line |= dict.fromkeys(("seconds", "cpu_seconds", "peak_rss_mb"), "1.25")
        line |= {"weights_sha256": "0123456789abcdef", "adapted_used": "" if number else "no"}
        line |= {"preferred": "personal" if number else "global"}
        rows.append(",".join(line.values()))
    return "\n".join(["# fedepd scores, format 1, of fedepd 0.1.0", ",".join(COLUMNS), *rows, ""]).encode()


def sparse() -> dict[str, Any]:
    parts = {
        "x_data": np.ones(4, np.float32),
        "x_indices": np.array([0, 1, 0, 1], np.int32),
        "x_indptr": np.array([0, 1, 2, 4, 4]),
    }
    names = {
        "owner": np.array([0, 0, 1, 1]),
        "owner_names": np.array(["N", "S"]),
        "node_ids": np.array(["a", "b", "c", "d"]),
    }
    graph = {name: array for name, array in dense().items() if name != "x"}
    return (
        graph
        | parts
        | names
        | {"x_shape": np.array([4, 2]), "label_names": np.array(["bad", "good"]), "num_classes": np.array(2)}
    )


SCHEMA = [
    {"name": "age", "mean": 3.0, "std": 1.5, "categories": None},
    {"name": "kind", "mean": 0.0, "std": 1.0, "categories": ["x", "y"]},
]
REAL_SCHEMA = [
    {**SCHEMA[0], "impute": "median", "fill": 4.0, "marked": True},
    {**SCHEMA[0], "name": "opened age", "made": "age", "of": "opened", "day": "2025-01-31", "impute": "mean"},
    {**SCHEMA[1], "name": "opened month", "categories": ["1", "2", ""], "made": "month", "of": "opened"},
    {**SCHEMA[0], "name": "in amount sum", "made": "in sum", "of": "amount"},
    {**SCHEMA[0], "name": "external", "made": "external"},
    {"tables": {"decimal": ",", "missing": ["-999"], "unknown_ends": "external"}},
]
GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="l" for="node" attr.name="label" attr.type="string"/><key id="a" for="node" attr.name="age" \
attr.type="double"/>
<graph edgedefault="undirected">
<node id="n0"><data key="l">good</data><data key="a">1</data></node>
<node id="n1"><data key="l">bad</data><data key="a">2.5</data></node>
<node id="n2"><data key="l">good</data><data key="a">3</data></node>
<edge source="n0" target="n1"/><edge source="n1" target="n2"/>
</graph></graphml>
"""
TOML = """method = "fedepd"
preset = "default"
[protocol]
rounds = 3
seed = 1
[model]
backbone = "gcn"
hidden = 16
dropout = 0.5
[partition]
clients = 4
partition = "balanced"
resolution = 1.0
"""


PLAN = """version = 1
task = "account-fraud"
purpose = "Find accounts that are used for fraud."
classes = ["honest", "mule", "fraud"]
min_sites = 3
site_gets = "model"
[[column]]
name = "country"
kind = "category"
values = ["AT", "DE"]
[[column]]
name = "balance"
kind = "number"
scaled = true
[[column]]
name = "business"
kind = "flag"
[run]
method = "fedepd"
rounds = 3
hidden = 16
lr = 0.01
[split]
rule = "floor"
train = 0.6
val = 0.2
test = 0.2
[privacy]
guard = true
min_count = 5
min_holders = 3
secure = true
"""


PUBLIC = base64.b64decode(
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAzDDQzc0s+8K8tsWBrj6sGLLhdWIqhY+IaocQv+lhzRQumnkHvXNq"
    "3X5T8j4P+miP0tqfx6XlthErWS6Q72cFOPzvcRDqsJirJBNeGXD4OPz/tT1mi27/p/7I4R4tS4Ipsrh/YwQqz41cIee81rU1"
    "HNhW3Vudun49+3jLAblKp6+DIqb8rhKDolFwizCSGsC+SKednd0pC/atVSpz85hhHtbibIWU4kYhon4INhG0ADnh63MjJ/7o"
    "p5ZYm5xdQSj/laf722jqUkAOvAuSwAyE/0kfVeLlL1x3QZBIAL+Zs/d0PLdk7M5mUkBEvpI49JdM/QEsZLCzWQscKf27LOt0"
    "LQIDAQAB"
)
"""An RSA key of 2048 bits. Nobody has kept its other half."""


def plain() -> Iterator[tuple[str, str, bytes]]:
    """(format, name, content) of what needs no run."""
    yield "npz", "seed-dense", npz(**dense(12))
    yield "npz", "seed-sparse", npz(**sparse(), schema=np.array([json.dumps(SCHEMA)]))
    yield "npz-unlabelled", "seed", npz(**dense())
    yield "client", "seed", npz(**sparse(), split=np.array([0, 1, 2, 3], np.uint8), global_ids=np.arange(4))
    graph = dense(12)
    graph["x"][:, 1] = 0
    yield (
        "client",
        "seed-unscaled",
        npz(**graph, unscaled=np.linspace(-1e9, 1e9, 12)[:, None], scaled=np.array([1])),
    )
    yield "scores", "seed", scores()
    yield "csv-nodes", "seed", NODES
    yield "csv-real-nodes", "seed", REAL_NODES
    yield "csv-real-edges", "seed", REAL_EDGES
    yield (
        "csv-nodes",
        "seed-quoted",
        b'\xef\xbb\xbfid;label;site;age;kind\r\n"a";good;N;1;"x\ny"\r\nb;bad;S;2;\r\nc;;N;1e3;x\r\nd;good;S;0;x\r\n',
    )
    yield "csv-edges", "seed", EDGES
    yield "graphml", "seed", GRAPHML.encode()
    yield "npy", "seed", npy(np.array([0, 1, -1, 1]))
    yield "npy", "seed-text", npy(np.array(["p", "q", "p", "q"]))
    yield "npy-features", "seed", npy(np.eye(3))
    for kind, parts in {
        "coo": ("row", "col"),
        "csr": ("indices", "indptr"),
        "csc": ("indices", "indptr"),
    }.items():
        yield "scipy", f"seed-{kind}", npz(**_scipy(kind, parts))
    yield "numbers", "seed", b"0 1\n1 2\n2 0\n"
    yield "schema", "seed", json.dumps(SCHEMA).encode()
    yield "schema", "seed-real", json.dumps(REAL_SCHEMA).encode()
    yield "toml", "seed", TOML.encode()
    yield "plan", "seed", PLAN.encode()
    kit = {"host": "server.example", "port": 8002, "sites": ["north", "south"], "features": 8, "classes": 3}
    yield "kit", "seed", json.dumps(kit).encode()
    keys = {site: base64.b64encode(PUBLIC).decode() for site in ("north", "south")}
    yield "kit", "seed-keys", json.dumps({**kit, "keys": keys}).encode()
    column = {"column": 1, "name": "age", "mean": 41.5, "deviation": 3.25}
    known = {"columns": [column, {"column": 4, "mean": 0.0, "deviation": 1.0}], "withheld": ["few rows"]}
    yield "site-statistics", "seed", json.dumps(known).encode()
    sums = {"rows": 2, "total": hex(3 << 128), "squares": hex(5 << 256)}
    some = {"clients": [0, 1], "few": 5, "columns": [{**column, **sums}]}
    counts = [{"column": 2, "name": "kind=x", "rows": None}, {"column": 3, "rows": 12}]
    yield "run-statistics", "seed", json.dumps({**some, "categories": counts, "bytes_up": 160}).encode()
    book = '{"sum": "sizes of round 0", "set": [0, 1, 2]}\n{"sum": "step of round 1", "set": [0, 1]}\n'
    yield "sums-book", "seed", book.encode()


def _scipy(kind: str, parts: tuple[str, str]) -> dict[str, Any]:
    import scipy.sparse as sp

    matrix = sp.eye(3, format=kind)
    arrays = {"data": matrix.data, "shape": np.array([3, 3]), "format": np.array(kind.encode())}
    return arrays | {part: getattr(matrix, part) for part in parts}


def binary() -> Iterator[tuple[str, str, bytes]]:
    """(format, name, content) of what other libraries write."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.io
    import scipy.sparse as sp
    import torch
    from safetensors.numpy import save

    columns = {
        "id": ["a", "b", "c", "d"],
        "label": ["good", "bad", None, "good"],
        "site": ["N", "S", "N", "S"],
    }
    table = pa.table(
        columns | {"age": [1, 2, 3, 6], "kind": pa.array(["x", "y", "x", "y"]).dictionary_encode()}
    )
    for packing in ("none", "snappy", "zstd"):
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression=packing)
        yield "parquet", f"seed-{packing}", buffer.getvalue()
    buffer = io.BytesIO()
    torch.save(
        {"x": torch.eye(3), "edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([0, 1, -1])},
        buffer,
    )
    yield "pt", "seed", buffer.getvalue()
    for packed in (False, True):
        buffer = io.BytesIO()
        attributes = sp.csc_matrix(np.eye(3))
        scipy.io.savemat(
            buffer,
            {"Index": np.arange(3), "Label": np.arange(3), "Attributes": attributes},
            do_compression=packed,
        )
        yield "mat", f"seed-{'packed' if packed else 'plain'}", buffer.getvalue()
    about = json.dumps(
        {"names": ["server/w"], "config_hash": "0123456789ab", "seconds": [1.0, 1.0], "lines": [], "best": {}}
    )
    yield (
        "checkpoint",
        "seed",
        save({"server/w": np.eye(2, dtype=np.float32), "about": np.frombuffer(about.encode(), np.uint8)}),
    )


def raw_files() -> Iterator[tuple[str, str, bytes]]:
    """(format, name, content) of what torch_geometric downloads."""
    import scipy.sparse as sp

    from old_pickles import array, matrix, table
    from pyg_files import PUT, raw

    yield "inert", "seed-array", array(np.eye(2, dtype=np.int32))
    yield "inert", "seed-matrix", matrix(sp.csr_matrix(np.eye(3, dtype=np.float32)))
    yield "inert", "seed-table", table({0: [1], 1: [0, 2], 2: [1]})
    for name, (folders, put) in PUT.items():
        with tempfile.TemporaryDirectory() as place:
            put(raw(Path(place), *folders))
            paths = sorted(path for path in Path(place).rglob("*") if path.is_file())
            files = {
                str(path.relative_to(place)): base64.b64encode(path.read_bytes()).decode() for path in paths
            }
        yield "pyg", f"seed-{name.removeprefix('pyg:').lower().replace('/', '-')}", json.dumps(files).encode()


def messages() -> Iterator[tuple[str, str, bytes]]:
    """Records of every kind; where the form of one has changed, the older one is a case too."""
    tensors = {
        "classifier.weight": _array(np.eye(3, dtype=np.float32)),
        "classifier.bias": _array(np.zeros(3, np.float32)),
    }
    counts, matrix = _array(np.array([3, 2, 1])), _array(np.diag([1, 1, 1]))
    sizes = {"class_sizes": counts, "val_sizes": counts, "test_sizes": counts}
    records: dict[str, dict[str, Any]] = {
        "wire-message--seed": {"round": 1, "tensors": tensors},
        "wire-declaration--seed-counts": {"class_sizes": counts},
        "wire-declaration--seed": {"num_nodes": 9, "num_train": 6, **sizes, "label_names": []},
        "wire-reply--seed": {
            "round": 1,
            "num_nodes": 9,
            "num_train": 6,
            "scalars": {"loss": 0.5},
            "tensors": tensors,
        },
        "wire-confusions--seed": {
            "round": 1,
            "confusions": {
                f"{kind}_{split}": matrix for kind in ("personal", "global") for split in ("val", "test")
            },
        },
    }
    for name, record in {**records, **sums()}.items():
        yield (*name.split("--"), json.dumps(record).encode())  # type: ignore[misc]


def sums() -> dict[str, dict[str, Any]]:
    """The four messages of a secure sum, from the server and from a site."""
    from fedepd.deploy.sum_site import ADVERT
    from fedepd.privacy.secure_sum import OPENED_SHARES, SEALED

    which: dict[str, Any] = {"purpose": "step", "round": 1, "attempt": 0}
    three, model = _array(np.arange(3)), {"classifier.bias": _array(np.zeros(3, np.float32))}

    def rows(count: int, width: int) -> dict[str, Any]:
        return _array(np.ones((count, width), np.uint8))

    asked = {
        "keys": {"members": three},
        "shares": {"sites": three, "adverts": rows(3, ADVERT), "used": _array(np.zeros(1, np.int64))},
        "masked": {"sites": three, "sealed": rows(3, SEALED)},
        "opened": {"survivors": three, "next": _array(np.array([1, 2, 0]))},
    }
    answered = {
        "keys": {"advert": rows(1, ADVERT)},
        "shares": {"sites": three, "sealed": rows(3, SEALED)},
        "masked": {"masked": _array(np.arange(4))},
        "opened": {"sites": three, "opened": rows(3, OPENED_SHARES), "advert": rows(1, ADVERT)},
    }
    out: dict[str, dict[str, Any]] = {}
    for name, parts in asked.items():
        tensors = model if name == "shares" else {}
        out[f"wire-sum--seed-{name}"] = {**which, "parts": parts, "tensors": tensors}
    for name, parts in answered.items():
        out[f"wire-sum-answer--seed-{name}"] = {**which, "parts": parts}
    return out


def _array(array: Any) -> dict[str, Any]:
    return {"array": [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}


def folders() -> Iterator[tuple[str, str, bytes]]:
    """A run, its model, a folder of clients and a packed graph, as the package itself writes them."""
    from fedepd.cli import main

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "a.npz").write_bytes(npz(**dense(24)))
        data, small = (
            ["--data", str(folder / "a.npz")],
            ["--rounds", "2", "--clients", "2", "--hidden", "4", "--quiet"],
        )
        assert main(["run", "fedavg", *data, *small, "--out", str(folder / "run")]) == 0
        assert main(["export", str(folder / "run"), "-o", str(folder / "model")]) == 0
        assert (
            main(["data", "split", str(folder / "a.npz"), "--clients", "2", "-o", str(folder / "clients")])
            == 0
        )
        assert main(["data", "pack", str(folder / "a.npz"), str(folder / "packed")]) == 0
        for name in ("run", "model", "clients", "packed"):
            paths = [
                path
                for path in sorted((folder / name).rglob("*"))
                if path.is_file() and path.suffix not in (".html", ".md", ".lock")
            ]
            files = {
                str(path.relative_to(folder / name)): _nowhere(path.read_bytes(), place) for path in paths
            }
            yield name, "seed", json.dumps(files).encode()


def _nowhere(content: bytes, place: str) -> str:
    """Without the names of this machine and its folders."""
    for name, other in (
        (place, "/data"),
        (platform.platform(), "Linux"),
        (platform.node(), "machine"),
        (str(Path.home()), "/home"),
    ):
        content = content.replace(name.encode(), other.encode())
    return base64.b64encode(content).decode()


def main() -> None:
    for source in (plain, binary, raw_files, messages, folders):
        for format, name, content in source():
            if not (FOLDER / f"{format}--{name}.json").exists():
                print(write_case(format, "a sound file", content, name).name, len(content))


if __name__ == "__main__":
    main()
