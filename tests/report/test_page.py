from __future__ import annotations

import ast
import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fedepd.report
from fedepd.cli import main
from fedepd.errors import BadConfig, BadData
from fedepd.report import build_report
from fedepd.shown import plain, shown
from hostile_names import ALL, FEW, PAYLOADS, cases, check_lines, unfit

WriteRun = Callable[..., Path]
FIGURES = ["per-class", "tiers", "convergence", "partition", "purification", "communication"]


class Page(HTMLParser):
    """What stands on a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def names(self, tag: str) -> list[str | None]:
        return [attrs.get("data-name") for found, attrs in self.tags if found == tag]


def figures(page: Page) -> tuple[list[str], int]:
    """The figures of a page, and beside them the number of confusion matrices.

    The first ones are there once more, for a phone.
    """
    names = [str(name) for name in page.names("svg")]
    narrow = {name for name in names if name.endswith("-narrow")}
    assert narrow in (set(), {"per-class-narrow", "tiers-narrow", "convergence-narrow"})
    names = [name for name in names if name not in narrow]
    confusions = [name for name in names if name.startswith("confusion-")]
    return [name for name in names if name not in confusions], len(confusions)


@pytest.fixture
def comparison(write_run: WriteRun) -> Path:
    write_run("avg", method="fedavg", label="FedAvg", prunes=False)
    write_run("gta", method="fedgta", label="FedGTA", prunes=False, has_global=False)
    return write_run("epd").parent


def test_the_page_has_every_section(compared: Path) -> None:
    assert compared.name == "report.html"
    assert (compared.parent / "epd" / "summary.json").is_file()
    page = Page(compared.read_text(encoding="utf-8"))
    assert figures(page) == (FIGURES, 3)
    assert page.names("table")[0] == "summary-headline-pooled"
    assert {"cost", "clients", "runs"} <= set(page.names("table"))
    for text in (
        "3.4% of the test nodes belong to a class without any training node at their client",
        "Head: the fewest classes that together hold 50% of the nodes",
        "† A method without a global model",
        "FedGTA has none, so the clients' personal models are scored",
        "torch 2.13",
        "fedepd run fedavg --note 'a b'\nfedepd run fedepd --note 'a b'\n",
        "toy: client 2 is small",
        "000000000000",
        "112.5",
    ):
        assert text in page.text


def test_the_answer_comes_first_then_one_figure_then_the_scores(compared: Path) -> None:
    """Everything else is folded. The protocol is there once, and clients come before purification."""
    html = compared.read_text(encoding="utf-8")
    body = html[html.index("<body>") :]
    assert re.match(r'<body>\s*<header>\s*<h1 class="answer"><span>FedEPD finds \d+&nbsp;% of', body)
    assert re.findall(r"<details[^>]* open><summary>(.*?)</summary>", body) == ["<h3>Scores</h3>"]
    assert body.count("<figure", 0, body.index("<details")) == 1
    assert body.index('data-name="per-class"') < body.index("<h3>Scores</h3>")
    assert body.index("<h3>Clients</h3>") < body.index("<h3>Purification</h3>")
    assert body.count("split floor 60/20/20") == 1


def test_no_request_can_leave_the_page(compared: Path) -> None:
    page = Page(compared.read_text(encoding="utf-8"))
    for tag, attrs in page.tags:
        assert "src" not in attrs
        for name in ("href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith(("#", "data:")), (tag, attrs)
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert (policy or "").startswith("default-src 'none'")


@pytest.mark.usefixtures("no_figures")
def test_the_same_folder_gives_the_same_page_and_no_leftovers(comparison: Path) -> None:
    first = build_report(comparison).read_bytes()
    assert build_report(comparison).read_bytes() == first
    assert sorted(child.name for child in comparison.iterdir()) == ["avg", "epd", "gta", "report.html"]
    assert str(comparison).encode() not in first


def test_everything_from_data_is_escaped(write_run: WriteRun) -> None:
    bad = "<b>x</b><script>1</script>"
    folder = write_run("a", dataset=bad, label=bad, preset=bad, settings={bad: bad})
    (folder / "env.json").write_text(json.dumps({bad: bad, "command": [bad]}))
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 1
    assert tags.count("b") == 5  # nodes, edges, features, classes, imbalance ratio
    assert page.text.count(bad) > 8


def test_one_run_without_a_global_model_says_so(write_run: WriteRun) -> None:
    page = Page(build_report(write_run("a", has_global=False, prunes=False)).read_text(encoding="utf-8"))
    assert "Test scores of the clients' personal models in percent" in page.text
    assert "FedEPD: no edges are pruned." in page.text
    assert figures(page) == ([name for name in FIGURES if name != "purification"], 1)


def test_many_datasets_get_a_section_each_and_unfinished_runs_are_named(write_run: WriteRun) -> None:
    write_run("a", dataset="one", proxy=True)
    write_run("b", dataset="two", clients=3)
    half = write_run("half", seed=9)
    (half / "summary.json").unlink()
    html = build_report(half.parent).read_text(encoding="utf-8")
    assert figures(Page(html)) == (2 * FIGURES, 2)
    assert "Unfinished runs that are not shown: half." in html
    assert html.count('<span class="badge">proxy features</span>') == 1
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("no_figures")
def test_out_is_a_file_or_a_folder(comparison: Path, tmp_path: Path) -> None:
    assert build_report(comparison / "epd", tmp_path) == tmp_path / "report.html"
    assert build_report(comparison / "epd", tmp_path / "new" / "x.html").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfig, match=r"cannot write the report to .*file/x\.html"):
        build_report(comparison / "epd", tmp_path / "file" / "x.html")


@pytest.mark.usefixtures("no_figures")
def test_a_failed_write_leaves_the_old_report(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (comparison / "report.html").write_text("old")

    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(BadConfig, match="Permission denied"):
        build_report(comparison)
    assert (comparison / "report.html").read_text() == "old"
    assert sorted(child.name for child in comparison.iterdir()) == ["avg", "epd", "gta", "report.html"]


@pytest.mark.usefixtures("no_figures")
def test_a_missing_file_stops_the_report(comparison: Path) -> None:
    (comparison / "epd" / "rounds.jsonl").unlink()
    with pytest.raises(BadData, match=r"'epd/rounds\.jsonl' is missing"):
        build_report(comparison)
    assert not (comparison / "report.html").exists()


def test_the_report_imports_no_training_code() -> None:
    allowed = {
        "fedepd.errors",
        "fedepd.files",
        "fedepd.longtail",
        "fedepd.metrics",
        "fedepd.runs.folder",
        "fedepd.runs.frames",
        "fedepd.shapes",
        "fedepd.shown",
    }
    for file in Path(next(iter(fedepd.report.__path__))).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not name.startswith("fedepd") or name.startswith("fedepd.report") or name in allowed, (
                    file.name,
                    name,
                )


# Names made to do harm


def poisoned(
    write_run: WriteRun, text: str, name: str = "a", method: str = "fedepd", dataset: str | None = None
) -> Path:
    """A run folder whose every text is ``text``, but for the name of a dataset that several share."""
    preset = text if dataset is None else "default"
    settings = {text: text, "note": text}
    folder = write_run(
        name,
        method=method,
        dataset=text if dataset is None else dataset,
        label=text,
        preset=preset,
        settings=settings,
    )
    config, summary = (json.loads((folder / f"{part}.json").read_text()) for part in ("config", "summary"))
    config["dataset"] |= {"label_names": [text] * 12, "owner_names": [text] * 4}
    summary |= {"warnings": [text], "protocol": text, "partition_sha256": text, "weights_sha256": text}
    (folder / "config.json").write_text(json.dumps(config | {"config_hash": text, "protocol": text}))
    (folder / "summary.json").write_text(json.dumps(summary | {"config_hash": text}))
    (folder / "env.json").write_text(json.dumps({text: text, "command": [text]}))
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    rounds = [line | {"bytes_up": {text: 1000, "model": 10}} for line in rounds]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    return folder


TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "h1", "h2", "h3", "p", "nav", "a",
    "main", "section", "ul", "li", "b", "figure", "div", "svg", "figcaption", "table", "thead", "tbody",
    "tr", "th", "td", "wbr", "small", "strong", "u", "details", "summary", "footer", "pre", "script", "span",
}  # fmt: skip


@pytest.mark.hostile
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("text", cases(ALL))
def test_a_poisoned_folder_gives_a_harmless_page(text: str, write_run: WriteRun) -> None:
    html = build_report(poisoned(write_run, text)).read_text(encoding="utf-8")
    assert unfit(html.replace("\n", "")) == []
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= TAGS
    assert [sum(found == tag for found, _ in page.tags) for tag in ("script", "style", "b", "title")] == [
        1,
        1,
        5,
        1,
    ]
    for tag, attributes in page.tags:
        assert not any(
            name.startswith("on") or name in ("src", "style", "xlink:href") for name in attributes
        ), (tag, attributes)
        assert re.fullmatch(r"#[\w.-]+|data:,", attributes.get("href") or "#x")
    if text.strip() and len(text) < 80:
        assert page.text.count(plain(text)) > 8
    assert "x" * 81 not in re.sub(
        r"<pre>.*?</pre>|<p>.*?</p>|<p class=\"note\">.*?</p>", "", html, flags=re.DOTALL
    ).replace("<wbr>", "")


RARE = [text for name, text in ALL.items() if name not in FEW]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param([ALL[name] for name in sorted(FEW) if ALL[name]], id="few"),
        *(pytest.param(RARE[part::3], id=f"rare-{part}", marks=pytest.mark.heavy) for part in range(3)),
    ],
)
def test_poisoned_figures_are_whole_and_show_the_names(chosen: list[str], write_run: WriteRun) -> None:
    """Many names in one comparison: in legends, axes and message fields."""
    folders = [
        poisoned(write_run, text, str(number), f"method{number}", "toy") for number, text in enumerate(chosen)
    ]
    html = build_report(folders[0].parent).read_text(encoding="utf-8")
    figures = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(figures) == 6 + 3 + len(folders)  # three for a phone, too; each run has a confusion matrix
    trees = [ET.fromstring(svg) for svg in figures]
    kinds = {element.tag.rpartition("}")[2] for tree in trees for element in tree.iter()}
    assert kinds <= {
        "svg",
        "g",
        "path",
        "text",
        "tspan",
        "defs",
        "use",
        "clipPath",
        "rect",
        "image",
        "metadata",
        "pattern",
    }
    texts = {
        " ".join("".join(each.itertext()).split())
        for tree in trees
        for each in tree.iter()
        if each.tag.endswith("text")
    }
    assert {" ".join(shown(text).split()) for text in chosen} <= texts


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
@pytest.mark.usefixtures("no_figures")
def test_a_poisoned_folder_in_a_terminal(
    text: str, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    poisoned(write_run, text, "a")
    assert main(["report", str(poisoned(write_run, text + " again", "b").parent)]) == 0
    said = "".join(capsys.readouterr())
    check_lines(said)
    assert "x" * 81 not in said
