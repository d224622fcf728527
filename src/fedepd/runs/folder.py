"""The run folder: which files it has, what each of them holds, and how they are read.

No other module knows a name of these files. ``record`` writes them, and ``checkpoint`` writes what is needed
after a crash. This module imports no training code, so that a report can use it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from fedepd import folders
from fedepd.arrays import OURS, read_arrays
from fedepd.errors import BadConfig, BadData
from fedepd.files import (
    MAX_JSON_BYTES,
    parse_shown,
    read_bytes,
    read_json,
    read_lines,
    read_tensors,
    regular_content,
    without_halves,
)
from fedepd.shapes import (
    CLASSES_OF_TIERS,
    DAMAGED,
    EVERY,
    EXPERIMENT,
    FLAG,
    LEAF,
    NUMBER,
    ROUND_NUMBER,
    SCORE,
    SHARE,
    TEMPERATURES,
    TEXT,
    TIERS,
    WHOLE,
    Kind,
    Table,
    expect,
    number,
)  # fmt: skip
from fedepd.shown import shown

if TYPE_CHECKING:
    from torch import Tensor

    from fedepd.types import Tensors

Json = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]

# --- the files ----------------------------------------------------------------------------------------------

CONFIG, ENV, CLIENTS, ROUNDS = "config.json", "env.json", "clients.json", "rounds.jsonl"
"""The settings, the machine, what each client holds, and one line per round."""
PARTITION, CONFUSION = "partition.npz", "confusion.npz"
"""Who owns which nodes, and the confusion matrices of the selected rounds."""
FINAL, MODEL = "final.safetensors", "model.safetensors"
"""The server's tensors after the last round, and the tensors of the selected round."""
ADAPTED = "adapted.safetensors"
"""Every client's adapted model, as "client3.encoder.weight". It is there only after a simulated run with
``adapt``, if adapted models are used. ``rounds.adapt.adapted_logits`` predicts with them."""
SUMMARY = "summary.json"
"""The numbers. It is written last, so a folder with a summary is complete."""
RANKING = "ranking.json"
"""How well the headline model ranks test nodes, class by class. It is there after a simulated run without
guard, secure sums and noise: it needs the scores of single nodes."""
CALIBRATION = "calibration.json"
"""What ``fedepd export`` has measured. It is there only after an export."""
OPERATING = "operating.json"
"""What the operating point of an exported model does to test nodes. It is there only after such an export."""
PERSONAL = "personal.safetensors"
"""The clients' own models, if they are not in ``MODEL``. It is there only after an export of one of them."""
AUDIT, AUDIT_PAGE = "audit.json", "audit.html"
"""What ``fedepd audit`` has measured, and its page. They are there only after an audit."""
AUDIT_TRAININGS = "audit-trainings"
"""A folder with the trainings that a cluster has done for an audit. It is there only until the audit ends."""
RELEASES = "releases.json"
"""Under noise, how many sums were made. It is there from the first on."""
START = "start.safetensors"
"""The initial weights, if they are not random."""
FILES = (CONFIG, ENV, CLIENTS, PARTITION, ROUNDS, CONFUSION, FINAL, MODEL, SUMMARY)
"""What a finished run has written."""
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,12})")

HEADLINES, SPLITS = ("global", "personal"), ("val", "test")
MODELS = (*HEADLINES, "adapted")
SHARED = ("method", "method_label", "preset", "seed", "rounds", "config_hash", "protocol")
"""Fields of the summary that are also in the configuration."""

# --- what each file holds -----------------------------------------------------------------------------------

DATASET_FIELDS: Table = {
    "name": TEXT,
    "sha256?": (TEXT,),
    "nodes?": WHOLE,
    "edges?": WHOLE,
    "features?": WHOLE,
    "classes?": WHOLE,
    "imbalance_ratio?": (NUMBER,),
    "proxy_features?": FLAG,
    "label_names?": ([TEXT],),
    "owner_names?": ([TEXT],),
    "edge_weights?": FLAG,
}

CONFIG_FIELDS: Table = {
    "config_hash": TEXT,
    "dataset": DATASET_FIELDS,
    "experiment": EXPERIMENT,
    "method?": TEXT,
    "rounds?": ROUND_NUMBER,
    "sites?": [TEXT],
    "notes?": [TEXT],
    "source?": ({"data?": (TEXT,), "data_dir?": (TEXT,), "clients_dir?": (TEXT,)},),
}

SPENT_FIELDS: Table = {
    **dict.fromkeys(("epsilon_spent", "delta", "multiplier", "clip"), number(0)),
    "releases": WHOLE,
    "stopped_after?": WHOLE,
}
"""What a noisy run has spent of its privacy budget."""

