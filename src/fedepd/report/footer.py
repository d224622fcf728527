"""The end of a page: how its runs were made, and how they can be made again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from fedepd.report import tables
from fedepd.report.document import fold, paragraphs, part
from fedepd.report.runs import Group, Run, by_dataset
from fedepd.runs.folder import Json
from fedepd.shown import html_text, shown


def footer(groups: Sequence[Group]) -> str:
    runs = [run for each in groups for run in each.runs]
    environments = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in run.env.items() if name != "command") for run in runs
    )
    commands = dict.fromkeys(_command(run) for run in runs if not run.kept_in)
    warnings = dict.fromkeys(
        f"{shown(run.dataset['name'])}: {warning}"
        for run in runs
        for warning in run.summary.get("warnings", [])
    )
    table = tables.html_table(tables.hashes(groups))
    return f"""<footer id="protocol">
<h2>Protocol</h2>{paragraphs(_protocols(groups))}
{f"<h2>Warnings</h2>{paragraphs(warnings)}" if warnings else ""}
{part("Commands", f"<pre>{chr(10).join(map(html_text, commands))}</pre>") if commands else ""}
{part("Settings", "".join(map(_settings, groups)))}
{part("Environment", paragraphs(environments))}
{part("Runs and hashes", table)}
</footer>"""


def _protocols(groups: Sequence[Group]) -> list[str]:
    """For each graph the protocol of its runs, and what runs with noise have spent of their budgets."""
    lines = []
    for block in by_dataset(groups):
        name = shown(block[0].first.dataset["name"])
        lines.append(f"{name}: {tables.protocol_words(block)}")
        lines += [
            f"{name}, {each.label}, seed {run.seed}, spent: {_spent(run.summary['privacy'])}"
            for each in block
            for run in each.runs
            if run.summary.get("privacy")
        ]
    return lines


def _spent(spent: Json) -> str:
    """What a run with noise has spent of its privacy budget."""
    epsilon, delta, made = spent["epsilon_spent"], spent["delta"], spent["releases"]
    return f"epsilon {epsilon:.2f} at delta {delta:g} in {made} sums"


def _settings(each: Group) -> str:
    """All settings of a group, folded away."""
    title = f"{each.label} on {shown(each.first.dataset['name'])}"
    content = json.dumps(each.first.config["experiment"], indent=2, ensure_ascii=False)
    return fold(title, f"<pre>{html_text(content, newlines=True)}</pre>")


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
