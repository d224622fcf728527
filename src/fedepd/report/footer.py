"""The end of a page: how its runs were made, and how they can be made again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from fedepd.report import tables
from fedepd.report.document import paragraphs
from fedepd.report.runs import Group, Run
from fedepd.shown import html_text, shown


def footer(groups: Sequence[Group]) -> str:
    runs = [run for each in groups for run in each.runs]
    protocols = dict.fromkeys(
        f"{shown(run.dataset['name'])}: {run.summary['protocol']}{_spent(run)}" for run in runs
    )
    environments = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in run.env.items() if name != "command") for run in runs
    )
    commands = dict.fromkeys(_command(run) for run in runs)
    warnings = dict.fromkeys(
        f"{shown(run.dataset['name'])}: {warning}"
        for run in runs
        for warning in run.summary.get("warnings", [])
    )
    table = tables.html_table(tables.hashes(groups))
    if len(runs) > 30:
        table = f"<details><summary>All {len(runs)} runs</summary>{table}</details>"
    return f"""<footer id="protocol">
<h2>Protocol</h2>{paragraphs(protocols)}
{f"<h2>Warnings</h2>{paragraphs(warnings)}" if warnings else ""}
<h2>Environment</h2>{paragraphs(environments)}
<h2>Runs and hashes</h2>{table}
<h2>Settings</h2>{"".join(map(_settings, groups))}
<h2>Commands</h2><pre>{chr(10).join(map(html_text, commands))}</pre>
</footer>"""


def _spent(run: Run) -> str:
    """What a run with noise has spent of its privacy budget."""
    spent = run.summary.get("privacy")
    if not spent:
        return ""
    epsilon, delta, made = spent["epsilon_spent"], spent["delta"], spent["releases"]
    return f"; spent: epsilon {epsilon:.2f} at delta {delta:g} in {made} sums"


def _settings(each: Group) -> str:
    """All settings of a group, folded away."""
    title = f"{html_text(each.label)} on {html_text(shown(each.first.dataset['name']))}"
    content = json.dumps(each.first.config["experiment"], indent=2, ensure_ascii=False)
    return f"<details><summary>{title}</summary><pre>{html_text(content, newlines=True)}</pre></details>"


def _command(run: Run) -> str:
    """The command line of the run. A run from Python has none, so build one that names its main settings."""
    words = run.env.get("command") or [
        "fedepd",
        "run",
        run.summary["method"],
        "--data",
        run.dataset["name"],
        "--seed",
        run.seed,
    ]
    return shlex.join(str(word) for word in words)
