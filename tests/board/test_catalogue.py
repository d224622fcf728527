"""What the list says of a folder, whatever is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedepd.board.catalogue import MOST_BYTES, Catalogue, Entry
from fedepd.errors import BadConfig, BadData
from fedepd.folders import held
from hostile_names import PAYLOADS

WriteRun = Callable[..., Path]
hostile = pytest.mark.hostile


def test_finished_and_stopped_runs_at_every_level(write_run: WriteRun) -> None:
    root = write_run("b", skill=0.9).parent
    write_run("study/cells/x", seed=3)
    stopped = write_run("a", method="fedavg", label="FedAvg", rounds=7)
    (stopped / "summary.json").unlink()
    (root / "notes").mkdir()
    a, b, x = Catalogue(root).entries()
    assert (a.id, a.state, a.method, a.done, a.rounds, a.scores) == ("a", "stopped", "FedAvg", 7, 7, ())
    assert (b.state, b.data, b.seed) == ("finished", "toy", 0)
    pooled = json.loads((root / "b" / "summary.json").read_text())["metrics"]["global"]["pooled"]
    assert b.scores == tuple(pooled[name] for name in ("acc", "bacc", "macro_f1"))
    assert (x.id, x.study, x.seed) == ("study/cells/x", "study/cells", 3)


def test_runs_that_differ_in_the_seed_share_their_settings(write_run: WriteRun) -> None:
    """Of 500 runs the list keeps as many texts as there are settings."""
    for seed in (0, 1):
        root = write_run(f"a{seed}", seed=seed).parent
    one, two = Catalogue(root).entries()
    assert one.settings is two.settings
    assert "seed" not in one.settings
    assert ["method.gamma", 0.5] in json.loads(one.settings)


def test_a_run_goes_on_while_a_process_holds_its_folder(write_run: WriteRun) -> None:
    """The lock is another process's, because a process does not see its own."""
    folder = write_run("a")
    (folder / "summary.json").unlink()
    catalogue = Catalogue(folder.parent)
    ends = os.pipe(), os.pipe()
    if not (child := os.fork()):
        with held(folder):
            os.write(ends[0][1], b"x")
            os.read(ends[1][0], 1)
        os._exit(0)
    os.read(ends[0][0], 1)
    assert [each.state for each in catalogue.entries()] == ["running"]
    os.write(ends[1][1], b"x")
    os.waitpid(child, 0)
    assert [each.state for each in catalogue.entries()] == ["stopped"]
    for end in (*ends[0], *ends[1]):
        os.close(end)


def test_only_what_changed_is_read_again(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = write_run("a"), list[str]()
    write_run("b")
    catalogue = Catalogue(folder.parent)
    before = catalogue.entries()

    def note(path: Path, name: str) -> Entry:
        read.append(name)
        return before[0]

    monkeypatch.setattr("fedepd.board.catalogue._entry", note)
    assert catalogue.entries() == before
    assert read == []
    with (folder / "rounds.jsonl").open("a") as file:
        file.write("{}\n")
    assert [each.done for each in catalogue.entries()] == [21, 20]
    assert read == []  # a round changes the count alone
    os.utime(folder / "config.json", ns=(1, 1))
    catalogue.entries()
    assert read == ["a"]


@hostile
@pytest.mark.parametrize("name", ["..", "../a", "/etc", "a/../a", "a/", "", "b\x00", "./a", "a/config.json"])
def test_only_a_name_of_the_list_is_opened(write_run: WriteRun, name: str) -> None:
    with pytest.raises(BadData, match="there is no run"):
        Catalogue(write_run("a").parent).entry(name)


@hostile
@pytest.mark.parametrize(
    "file", ["config.json", "summary.json", "rounds.jsonl", "partition.npz", "final.safetensors"]
)
def test_a_link_out_of_the_folder_is_refused(write_run: WriteRun, tmp_path: Path, file: str) -> None:
    folder = write_run("a")
    (tmp_path / "secret").write_text('{"secret": 1}')
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to(tmp_path / "secret")
    (entry,) = Catalogue(folder.parent).entries()
    assert entry.state == "refused"
    assert f"{file}' is a link" in entry.why
    with pytest.raises(BadData, match="is a link"):
        Catalogue(folder.parent).run_of(entry)


@hostile
def test_a_linked_folder_is_not_followed(write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run("a")
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert Catalogue(folder.parent).entries() == []


@hostile
def test_huge_damaged_and_strange_files_are_refused_one_by_one(write_run: WriteRun) -> None:
    good = write_run("good")
    with (write_run("huge") / "summary.json").open("r+b") as file:
        file.truncate(MOST_BYTES + 1)
    (write_run("damaged") / "config.json").write_text("{")
    pipe = write_run("pipe") / "config.json"
    pipe.unlink()
    os.mkfifo(pipe)
    states = {each.id: each.state for each in Catalogue(good.parent).entries()}
    assert states == {"good": "finished", "huge": "refused", "damaged": "refused", "pipe": "refused"}


@hostile
@pytest.mark.parametrize("payload", PAYLOADS)
def test_names_inside_a_run_are_fit_to_be_shown(write_run: WriteRun, payload: str) -> None:
    folder = write_run("a")
    config = json.loads((folder / "config.json").read_text())
    config["dataset"]["name"] = payload
    (folder / "config.json").write_text(json.dumps(config))
    (entry,) = Catalogue(folder.parent).entries()
    assert len(entry.data) <= 100
    assert entry.data.isprintable() or "‌" in entry.data or "‍" in entry.data


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="is not a folder"):
        Catalogue(tmp_path / "nothing")
