"""What a user's machine and other people's files can do to a command.

It answers in one sentence, or works.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import load_file, save

from fedepd.cli import main
from fedepd.datasets import write_npz
from fedepd.errors import BadConfig
from fedepd.model.export import export
from fedepd.model.model import load_model
from fedepd.runs import checkpoint
from fedepd.runs.folder import checkpoints, weights_sha256
from fedepd.runs.resume import resume
from fedepd.runs.run import run
from fedepd.types import Graph
from hostile import ANY_FILE, ANY_JSON, edited, everything, refusal

pytestmark = pytest.mark.hostile
QUICK: dict[str, Any] = {"rounds": 4, "hidden": 4, "clients": 2, "evaluate_every": 1, "partition": "balanced"}
FLAGS = ["--rounds", "1", "--hidden", "4", "--clients", "2", "--partition", "balanced", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny.npz, run (finished), half (stopped in round 3) and model."""
    draws = np.random.default_rng(0)
    y = np.repeat(np.arange(3), (40, 20, 10))
    x = np.eye(3, 8)[y] + 0.4 * draws.standard_normal((70, 8))
    place = tmp_path_factory.mktemp("honest")
    graph = Graph.make(
        torch.tensor(x, dtype=torch.float32), torch.tensor(draws.integers(0, 70, (2, 200))), torch.tensor(y)
    )
    write_npz(graph, place / "tiny.npz")
    run(place / "tiny.npz", "fedavg", out=place / "run", **QUICK)
    export(place / "run", place / "model")

    def stop(each: Any) -> None:
        if each.number == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "SHARE", math.inf)
        with pytest.raises(KeyboardInterrupt):
            run(place / "tiny.npz", "fedavg", out=place / "half", on_round=stop, **QUICK)
    return place


