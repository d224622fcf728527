"""The command line as users meet it.

Results are on stdout. A mistake gets one sentence on stderr, and nothing is left half written.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.cli.dispatch import COMMANDS, main
from fedepd.methods import METHODS
from hostile_names import PAYLOADS, cases, check_lines

QUICK = ["--rounds", "2", "--hidden", "8", "--clients", "3", "--quiet"]
KEYS = {
    "method", "dataset", "seed", "rounds", "best_round", "metrics", "bytes_up", "bytes_down", "seconds",
    "config_hash", "weights_sha256",
}  # fmt: skip
SCORES = {"acc", "bacc", "macro_f1", "head_acc", "medium_acc", "tail_acc"}


def arrays() -> dict[str, Any]:
    """A ring of 20 nodes with two classes, as the npz schema asks for it."""
    nodes = np.arange(20)
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    return {"x": x, "edge_index": np.stack([nodes, (nodes + 1) % 20]), "y": nodes % 2}


def changed(**parts: Any) -> bytes:
    """The file of ``arrays()`` with some arrays replaced."""
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays(), **parts})
    return buffer.getvalue()


def with_value(name: str, value: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = arrays()[name].copy()
    array.flat[0] = value
    return array


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "ring.npz"
    path.write_bytes(changed())
    return path


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail as a user's mistake, and returns its sentence."""

    def run(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert code == 2
        assert out == ""
        assert err.startswith("fedepd: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert "Traceback" not in err
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return run


# --- what works ---------------------------------------------------------------------------------------------


def test_help_is_quick_and_waits_for_no_torch() -> None:
    code = """if True:
        import sys, time
        from fedepd.cli import main
        status = main(["--help"])
        heavy = sorted({"torch", "numpy", "scipy", "rich"} & set(sys.modules))
        print("heavy:", heavy, "cpu:", time.process_time(), file=sys.stderr)
        sys.exit(status)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)
    heavy, cpu = done.stderr.removeprefix("heavy: ").split(" cpu: ")
    assert heavy == "[]"
    assert float(cpu) < 0.5


def test_the_installed_command_reports_a_mistake_without_a_traceback() -> None:
    code = "import sys; from fedepd.cli.dispatch import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "fedpdd"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedepd: unknown method 'fedpdd'; did you mean 'fedepd'?")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "fedavg"], ["compare"], ["report"], ["data", "show"], ["methods"]]
)
def test_every_command_explains_itself(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--help"]) == 0
    assert f"usage: fedepd {arguments[0]}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.count(".") == 2


def test_json_is_one_object_and_nothing_else(
    graph_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert (
        main(["run", "fedavg", "--data", str(graph_file), *QUICK, "--seed", "4", "--out", str(out), "--json"])
        == 0
    )
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert printed.out.count("\n") == 1
    assert printed.err == ""
    assert summary.keys() >= KEYS
    assert (summary["method"], summary["dataset"], summary["seed"], summary["rounds"]) == (
        "fedavg",
        "ring",
        4,
        2,
    )
    for model in ("global", "personal"):
        for averaged in ("pooled", "client_mean"):
            assert summary["metrics"][model][averaged].keys() == SCORES
    assert summary == json.loads((out / "summary.json").read_text())


def test_without_a_method_it_is_fedepd_on_the_synthetic_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--preset", "printed", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["method"], summary["preset"], summary["dataset"]) == ("fedepd", "printed", "synthetic")


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fedavg", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "FedAvg on synthetic, seed 0" in out
    assert all(
        column in out
        for column in ("bacc", "macro_f1", "medium", "tail", "global, pooled", "personal, client mean")
    )
    assert "…" not in out
    assert "not saved; add --out FOLDER" in out


def test_the_command_line_wins_over_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "a.toml"
    settings.write_text('method = "fedavg"\nseed = 7\nrounds = 9\n[model]\nhidden = 8\n')
    out = tmp_path / "run"
    assert (
        main(
            ["run", "--config", str(settings), "--rounds", "2", "--clients", "3", "--json", "--out", str(out)]
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert (summary["method"], summary["seed"], summary["rounds"]) == ("fedavg", 7, 2)
    assert json.loads((out / "config.json").read_text())["experiment"]["model"]["hidden"] == 8


def test_a_client_without_edges_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(changed(edge_index=np.empty((2, 0), dtype=np.int64)))
    assert main(["run", "fedavg", "--data", str(path), "--clients", "1", "--rounds", "2", "--json"]) == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert printed.err.startswith("fedepd: warning: no edges at client 0")


def test_a_stopped_comparison_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedepd.runs.jobs.run_jobs", lambda *_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        main(["compare", "fedavg", *QUICK, "--out", str(tmp_path / "x")])
    assert stop.value.code == 143
    assert capsys.readouterr().err.endswith(
        f"fedepd: stopped; 'fedepd resume {tmp_path}/x/RUN' finishes one of its runs\n"
    )


@pytest.mark.usefixtures("no_figures")
def test_compare_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "both"
    assert (
        main(
            [
                "compare",
                "fedepd:printed",
                "fedavg",
                "--seeds",
                "2",
                "--seed",
                "3",
                "--workers",
                "2",
                *QUICK,
                "--out",
                str(out),
            ]
        )
        == 0
    )
    names = {path.name for path in out.iterdir()}
    assert names == {
        "fedepd-printed-seed3",
        "fedepd-printed-seed4",
        "fedavg-seed3",
        "fedavg-seed4",
        "report.html",
    }
    printed = capsys.readouterr().out
    assert "FedAvg" in printed
    assert "±" in printed
    page = tmp_path / "page.html"
    assert main(["report", str(out / "fedavg-seed3"), "-o", str(page)]) == 0
    assert "FedAvg" in page.read_text()
    assert f"report: {page}" in capsys.readouterr().out


def test_data_list_and_show(graph_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "mine.npz").write_bytes(graph_file.read_bytes())
    assert main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row["present"] for row in json.loads(capsys.readouterr().out)}
    assert (rows["mine"], rows["synthetic"], rows["email"]) == (True, True, False)
    assert main(["data", "show", "mine", "--data-dir", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["nodes"], facts["edges"], facts["classes"], facts["imbalance_ratio"]) == (20, 20, 2, 1.0)
    for arguments in (["data", "list", "--data-dir", str(tmp_path)], ["data", "show", str(graph_file)]):
        assert main(arguments) == 0
        assert capsys.readouterr().out


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    assert all(cls.label in out for cls in METHODS.values())


# --- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rum"], "unknown command 'rum'; did you mean 'run'?"),
        (["run", "fedpdd"], "unknown method 'fedpdd'; did you mean 'fedepd'?"),
        (["run", "--data", "emial"], "unknown dataset 'emial'; did you mean 'email'?"),
        (["run", "--roundz", "3"], "unknown option '--roundz'; did you mean '--rounds'?"),
        (["run", "--no-interleave"], "the setting 'interleave' was removed before 0.1.0"),
        (["run", "--infer-on=original"], "the setting 'infer_on' was removed before 0.1.0"),
        (["run", "--sign", "post_hoc"], "sign is 'post_hoc', which was removed before 0.1.0"),
        (["run", "--gamma", "0.3"], "gamma is 0.3, but with consensus_by = rehearsal it changes nothing"),
        (["run", "fedavg", "extra"], "unknown argument 'extra'"),
        (["run", "fedavg", "--gamma", "0.5"], "unknown option '--gamma'"),
        (["run", "--preset", "print"], "unknown preset of fedepd 'print'; did you mean 'printed'?"),
        (["run", "--split", "flor"], "unknown value of split 'flor'; did you mean 'floor'?"),
        (["run", "--clients", "0"], "clients is 0"),
        (["run", "--clients", "1501"], "1501 clients for the 1500 nodes of graph 'synthetic'"),
        (["run", "--rounds", "0"], "rounds is 0"),
        (["run", "--rounds", "many"], "rounds is 'many'; give a whole number"),
        (["run", "--rounds"], "argument --rounds: expected one argument"),
        (["run", "--gamma", "0"], "gamma is 0.0"),
        (["run", "--gamma", "1"], "gamma is 1.0"),
        (["run", "--gamma", "nan"], "gamma is 'nan'; give a finite number"),
        (["run", "--seed", "-1"], "seed is -1"),
        (["run", "--workers", "0"], "workers is 0"),
        (["run", "--config", "none.toml"], "cannot read the settings file none.toml"),
        (["data"], None),
        (["data", "shwo"], "unknown data action 'shwo'; did you mean 'show'?"),
        (["data", "show"], "the following arguments are required: NAME"),
        (["data", "show", "none.npz"], "file 'none.npz' does not exist"),
        (["data", "fetch", "nothing"], "nothing"),
        (["report", "none"], "'none' is not a folder"),
        (["methods", "--all"], "unknown option '--all'"),
    ],
)
def test_mistakes(
    arguments: list[str],
    says: str | None,
    refused: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDEPD_DATA", str(tmp_path / "data"))
    if says is None:  # asks for more: the usage, as help would give it
        assert main(arguments) == 2
        assert capsys.readouterr().out.startswith("usage: ")
        return
    more = ["--out", str(tmp_path / "new")] if arguments[0] == "run" and arguments[-1] != "--rounds" else []
    assert says in refused(*arguments, *more)


def test_a_dataset_that_is_not_at_hand_says_what_to_do(refused: Callable[..., str], tmp_path: Path) -> None:
    said = refused(
        "run", "--data", "email", "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "new")
    )
    assert "fedepd data fetch email" in said
    assert str(tmp_path / "data") in said


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def text_inside() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "no arrays here")
    return buffer.getvalue()


BAD_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "truncated": (lambda: cut(changed()), "truncated or damaged"),
    "not npz": (lambda: b"node,class\n0,1\n", "not an npz file"),
    "zip without arrays": (text_inside, "has no array 'edge_index'"),
    "object array": (lambda: changed(y=np.array([{}] * 20, dtype=object)), "Python objects"),
    "x too short": (lambda: changed(x=np.zeros((19, 4))), "x has shape [19, 4] but y has 20 nodes"),
    "x with one dimension": (lambda: changed(x=np.zeros(20)), "x has shape [20]"),
    "x without columns": (lambda: changed(x=np.zeros((20, 0))), "x has no columns"),
    "y with two dimensions": (lambda: changed(y=np.zeros((20, 2), dtype=np.int64)), "y has shape [20, 2]"),
    "edge_index turned": (
        lambda: changed(edge_index=arrays()["edge_index"].T),
        "edge_index has shape [20, 2]",
    ),
    "edge out of range": (lambda: changed(edge_index=with_value("edge_index", 20)), "names node 20"),
    "edge below zero": (lambda: changed(edge_index=with_value("edge_index", -1)), "names node -1"),
    "edges not integer": (
        lambda: changed(edge_index=arrays()["edge_index"] * 1.0),
        "edge_index has type float64",
    ),
    "NaN": (lambda: changed(x=with_value("x", np.nan)), "NaN or infinite"),
    "Inf": (lambda: changed(x=with_value("x", np.inf)), "NaN or infinite"),
    "label too large": (
        lambda: changed(y=with_value("y", 5), num_classes=np.array(2)),
        "labels outside 0..1",
    ),
    "label below -1": (lambda: changed(y=with_value("y", -2)), "labels outside 0..1"),
    "labels not integer": (lambda: changed(y=arrays()["y"] * 1.0), "y has type float64"),
    "a single class": (lambda: changed(y=np.zeros(20, dtype=np.int64)), "a single class"),
    "no nodes": (
        lambda: changed(x=np.zeros((0, 4)), y=np.zeros(0, np.int64), edge_index=np.zeros((2, 0), np.int64)),
        "no nodes",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files(kind: str, refused: Callable[..., str], tmp_path: Path) -> None:
    make, says = BAD_FILES[kind]
    path = tmp_path / "bad.npz"
    path.write_bytes(make())
    said = refused("run", "fedavg", "--data", str(path), *QUICK, "--out", str(tmp_path / "new"))
    assert says in said
    assert str(path) in said


def test_a_missing_file(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "does not exist" in refused(
        "run", "--data", str(tmp_path / "none.npz"), "--out", str(tmp_path / "new")
    )


def test_fewer_nodes_than_clients(refused: Callable[..., str], graph_file: Path, tmp_path: Path) -> None:
    said = refused("run", "--data", str(graph_file), "--clients", "21", "--out", str(tmp_path / "new"))
    assert "21 clients for the 20 nodes" in said


def test_an_output_folder_that_cannot_be_made(refused: Callable[..., str], graph_file: Path) -> None:
    """A folder below a file: unwritable even for root."""
    assert "cannot write" in refused(
        "run", "fedavg", "--data", str(graph_file), *QUICK, "--out", str(graph_file / "new")
    )
    assert "is a file" in refused(
        "run", "fedavg", "--data", str(graph_file), *QUICK, "--out", str(graph_file)
    )


def test_an_output_folder_that_holds_a_run(refused: Callable[..., str], graph_file: Path, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    command = ["run", "fedavg", "--data", str(graph_file), *QUICK, "--out", str(tmp_path / "run")]
    assert main(command) == 0
    capsys.readouterr()
    content = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert "already holds this same run" in refused(*command)
    assert "already holds another run" in refused(*command, "--seed", "1")
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedpdd"], "unknown method 'fedpdd'"),
        (["fedepd:print"], "unknown preset of fedepd 'print'"),
        (["fedavg", "fedavg:default"], "'fedavg:default' is named twice"),
        (["fedavg", "--seeds", "0"], "seeds is 0"),
        (["fedavg", "--workers", "0"], "workers is 0"),
        (["fedavg", "--rounds", "few"], "rounds is 'few'"),
        (
            ["fedavg", "--data", "sinthetic"],
            "unknown dataset 'sinthetic'; did you mean 'synthetic'?",
        ),  # found by a worker process
        (["fedavg", "--clients", "1501"], "1501 clients for the 1500 nodes"),  # likewise
    ],
)
def test_mistakes_in_a_comparison(
    arguments: list[str], says: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert says in refused("compare", *arguments, "--out", str(tmp_path / "new"))


def test_a_comparison_needs_a_folder_of_its_own(
    refused: Callable[..., str], graph_file: Path, tmp_path: Path
) -> None:
    assert "--out" in refused("compare", "fedavg")
    assert "is not empty" in refused("compare", "fedavg", "--out", str(tmp_path))
    assert "is a file" in refused("compare", "fedavg", "--out", str(graph_file))


def test_a_file_cannot_name_the_method_of_a_comparison(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('method = "fedavg"\n')
    assert "'method'" in refused(
        "compare", "fedavg", "--config", str(tmp_path / "a.toml"), "--out", str(tmp_path / "new")
    )


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
@pytest.mark.parametrize("channel", ["key", "value", "choice", "method", "table", "file", "twice"])
def test_a_poisoned_settings_file_gets_one_plain_line(
    channel: str, text: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    text = text.encode("utf-8", "replace").decode().replace("\x7f", "?").replace("\0", "?")
    quoted = json.dumps(f"x{text}", ensure_ascii=False)
    content = {
        "key": f"{quoted} = 1",
        "value": f"rounds = {quoted}",
        "choice": f"select = {quoted}",
        "method": f"method = {quoted}",
        "table": f"[{quoted}]\n{quoted} = 1",
        "file": f"no TOML {text}",
        "twice": f"[a]\n{quoted} = 1\n[b]\n{quoted} = 2",
    }
    path = tmp_path / f"{text.replace('/', '_')[:60]}.toml"
    path.write_text(content[channel], encoding="utf-8")
    said = refused("run", "--config", str(path))
    check_lines(said)
    assert len(said) <= 2010