ADAPTED_FIELDS: Table = {
    "used": FLAG,  # adapted models, or the global one as it is
    "steps": WHOLE,
    "weight": SHARE,  # of the adapted model; the global one has the rest
    "metric": TEXT,
    "gain": NUMBER,  # on validation nodes, as a share
    "interval": number(0),  # half of its width
    "nodes": WHOLE,  # validation nodes that were counted
    "asked": [WHOLE],  # whose nodes these are
    "clients": [WHOLE],  # who uses adapted models
    "own": WHOLE,  # clients that chose otherwise
    **dict.fromkeys(("bytes_up", "bytes_down"), WHOLE),
    "seconds": number(0),
}
"""What the clients decided about adaptation: the candidate with the largest gain over the global model."""
NAMED_COLUMN: Table = {"column": WHOLE, "name?": TEXT}
STATISTICS_FIELDS: Table = {
    "clients": [WHOLE],
    "few": WHOLE,
    "columns": [
        {
            **NAMED_COLUMN,
            "rows": (WHOLE,),
            **dict.fromkeys(("total", "squares"), TEXT),
            "mean": NUMBER,
            "deviation": number(0),
        }
    ],
    "categories": [{**NAMED_COLUMN, "rows": (WHOLE,)}],
    **dict.fromkeys(("bytes_up?", "bytes_down?"), WHOLE),
}
"""What the clients measured together before the first round."""


def _several(count: int, kind: Kind) -> Kind:
    return Kind(
        f"a list of {count} times {kind.words}",
        lambda value: isinstance(value, list) and len(value) == count and all(map(kind.fits, value)),
    )


_HEADLINE = Kind("'global' or 'personal'", lambda value: value in HEADLINES)
INTERVAL = (_several(3, SHARE),)
"""A value and both ends of its 95 % interval, or null."""
_FOUND = [_several(2, number(0))]
"""Pairs of alerts and of nodes found among them."""
_OF_A_CLASS: Table = dict.fromkeys(("precision", "recall", "f1", "average_precision?"), INTERVAL)
BY_CLASS_FIELDS: Table = {
    "by_class?": [{"class": WHOLE, "nodes": WHOLE, "predicted": WHOLE, **_OF_A_CLASS, "at_alerts?": _FOUND}],
    "by_tier?": {tier: {**_OF_A_CLASS, "nodes?": WHOLE, "at_alerts?": _FOUND} for tier in TIERS},
    "by_client?": [
        {
            "client": WHOLE,
            "nodes": WHOLE,
            **dict.fromkeys(_OF_A_CLASS, (SHARE,)),
            "cases?": WHOLE,
            "at_alerts?": _FOUND,
        }
    ],
}
"""What ``metrics.class_numbers`` gives of the headline model's test nodes, and what ``RANKING`` adds."""
RANKING_FIELDS: Table = {
    "model": _HEADLINE,
    "nodes": WHOLE,
    "classes": [
        {"nodes": WHOLE, "average_precision": INTERVAL, "at_alerts": _FOUND, "curve": [_several(2, WHOLE)]},
    ],
    "clients": [(SHARE,)],
    "tiers?": {tier: {"nodes": WHOLE, "at_alerts": _FOUND} for tier in TIERS},
    "client_alerts?": [{"nodes": WHOLE, "at_alerts": _FOUND}],
}
SCORES: Table = {EVERY: {EVERY: {EVERY: (SHARE,)}}}
"""By model, by average, by metric."""

SUMMARY_FIELDS: Table = {
    **dict.fromkeys(("method", "method_label", "preset", "dataset", "protocol"), TEXT),
    "seed": WHOLE,
    "rounds": ROUND_NUMBER,
    "best_round": ROUND_NUMBER,
    "metrics": SCORES,
    "other_selection?": {"select": TEXT, "best_rounds": {EVERY: ROUND_NUMBER}, "metrics": SCORES},
    "headline": _HEADLINE,
    "tiers": CLASSES_OF_TIERS,
    **BY_CLASS_FIELDS,
    "best_rounds?": {EVERY: ROUND_NUMBER},
    "config_hash?": TEXT,
    "weights_sha256?": TEXT,
    "partition_sha256?": TEXT,
    "digest?": TEXT,
    "open_classes?": [WHOLE],
    "members?": [WHOLE],
    "statistics?": STATISTICS_FIELDS,
    "point?": {
        "clients": [WHOLE],
        "bytes_up": WHOLE,
        "bytes_down": WHOLE,
        "aim": TEXT,
        "usual": WHOLE,
        "thresholds": [number(0, 2)],
        "reasons": [TEXT],
        "counts": [[WHOLE]],
    },
    "final?": {
        "clients": [WHOLE],
        "bytes_up": WHOLE,
        "bytes_down": WHOLE,
        "temperatures?": TEMPERATURES,
        "validation_nodes?": WHOLE,
    },
    "proxy_features?": FLAG,
    "test_without_local_train?": (SHARE,),
    "one_class?": TEXT,  # said of a model that says one class for everything
    "warnings?": [TEXT],
    "privacy?": SPENT_FIELDS,
    "adapted?": ADAPTED_FIELDS,
    **dict.fromkeys(("seconds?", "cpu_seconds?", "peak_rss_mb?"), (number(0),)),
    **dict.fromkeys(("bytes_up?", "bytes_down?"), (WHOLE,)),
}

