"""Kits on the command line: what is refused before one is made or opened."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli.federation import main
from fedepd.datasets.npz import write_npz
from fedepd.errors import BadConfig, FedEPDError
from toy import CLASSES, FEATURES, toy_client


@pytest.mark.parametrize(("option", "known"), [("--features", FEATURES), ("--classes", CLASSES)])
def test_a_number_that_differs_from_the_example_is_refused(tmp_path: Path, option: str, known: int) -> None:
    write_npz(toy_client().graph, tmp_path / "example.npz")
    words = ["--sites", "a,b", "--host", "localhost", "--example", str(tmp_path / "example.npz")]
    with pytest.raises(BadConfig, match=f"{option} is 99, but .* has {known}; leave {option} out"):
        main(["init", *words, option, "99", "-o", str(tmp_path / "fed")])
    assert not (tmp_path / "fed").exists()


def test_a_folder_that_is_no_kit_is_left_as_it_was(tmp_path: Path) -> None:
    write_npz(toy_client().graph, tmp_path / "a.npz")
    kit = tmp_path / "kit"
    kit.mkdir()
    for words in (["start", str(kit)], ["join", str(kit), "--data", str(tmp_path / "a.npz")]):
        with pytest.raises(FedEPDError):
            main(words)
        assert list(kit.iterdir()) == []
