"""A target whose file name, title, rows and datasets were made to do harm: every file and the page hold
them as text."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chromium import check_nothing_leaves, needs_browser, visit
from fedepd.cli import main
from fedepd.report.runs import Group
from fedepd.report.tables import Cell, Table
from fedepd.reproduction.pages.drawing import new_figure, save_figure, styled
from fedepd.reproduction.pages.output import _markdown, write_target
from fedepd.reproduction.pages.page import write_reproduction
from fedepd.reproduction.pages.tables import latex, latex_document
from fedepd.reproduction.study.results import Results
from fedepd.reproduction.study.targets import read_target
from fedepd.shown import shown, whole
from hostile_names import ALL, PAYLOADS, cases, check_lines, unfit

MakeResults = Callable[..., Results]
every = pytest.mark.parametrize("text", cases(ALL))
pytestmark = pytest.mark.hostile


def toml_file(folder: Path, text: str) -> Path:
    """Named by the text as far as a file can be, with the text as title and label."""
    name = whole(text.replace("/", "_").replace("\0", "_"))[:100] or "x"
    quoted = json.dumps(whole(text).replace("\x7f", "?"), ensure_ascii=False)
    path = folder / f"{name}.toml"
    path.write_text(
        f'title = {quoted}\nkind = "comparison"\ndatasets = ["synthetic"]\n'
        f'[[rows]]\nmethod = "fedavg"\nlabel = {quoted}\n'
    )
    return path


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_page(html: str) -> None:
    assert unfit(html.replace("\n", "")) == []
    elements = Elements(html).found
    assert [
        sum(tag == each for tag, _ in elements) for each in ("script", "style", "title", "iframe", "object")
    ] == [1, 1, 1, 0, 0]
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    for _, attributes in elements:
        assert not any(name.startswith("on") for name in attributes)
        link = attributes.get("href") or "data:,"
        assert link == "data:," or (re.fullmatch(r"#[\w.-]+", link) and link[1:] in ids)


@every
def test_the_command_on_a_poisoned_target(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file name became a link that ran script, and '...toml' wrote beside the output folder."""
    target, out = toml_file(tmp_path, text), tmp_path / "out"
    assert (
        main(["reproduce", str(target), "--no-run", "--seeds", "1", "--data", "synthetic", "--out", str(out)])
        == 0
    )
    check_lines("".join(capsys.readouterr()))
    page = next(out.glob("*.html"))
    check_page(page.read_text(encoding="utf-8"))
    assert {path.name for path in tmp_path.iterdir()} == {target.name, "out"}
    folder = out / page.stem
    assert {path.suffix for path in folder.iterdir()} == {".md", ".tex", ".csv"}
    for path in (page, *folder.iterdir()):
        assert re.fullmatch(r"[\w.-]+", path.name)
    rows = list(csv.reader(io.StringIO((folder / f"{page.stem}.csv").read_text(), newline="")))
    assert not any(cell.startswith(("=", "@", "\t", "\r", "+")) for row in rows for cell in row)
    assert len(rows) == 2
    markdown = (folder / f"{page.stem}.md").read_text()
    assert unfit(markdown.replace("\n", "")) == []
    assert not re.search(r"(?<!\\)(<script|<img|<http|\]\(|```)", markdown)
    check_latex((folder / f"{page.stem}.tex").read_text())


@pytest.mark.parametrize("stem", ["..", ".", "", "a/../..", "...", "-", "con"])
def test_a_target_cannot_leave_its_folder(stem: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = tmp_path / f"{stem}.toml" if stem else tmp_path / ".toml"
    path.write_text(
        'title = "x"\nkind = "comparison"\ndatasets = ["synthetic"]\n[[rows]]\nmethod = "fedavg"\n'
    )
    name = read_target(str(path)).name
    assert (tmp_path / "out" / name).resolve().parent == tmp_path / "out"


def check_latex(text: str) -> None:
    """Only our own commands, in balance: what came from data is between them as text."""
    ours = {
        "documentclass",
        "usepackage",
        "extrafloats",
        "begin",
        "end",
        "caption",
        "label",
        "centering",
        "footnotesize",
        "setlength",
    }
    ours |= {
        "tabcolsep",
        "toprule",
        "midrule",
        "bottomrule",
        "linewidth",
        "raggedright",
        "arraybackslash",
        "textbf",
        "underline",
    }
    ours |= {
        "scriptsize",
        "textbackslash",
        "textasciitilde",
        "textasciicircum",
        "textless",
        "textgreater",
        "pm",
        "dagger",
        "ddagger",
    }
    ours |= {"leq", "times"}
    assert set(re.findall(r"\\([A-Za-z]+)", text.replace(r"\\", ""))) <= ours
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text.replace(r"\\", "")):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"(?<!\\)\$", text.replace(r"\\", ""))) % 2 == 0
    assert not re.search(r"(?<!\\)%", text)
    assert not re.search(r"\n\s*[\[*]", text)  # an option of the command before
    assert set(re.findall(r"\\label\{([^}]*)\}", text)) == {
        found for found in re.findall(r"\\label\{(tab:[\w.:-]*)\}", text)
    }
    assert text.count(r"\end{document}") <= 1


