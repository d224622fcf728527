"""What figures show, as tables: by dataset, for those who want to read numbers or cannot see the figure."""

from __future__ import annotations

from collections.abc import Callable

from fedepd.longtail import bins
from fedepd.report.numbers import bin_accuracy, mean_std
from fedepd.report.tables import Cell, Table, cost, marked_label, measured, protocols
from fedepd.reproduction.pages.tables import HEADINGS, note
from fedepd.reproduction.study.measures import measure_run
from fedepd.reproduction.study.results import PROXY, Entry, Results
from fedepd.reproduction.study.targets import in_words


def bin_table(results: Results, dataset: str) -> Table:
    """Accuracy over ten bins of classes."""
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
    text = "Columns: bins of classes from the largest to the smallest, by their numbers of nodes; mean test accuracy of a bin's classes."
    return Table(f"{results.target.name}-{dataset}", headers, [rows], note(results, text, marked=False))


def grid_table(results: Results, dataset: str) -> Table:
    """Macro-F1 of every point of a grid of two settings."""
    down, across = results.target.grid
    entries = {
        tuple(entry.row.settings[name] for name in (down, across)): entry
        for entry in results.finished(dataset)
    }
    columns = results.target.grid[across]
    rows = []
    for value in results.target.grid[down]:
        found = [
            entries[value, other].values("macro_f1").values() if (value, other) in entries else ()
            for other in columns
        ]
        rows.append([Cell(f"{value:g}", value), *(measured(*mean_std(scores)) for scores in found)])
    headers = [f"{down} \\ {across}", *(f"{value:g}" for value in columns)]
    return Table(
        f"{results.target.name}-{dataset}",
        headers,
        [rows],
        note(results, "Macro-F1, higher is better.", marked=False),
    )


def robustness_tables(results: Results, dataset: str) -> dict[str, Table]:
    """By metric: attacks down, defences across."""
    ((setting, attacks),) = results.target.grid.items()
    entries: dict[str, dict[str, Entry]] = {}  # by defence, then by attack
    for entry in results.of(dataset):
        attack = entry.row.settings[setting]
        defence = entry.row.label.removesuffix(f", {in_words((setting, attack))}")
        entries.setdefault(defence, {})[attack] = entry
    # Only rows and columns differ, and they are named: the protocol of one run is that of all.
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
        text = f"{HEADINGS[metric]} on the honest clients' test nodes, higher is better. Rows: what the dishonest clients do "
        text += "('honest': nothing, the row to compare with). Columns: how the server averages."
        table = Table(
            f"{results.target.name}-{metric}-{dataset}", [setting, *entries], [rows], f"{text} {how}"
        )
        out[HEADINGS[metric]] = table
    return out


def convergence_table(results: Results, dataset: str) -> Table:
    """Where the curves end, how restless they are, and what they cost."""
    columns = {"Plateau": "plateau", "Fluctuation": "fluctuation", "CPU s": "cpu_seconds", "MB": "megabytes"}
    rows = []
    for entry in results.finished(dataset, references=False):
        found = [measure_run(run) for run in entry.runs.values()]
        rows.append(
            [_name(entry), *(measured(*mean_std(each[key] for each in found)) for key in columns.values())]
        )
    text = "Of the validation accuracy in points: mean over the last quarter of the rounds (higher is better) and mean step between "
    text += "evaluations in the last half (lower is steadier); processor seconds, and megabytes both ways."
    return Table(
        f"{results.target.name}-{dataset}", ["Method", *columns], [rows], note(results, text, scoring=None)
    )


def cost_table(results: Results, dataset: str) -> Table:
    """What a run takes, beside what it scores."""
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
    """How long-tailed each dataset is, and how it is cut."""
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
    text = "Classes, then the classes of each tier, the nodes of the largest and the smallest class, their ratio (IR, Eq. 17), and the "
    rules = sorted({str(run.config["experiment"]["partition"]["partition"]) for run in results.runs})
    text += f"labelled nodes of the smallest and the largest client (partition {', '.join(rules)}, first seed); edges undirected."
    text += f"{PROXY} Proxy features." if any(map(results.is_proxy, results.datasets)) else ""
    return Table(f"{results.target.name}-shape", headers, [rows], text)


BY_DATASET: dict[str, Callable[[Results, str], Table]] = {
    "per_class": bin_table,
    "sensitivity": grid_table,
    "convergence": convergence_table,
    "efficiency": cost_table,
}
"""By the target's kind."""


def _name(entry: Entry) -> Cell:
    return Cell(marked_label(entry.group))


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", float(value))
