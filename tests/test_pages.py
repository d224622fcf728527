"""The Markdown pages: their links lead somewhere, their lines are short, their commands are understood.

The source refers to points that the pages have, and to nothing outside the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from understood import understood

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
WRITTEN = [page for page in PAGES if page.name != "choices.md"]
"""docs/choices.md is made from the source, one remark a line."""
WIDTH = 110
SOURCES = sorted(
    path
    for folder in ("src", "tests", "docs", "benchmarks", "experiments")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".c", ".toml")
)
ELSEWHERE = re.compile(
    r"\(14\.\d|\b14\.\d+ \(\d|methods\.md (section )?\d|\(h ?\d\)|\bb\.\d:|protocol, section \d"
)
"""How comments once named parts of a file that is not in the repository."""
POINT = re.compile(r"docs/(reading-the-\w+\.md), ([\w ]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", flags=re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The names that GitHub and MkDocs give to headings. They agree on headings of plain letters."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[str]:
    """Lines of code blocks that begin with ``fedepd``, and ``fedepd`` in the text where it has options.

    Left out are commands with placeholders in capitals, and ``--help``.
    """
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = "\n".join(FENCE.findall(text))
    found = re.findall(r"^ *(?:\$ )?(fedepd .*)$", blocks, flags=re.MULTILINE)
    found += re.findall(r"`(fedepd [^`]* --[^`]*)`", FENCE.sub("", text))
    return [line for line in found if not re.search(r"\b[A-Z]{2,}\b|--help", line.split("#")[0])]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_lines_are_short_outside_tables(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []


@pytest.mark.parametrize("page", [page for page in WRITTEN if commands(page)], ids=name)
def test_the_command_line_understands_the_commands(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in ("federation.md", "gallery.md"):
        pytest.importorskip("nvflare", reason="needs the extra 'federation'")
    found = understood(commands(page), monkeypatch)
    assert [command for command, taken in found.items() if not taken] == []


def test_comments_refer_to_nothing_outside_the_repository() -> None:
    assert len(SOURCES) > 300
    found = {name(path): ELSEWHERE.search(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: match[0] for path, match in found.items() if match} == {}


def test_points_of_a_reading_that_comments_name_are_there() -> None:
    """A comment may break a reference anywhere: ends of lines, and the signs of comments, count as blanks."""
    found = 0
    for path in SOURCES:
        text = re.sub(r"\s*\n\s*(# )?", " ", path.read_text(encoding="utf-8"))
        for page, point in POINT.findall(text):
            assert point.replace(" ", "-") in anchors(ROOT / "docs" / page), f"{name(path)}: {page}, {point}"
            found += 1
    assert found >= 4
