"""Every public name says what it takes, gives and raises, and has an example.

All examples run, those of the pages too.
"""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import fedepd
from fedepd.cli import main

griffe = pytest.importorskip("griffe", reason="needs the extra 'docs'")

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ("Client", "Method", "Server")
ERRORS = ("BadConfig", "BadData", "BadMessage", "ClientFailed", "FedEPDError", "UnknownName")
NAMES = [
    *fedepd.__all__,
    *(f"methods.base.{name}" for name in CONTRACT),
    *(f"errors.{name}" for name in ERRORS),
]
PAGES = ("start.md", "results-in-python.md", "extend.md")


@pytest.fixture(scope="module")
def package() -> Any:
    """The package as its source says, without importing it."""
    return griffe.load("fedepd", search_paths=[str(ROOT / "src")], docstring_parser="google")


def sections(thing: Any) -> dict[str, Any]:
    """What a docstring has beyond prose: parameters, returns, raises, examples."""
    parsed = thing.docstring.parsed if thing.docstring else []
    return {part.kind.value: part.value for part in parsed if part.kind.value != "text"}


def raises(function: Any) -> bool:
    """Whether the function's own lines raise anything."""
    return any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(_source(function))))


def _source(function: Any) -> str:
    return "\n".join(line[_indent(function) :] for line in function.lines)


def _indent(function: Any) -> int:
    return len(function.lines[0]) - len(function.lines[0].lstrip())


def gaps(thing: Any) -> list[str]:
    """What the docstring of a function or method leaves out."""
    said = sections(thing)
    known = {each.name.lstrip("*") for each in said.get("parameters", [])}
    out = [
        f"{thing.path}: Args lack '{each.name}'"
        for each in thing.parameters
        if each.name not in ("self", "cls", *known)
    ]
    if str(thing.returns) != "None" and "returns" not in said:
        out.append(f"{thing.path} has no Returns")
    if raises(thing) and "raises" not in said:
        out.append(f"{thing.path} has no Raises")
    return out


def undocumented(cls: Any) -> list[str]:
    """Of a class's own public members."""
    out = []
    for name, member in cls.members.items():
        if name.startswith("_"):
            continue
        if not member.docstring:
            out.append(f"{member.path} has no docstring")
        elif member.is_function:
            out += gaps(member)
    if "__init__" in cls.members and not cls.has_labels("dataclass"):
        known = {each.name for each in sections(cls).get("parameters", [])}
        given = [each.name for each in cls.members["__init__"].parameters if each.name != "self"]
        out += [f"{cls.path}: Args lack '{name}'" for name in given if name not in known]
    return out


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_explained(package: Any, name: str) -> None:
    thing = package[name]
    thing = thing.final_target if thing.is_alias else thing
    found = undocumented(thing) if thing.is_class else gaps(thing) if thing.is_function else []
    if thing.is_function and "raises" not in sections(thing):
        found.append(f"{thing.path} has no Raises")
    if "examples" not in sections(thing):
        found.append(f"{thing.path} has no Examples")
    assert found == []


def test_a_gap_is_found(tmp_path: Path) -> None:
    """A function that lacks everything, and one member of each kind."""
    (tmp_path / "poor.py").write_text(
        '''def f(a: int, *rest: int) -> int:
    """Prose.

    Args:
        a: A number.
    """
    raise ValueError


class C:
    """Prose."""

    field: int = 0

    def __init__(self, size: int) -> None: ...

    def g(self, b: int) -> None:
        """Prose."""
''',
        encoding="utf-8",
    )
    poor = griffe.load("poor", search_paths=[str(tmp_path)], docstring_parser="google")
    assert gaps(poor["f"]) == ["poor.f: Args lack 'rest'", "poor.f has no Returns", "poor.f has no Raises"]
    assert undocumented(poor["C"]) == [
        "poor.C.field has no docstring",
        "poor.C.g: Args lack 'b'",
        "poor.C: Args lack 'size'",
    ]


def run_examples(text: str, name: str) -> int:
    """How many examples there are; the first that says something else fails."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    doctest.DebugRunner(optionflags=doctest.ELLIPSIS).run(test)
    return len(test.examples)


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(package: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    thing = package[name]
    assert run_examples((thing.final_target if thing.is_alias else thing).docstring.value, name) > 0


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_examples((ROOT / "docs" / page).read_text(encoding="utf-8").replace("```", ""), page) > 0


def test_the_example_of_the_package_runs() -> None:
    assert run_examples(fedepd.__doc__ or "", "fedepd") > 0


@pytest.mark.slow
def test_commands_of_the_start_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ fedepd (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main(command.split()) == 0, command
    assert (tmp_path / "runs" / "both" / "report.html").is_file()
