"""Which settings of a target's rows differ from their defaults, so that tuned rows are known as such."""

from __future__ import annotations

from typing import Any

from fedepd.methods import METHODS, make_method
from fedepd.report.tables import Cell, Table
from fedepd.reproduction.study.results import Entry, Results
from fedepd.runs.experiment import GROUPS
from fedepd.runs.settings import in_words
from fedepd.shown import shown

SEARCHED = ("model", "training")
"""The groups of shared settings that a search changes."""
AS_USUAL = "as by default"


def settings_table(results: Results) -> Table | None:
    """One line per row, and per graph where graphs differ. None if every run has its defaults."""
    lines: dict[str, dict[str, list[str]]] = {}
    for entry in results.entries:
        if entry.runs:
            by_words = lines.setdefault(shown(entry.row.label), {})
            by_words.setdefault(changed_settings(entry), []).append(results.title(entry.dataset))
    if not any(words != AS_USUAL for found in lines.values() for words in found):
        return None
    rows = [
        [Cell(label), Cell("all" if len(found) == 1 else ", ".join(graphs)), Cell(words)]
        for label, found in lines.items()
        for words, graphs in found.items()
    ]
    return Table(
        f"{results.target.name}-settings",
        ["Method", "Datasets", "Settings"],
        [rows],
        "Settings of the network, of the training and of the method itself, from the runs' own records.",
    )


def changed_settings(entry: Entry) -> str:
    """What differs from the preset in a row's first run, without the settings that name the row."""
    recorded = next(iter(entry.runs.values())).config["experiment"]
    named = entry.row.settings
    usual: dict[str, Any] = {name: GROUPS[name]() for name in SEARCHED}
    if entry.row.method in METHODS:
        usual["method"] = make_method(entry.row.method, entry.row.preset)
    found = [
        f"{name} {shown(in_words(value), 40)}"
        for group, made in usual.items()
        for name, value in recorded.get(group, {}).items()
        if hasattr(made, name) and name not in named and value != getattr(made, name)
    ]
    return ", ".join(found) or AS_USUAL
