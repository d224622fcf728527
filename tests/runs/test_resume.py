"""Whatever ends a run, and whenever: the continued one has the bits of one never interrupted."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.cli import main
from fedepd.clients.clients_dir import read_clients
from fedepd.datasets import write_npz
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.folders import held
from fedepd.rounds.loop import Round
from fedepd.runs import checkpoint
from fedepd.runs.folder import checkpoints, claim_folder
from fedepd.runs.resume import is_finished, resume
from fedepd.runs.run import run
from fedepd.types import Graph

TINY: dict[str, Any] = {
    "rounds": 30,
    "hidden": 16,
    "clients": 3,
    "evaluate_every": 3,
    "partition": "balanced",
}
FLAGS = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
MEASURED = {"seconds", "cpu_seconds", "peak_rss_mb"}
"""What a clock or the system says; all else in summary.json and rounds.jsonl is the same bits."""

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["fedepd.runs.resume"])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 nodes, 4 classes of 60, 30, 20 and 10, features that name the class noisily."""
    draws = np.random.default_rng(0)
    y = np.repeat(np.arange(4), (60, 30, 20, 10))
    x = np.eye(4, 24)[y] + 0.4 * draws.standard_normal((120, 24))
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    write_npz(
        Graph.make(
            torch.tensor(x, dtype=torch.float32),
            torch.tensor(draws.integers(0, 120, (2, 400))),
            torch.tensor(y),
        ),
        path,
    )
    return path


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(file, "fedepd", out=folder, **TINY)
    return folder


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    files = ("model.safetensors", "final.safetensors", "clients.json", "config.json")
    arrays = {
        name: np.load(folder / name) for name in ("confusion.npz", "partition.npz")
    }  # their bytes hold the time of day
    return {
        "rounds": [{name: value for name, value in line.items() if name not in MEASURED} for line in lines],
        "summary": {name: value for name, value in summary.items() if name not in MEASURED},
        "bytes": {name: (folder / name).read_bytes() for name in files},
        "arrays": {
            name: {key: value.tolist() for key, value in content.items()} for name, content in arrays.items()
        },
        "names": sorted(path.name for path in folder.iterdir()),
    }


def work(file: Path, folder: Path, die_at: int | None) -> None:
    """In a process of its own: begin, or go on; die at the n-th step of writing a file, saves included."""
    checkpoint.SHARE = math.inf
    if die_at is not None:
        plant(die_at)
    if (folder / "config.json").exists():
        resume(folder)
    else:
        run(file, "fedepd", out=folder, **TINY)


def plant(die_at: int) -> None:
    count = 0

    def deadly(act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*arguments, **named)

        return wrapped

    os.fsync, os.replace, os.unlink = deadly(os.fsync), deadly(os.replace), deadly(os.unlink)


def kill_and_resume(file: Path, folder: Path, die_at: int | None = None, after: float | None = None) -> bool:
    """Whether the first process was killed before its end; a second one then finishes."""
    first = SERVER.Process(target=work, args=(file, folder, die_at))
    first.start()
    first.join(after)
    first.kill()
    first.join()
    if first.exitcode == 0:
        return False
    assert first.exitcode == -signal.SIGKILL
    if (folder / "config.json").exists() and is_finished(folder):  # killed between its last file and its exit
        return False
    second = SERVER.Process(target=work, args=(file, folder, None))
    second.start()
    second.join()
    assert second.exitcode == 0
    return True


@pytest.mark.slow
def test_killed_at_ten_instants_of_writing(file: Path, whole: Path, tmp_path: Path) -> None:
    """Each round's save is an fsync, a rename and a removal.

    10 random ones of them, and of the run's other files.
    """
    wanted = outcome(whole)
    for die_at in np.random.default_rng(1).choice(np.arange(1, 100), 10, replace=False).tolist():
        folder = tmp_path / str(die_at)
        assert kill_and_resume(file, folder, die_at=die_at)
        assert outcome(folder) == wanted, die_at


@pytest.mark.heavy
def test_killed_at_ten_random_times(file: Path, whole: Path, tmp_path: Path) -> None:
    for name in (
        "first",
        "timed",
    ):  # the first may also start the server of processes, seconds of nothing to kill
        begin = time.perf_counter()
        assert not kill_and_resume(file, tmp_path / name)
        lasts = time.perf_counter() - begin
    wanted, killed, number = outcome(whole), 0, 0
    draws = np.random.default_rng(2)
    while killed < 10:
        folder = tmp_path / str(number)
        killed += kill_and_resume(file, folder, after=float(draws.uniform(0, lasts)))
        assert outcome(folder) == wanted
        number += 1
        assert number < 40, "too few processes were killed in time"


