"""What the figures show, as tables by dataset, for readers who want numbers or cannot see the figure."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from fedepd.longtail import bins
from fedepd.report.numbers import bin_accuracy, mean_std
from fedepd.report.tables import Cell, Table, cost, marked_label, measured, protocols
from fedepd.reproduction.pages.tables import HEADINGS, note
from fedepd.reproduction.study.measures import measure_run
from fedepd.reproduction.study.results import PROXY, Entry, Results
from fedepd.reproduction.study.targets import in_words, spelled


def bin_table(results: Results, dataset: str) -> Table:
    """Accuracy in ten bins of classes, from the largest classes to the smallest."""
    entries = results.finished(dataset, references=False)
    sizes = entries[0].group.first.partition["class_sizes"]
    parts = bins(sizes, 10)
    headers = [
        "Method",
        *(
            f"{sizes[part].max()}–{sizes[part].min()}" if len(part) > 1 else str(sizes[part[0]])
            for part in parts
        ),
    ]
    rows = [
        [_name(entry), *(measured(100 * a, float("nan"), 1) for a in bin_accuracy(entry.group, parts)[0])]
        for entry in entries
    ]
    text = (
        "Each column is a bin of classes, from the largest to the smallest, headed by their numbers of "
        "nodes. A cell is the mean test accuracy of the bin's classes."
    )
    return Table(f"{results.target.name}-{dataset}", headers, [rows], note(results, text, marked=False))


def grid_table(results: Results, dataset: str) -> Table:
    """Macro-F1 at every point of a grid of one setting or two."""
    *above, across = results.target.grid
    entries = {
        tuple(entry.row.settings[name] for name in results.target.grid): entry
        for entry in results.finished(dataset)
    }
    columns = results.target.grid[across]
    rows = []
    for values in itertools.product(*(results.target.grid[name] for name in above)):
        points = [(*values, other) for other in columns]
        found = [entries[point].values("macro_f1").values() if point in entries else () for point in points]
        first = Cell(spelled(values[0])) if values else Cell("macro-F1")
        rows.append([first, *(measured(*mean_std(scores)) for scores in found)])
    headers = [" \\ ".join([*above, across]), *map(spelled, columns)]
    return Table(
        f"{results.target.name}-{dataset}",
        headers,
        [rows],
        note(results, "Macro-F1, higher is better.", marked=False),
    )


def robustness_tables(results: Results, dataset: str) -> dict[str, Table]:
    """A table per metric, with a row per attack and a column per defence."""
    ((setting, attacks),) = results.target.grid.items()
    entries: dict[str, dict[str, Entry]] = {}  # by defence, then by attack
    for entry in results.of(dataset):
        attack = entry.row.settings[setting]
        defence = entry.row.label.removesuffix(f", {in_words((setting, attack))}")
        entries.setdefault(defence, {})[attack] = entry
    # The runs differ only in attack and defence, which the table names. So the protocol of one run is that of
    # all.
    finished = results.finished(dataset)
    how = (
        f"Mean ± standard deviation over {len(finished[0].runs)} seeds. {protocols([finished[0].group])}"
        if finished
        else ""
    )
    out = {}
    for metric in ("bacc", "tail_acc", "macro_f1", "acc"):
        rows = [
            [
                Cell(attack),
                *(measured(*mean_std(found[attack].values(metric).values())) for found in entries.values()),
            ]
            for attack in attacks
        ]
        text = (
            f"{HEADINGS[metric]} on the honest clients' test nodes, higher is better. A row is what the "
            "dishonest clients do; in the row 'honest' they behave, so compare the others with it. A column "
            "is how the server averages."
        )
        table = Table(
            f"{results.target.name}-{metric}-{dataset}", [setting, *entries], [rows], f"{text} {how}"
        )
        out[HEADINGS[metric]] = table
    return out


def convergence_table(results: Results, dataset: str) -> Table:
    """How high the curves end, how much they fluctuate, and what the runs cost."""
    columns = {"Plateau": "plateau", "Fluctuation": "fluctuation", "CPU s": "cpu_seconds", "MB": "megabytes"}
    rows = []
    for entry in results.finished(dataset, references=False):
        found = [measure_run(run) for run in entry.runs.values()]
        rows.append(
            [_name(entry), *(measured(*mean_std(each[key] for each in found)) for key in columns.values())]
        )
    text = (
        "Plateau: mean validation accuracy over the last quarter of the rounds, in percent (higher is "
        "better). Fluctuation: mean step of the validation accuracy between evaluations in the last half of "
        "the rounds, in points (lower is steadier). CPU s: processor seconds of a run. MB: megabytes sent "
        "in both directions."
    )
    return Table(
        f"{results.target.name}-{dataset}", ["Method", *columns], [rows], note(results, text, scoring=None)
    )


def cost_table(results: Results, dataset: str) -> Table:
    """What a run scores and what it costs."""
    entries = results.finished(dataset, references=False)
    table = cost([entry.group for entry in entries])
    scores = [
        [measured(*mean_std(entry.values(metric).values())) for metric in ("acc", "macro_f1")]
        for entry in entries
    ]
    kept = [
        place
        for place, header in enumerate(table.headers)
        if header in ("MiB up", "MiB down", "CPU s", "Peak MiB")
    ]
    rows = [
        [_name(entry), *score, *(row[k] for k in kept)]
        for entry, score, row in zip(entries, scores, table.sections[0], strict=True)
    ]
    headers = ["Method", "Acc", "Macro-F1", *(table.headers[k] for k in kept)]
    text = f"Scores: higher is better. {table.note}"
    return Table(f"{results.target.name}-{dataset}", headers, [rows], note(results, text, marked=False))


def shape_table(results: Results) -> Table:
    """How long-tailed each dataset is, and how it is split into clients."""
    rows = []
    for dataset in results.datasets:
        for entry in results.finished(dataset):
            run = entry.group.first
            facts = [run.dataset[name] for name in ("nodes", "edges", "features", "classes")]
            sizes, held = run.partition["class_sizes"], run.partition["client_class"].sum(1)
            counts = [
                *facts,
                *(len(run.summary["tiers"][tier]) for tier in ("head", "medium", "tail")),
                int(sizes.max()),
                int(sizes.min()),
            ]
            ratio = measured(float(run.dataset["imbalance_ratio"]), float("nan"))
            clients = [_count(len(held)), _count(int(held.min())), _count(int(held.max()))]
            rows.append([Cell(results.title(dataset)), *map(_count, counts), ratio, *clients])
    headers = [
        "Dataset",
        "Nodes",
        "Edges",
        "Features",
        "Classes",
        "Head",
        "Medium",
        "Tail",
        "Largest",
        "Smallest",
        "IR",
    ]
    headers += ["Clients", "Fewest nodes", "Most nodes"]
    rules = sorted({str(run.config["experiment"]["partition"]["partition"]) for run in results.runs})
    text = (
        "Edges are undirected. Head, Medium and Tail: classes in each tier. Largest and Smallest: nodes of "
        "the largest and the smallest class. IR: imbalance ratio, the largest class over the smallest (Eq. "
        "17). Fewest and Most nodes: labelled nodes of the smallest and the largest client (partition "
        f"{', '.join(rules)}, first seed)."
    )
    text += f"{PROXY} Proxy features." if any(map(results.is_proxy, results.datasets)) else ""
    return Table(f"{results.target.name}-shape", headers, [rows], text)


BY_DATASET: dict[str, Callable[[Results, str], Table]] = {
    "per_class": bin_table,
    "sensitivity": grid_table,
    "convergence": convergence_table,
    "efficiency": cost_table,
}
"""Kind of target -> the table of one dataset."""


def _name(entry: Entry) -> Cell:
    return Cell(marked_label(entry.group))


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", float(value))
