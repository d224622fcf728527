"""A split is whole or refused: a manifest says so, first that it is unfinished, last what it holds."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.cli import main
from fedepd.clients.client_file import write_client_file, write_unsplit_file
from fedepd.clients.clients_dir import (
    MANIFEST,
    folder_names,
    joined,
    read_clients,
    read_files,
    write_clients,
)
from fedepd.clients.split import SplitConfig
from fedepd.clients.vault import vault
from fedepd.datasets import synthetic, write_npz
from fedepd.errors import BadConfig, BadData
from fedepd.types import HIDDEN, ClientData
from hostile import ANY_FILE, ANY_JSON, everything, refusal
from toy import toy_clients

hostile = pytest.mark.hostile
QUICK = ["--rounds", "1", "--hidden", "4", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_clients(toy_clients(), ["north", "south", "west"], tmp_path / "clients")
    return tmp_path / "clients"


def test_a_whole_split_is_read(folder: Path) -> None:
    assert len(read_clients(folder)) == 3
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["complete"] is True
    assert list(manifest["files"]) == ["north/graph.npz", "south/graph.npz", "west/graph.npz"]
    assert manifest["files"]["west/graph.npz"]["bytes"] == (folder / "west" / "graph.npz").stat().st_size


def test_folders_made_by_hand_need_no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    shutil.rmtree(folder / "south")
    assert len(read_clients(folder)) == 2


def split_and_die(file: Path, folder: Path, die_at: int) -> None:
    """In a process of its own: killed at the n-th time that a file takes its place or a folder is made."""
    count = 0

    def deadly(act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*arguments, **named)

        return wrapped

    os.replace, os.mkdir = deadly(os.replace), deadly(os.mkdir)
    raise SystemExit(
        main(["data", "split", str(file), "--clients", "3", "--by", "balanced", "-o", str(folder)])
    )


@hostile
def test_a_split_that_was_killed_is_never_taken_for_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every instant between two files; what is left is refused, until the split is whole.

    Nine instants: the folder, its manifest, three clients' folders and files, the manifest again.
    The tenth try ends.
    """
    write_npz(
        synthetic(nodes=60, edges=150, classes=3, imbalance=3, features=6, smallest=None), tmp_path / "g.npz"
    )
    server, ends = multiprocessing.get_context("fork"), list[int]()
    for die_at in range(1, 40):
        folder = tmp_path / f"clients{die_at}"
        process = server.Process(target=split_and_die, args=(tmp_path / "g.npz", folder, die_at))
        process.start()
        process.join()
        ends.append(process.exitcode or 0)
        if process.exitcode == 0:
            break
        said = refusal(capsys, tmp_path, "run", "fedavg", "--clients-dir", str(folder), *QUICK)
        assert any(words in said for words in ("was interrupted", "is not a folder", "has no NAME/graph.npz"))
    assert ends[-1] == 0
    assert len(ends) == 10
    assert set(ends[:-1]) == {-signal.SIGKILL}
    assert len(read_clients(folder)) == 3


