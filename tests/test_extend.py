"""docs/extend.md as written: its Python from top to bottom, its tables, and its commands."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import fedepd.methods.steps
from fedepd.cli import main
from fedepd.methods import METHODS, Method
from fedepd.testing import method_checks
from fedepd.testing.checks import run_all

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One module, as somebody pastes it. The battery takes seconds: here its first checks stand for it."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("pasted")
    monkeypatch.setitem(sys.modules, "pasted", module)
    monkeypatch.setattr("fedepd.testing.check_method", lambda cls: run_all(method_checks(cls)[:9]))
    assert len(blocks("python")) >= 5
    for block in blocks("python"):
        exec(compile(block, "docs/extend.md", "exec"), vars(module))
    assert 0 < float(capsys.readouterr().out) < 1
    assert (tmp_path / "runs" / "tempered" / "summary.json").is_file()


@pytest.mark.slow
def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    about = site / "fedavgm_example-0.1.0.dist-info"
    about.mkdir(parents=True)
    example = ROOT / "examples" / "fedavgm"
    shutil.copy(example / "src" / "fedavgm_example.py", site)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fedavgm-example\nVersion: 0.1.0\n")
    points = tomllib.loads((example / "pyproject.toml").read_text())["project"]["entry-points"][
        "fedepd.methods"
    ]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[fedepd.methods]", *lines]))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    METHODS.refresh()
    try:
        commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
        assert len(commands) >= 3
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == ".venv/bin/fedepd"
            assert main(arguments) == 0, capsys.readouterr().err
    finally:
        monkeypatch.undo()
        METHODS.refresh()
        sys.modules.pop("fedavgm_example", None)
    assert (tmp_path / "runs" / "momentum" / "report.html").is_file()


def test_the_tables_name_what_there_is() -> None:
    """Functions of a method and of the shared steps."""
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    functions = {name for name in named if hasattr(Method, name)}
    assert named == functions | {name for name in named if hasattr(fedepd.methods.steps, name)}
    assert functions >= Method.__abstractmethods__


def test_the_groups_of_the_page_are_those_that_are_read() -> None:
    project = next(tomllib.loads(block)["project"] for block in blocks("toml"))
    assert set(project["entry-points"]) == {
        f"fedepd.{kind}" for kind in ("methods", "datasets", "partitions", "backbones")
    }