@every
def test_latex_of_a_poisoned_table(text: str) -> None:
    cells = [
        [Cell(text), Cell("1.0", 1.0, text), Cell(text, 2.0, "", 1)],
        [Cell(text), Cell(text), Cell(text, 1.0, "", 2)],
    ]
    made = latex_document([latex(Table(text, [text, text, text], [cells], text))])
    check_latex(made)
    assert unfit(made.replace("\n", "")) == []


@every
def test_a_poisoned_study_without_a_run(text: str, make_results: MakeResults, tmp_path: Path) -> None:
    results = make_results({("fedavg", text or "x"): [None], ("fedavg", "toy"): [None]}, why=text)
    rows = tuple(replace(row, label=text) for row in results.target.rows)
    entries = [replace(entry, row=rows[0]) for entry in results.entries]
    results = Results(replace(results.target, title=text, rows=rows), entries)
    written = write_target(results, tmp_path)
    page = write_reproduction(
        [replace(written, results=replace(results, target=replace(results.target, name=text)))],
        tmp_path / "x.html",
        text,
    )
    check_page(page.read_text(encoding="utf-8"))
    check_latex((tmp_path / "mine" / "mine.tex").read_text())
    assert len(list(csv.reader(io.StringIO((tmp_path / "mine" / "mine.csv").read_text(), newline="")))) == 3


def test_pictures_in_markdown_lead_nowhere_else(make_results: MakeResults) -> None:
    results = make_results({("fedavg", "toy"): [None]})
    results = replace(results, target=replace(results.target, title="x](javascript:alert(1)) ![y"))
    made = _markdown(
        results, {"# [a](b)": Table("t", ["a"], [[[Cell("b")]]])}, [Path("a b) ![x](http:evil.svg")]
    )
    assert re.findall(r"(?<!\\)\]\(([^)]*)\)", made) == [
        "a%20b%29%20%21%5Bx%5D%28http%3Aevil.png"
    ] * made.count("![")


@pytest.mark.parametrize("part", range(6))
def test_figures_with_poisoned_names_are_whole(part: int, tmp_path: Path) -> None:
    """Mathematics, control characters and half characters broke them, or were drawn as something else."""
    names = [text for text in ALL.values() if text][part::6]
    labels = [Group(shown(text), ()).label for text in names]

    @styled
    def draw() -> Any:
        figure = new_figure(7.0, 4.0, "Title", "Note")
        axis = figure.subplots()
        for place, label in enumerate(labels):
            axis.bar(place, 1, label=label)
            axis.text(place, 0.5, label)
        axis.set_xticks(range(len(labels)), labels)
        axis.set_title(labels[0])
        axis.legend()
        return figure

    png, svg = save_figure(draw(), tmp_path / "x")
    assert png.read_bytes().startswith(b"\x89PNG")
    texts = [
        " ".join("".join(each.itertext()).split())
        for each in ET.parse(svg).iter()
        if each.tag.endswith("text")
    ]
    for text in names:
        assert texts.count(" ".join(shown(text).split())) >= 3  # in the legend, in the figure, under the axis


def test_two_long_names_stay_two_columns(make_results: MakeResults) -> None:
    first, second = f"{'x' * 100}1", f"{'x' * 100}2"
    results = make_results({("fedavg", first): [50], ("fedavg", second): [60]})
    assert results.title(first) != results.title(second)
    assert len(results.title(first)) <= 80


@pytest.mark.browser
@needs_browser[1]
def test_no_name_runs_as_script(browser: Any, tmp_path: Path, make_results: MakeResults) -> None:
    names = ["script", "image", "attribute", "single quote", "end of style", "comment", "javascript"]
    written = []
    for place, name in enumerate(names):
        text = PAYLOADS[name]
        results = make_results({("fedavg", text): [None]}, why=text)
        row = replace(results.target.rows[0], label=text)
        target = replace(results.target, name=f"t{place}", title=text, rows=(row,))
        made = write_target(Results(target, [replace(entry, row=row) for entry in results.entries]), tmp_path)
        written.append(
            replace(made, results=replace(made.results, target=replace(target, name=f"{place}{text}")))
        )
    page = write_reproduction(written, tmp_path / "<img src=x onerror=alert(1)>.html", PAYLOADS["script"])
    visit(browser, page.as_uri())
    for link in browser.find_elements("css selector", "nav a"):
        link.click()
    assert browser.title == "FedEPD reproduced: every table and figure"
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.querySelectorAll('table th button').length") > 10
    check_nothing_leaves(browser, page.as_uri())
