"""``fedepd federation worth``: the sentence, a table, a page in the kit; one sentence where it cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.ended import ended, own_copy
from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.kits import open_kit
from toy import relabelled, toy_client


@pytest.fixture(scope="module")
def over(five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ended") / "fed"
    ended(five_kits, folder)
    return folder


@pytest.fixture
def kit(over: Path, tmp_path: Path) -> Path:
    return own_copy(over, tmp_path)


def pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_the_sentence_a_table_and_a_page_in_the_kit(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation", "worth", str(kit)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(("Joining was ", "It cannot be told: "))
    assert "Balanced accuracy" in said
    assert said.rstrip().endswith(f"page: {kit / 'state' / 'r' / 'worth.html'}")
    assert max(map(len, said.splitlines()[2:])) <= 80 + len(str(kit))
    assert pages(kit) == [kit / "state" / "r" / "worth.html"]
    assert open_kit(kit, "client").name == "a"  # the kit is still one that can be used
    first = pages(kit)[0].read_bytes()
    assert main(["federation", "worth", str(kit), "--run", "r"]) == 0
    assert pages(kit)[0].read_bytes() == first


def test_json_and_another_place(kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "mine.html"
    assert main(["federation", "worth", str(kit), "-o", str(page), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["site"] == "a"
    assert content["page"] == str(page)
    assert content["verdict"]["answer"] in ("worth it", "not worth it", "cannot be told")
    assert [each["name"] for each in content["models"]] == ["alone", "federation", "adapted"]
    assert "<h1>" in page.read_text(encoding="utf-8")
    assert pages(kit) == []


def before_the_end(kit: Path) -> list[str]:
    (kit / "state" / "r" / "final").unlink()
    return []


def no_run(kit: Path) -> list[str]:
    shutil.rmtree(kit / "state" / "r")
    return []


def several_runs(kit: Path) -> list[str]:
    shutil.copytree(kit / "state" / "r", kit / "state" / "s")
    return []


def tampered(kit: Path) -> list[str]:
    file = kit / "state" / "r" / "final"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    return []


def tampered_book(kit: Path) -> list[str]:
    (kit / "state" / "r" / "sent.jsonl").write_text('{"what": 1}\n')
    return []


def changed_data(kit: Path) -> list[str]:
    write_client_file(toy_client(seed=1, nodes=20), kit.parent / "a.npz")
    return []


def no_labels(kit: Path) -> list[str]:
    data = toy_client(nodes=20)
    write_client_file(relabelled(data, data.graph.y.clone().fill_(-1)), kit.parent / "a.npz")
    return []


def another_name(kit: Path) -> list[str]:
    return ["--run", "nobody"]


REFUSED = {
    before_the_end: "has not given this site a model",
    no_run: "took part in no run yet",
    several_runs: "took part in several runs (r, s); give --run NAME",
    tampered: "its checksum differs",
    tampered_book: "line 1 of 'sent.jsonl'",
    changed_data: "has changed since run 'r'",
    no_labels: "has changed since run 'r'",
    another_name: "nobody",
}


@pytest.mark.hostile
@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_what_cannot_be_is_one_sentence_and_writes_nothing(
    kit: Path, capsys: pytest.CaptureFixture[str], change: object
) -> None:
    more = change(kit)  # type: ignore[operator]
    assert main(["federation", "worth", str(kit), *more]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.count("\n") == 1
    assert REFUSED[change] in said  # type: ignore[index]
    assert pages(kit.parent) == []


def test_a_page_that_cannot_be_written_is_one_sentence(
    kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["federation", "worth", str(kit), "-o", str(tmp_path / "a.npz" / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert pages(tmp_path) == []
