"""The build hook on a copy of the source.

Whatever $CC says, the package is built, with compiled kernels or without.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("hatchling")


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path) -> tuple[bool, list[str]]:
    """(whether there is a library, the warnings)."""
    source = folder / "src" / "fedepd" / "network"
    source.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "fedepd" / "network" / "_kernels.c", source)
    warnings: list[str] = []
    data: dict[str, Any] = {"artifacts": []}
    app = SimpleNamespace(display_warning=warnings.append)
    hook().CompileKernels(str(folder), {}, None, None, str(folder), "wheel", app).initialize("standard", data)
    made = (source / "_kernels.so").is_file()
    assert made == bool(data["artifacts"])
    assert data.get("tag", "").startswith("py3-none-") == made, "any Python of this platform takes the wheel"
    assert not (source / "_kernels.part").exists()
    return made, warnings


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_compiler_with_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -std=gnu11")
    assert build(tmp_path) == (True, [])


@pytest.mark.parametrize(
    ("compiler", "why"), [("no-such-compiler", "No such file or directory"), ("false", "exit code 1")]
)
def test_without_a_compiler_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, why: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    made, (warning,) = build(tmp_path)
    assert not made
    assert warning == f"{compiler} cannot compile _kernels.c ({why}), so fedepd will compute with torch alone"


def test_without_any_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert build(tmp_path) == (False, ["no C compiler was found, so fedepd will compute with torch alone"])