ENV_FIELDS: Table = {"command?": ([LEAF],), EVERY: LEAF}

CLIENT_FIELDS: Table = {
    **dict.fromkeys(("client", "nodes", "edges", "train", "val", "test", "classes"), WHOLE),
    **dict.fromkeys(("edges_kept", "isolated_before", "isolated_after"), WHOLE),
    **dict.fromkeys(("homophily_before", "homophily_after", "clustering?"), (SHARE,)),
}

ROUND_FIELDS: Table = {
    "round": ROUND_NUMBER,
    "loss?": (NUMBER,),
    "clients?": [WHOLE],
    "evaluated?": [WHOLE],
    **dict.fromkeys(("seconds?", "cpu_seconds?"), (number(0),)),
    "bytes_up?": {EVERY: WHOLE},
    "bytes_down?": {EVERY: WHOLE},
    "val?": {EVERY: {EVERY: (SHARE,)}},
    "refused?": [{"client": WHOLE, "field": TEXT, "reason": TEXT, "absent?": FLAG}],
    "excluded?": [WHOLE],
    "defence?": {
        "clipped?": {EVERY: SHARE},
        "capped?": {EVERY: SHARE},
        "rows?": {EVERY: WHOLE},
        "left_out?": [WHOLE],
        "skipped?": TEXT,
    },
    "privacy?": SPENT_FIELDS,
}

RELEASES_FIELDS: Table = {"releases": WHOLE}

_BIN: Table = {"nodes": WHOLE, "confidence": SHARE, "accuracy": SHARE}
_MEASURED: Table = {"nodes": WHOLE, "ece?": ([NUMBER],), "brier?": ([NUMBER],), "reliability": [_BIN]}
CALIBRATION_FIELDS: Table = {
    "temperatures": TEMPERATURES,
    **dict.fromkeys(("before?", "after?"), dict.fromkeys(("all", *TIERS), _MEASURED)),
    "unmeasured?": TEXT,
}

_WITH_ENDS = Kind(
    "a number and its interval",
    lambda value: (
        isinstance(value, list) and len(value) == 3 and all(v is None or number(0).fits(v) for v in value)
    ),
)
OPERATING_FIELDS: Table = {
    "usual": WHOLE,
    "aim": {
        "cost?": TEXT,
        "recall?": {EVERY: SHARE},
        "alerts?": Kind("a whole number or a table", lambda value: isinstance(value, int | dict)),
        "per?": (WHOLE,),
    },
    **dict.fromkeys(("validation_nodes", "test_nodes", "resamples"), WHOLE),
    "measured": [
        {
            "classes": [WHOLE],
            "threshold": NUMBER,
            "nodes": WHOLE,
            **dict.fromkeys(("found", "false_alarms", "recall", "precision"), _WITH_ENDS),
            "curve": [_several(4, number(0))],
        }
    ],
    "costs_per_node?": {EVERY: _WITH_ENDS},
    "likeliest": {EVERY: (SHARE,)},
    "decided": {EVERY: (SHARE,)},
}

CHECKPOINT_FIELDS: Table = {
    "lines": [{**ROUND_FIELDS, "bytes_up": {EVERY: WHOLE}, "bytes_down": {EVERY: WHOLE}}],
    **{name: {EVERY: {"score": SCORE, "round": ROUND_NUMBER}} for name in ("best", "otherwise?")},
    "opened?": [WHOLE],
    "adapted?": ADAPTED_FIELDS,
    "seconds": [number(0)],
}