@pytest.fixture
def model(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place / "model", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def half(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place / "half", tmp_path / "half")
    return tmp_path / "half"


def predicts(capsys: pytest.CaptureFixture[str], place: Path, model: Path) -> str:
    return refusal(
        capsys,
        model.parent,
        "predict",
        str(model),
        "--data",
        str(place / "tiny.npz"),
        "-o",
        str(model.parent / "out.csv"),
    )


# --- the model folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*ANY_FILE, *ANY_JSON])
@pytest.mark.parametrize("file", ["config.json", "labels.json", "schema.json"])
def test_predict_refuses_what_is_no_file_of_a_model(
    place: Path, model: Path, file: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (file, case) == ("schema.json", "empty table") or (
        file == "schema.json" and case.startswith("number of")
    ):
        pytest.skip("a model without columns has nothing there")
    {**ANY_FILE, **ANY_JSON}[case](model / file)
    assert file in predicts(capsys, place, model)


@pytest.mark.parametrize("case", ANY_FILE)
def test_predict_refuses_what_is_no_file_of_weights(
    place: Path, model: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ANY_FILE[case](model / "model.safetensors")
    assert "model.safetensors'" in predicts(capsys, place, model)


MODEL: list[tuple[str, dict[str, Any], str]] = [
    ("config.json", {"weights_sha256": ...}, "has no 'weights_sha256'"),
    ("config.json", {"weights_sha256": None}, "'weights_sha256' is null, not a sha256"),
    ("config.json", {"weights_sha256": "a" * 64}, "its sha256 differs"),
    ("config.json", {"format": [1]}, "has format [1]"),
    ("config.json", {"format": ...}, "has format None"),
    ("config.json", {"temperatures__head": 0}, "'temperatures.head' is 0, not a finite number from 0.001"),
    ("config.json", {"temperatures__tail": float("nan")}, "'temperatures.tail' is nan"),
    ("config.json", {"temperatures__tail": float("inf")}, "'temperatures.tail' is inf"),
    ("config.json", {"temperatures__medium": -1}, "'temperatures.medium' is -1"),
    ("config.json", {"temperatures__medium": "1"}, "'temperatures.medium' is the text '1'"),
    ("config.json", {"temperatures__medium": 1e-300}, "'temperatures.medium' is 1e-300"),
    ("config.json", {"temperatures": [1, 1, 1]}, "'temperatures' is a list"),
    ("config.json", {"tiers__head": [99]}, "the labels or tiers do not fit 3 classes"),
    ("config.json", {"tiers__head": [-1]}, "'tiers.head.0' is -1"),
    ("config.json", {"tiers__head": [0, 0]}, "the labels or tiers do not fit"),
    ("config.json", {"tiers__head": "0"}, "'tiers.head' is the text '0'"),
    ("config.json", {"info__num_features": 9}, "have another shape than the settings need"),
    ("config.json", {"info__num_features": 10**12}, "have another shape than the settings need"),
    ("config.json", {"info__num_features": "8"}, "'info.num_features' is the text '8'"),
    ("config.json", {"info__num_classes": 4}, "the labels or tiers do not fit 4 classes"),
    ("config.json", {"info__num_classes": 0}, "'info.num_classes' is 0"),
    ("config.json", {"info__num_clients": -2}, "'info.num_clients' is -2"),
    ("config.json", {"info__weighting": "mine"}, "'info.weighting' is the text 'mine'"),
    ("config.json", {"info": []}, "'info' is a list"),
    ("config.json", {"experiment": []}, "'experiment' is a list"),
    ("config.json", {"experiment__method": "fedavg"}, "'experiment.method' is the text 'fedavg'"),
    ("config.json", {"experiment__method__name": "fedevil"}, "unknown method 'fedevil'"),
    ("config.json", {"experiment__method__name": 3}, "'method.name' is 3"),
    ("config.json", {"experiment__model__hidden": 10**12}, "another shape"),
    ("config.json", {"experiment__model__layers": 3}, "there are fewer weights"),
    ("config.json", {"experiment__model__layers": 10**9}, "layers is 1000000000; give 1 to 4"),
    ("config.json", {"experiment__model__backbone": {"name": "gat"}}, "there are fewer weights"),
    (
        "config.json",
        {"experiment__model__backbone": {"class": "Mine"}},
        "Mine is an object of a Python program",
    ),
    ("config.json", {"experiment__model__backbone": {"name": ["gat"]}}, "unknown value of backbone"),
    ("config.json", {"experiment__model__hidden": 5}, "another shape"),
    ("config.json", {"experiment__model__hidden": "wide"}, "hidden is 'wide'"),
    ("config.json", {"experiment__model__backbone": "auto"}, "backbone auto"),
    ("config.json", {"experiment__model__backbone": "sage"}, "shape"),
    ("config.json", {"experiment__model__dropout": 7}, "dropout is 7"),
    ("config.json", {"experiment__training": 3}, "'experiment.training' is 3, not a table"),
    ("config.json", {"experiment__protocol": ...}, "has no 'protocol'"),
    ("config.json", {"experiment__protocol__preset": "x"}, "'preset' in 'protocol' has no place there"),
    ("labels.json", {"labels": "abc"}, "'labels' is the text 'abc'"),
    ("labels.json", {"labels": [1, 2, 3]}, "'labels.0' is 1"),
    ("labels.json", {"labels": ["a"]}, "the labels or tiers do not fit"),
    ("labels.json", {"labels": ["a"] * 9}, "the labels or tiers do not fit"),
    ("schema.json", {"columns": "abc"}, "'columns' is the text 'abc'"),
    (
        "schema.json",
        {"columns": [{"name": "a", "mean": "x", "std": 1, "categories": None}]},
        "'columns.0.mean' is the text 'x'",
    ),
    (
        "schema.json",
        {"columns": [{"name": "a", "mean": 0, "std": 0, "categories": None}]},
        "'columns.0.std' is 0",
    ),
    (
        "schema.json",
        {"columns": [{"name": "a", "mean": 0, "std": 1, "categories": [1]}]},
        "'columns.0.categories.0' is 1",
    ),
    (
        "schema.json",
        {"columns": [{"name": "a", "mean": 0, "std": 1, "categories": None}]},
        "the columns do not make 8 features",
    ),
    ("schema.json", {"columns": [{"name": "a", "categories": None, "evil": 1}]}, "schema"),
]


@pytest.mark.parametrize(
    ("file", "changes", "says"), MODEL, ids=[f"{n}-{file}" for n, (file, *_) in enumerate(MODEL)]
)
def test_predict_names_what_is_wrong(
    place: Path,
    model: Path,
    file: str,
    changes: dict[str, Any],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edited(model / file, **changes)
    assert says in predicts(capsys, place, model)


def test_labels_with_halves_of_pairs_are_predicted_with_a_sign(
    place: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(model / "labels.json", labels=["a\ud800", "\x1b[31mred", "=1+1"])
    for end in ("csv", "jsonl"):
        assert (
            main(["predict", str(model), "--data", str(place / "tiny.npz"), "-o", str(model / f"out.{end}")])
            == 0
        )
        assert "a?" in (model / f"out.{end}").read_text(encoding="utf-8")
    assert main(["predict", str(model), "--data", str(place / "tiny.npz")]) == 0


WEIGHTS = ("other shape", "NaN", "missing", "float64", "bfloat16", "none")


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_do_not_fit_are_refused_though_their_hash_is_right(
    place: Path, model: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(model / "model.safetensors")
    weight = tensors["encoder.weight"]
    if case in ("missing", "none"):
        tensors = (
            {}
            if case == "none"
            else {name: value for name, value in tensors.items() if name != "encoder.weight"}
        )
    else:
        changed = {
            "other shape": weight.reshape(4, 8).clone(),
            "NaN": weight * float("nan"),
            "float64": weight.double(),
        }
        tensors["encoder.weight"] = changed[case] if case in changed else weight.bfloat16()
    (model / "model.safetensors").write_bytes(save(tensors))
    if case != "bfloat16":
        edited(model / "config.json", weights_sha256=weights_sha256(tensors))
    assert "weights" in predicts(capsys, place, model) or case == "bfloat16"


def test_an_honest_model_still_predicts(place: Path, model: Path) -> None:
    assert np.isfinite(load_model(model).predict(load_graph(place)).probabilities).all()


def load_graph(place: Path) -> Graph:
    import fedepd

    return fedepd.load(place / "tiny.npz")


# --- resume -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*ANY_FILE, *ANY_JSON])
def test_resume_refuses_a_config_that_is_none(
    half: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    {**ANY_FILE, **ANY_JSON}[case](half / "config.json")
    assert "config.json" in refusal(capsys, half.parent, "resume", str(half))


CONFIG: list[tuple[dict[str, Any], str]] = [
    ({"rounds": "4"}, "'rounds' is the text '4'"),
    ({"rounds": -4}, "'rounds' is -4"),
    ({"method": ["fedavg"]}, "'method' is a list"),
    ({"dataset": []}, "'dataset' is a list"),
    ({"dataset__sha256": 5}, "'dataset.sha256' is 5"),
    ({"dataset__sha256": ...}, "has no 'sha256'"),
    ({"dataset__sha256": "0" * 64}, "have changed since the run began"),
    ({"notes": "x"}, "'notes' is the text 'x'"),
    ({"source": []}, "'source' is a list"),
    ({"source": {"data": 3}}, "'source.data' is 3"),
    ({"source": {"data": "/dev/zero"}}, "/dev/zero"),
    ({"source": {"data": "a\u0000b.npz"}}, "does not exist"),
    ({"source": {"data": "x" * 300 + ".npz"}}, ""),
    ({"source": {"clients_dir": "/nowhere"}}, "is not a folder"),
    ({"experiment__training__lr": [0.1]}, "lr is '[0.1]'"),
    ({"experiment__training__lr": 0.5}, "was changed"),
    ({"experiment__model__hidden": 10**30}, "was changed"),
    ({"experiment__split": None}, "'experiment.split' is null"),
    ({"config_hash": 7}, "'config_hash' is 7"),
    ({"config_hash": "0" * 12}, "was changed"),
]


@pytest.mark.parametrize(("changes", "says"), CONFIG, ids=map(str, range(len(CONFIG))))
def test_resume_names_what_is_wrong(
    half: Path, changes: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(half / "config.json", **changes)
    assert says in refusal(capsys, half.parent, "resume", str(half))


def forged(path: Path, change: Any) -> None:
    """A checkpoint with another content under a checksum of its own.

    Whoever can write the file can do that.
    """
    tensors = from_bytes(path.read_bytes()[32:])
    about = json.loads(tensors.pop("about").numpy().tobytes())
    tensors, about = change(tensors, about)
    names = about.pop("names", None)
    about |= {} if names is None else {"names": [name for name in names if name in tensors]}
    content = save(
        {**tensors, "about": torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)}
    )
    path.write_bytes(hashlib.sha256(content).digest() + content)


FORGED: dict[str, Any] = {
    "no lines": lambda t, a: (t, {**a, "lines": []}),
    "lines of text": lambda t, a: (t, {**a, "lines": "abc"}),
    "rounds out of order": lambda t, a: (t, {**a, "lines": a["lines"][::-1]}),
    "negative rounds": lambda t, a: (t, {**a, "lines": [{**a["lines"][0], "round": -1}]}),
    "too many rounds": lambda t, a: (
        t,
        {**a, "lines": [{**a["lines"][0], "round": n + 1} for n in range(50)]},
    ),
    "bytes of text": lambda t, a: (t, {**a, "lines": [{**line, "bytes_up": "many"} for line in a["lines"]]}),
    "no bytes": lambda t, a: (t, {**a, "lines": [{"round": line["round"]} for line in a["lines"]]}),
    "no best": lambda t, a: (t, {key: value for key, value in a.items() if key != "best"}),
    "best of another kind": lambda t, a: (t, {**a, "best": {"evil": {"score": 1, "round": 1}}}),
    "best in the future": lambda t, a: (
        t,
        {**a, "best": {k: {**v, "round": 99} for k, v in a["best"].items()}},
    ),
    "score of text": lambda t, a: (t, {**a, "best": {k: {**v, "score": "x"} for k, v in a["best"].items()}}),
    "no seconds": lambda t, a: (t, {**a, "seconds": []}),
    "seconds of text": lambda t, a: (t, {**a, "seconds": "12"}),
    "infinite seconds": lambda t, a: (t, {**a, "seconds": [math.inf, 0]}),
    "no names": lambda t, a: (t, {key: value for key, value in a.items() if key != "names"}),
    "a hash of numbers": lambda t, a: (t, {**a, "config_hash": 5}),
    "no server": lambda t, a: ({n: v for n, v in t.items() if not n.startswith("server/")}, a),
    "other shapes": lambda t, a: (
        {n: v[:1].clone() if n.startswith("server/") else v for n, v in t.items()},
        a,
    ),
    "other types": lambda t, a: ({n: v.double() if n.startswith("server/") else v for n, v in t.items()}, a),
    "no matrices": lambda t, a: ({n: v for n, v in t.items() if "/confusions/" not in n}, a),
    "flat matrices": lambda t, a: (
        {n: v.reshape(-1).clone() if "/confusions/" in n else v for n, v in t.items()},
        a,
    ),
    "matrices of floats": lambda t, a: (
        {n: v.float() if "/confusions/" in n else v for n, v in t.items()},
        a,
    ),
    "small matrices": lambda t, a: (
        {n: v[:, :1, :1].clone() if "/confusions/" in n else v for n, v in t.items()},
        a,
    ),
    "another run": lambda t, a: (t, {**a, "config_hash": "x\x1b[31m" * 500}),
    "deep": lambda t, a: (t, {**a, "best": json.loads("[" * 90 + "]" * 90)}),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_checkpoint_is_passed_over_and_named(half: Path, case: str) -> None:
    newest, older = checkpoints(half)
    forged(newest, FORGED[case])
    result = resume(half)
    (note,) = result.summary["warnings"]
    assert note.startswith(f"'{newest.name}'")
    assert note.endswith(": continued from round 2 instead")
    assert len(note) < 300
    assert not older.exists()


@pytest.mark.parametrize("case", ANY_FILE)
def test_a_checkpoint_that_is_no_file_is_passed_over(half: Path, case: str) -> None:
    newest = checkpoints(half)[0]
    ANY_FILE[case](newest)
    if case == "folder":  # in the place of the next one: said
        with pytest.raises(BadConfig, match=r"cannot write .*checkpoint-000003' \(Is a directory\)"):
            resume(half)
        return
    result = resume(half)
    assert len(result.rounds) == 4
    assert (result.summary["warnings"] == []) == (
        case == "missing"
    ) or "continued from round 2" in result.summary["warnings"][0]


def test_a_folder_with_a_checkpoints_name_is_left_alone(half: Path) -> None:
    (half / "checkpoint-evil").mkdir()
    (half / "checkpoint-999999").mkdir()
    resume(half)
    assert {path.name for path in half.glob("checkpoint*")} == {"checkpoint-evil", "checkpoint-999999"}


def test_a_pipe_as_rounds_is_replaced(half: Path) -> None:
    ANY_FILE["fifo"](half / "rounds.jsonl")
    assert len(resume(half).rounds) == 4


# --- paths, terminals, file systems -------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in ANY_FILE if case not in ("empty",)])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_settings_that_are_no_file(
    tmp_path: Path, case: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").touch()
    ANY_FILE[case](tmp_path / "a.toml")
    out = ["--out", str(tmp_path / "out")]
    assert "settings file" in refusal(
        capsys, tmp_path, command, "fedavg", "--config", str(tmp_path / "a.toml"), *out
    )


@pytest.mark.parametrize("case", [case for case in ANY_FILE if case not in ("empty",)])
def test_targets_that_are_no_file(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").touch()
    ANY_FILE[case](tmp_path / "a.toml")
    assert "the target" in refusal(
        capsys, tmp_path, "reproduce", str(tmp_path / "a.toml"), "--out", str(tmp_path / "out")
    )


ODD = os.fsdecode(b"caf\xe9")
"""A name in Latin-1, as Python has it on a system of UTF-8."""


def test_a_whole_life_in_a_folder_whose_name_is_no_utf8(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / ODD
    here.mkdir()
    shutil.copy(place / "tiny.npz", here / f"{ODD}.npz")
    (here / f"{ODD}.toml").write_text("rounds = 1\n")
    data, out, model = str(here / f"{ODD}.npz"), str(here / "run"), str(here / "model")
    assert (
        main(
            ["run", "fedavg", "--data", data, "--config", str(here / f"{ODD}.toml"), "--out", out, *FLAGS[2:]]
        )
        == 0
    )
    assert main(["report", out]) == 0
    assert main(["export", out, "-o", model]) == 0
    assert main(["predict", model, "--data", data, "-o", str(here / "p.csv")]) == 0
    assert main(["data", "show", data]) == 0
    assert (
        main(["data", "split", data, "--by", "balanced", "--clients", "2", "-o", str(here / "clients")]) == 0
    )
    assert (
        main(["run", "fedavg", "--clients-dir", str(here / "clients"), *FLAGS[:4], "--quiet", "--json"]) == 0
    )
    capsys.readouterr()
    assert main(["run", "fedavg", "--data", str(here / "none.npz")]) == 2
    assert "caf?" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--data", "--config", "--out", "--data-dir", "--clients-dir"])
@pytest.mark.parametrize("value", ["x" * 300, ODD + "/none", "\x1b[31m", "a\0b", "/dev/null/x", "loop"])
def test_paths_that_lead_nowhere(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    value: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    more = ["--data", str(place / "tiny.npz")] if flag in ("--config", "--out") else []
    if flag == "--data-dir":
        more = ["--data", "corafull"]
    if flag == "--out" and value in (ODD + "/none", "\x1b[31m"):
        assert main(["run", "fedavg", *more, flag, value, *FLAGS]) == 0
        return
    said = refusal(capsys, tmp_path, "run", "fedavg", *more, flag, value, *FLAGS)
    assert "\x1b" not in said or flag in ("--data", "--data-dir")


@pytest.mark.parametrize("command", ["report", "resume", "export", "predict"])
@pytest.mark.parametrize("value", ["x" * 300, ODD, "a\0b", "/dev/null", "/dev/null/x"])
def test_folders_that_are_none(
    tmp_path: Path, command: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"export": ["-o", str(tmp_path / "out")], "predict": ["--data", "x.npz"]}.get(command, [])
    refusal(capsys, tmp_path, command, str(tmp_path / value) if "/" not in value else value, *more)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-8"])
def test_a_terminal_without_our_signs(
    place: Path, model: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stream cannot encode is shown as '?'; the streams are as Python opens them there."""
    edited(model / "labels.json", labels=["图", "–", "\ud800"])
    shutil.copy(place / "tiny.npz", model.parent / "图–.npz")
    buffers = {name: io.BytesIO() for name in ("stdout", "stderr")}
    streams = {name: io.TextIOWrapper(buffer, encoding=encoding) for name, buffer in buffers.items()}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    assert main(["predict", str(model), "--data", str(place / "tiny.npz")]) == 0
    assert main(["run", "fedavg", "--data", str(model.parent / "图–.npz"), *FLAGS]) == 0
    assert main(["report", str(model.parent / "图")]) == 2
    for stream in streams.values():
        stream.flush()
    out, err = (buffer.getvalue() for buffer in buffers.values())
    assert b"p(" + "图".encode(encoding, "replace") + b")" in out
    assert err.startswith(b"fedepd: ")


@pytest.fixture
def read_only(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below which nothing can be written, as on a file system that is mounted so."""
    shutil.copytree(place, tmp_path / "there")

    def guarded(act: Any, places: int = 1) -> Any:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            paths = [os.fspath(each) for each in arguments[:places] if isinstance(each, str | os.PathLike)]
            writes = act is not opened or arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and any(str(each).startswith(str(tmp_path / "there")) for each in paths):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), paths[0])
            return act(*arguments, **named)

        return wrapped

    opened = os.open
    for name, places in (("open", 1), ("replace", 2), ("unlink", 1), ("mkdir", 1), ("rmdir", 1)):
        monkeypatch.setattr(os, name, guarded(getattr(os, name), places))
    return tmp_path / "there"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "fedavg", "--data", "THERE/tiny.npz", "--out", "THERE/new", *FLAGS],
        ["report", "THERE/run"],
        ["export", "THERE/run", "-o", "THERE/new"],
        ["resume", "THERE/half"],
        ["predict", "THERE/model", "--data", "THERE/tiny.npz", "-o", "THERE/p.csv"],
        ["data", "split", "THERE/tiny.npz", "--by", "balanced", "--clients", "2", "-o", "THERE/clients"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_read_only_file_system_is_said(
    read_only: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, read_only, *(word.replace("THERE", str(read_only)) for word in arguments))
    assert "Read-only file system" in said


def test_a_run_on_a_read_only_file_system_can_be_exported_elsewhere(
    read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(read_only)
    assert main(["export", str(read_only / "run"), "-o", str(tmp_path / "model")]) == 0
    assert everything(read_only) == before
    assert len(list((tmp_path / "model").iterdir())) == 8


@pytest.mark.parametrize("file", ["model.safetensors", "README.md", "labels.json", "config.json"])
def test_an_export_that_fails_leaves_nothing(
    place: Path, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if Path(target).name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadConfig, match="No space left"):
        export(place / "run", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_needs_too_much_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none_left(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("fedepd.cli.runs.report", none_left)
    assert "not enough memory" in refusal(capsys, tmp_path, "report", "x")
