"""Imports go one way only: a room may use those before it. Lazy imports count, too."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import fedepd

ROOT = Path(fedepd.__file__).parent
ORDER = (
    ("foundation",), ("network",), ("datasets",), ("clients",), ("methods",), ("rounds",), ("runs",),
    ("report",), ("privacy", "trackers"),
    ("model", "deploy", "bench", "reproduction", "tune", "cluster", "sweeps", "board"),
    ("cli", "testing"),
)  # fmt: skip
"""Bottom to top. Rooms of one level do not know each other."""
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
ALLOWED = {
    ("fedepd.types", "fedepd.datasets.interop"): "Graph.from_networkx, which users look for on the noun",
    ("fedepd.types", "fedepd.datasets.tables"): "Graph.from_pandas, likewise",
    ("fedepd.runs.run", "fedepd.trackers.follow"): "fedepd.run(track=...), which draws the report's figures",
}
ENTRANCES = ("fedepd", "fedepd.__main__")
"""The public names and the command come from anywhere."""


def room(module: str) -> str:
    """The package's own modules are the foundation; every folder is a room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / parts[1]).is_dir() else "foundation"


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{alias.name}" if node.module == "fedepd" else node.module
                for alias in node.names
            }
    return {name for name in found if name == "fedepd" or name.startswith("fedepd.")}


@cache
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


def imported_at_once(module: str, seen: set[str]) -> set[str]:
    """All modules of ours that are loaded with this one; lazy imports are left out."""
    for name in own_imports(module):
        if name not in seen:
            seen.add(name)
            imported_at_once(name, seen)
    return seen


@cache
def own_imports(module: str) -> list[str]:
    """The modules of ours that this one names outside of lazy imports."""
    file = ROOT.joinpath(*module.split(".")[1:])
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    tree = parsed(file)
    lazy = {id(node) for inner in ast.walk(tree) if isinstance(inner, LATER) for node in ast.walk(inner)}
    names = []
    for node in ast.walk(tree):
        if id(node) not in lazy and isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif id(node) not in lazy and isinstance(node, ast.ImportFrom):
            within = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if is_module(name) else str(node.module) for name in within]
    return [name for name in names if name.split(".")[0] == "fedepd"]


LATER = (ast.FunctionDef, ast.If)
"""Where an import is not executed with its module: inside a function, and for type checkers only."""


def is_module(name: str) -> bool:
    package, *parts = name.split(".")
    path = ROOT.joinpath(*parts)
    return package == "fedepd" and (path.is_dir() or path.with_suffix(".py").is_file())


def test_a_report_loads_no_training_code() -> None:
    """Of the room of runs it loads two modules, which use nothing but the foundation."""
    modules = {module for module, _ in edges() if room(module) == "report"}
    loaded = set().union(*(imported_at_once(module, set()) for module in modules))
    others = {module for module in loaded if room(module) not in ("foundation", "report")}
    assert others == {"fedepd.runs.folder", "fedepd.runs.frames"}


def test_the_round_loop_has_one_driver() -> None:
    """Bench measures the loop itself, and the contract battery watches what crosses in it."""
    users = {
        file.relative_to(ROOT).as_posix()
        for file in ROOT.rglob("*.py")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ImportFrom) and node.module == "fedepd.rounds.loop"
        if "train" in {alias.name for alias in node.names}
    }
    assert users == {"runs/drive.py", "bench/measure.py", "testing/toy.py"}


def attributes(file: Path) -> set[str]:
    tree = parsed(file)
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


LABEL_READERS = {
    "rounds/evaluate.py": "scores",
    "rounds/attack.py": "turns training labels into others, and passes all others on",
    "network/backbones.py": "labels of training nodes, of data whose other labels are hidden",
    "runs/distil.py": "deals training nodes out by class, and replaces all labels by predicted ones",
    "model/repoint.py": "labels that a user brings to choose a point by",
    "bench/measure.py": "makes a graph",
    "bench/reference.py": "another implementation, which scores itself",
}
MASK_READERS = {
    "methods/fedsage.py": "hides nodes that do not train; it has no label of theirs",
    "rounds/evaluate.py": "scores",
    "runs/simulation.py": "notes the split, and merges clients",
    "bench/reference.py": "scores itself",
}
UPPER = ("network", "methods", "rounds", "runs", "report", "model", "deploy", "bench", "reproduction", "cli")


def test_only_evaluation_sees_labels_outside_the_training_mask() -> None:
    """In the rooms above those that make graphs and masks.

    Methods read labels too, but they get data in which the other labels are hidden.
    """
    files = {
        file.relative_to(ROOT).as_posix(): attributes(file)
        for name in UPPER
        for file in (ROOT / name).rglob("*.py")
    }
    labels = {file for file, found in files.items() if "y" in found and not file.startswith("methods/")}
    masks = {file for file, found in files.items() if {"val_mask", "test_mask"} & found}
    assert labels == LABEL_READERS.keys()
    assert masks == MASK_READERS.keys()
    assert labels & masks == {"rounds/evaluate.py", "bench/reference.py"}