_FIELDS: dict[str, Any] = {
    CONFIG: CONFIG_FIELDS,
    SUMMARY: SUMMARY_FIELDS,
    ENV: ENV_FIELDS,
    CLIENTS: [CLIENT_FIELDS],
    CALIBRATION: CALIBRATION_FIELDS,
    RANKING: RANKING_FIELDS,
    OPERATING: OPERATING_FIELDS,
    RELEASES: RELEASES_FIELDS,
}


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().contiguous()
        digest.update(f"{name}|{value.dtype}|{list(value.shape)}|".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


# --- reading ------------------------------------------------------------------------------------------------


def is_begun(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def is_finished(folder: Path) -> bool:
    return (folder / SUMMARY).is_file()


def called(folder: Path, file: str) -> str:
    """What a message calls a file of the folder."""
    return f"{shown(folder.name)}/{file}"


def read(folder: Path, file: str) -> Any:
    """The content of one of the JSON files, or one sentence that says what is wrong with it."""
    name = called(folder, file)
    raw = read_bytes(folder / file, MAX_JSON_BYTES, DAMAGED, name)
    content = parse_shown(raw, f"'{name}'", DAMAGED)
    expect(content, _FIELDS[file], f"'{name}'")
    return content


def read_clients(folder: Path) -> list[Json]:
    """What each client holds, by client number."""
    found: list[Json] = read(folder, CLIENTS)
    if not found:
        raise BadData(f"'{called(folder, CLIENTS)}' names no client; {DAMAGED}")
    return found


def read_rounds(folder: Path) -> list[Json]:
    """What happened in each round."""
    name = called(folder, ROUNDS)
    return _rounds(read_lines(folder / ROUNDS, MAX_JSON_BYTES, DAMAGED, name), name)


def _rounds(lines: list[Json], name: str) -> list[Json]:
    expect(lines, [ROUND_FIELDS], f"'{name}'")
    fields = {field for line in lines for way in ("bytes_up", "bytes_down") for field in line.get(way, ())}
    # The names of fields are the only text of a line that is shown.
    return lines if all(field.isascii() for field in fields) else without_halves(lines)


def rounds_done(folder: Path) -> int:
    """How far a run is. A watcher reads it here and needs no channel to the process that runs."""
    try:
        return regular_content(folder / ROUNDS, MAX_JSON_BYTES).count(b"\n")
    except OSError:  # not there yet, or nothing to count
        return 0


def releases_made(folder: Path) -> int:
    """How many noisy sums a run has made. A count that cannot be read is refused: it may be a large one."""
    return int(read(folder, RELEASES)["releases"]) if os.path.lexists(folder / RELEASES) else 0


def read_confusion(folder: Path, headline: str) -> Arrays:
    """``global_test`` and its like: int64 [K, C, C].

    ``global_test_by_acc`` is the matrix of the round that validation accuracy selects, if the run selects by
    macro-F1.
    """
    names = [f"{model}_{split}" for model in MODELS for split in SPLITS]
    names += [f"{name}_by_{score}" for name in names for score in ("acc", "macro_f1")]
    return _read_arrays(folder, CONFUSION, (f"{headline}_test", "personal_test"), names)


def read_partition(folder: Path) -> Arrays:
    """``client_class`` int64 [K, C] and ``class_sizes`` int64 [C]."""
    return _read_arrays(folder, PARTITION, ("client_class", "class_sizes"))


def _read_arrays(folder: Path, file: str, needed: Iterable[str], also: Iterable[str] = ()) -> Arrays:
    return read_arrays(folder / file, needed, also, OURS, DAMAGED, called(folder, file))


def read_weights(folder: Path, file: str) -> Tensors:
    """The tensors of ``FINAL``, ``MODEL``, ``PERSONAL`` or ``ADAPTED``."""
    return read_tensors(folder / file, DAMAGED, called(folder, file))


# --- folders and checkpoints --------------------------------------------------------------------------------


def check_new_run(path: Path, config_hash: str | None = None) -> None:
    """Refuse an output folder that holds a run or anything else. Writes nothing."""
    if os.path.exists(path / CONFIG):
        found = _hash_in(path)
        which = (
            "this same run" if config_hash is not None and found == config_hash else f"another run ({found})"
        )
        where = f"'{shown(path, 300)}'"
        raise BadConfig(
            f"the output folder {where} already holds {which}; give another --out or remove the folder"
        )
    folders.check_new_folder(path)


def _hash_in(path: Path) -> str:
    try:
        found = read_json(path / CONFIG)
    except BadData:
        return "damaged"
    is_ours = isinstance(found, dict) and isinstance(found.get("config_hash"), str)
    return shown(found["config_hash"], 20) if is_ours else "damaged"


def claim_folder(path: Path, config_hash: str) -> None:
    """Make the folder of a new run, or fail before anything is written."""
    check_new_run(path, config_hash)
    folders.claim_folder(path)


def copy_finished(folder: Path, out: Path) -> None:
    """The files of a finished run, without its checkpoints."""
    for file in (*FILES, START) if (folder / START).is_file() else FILES:
        shutil.copyfile(folder / file, out / file, follow_symlinks=False)


def checkpoint_path(folder: Path, round: int) -> Path:
    return folder / f"checkpoint-{round:06d}"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(
        (path for path in folder.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name)), reverse=True
    )


def round_of(checkpoint: Path) -> int:
    """The round after which a checkpoint was saved."""
    return int(checkpoint.name.rpartition("-")[2])
