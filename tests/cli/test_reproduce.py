"""``fedepd reproduce`` as users meet it: it goes on where it was, says what failed, and stops cleanly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedepd.cli import main
from fedepd.datasets import synthetic, write_npz
from fedepd.reproduction.study.scores_file import COLUMNS

TARGET = """
title = "Mine"
kind = "comparison"
datasets = ["synthetic"]
seeds = 2
[settings]
shuffle_nodes = true
rounds = 2
hidden = 8
clients = 3
[[rows]]
method = "fedavg"
[[rows]]
method = "fedepd"
"""
Reproduce = Callable[..., tuple[int, str, str]]


@pytest.fixture
def reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reproduce:
    """Of the target above on a graph of 300 nodes."""
    (tmp_path / "mine.toml").write_text(TARGET)
    write_npz(
        synthetic(nodes=300, edges=900, classes=4, imbalance=10, smallest=None, communities=6),
        tmp_path / "small.npz",
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        given = [
            str(tmp_path / "mine.toml"),
            "--data",
            str(tmp_path / "small.npz"),
            "--out",
            str(tmp_path / "o"),
            "--workers",
            "1",
        ]
        return main(["reproduce", *given, *arguments]), *capsys.readouterr()

    return run


def test_a_target_of_ones_own_and_nothing_runs_twice(reproduce: Reproduce, tmp_path: Path) -> None:
    code, out, err = reproduce()
    assert code == 0
    assert err.splitlines()[0].endswith("FedAvg on small, seed 0: done")
    assert len(err.splitlines()) == 4
    assert out.splitlines()[-1] == f"page: {tmp_path / 'o' / 'mine.html'}"
    made = {path.name for path in (tmp_path / "o" / "mine").iterdir()}
    assert made == {"mine.md", "mine.tex", "mine.csv", "mine-tests.csv"}
    stale, own = tmp_path / "o" / "mine" / "mine-2.png", tmp_path / "o" / "mine" / "mine-by-hand.csv"
    for path in (stale, own):
        path.touch()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "o" / "cells").rglob("*")}
    code, _, err = reproduce()
    assert (stale.exists(), own.exists()) == (False, True)
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "o" / "cells").rglob("*")} == before
    code, _, err = reproduce("--seeds", "3", "--quiet")
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "o" / "cells").iterdir())) == 6


def test_other_methods_in_place_of_its_rows(reproduce: Reproduce, tmp_path: Path) -> None:
    """Those that it has keep their settings, so their runs are not repeated."""
    assert reproduce("--seeds", "1")[0] == 0
    before = {path.name for path in (tmp_path / "o" / "cells").iterdir()}
    code, _, err = reproduce("--seeds", "1", "--methods", "fedavg", "logit_adjustment:balanced_softmax")
    assert (code, len(err.splitlines())) == (0, 1)
    assert "Logit adjustment (balanced softmax) on small, seed 0: done" in err
    table = (tmp_path / "o" / "mine" / "mine.md").read_text()
    assert "Logit adjustment" in table
    assert "FedAvg" in table
    assert "FedEPD" not in table.partition("\n\n")[0]
    assert len(before) + 1 == len(list((tmp_path / "o" / "cells").iterdir()))


def test_without_running_it_shows_what_is_there(reproduce: Reproduce, tmp_path: Path) -> None:
    code, _, _ = reproduce("--no-run")
    assert code == 0
    assert not (tmp_path / "o" / "cells").exists()
    text = (tmp_path / "o" / "mine" / "mine.md").read_text()
    assert "| FedAvg | – not run | – not run | – not run |" in text
    assert "Nothing has been run yet" in (tmp_path / "o" / "mine.html").read_text()


def test_a_failed_cell_is_shown_and_the_others_go_on(reproduce: Reproduce, tmp_path: Path) -> None:
    """FedEPD with gamma 0.5 is fine; the folder of one of its cells is blocked by a file."""
    reproduce("--seeds", "1")
    (tmp_path / "mine.toml").write_text(
        TARGET.replace('method = "fedepd"', 'method = "fedepd"\nsettings = { mu = 2.0 }')
    )
    reproduce("--no-run")
    from fedepd.reproduction.study.cells import plan, to_run
    from fedepd.reproduction.study.targets import read_targets

    data = str(tmp_path / "small.npz")
    waiting = to_run(plan(read_targets(str(tmp_path / "mine.toml")), {"mine": [data]}, tmp_path / "o", {}))
    blocked = next(each for each in waiting if each.row.method == "fedepd")
    blocked.job.out.write_text("in the way")
    code, _, err = reproduce()
    assert code == 1
    assert "fedepd: 1 run failed; the same command tries it again" in err
    text = (tmp_path / "o" / "mine" / "mine.md").read_text()
    assert "(1 of 2 seeds)" in text
    assert "is a file; give a folder with --out" in text
    blocked.job.out.unlink()
    assert reproduce()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tabel2"], "unknown target 'tabel2'; did you mean 'table2'?"),
        (["table2", "--seeds", "0"], "seeds is 0; give at least 1"),
        (["table2", "--round", "3"], "unknown option '--round'; did you mean '--rounds'?"),
        (["table2", "--rounds", "0", "--data", "synthetic"], "rounds is 0; give at least 1"),
        (["table2", "--workers", "0", "--data", "synthetic"], "workers is 0; give at least 1"),
        (["noise", "--methods", "fedprx"], "unknown method 'fedprx'; did you mean 'fedprox'?"),
        (["noise", "--methods", "fedprox:x", "--data", "synthetic"], "unknown preset of fedprox 'x'"),
        (["all", "--methods", "fedprox"], "--methods is about the rows of one target; name one instead of"),
        (["table2", "--data", "sinthetic"], "unknown dataset 'sinthetic'; did you mean 'synthetic'?"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "o")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fedepd: {sentence}")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "o" / "cells").exists() or not list((tmp_path / "o" / "cells").iterdir())


def test_the_list_names_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    for name in ("table2", "table3", "fig-tiers", "all"):
        assert name in shown


def test_missing_datasets_are_named_with_their_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["reproduce", "table3", "--data-dir", str(tmp_path), "--out", str(tmp_path / "o"), "--no-run"])
        == 0
    )
    err = capsys.readouterr().err
    assert "fedepd: CoraFull is not on this machine; 'fedepd data fetch corafull' gets it" in err
    assert "synthetic" in (tmp_path / "o" / "table3" / "table3.md").read_text()


def test_kept_scores_stand_for_run_folders(reproduce: Reproduce, tmp_path: Path) -> None:
    """Tables, CSV files and standings have the same bytes, and the page says what is kept where."""
    scores = tmp_path / "kept.csv"
    code, out, _ = reproduce("--scores", str(scores), "--adapt")
    assert (code, out.splitlines()[-1]) == (0, f"scores: {scores} keeps 4 cells")
    made, kept = tmp_path / "o" / "mine", scores.read_bytes()
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    shutil.rmtree(tmp_path / "o")
    for arguments in (["--no-run"], []):  # nothing is left to run
        code, _, err = reproduce("--scores", str(scores), "--adapt", *arguments)
        assert (code, err) == (0, "")
        assert {path.name: path.read_bytes() for path in made.iterdir()} == before
        assert not (tmp_path / "o" / "cells").exists()
    page = (tmp_path / "o" / "mine.html").read_text()
    assert "4 runs on small. Of 4 of them only the scores are kept, in kept.csv." in page
    assert scores.read_bytes() == kept
    code, _, err = reproduce("--scores", str(scores), "--adapt", "--seeds", "3")
    assert (code, len(err.splitlines())) == (0, 2)  # the third seed alone is run
    assert set(kept.splitlines()) < set(scores.read_bytes().splitlines())
    assert len(list((tmp_path / "o" / "cells").iterdir())) == 2


def test_scores_are_kept_where_the_study_is_stopped_or_a_cell_fails(
    reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = tmp_path / "kept.csv"

    def stops(planned: Sequence[Any], *_: object) -> int:
        planned[0].job.work()
        raise SystemExit(130)

    with monkeypatch.context() as patched:
        patched.setattr("fedepd.reproduction.study.cells.run_planned", stops)
        with pytest.raises(SystemExit):
            reproduce("--scores", str(scores))
    assert len(scores.read_text().splitlines()) == 3
    (tmp_path / "mine.toml").write_text(TARGET.replace('"fedepd"', '"fedlc"'))
    reproduce("--scores", str(scores), "--no-run")
    from fedepd.reproduction.study import cells

    monkeypatch.setattr(cells, "run_planned", lambda *_: 1)
    code, _, err = reproduce("--scores", str(scores))
    assert (code, err) == (1, "fedepd: 1 run failed; the same command tries it again\n")
    assert len(scores.read_text().splitlines()) == 3


def test_scores_that_disagree_or_are_of_another_version(reproduce: Reproduce, tmp_path: Path) -> None:
    scores = tmp_path / "kept.csv"
    reproduce("--scores", str(scores), "--seeds", "1")
    text = scores.read_text()
    scores.write_text(text.replace("of fedepd 0.", "of fedepd 7."))
    code, out, err = reproduce("--scores", str(scores), "--seeds", "1")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "has scores of fedepd 7." in err
    right = text.splitlines()[2].split(",")
    right[list(COLUMNS).index("personal.right")] = "0"
    scores.write_text("\n".join([*text.splitlines()[:2], ",".join(right), text.splitlines()[3]]))
    code, out, err = reproduce("--scores", str(scores), "--seeds", "1", "--no-run")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "has personal.right = " in err
    scores.unlink()
    env = next((tmp_path / "o" / "cells").iterdir()) / "env.json"
    env.write_text(json.dumps({**json.loads(env.read_text()), "fedepd": "0.0.1"}))
    code, out, err = reproduce("--scores", str(scores), "--seeds", "1", "--no-run")
    assert (code, out.splitlines()[-1]) == (0, f"scores: {scores} keeps 1 cell")
    assert err.startswith("fedepd: 1 cell was run by another version of fedepd, so the scores are not kept")


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_study_stops_cleanly_and_goes_on(
    reproduce: Reproduce, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = [
        str(tmp_path / "mine.toml"),
        "--data",
        str(tmp_path / "small.npz"),
        "--out",
        str(tmp_path / "o"),
        "--rounds",
        "200",
    ]
    command = [
        sys.executable,
        "-c",
        "import sys; from fedepd.cli import main; sys.exit(main(sys.argv[1:]))",
        "reproduce",
        *arguments,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any((tmp_path / "o").glob("cells/*/checkpoint-*")):
            time.sleep(0.05)
        os.killpg(process.pid, number)  # as a terminal does
        err = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("fedepd: stopped; 'fedepd reproduce ")
    begun = next((tmp_path / "o").glob("cells/*/config.json")).parent
    assert not (begun / "summary.json").exists()
    assert reproduce("--rounds", "200", "--seeds", "1", "--quiet")[0] == 0
    assert (begun / "summary.json").exists()


@pytest.mark.heavy
def test_two_programs_share_a_folder_and_one_is_killed(reproduce: Reproduce, tmp_path: Path) -> None:
    """All cells are done once, with the weights of a study by one program, and no lock is left."""
    assert reproduce("--rounds", "60", "--quiet")[0] == 0
    alone = {path.parent.name: weights(path) for path in (tmp_path / "o").glob("cells/*/summary.json")}
    arguments = [str(tmp_path / "mine.toml"), "--data", str(tmp_path / "small.npz"), "--rounds", "60"]
    command = [sys.executable, "-m", "fedepd", "reproduce", *arguments, "--workers", "1", "--quiet"]
    command += ["--out", str(tmp_path / "shared")]
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) for _ in range(2)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len([*(tmp_path / "shared").glob("cells/*.lock")]) < 2:
        time.sleep(0.02)
    os.killpg(programs[0].pid, signal.SIGKILL)  # with its cell half done
    for program in programs:
        program.communicate(timeout=120)
    assert programs[1].returncode == 0
    cells = tmp_path / "shared" / "cells"
    assert {path.parent.name: weights(path) for path in cells.glob("*/summary.json")} == alone
    assert [path.name for path in cells.iterdir() if path.suffix == ".lock"] == []


def weights(summary: Path) -> str:
    return str(json.loads(summary.read_text())["weights_sha256"])