def stopped_at(round: int) -> Callable[[Any], None]:
    def stop(each: Any) -> None:
        if each.number == round:
            raise KeyboardInterrupt

    return stop


def interrupted(
    file: Path | Graph,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str = "fedepd",
    round: int = 14,
    shards: int = 1,
) -> Path:
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)
    with pytest.raises(KeyboardInterrupt):
        run(file, method, out=folder, shards=shards, on_round=stopped_at(round), **TINY)
    assert not multiprocessing.active_children()
    return folder


@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (2, 1), (1, 3)])
def test_an_interrupted_run_goes_on(
    file: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, shards: int
) -> None:
    folder = interrupted(file, tmp_path / "run", monkeypatch, shards=shards)
    assert len(checkpoints(folder)) == 2
    seen: list[int] = []
    result = resume(folder, workers=workers, shards=shards, on_round=lambda each: seen.append(each.number))
    assert seen == list(range(15, 31))
    assert outcome(folder) == outcome(whole)
    assert result.folder == folder
    assert (
        result.summary["weights_sha256"] == json.loads((whole / "summary.json").read_text())["weights_sha256"]
    )


def test_a_damaged_checkpoint_is_passed_over_and_named(
    file: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(file, tmp_path / "run", monkeypatch)
    newest = checkpoints(folder)[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    result = resume(folder)
    assert result.summary["warnings"] == [
        "'checkpoint-000014' is damaged (its checksum differs): continued from round 13 instead"
    ]
    assert outcome(folder)["bytes"] == outcome(whole)["bytes"]
    assert outcome(folder)["rounds"] == outcome(whole)["rounds"]


def test_without_checkpoints_it_starts_again(file: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(file, "fedepd", out=tmp_path / "run", on_round=stopped_at(5), checkpoint_every=0, **TINY)
    assert checkpoints(tmp_path / "run") == []
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)


@pytest.mark.heavy
def test_every_method_goes_on(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a method keeps between rounds is in its state or in the server's tensors.

    So the checkpoint has it. The run is begun in one process and goes on in two shards: the bits are the same
    for every method, personal models included.
    """
    monkeypatch.setitem(TINY, "rounds", 4)
    for method in fedepd.METHODS:
        run(file, method, out=tmp_path / method / "whole", **TINY)
        folder = interrupted(file, tmp_path / method / "run", monkeypatch, method, round=2)
        resume(folder, shards=2)
        assert outcome(folder) == outcome(tmp_path / method / "whole"), method


@pytest.mark.parametrize("method", ["fedproto", "fedtgp"])
def test_clients_of_different_widths_go_on(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Begun in one process, continued in three: the checkpoint has each client's own network."""
    for name, value in (("rounds", 4), ("widths", "4-16-24")):
        monkeypatch.setitem(TINY, name, value)
    run(file, method, out=tmp_path / "whole", **TINY)
    folder = interrupted(file, tmp_path / "run", monkeypatch, method, round=2)
    resume(folder, shards=3)
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_graph_from_memory_is_asked_for(
    file: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = fedepd.load(file)
    folder = interrupted(graph, tmp_path / "run", monkeypatch)
    with pytest.raises(BadConfig, match="was given a graph from memory; give it again as 'data'"):
        resume(folder)
    resume(folder, graph)
    assert outcome(folder)["rounds"] == outcome(whole)["rounds"]


def test_a_moved_file_and_changed_data(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, moved = tmp_path / "there.npz", tmp_path / "moved.npz"
    shutil.copy(file, there)
    folder = interrupted(there, tmp_path / "run", monkeypatch)
    there.rename(moved)
    with pytest.raises(BadData, match=r"there\.npz' does not exist"):
        resume(folder)
    graph = fedepd.load(moved)
    graph.x[0, 0] += 1
    with pytest.raises(BadData, match="have changed since the run began"):
        resume(folder, graph)
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["training"]["lr"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadData, match=r"config\.json' was changed"):
        resume(folder, moved)


def test_a_folder_of_clients_is_found_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, words = tmp_path / "clients", ["run", "fedepd", "--quiet", "--rounds", "6", "--hidden", "8"]
    assert main(["data", "split", str(file), "--by", "balanced", "--clients", "3", "-o", str(clients)]) == 0
    assert main([*words, "--clients-dir", str(clients), "--out", str(tmp_path / "whole")]) == 0
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["source"]["clients_dir"] == str(clients)
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)
    folder, data = tmp_path / "run", read_clients(clients)
    with pytest.raises(KeyboardInterrupt):
        run(data, "fedepd", out=folder, on_round=stopped_at(3), rounds=6, hidden=8)
    assert main(["resume", str(folder), "--data", str(clients), "--quiet"]) == 0
    assert outcome(folder)["rounds"] == outcome(tmp_path / "whole")["rounds"]


def test_finished_absent_and_damaged_runs(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadConfig, match="already finished"):
        resume(whole)
    assert main(["resume", str(whole)]) == 0
    assert "already finished" in capsys.readouterr().out
    with pytest.raises(BadData, match="holds no run"):
        resume(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadData, match="cannot be read"):
        resume(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadData, match="has no 'config_hash'"):
        resume(tmp_path)


def test_a_folder_of_before_a_setting_was_removed(
    file: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where the setting has the value that is left.

    It is refused by name where the setting has another.
    """
    folder = interrupted(file, tmp_path / "old", monkeypatch)
    config = json.loads((folder / "config.json").read_text())
    assert config["experiment"]["method"]["interleave"] is False
    config["experiment"]["method"]["interleave"] = True
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadConfig, match="interleave is 'True', but this setting was removed"):
        resume(tmp_path / "other")
    resume(folder)
    assert outcome(folder) == outcome(whole)


def test_a_run_that_is_still_at_work_is_left_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(file, tmp_path / "run", monkeypatch)
    with held(folder), pytest.raises(BadConfig, match="another process is working"):
        resume(folder)


def test_what_a_killed_process_left_half_written_does_not_block_a_new_run(tmp_path: Path) -> None:
    (tmp_path / ".config.json.77.part").write_text("{")
    claim_folder(tmp_path, "hash")


def fill_disk(file: Path, folder: Path, says: Connection) -> None:
    """In a process of its own: from round 8 on no file can grow beyond 8 KiB, as on a disk without room."""
    checkpoint.SHARE = math.inf

    def limit(each: Any) -> None:
        if each.number == 8:
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))

    try:
        run(file, "fedepd", out=folder, on_round=limit, **TINY)
    except FedEPDError as mistake:
        says.send(str(mistake))


def test_a_full_disk_leaves_the_old_checkpoint_whole(file: Path, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hears, says = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=fill_disk, args=(file, folder, says))
    process.start()
    process.join()
    message = hears.recv()
    size = checkpoints(folder)[0].stat().st_size
    assert size > 8192
    assert f"cannot write '{folder}/checkpoint-000009' (File too large); " in message
    needed = int(message.split("; ")[1].split(" bytes")[0].replace(",", ""))
    assert abs(needed - size) < 2000
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-000008", "checkpoint-000007"]
    resume(folder)
    assert outcome(folder) == outcome(whole)


def command(file: Path, folder: Path, workers: int, shards: int) -> None:
    checkpoint.SHARE = math.inf
    words = [
        "run",
        "fedepd",
        "--data",
        str(file),
        "--out",
        str(folder),
        "--quiet",
        "--workers",
        str(workers),
        "--shards",
        str(shards),
        *FLAGS,
        "--rounds",
        "100000",
    ]
    raise SystemExit(main(words))


@pytest.mark.parametrize(
    ("number", "workers", "shards"),
    [(signal.SIGINT, 1, 1), (signal.SIGTERM, 1, 1), (signal.SIGTERM, 2, 1), (signal.SIGTERM, 1, 2)],
)
def test_a_signal_stops_within_two_seconds(
    file: Path, tmp_path: Path, number: signal.Signals, workers: int, shards: int
) -> None:
    folder = tmp_path / "run"
    process = SERVER.Process(target=command, args=(file, folder, workers, shards))
    process.start()
    until = time.perf_counter() + 60
    while len(checkpoints(folder)) < 2 and time.perf_counter() < until:
        time.sleep(0.01)
    begin = time.perf_counter()
    os.kill(process.pid or 0, number)
    process.join(10)
    assert time.perf_counter() - begin < 2
    assert process.exitcode == 128 + number
    done = len(
        json.loads(json.dumps(checkpoint.load(checkpoints(folder)[0], config_hash(folder))[1]["lines"]))
    )
    seen: list[int] = []

    def watch(each: Round) -> None:
        seen.append(each.number)
        stopped_at(done + 2)(each)

    with pytest.raises(KeyboardInterrupt):
        resume(folder, on_round=watch)
    assert seen == [done + 1, done + 2]


def config_hash(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["config_hash"])


def test_the_command_says_how_to_go_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedepd.cli.model import by_resuming, stoppable

    (tmp_path / "config.json").touch()
    with pytest.raises(SystemExit) as stop, stoppable(lambda: by_resuming(tmp_path)):
        signal.raise_signal(signal.SIGTERM)
    assert stop.value.code == 143
    assert capsys.readouterr().err == f"fedepd: stopped; 'fedepd resume {tmp_path}' continues the run\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
