"""Imports go one way only: a room may use those before it. Lazy imports count, too."""

from __future__ import annotations

import ast
from pathlib import Path

import fedepd

ROOT = Path(fedepd.__file__).parent
ORDER = (
    ("foundation",), ("network",), ("datasets",), ("clients",), ("methods",), ("rounds",), ("runs",), ("report",),
    ("model", "deploy", "bench", "reproduction"), ("cli", "testing"),
)  # fmt: skip
"""Bottom to top. Rooms of one level do not know each other."""
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
ALLOWED = {
    ("fedepd.types", "fedepd.datasets.interop"): "Graph.from_networkx, which users look for on the noun",
    ("fedepd.types", "fedepd.datasets.tables"): "Graph.from_pandas, likewise",
}
ENTRANCES = ("fedepd", "fedepd.__main__")
"""The public names and the command come from anywhere."""


def room(module: str) -> str:
    """The package's own modules are the foundation; every folder is a room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / parts[1]).is_dir() else "foundation"


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{alias.name}" if node.module == "fedepd" else node.module
                for alias in node.names
            }
    return {name for name in found if name == "fedepd" or name.startswith("fedepd.")}


def edges() -> list[tuple[str, str]]:
    out = []
    for file in sorted(ROOT.rglob("*.py")):
        parts = ("fedepd", *file.relative_to(ROOT).with_suffix("").parts)
        module = ".".join(parts).removesuffix(".__init__")
        out += [(module, target) for target in sorted(imports(file)) if module not in ENTRANCES]
    return out


def test_every_folder_is_a_room_with_a_sign_on_its_door() -> None:
    folders = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and path.name not in ("__pycache__", "experiments")
    }
    assert folders == LEVEL.keys() - {"foundation"}
    for folder in folders:
        assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8")))


def test_imports_go_one_way() -> None:
    wrong = {
        edge
        for edge in edges()
        if room(edge[0]) != room(edge[1]) and LEVEL[room(edge[1])] >= LEVEL[room(edge[0])]
    }
    assert wrong == set(ALLOWED)


def test_the_hall_is_small() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 16
