"""Files that tools outside the package read.

Hooks, workflow, templates, the site's settings, the changelog.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedepd
from fedepd.cli import main

ROOT = Path(__file__).resolve().parents[1]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
KINDS = {"markdown", "input", "textarea", "checkboxes", "dropdown"}
"""The elements that a GitHub issue form may have."""


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    out: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return out


def test_hooks_are_the_tools_of_the_environment() -> None:
    """Nothing is downloaded, and a commit is held to what 'make lint' is held to."""
    repos = read(".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repos] == ["local"]
    hooks = {hook["id"]: hook for hook in repos[0]["hooks"]}
    assert hooks.keys() == {"ruff", "ruff-format", "mypy"}
    lint = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in hooks.values():
        assert hook["language"] == "system"
        tool = hook["entry"].split()[0]
        assert tool.startswith(".venv/bin/")
        assert f"$(BIN)/{Path(tool).name}" in lint


def test_the_workflow_calls_the_check_that_everybody_can_run() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert workflow.keys() == {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads 'on' as true
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    needed = re.search(r">=(\d\.\d+)", project()["project"]["requires-python"])
    assert needed is not None
    assert job["container"].startswith(f"python:{needed[1]}-")  # the oldest that is promised


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(form: Path) -> None:
    content = read(str(form.relative_to(ROOT)))
    assert content.keys() == {"name", "description", "labels", "body"}
    asked = [element for element in content["body"] if element["type"] != "markdown"]
    assert {element["type"] for element in content["body"]} <= KINDS
    assert len({element["id"] for element in asked}) == len(asked) > 0
    assert all(element["attributes"]["label"] for element in asked)


def test_there_is_a_form_for_each_kind_of_issue_and_a_pointer_for_holes() -> None:
    assert [path.stem for path in FORMS] == ["bug", "method", "number"]
    for name in (".github/ISSUE_TEMPLATE/bug.yml", ".github/pull_request_template.md"):
        assert "SECURITY.md" in (ROOT / name).read_text(encoding="utf-8")
    assert (ROOT / "SECURITY.md").is_file()


def test_links_of_the_forms_lead_to_files() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FORMS)
    targets = re.findall(r"\]\(\.\./blob/main/([^)]+)\)", text)
    assert len(targets) == 2
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_site_is_strict_and_its_navigation_is_whole() -> None:
    site = read("mkdocs.yml")
    assert site["strict"] is True
    assert site["theme"]["font"] is False
    assert {level for rules in site["validation"].values() for level in rules.values()} == {"warn"}
    assert [next(iter(entry)) for entry in site["nav"]] == [
        "Home", "Start", "Own data", "Methods", "Federation", "Results", "Extend", "Reference",
    ]  # fmt: skip


def test_the_version_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """By pyproject.toml; the command, the changelog and the citation agree with it."""
    version = project()["project"]["version"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version
    first = re.search(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] == version
    assert read("CITATION.cff")["version"] == version


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog 1.1.0: versions with a date, newest first, changes under its six headings."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings
    assert all(re.fullmatch(r"\[[\d.]+\] - (\d{4}-\d\d-\d\d|unreleased)", heading) for heading in headings)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert "Added" in kinds


def test_public_names_are_the_promised_ones() -> None:
    """What a release may not take away."""
    assert set(fedepd.__all__) >= {
        "DATASETS", "METHODS", "Experiment", "Graph", "Model", "RunResult", "build_report", "export", "load",
        "load_model", "resume", "run",
    }  # fmt: skip
