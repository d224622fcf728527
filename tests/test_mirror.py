"""Tests mirror the source: ``src/fedepd/room/x.py`` is tested by ``tests/room/test_x.py``."""

from __future__ import annotations

import ast
from pathlib import Path

import fedepd

ROOT, TESTS = Path(fedepd.__file__).parent, Path(__file__).parent
EXCEPTIONS = {
    "deploy/controller.py": "the server's loop is driven whole by test_end_to_end.py and test_exchange.py",
    "deploy/rehearse.py": "test_through_records.py holds a rehearsal against the simulation",
}
"""May only shrink: a new module comes with its mirror."""
MOST = 2


def mirror(module: Path) -> Path:
    """Where the tests of a module are, both relative to their roots."""
    folder = module.parent.name or "fedepd"
    stem = {"__init__": folder, "__main__": "main"}.get(module.stem, module.stem)
    return module.parent / f"test_{stem}.py"


def defines_something(file: Path) -> bool:
    """A room's ``__init__`` that only has a docstring, or only passes names on, needs no test."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in body)


def without_mirror() -> list[str]:
    modules = [
        path.relative_to(ROOT)
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "__init__.py" or defines_something(path)
    ]
    return [str(module) for module in modules if not (TESTS / mirror(module)).is_file()]


def test_the_mirror_of_a_module() -> None:
    assert mirror(Path("rounds/loop.py")) == Path("rounds/test_loop.py")
    assert mirror(Path("datasets/__init__.py")) == Path("datasets/test_datasets.py")
    assert mirror(Path("__init__.py")) == Path("test_fedepd.py")
    assert mirror(Path("__main__.py")) == Path("test_main.py")


def test_every_module_has_its_mirror() -> None:
    """An exception whose mirror has come is taken off the list."""
    assert without_mirror() == sorted(EXCEPTIONS)
    assert len(EXCEPTIONS) <= MOST