@hostile
@pytest.mark.parametrize("case", ["removed", "added", "changed", "cut", "renamed", "empty"])
def test_files_that_are_not_those_of_the_split_are_named(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "south" / "graph.npz"
    if case == "removed":
        shutil.rmtree(folder / "south")
    elif case == "added":
        shutil.copytree(folder / "south", folder / "spy")
    elif case == "renamed":
        (folder / "south").rename(folder / "east")
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes({"changed": bytes(content), "cut": bytes(content[:-1]), "empty": b""}[case])
    said = refusal(capsys, folder.parent, "run", "fedavg", "--clients-dir", str(folder), *QUICK)
    assert "graph.npz' is" in said
    assert "remove 'manifest.json' if you changed the folder on purpose" in said


@hostile
@pytest.mark.parametrize("case", [*(case for case in ANY_FILE if case != "missing"), *ANY_JSON])
def test_a_manifest_that_is_none_is_refused(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    {**ANY_FILE, **ANY_JSON}[case](folder / MANIFEST)
    assert MANIFEST in refusal(capsys, folder.parent, "run", "fedavg", "--clients-dir", str(folder), *QUICK)


@hostile
@pytest.mark.parametrize("case", ["fifo", "folder", "loop of links", "device"])
def test_a_clients_file_that_is_no_file_is_refused(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ANY_FILE[case](folder / "south" / "graph.npz")
    refusal(capsys, folder.parent, "run", "fedavg", "--clients-dir", str(folder), *QUICK)
    (folder / MANIFEST).unlink()
    refusal(capsys, folder.parent, "run", "fedavg", "--clients-dir", str(folder), *QUICK)


@hostile
@pytest.mark.parametrize(
    "files", [[], 3, {"north/graph.npz": 3}, {"north/graph.npz": {"bytes": "1", "sha256": "a" * 64}}]
)
def test_a_list_of_files_that_is_none_is_refused(folder: Path, files: Any) -> None:
    (folder / MANIFEST).write_text(json.dumps({"complete": True, "files": files}))
    with pytest.raises(BadData, match="'files"):
        read_clients(folder)


def test_a_split_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedepd.clients import clients_dir

    write, count = write_client_file, 0

    def full(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise BadData("cannot write (no room)")
        write(*arguments)

    monkeypatch.setattr(clients_dir, "write_client_file", full)
    with pytest.raises(BadData, match="no room"):
        write_clients(toy_clients(), ["a", "b", "c"], tmp_path / "new" / "clients")
    assert everything(tmp_path) == {"new": everything(tmp_path)["new"]}
    with pytest.raises(BadConfig, match="not empty"):
        write_clients(toy_clients(), ["a", "b", "c"], tmp_path)


NAMES: dict[str, list[str]] = {
    "four bytes each": ["𝔘" * 80, "𝔙" * 80],
    "alike but for their end": ["𝔘" * 79 + "a", "𝔘" * 79 + "b"],
    "alike but for their end, in ASCII": ["x" * 90 + "a", "x" * 90 + "b"],
    "the manifest": ["manifest.json", "north"],
    "dots": ["..", "."],
    "a way out": ["../../etc", "/etc/passwd"],
    "nothing": ["", "\0"],
    "control characters": ["a\nb", "a\x1b[31mb"],
    "halves of pairs": ["a\ud800", "a\udfff"],
    "case": ["North", "north"],
}


@hostile
@pytest.mark.parametrize("case", NAMES)
def test_owners_names_become_folders(tmp_path: Path, case: str) -> None:
    found = folder_names(NAMES[case])
    assert len({name.lower() for name in found}) == 2
    assert found == sorted(found)
    assert all(
        len(os.fsencode(name)) <= 255 and "/" not in name and name not in (".", "..", MANIFEST)
        for name in found
    )
    paths = write_clients(toy_clients(2), NAMES[case], tmp_path / "clients")
    assert all(path.parent.parent == tmp_path / "clients" for path in paths)
    assert [client.graph.num_nodes for client in read_clients(tmp_path / "clients")] == [20, 24]


@hostile
def test_an_owner_with_a_long_name_in_the_data(tmp_path: Path) -> None:
    graph = synthetic(nodes=60, edges=150, classes=3, imbalance=3, features=6, smallest=None)
    from dataclasses import replace

    graph = replace(graph, owner=torch.arange(60) % 2, owner_names=("𝔘" * 80, "𝔘" * 79 + "𝔙"))
    write_npz(graph, tmp_path / "g.npz")
    assert (
        main(["data", "split", str(tmp_path / "g.npz"), "--by", "owner", "-o", str(tmp_path / "clients")])
        == 0
    )
    assert [client.graph.num_nodes for client in read_clients(tmp_path / "clients")] == [30, 30]
    assert np.all([client.graph.num_classes == 3 for client in read_clients(tmp_path / "clients")])


def unsplit(folder: Path) -> Path:
    """The same owners, whose files have no split of their own."""
    for number, client in enumerate(toy_clients()):
        (folder / f"owner{number}").mkdir(parents=True)
        write_unsplit_file(client.graph, folder / f"owner{number}" / "graph.npz")
    return folder


def test_a_folder_without_splits_has_one_vault_for_all_seeds(tmp_path: Path) -> None:
    """All owners' nodes together give it: a fifth of every class, rounded down."""
    folder, config = unsplit(tmp_path / "owners"), SplitConfig(vault=0.2)
    aside = vault(joined(read_files(folder)), 0.2)
    sizes = torch.bincount(joined(read_files(folder)).y)
    assert int(aside.sum()) == sum(int(0.2 * n) for n in sizes.tolist()) > 0
    for seed in range(5):
        for client in read_clients(folder, config, seed):
            used = client.train_mask | client.val_mask | client.test_mask
            assert torch.equal(used, ~aside[client.global_ids])
            scored = read_clients(folder, SplitConfig(vault=0.2, score_on="vault"), seed)[client.client_id]
            assert torch.equal(scored.test_mask, aside[client.global_ids])
            assert torch.equal(scored.train_mask, client.train_mask)


def test_a_vault_is_refused_where_the_files_are_split(folder: Path) -> None:
    with pytest.raises(BadConfig, match=r"vault is 0\.2, but the client's file has a split of its own"):
        read_clients(folder, SplitConfig(vault=0.2))


def test_a_split_with_a_vault_writes_no_label_of_it(tmp_path: Path) -> None:
    """A federation from these files cannot open the vault, because it is not in them."""
    out = tmp_path / "clients"
    assert main(["data", "split", "synthetic", "--clients", "3", "--vault", "0.2", "-o", str(out)]) == 0
    y = joined(read_files(out)).y
    assert torch.equal(y == HIDDEN, vault(synthetic(), 0.2))
    assert main(["run", "fedavg", "--clients-dir", str(out), *QUICK]) == 0


def weighed(client: ClientData) -> ClientData:
    some = torch.linspace(0.5, 8.0, client.graph.num_edges)
    return replace(client, graph=replace(client.graph, edge_weight=some))


def test_weights_of_edges_survive_files_and_joining(tmp_path: Path) -> None:
    clients = [weighed(client) for client in toy_clients()]
    write_clients(clients, ["north", "south", "west"], tmp_path / "clients")
    read = read_clients(tmp_path / "clients")
    for one, other in zip(clients, read, strict=True):
        assert other.graph.edge_weight is not None
        assert torch.equal(one.graph.edge_weight, other.graph.edge_weight)  # type: ignore[arg-type]
    whole = joined(read)
    for client in read:
        inner = client.global_ids[client.graph.edge_index]
        found, own = whole.weights_of(inner), client.graph.edge_weight
        assert found is not None
        assert torch.equal(found, own)  # type: ignore[arg-type]


def test_weights_at_some_clients_only_are_refused(tmp_path: Path) -> None:
    first, *others = toy_clients()
    write_clients([weighed(first), *others], ["north", "south", "west"], tmp_path / "clients")
    with pytest.raises(BadData, match=r"one has weights of edges and the other has none; import both with"):
        read_clients(tmp_path / "clients")
