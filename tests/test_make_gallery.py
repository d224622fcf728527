"""The gallery shows every figure that the package draws, with commands that are understood."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import make_gallery
import pytest

from understood import understood

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedepd"
SHELVES = make_gallery.shelves()
PICTURES = [picture for shelf in SHELVES for picture in shelf.pictures]
FOLDERS = rf"/(?:tmp|home|root|usr|opt|var|mnt|srv|Users)/|{re.escape(str(ROOT.parent))}/"
OUTSIDE = re.compile(rf"<script|href=\"(?!#|data:image/png)|url\((?!&quot;#|'?#)|{FOLDERS}")
"""What a picture must not hold: what runs, what is loaded, folders of a machine."""
EMPTY = {"report.plots._svg", "report.drawing._drawn", "reproduction.pages.drawing.new_figure"}
"""They make an empty figure for those that draw."""


def draws(node: ast.FunctionDef, is_board: bool) -> bool:
    """Whether a function makes a figure: by our own makers, by matplotlib's, or as JSON for the board."""
    if any(isinstance(each, ast.Name) and each.id == "styled" for each in node.decorator_list):
        return True
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in ("svg_of", "_svg") or (is_board and name == "figure"):
                return True
            if name == "Figure" and any(keyword.arg == "figsize" for keyword in call.keywords):
                return True
    return False


def drawing_functions() -> Iterator[str]:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"svg_of|styled|figsize|plotly", text) is None:
            continue
        place = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and draws(node, place == "board.charts"):
                yield f"{place}.{node.name}"
    script = (SOURCE / "board" / "board.js").read_text(encoding="utf-8")
    curves = script[script.index("const curves = {") : script.index("let waiting")]
    yield from (f"board.js, {name}" for name in re.findall(r"^ +(\w+): \{ title", curves, re.MULTILINE))


def test_every_drawing_function_is_shown_or_left_out_with_a_reason() -> None:
    there = set(drawing_functions()) - EMPTY
    shown = {picture.drawn for picture in PICTURES}
    left_out = make_gallery.left_out()
    assert len(there) > 35
    assert shown | set(left_out) == there
    assert shown & set(left_out) == set()
    assert all(len(why) > 20 for why in left_out.values())


def test_a_figure_is_a_small_text_file_and_no_file_is_left_over() -> None:
    files = svg_files("gallery")
    assert sorted(files) == sorted(picture.file for picture in PICTURES)
    sizes = {name: path.stat().st_size for name, path in files.items()}
    assert {name: size for name, size in sizes.items() if not 500 < size <= make_gallery.MOST} == {}
    assert sum(sizes.values()) < 1_000_000


def test_the_screenshots_of_the_readme_are_small_text_files() -> None:
    files = svg_files("screens")
    assert sorted(files) == ["board", "report"]
    assert max(path.stat().st_size for path in files.values()) < 150_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"](docs/screens/{name}.svg)" in readme for name in files)
    letters = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    assert ">FedEPD</text>" in letters["report"]
    assert ">Validation scores</text>" in letters["board"]


def svg_files(folder: str) -> dict[str, Path]:
    """The pictures of a folder of docs/. They load nothing, run nothing, and name no folder of a machine."""
    files = {path.stem: path for path in (ROOT / "docs" / folder).glob("*.svg")}
    for path in files.values():
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert OUTSIDE.search(text) is None, path.name
    return files


def test_the_page_is_up_to_date() -> None:
    written = make_gallery.PAGE.read_text(encoding="utf-8")
    assert written == make_gallery.page(), (
        "run 'python docs/make_gallery.py --page' and commit docs/gallery.md"
    )


@pytest.mark.parametrize("shelf", SHELVES, ids=lambda shelf: shelf.title)
def test_commands_are_understood_and_need_no_data_of_others(
    shelf: make_gallery.Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the commands that the script runs. What the page shows breaks their lines."""
    if any(command.startswith("fedepd federation") for command in shelf.commands):
        pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    assert set(understood(shelf.commands, monkeypatch).values()) == {True}
    for command in shelf.commands:
        shown = make_gallery.broken(command)
        assert max(map(len, shown.splitlines())) <= 80
        assert shlex.split(shown.replace("\\\n", " ")) == shlex.split(command)
        data = re.search(r"--data ((?:[^-\s]\S* ?)+)", command)
        for name in data[1].split() if data else ():
            assert name in ("synthetic", "bank.npz"), command


def test_a_figure_of_a_page_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    drawn = '<path d="M 1.23456 -7.5"/>\n  <text>0.0005</text>'
    figure = f'<svg role="img" aria-label="x" data-name="a-1" width="9">\n{drawn}</svg>'
    (tmp_path / "p.html").write_text(f"<p><svg>{figure}<svg>", encoding="utf-8")
    found = make_gallery.taken(make_gallery.Picture("x", "", "", "p.html", "a-"), tmp_path)
    assert found.count("<svg") == 1
    assert 'style="background: #fff"><style>' in found
    assert 'd="M 1.23 -7.5"' in found
    assert "<text>0.0005<" in found  # what is said is not cut
    with pytest.raises(SystemExit, match=r"p\.html has no figure 'b'"):
        make_gallery.taken(make_gallery.Picture("x", "", "", "p.html", "b"), tmp_path)


def test_random_names_are_counted() -> None:
    """Both references to the first name follow it; a name that another one begins with does not change it."""
    one = '<g id="clip9f"/><g id="clip9fxy"/><a clip-path="url(#clip9f)" b="url(\'#clip9fxy\')"/>'
    other = one.replace("9f", "03")
    assert make_gallery.numbered(one) == make_gallery.numbered(other)
    assert '<g id="p0"/><g id="p1"/>' in make_gallery.numbered(one)


@pytest.mark.heavy
def test_a_shelf_that_is_made_again_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One short run, and its report."""
    shelf = next(shelf for shelf in SHELVES if shelf.title == "Pruned edges")
    monkeypatch.setattr(make_gallery, "FOLDER", tmp_path)
    monkeypatch.setattr(make_gallery, "shelves", lambda: (shelf,))
    monkeypatch.chdir(tmp_path)
    make_gallery.make()
    for picture in shelf.pictures:
        made = (tmp_path / f"{picture.file}.svg").read_bytes()
        assert made == (ROOT / "docs" / "gallery" / f"{picture.file}.svg").read_bytes()
