"""The tables of a report, and how a table is written in a terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from fedepd.longtail import Tiers, class_order, label_divergence
from fedepd.metrics import scores
from fedepd.report.numbers import bin_accuracy, mean_std, prunings
from fedepd.report.runs import Group, Run, by_dataset, group
from fedepd.shown import html_text, listed, markdown_text, plain, sentence, shown

if TYPE_CHECKING:
    import rich.table

METRIC_TITLES = {
    "acc": "Acc",
    "bacc": "bAcc",
    "macro_f1": "Macro-F1",
    "head_acc": "Head",
    "medium_acc": "Medium",
    "tail_acc": "Tail",
}
METRIC_WORDS = {"acc": "accuracy", "bacc": "balanced accuracy", "macro_f1": "macro-F1"}
NOTHING = "–"
PERSONAL = " †"


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None
    """The number to sort by. None for text."""
    spread: str = ""
    rank: int = 0
    """1 for the best value of its dataset, 2 for the second best."""


@dataclass(frozen=True)
class Table:
    name: str
    headers: list[str]
    sections: list[list[list[Cell]]]
    """Blocks of rows that belong together."""
    note: str = ""


def summary(
    groups: Sequence[Group],
    model: str = "headline",
    average: str = "pooled",
    digits: int = 2,
    protocol: bool = True,
) -> Table:
    """Test metrics in percent, mean ± standard deviation over seeds, with a block per dataset.

    ``protocol``: the note says how the runs were made.
    """
    blocks = by_dataset(groups)
    several = len(blocks) > 1
    sections = []
    for block in blocks:
        rows = [
            [*([_text(each.first.dataset["name"])] if several else []), *_row(each, model, average, digits)]
            for each in block
        ]
        sections.append(ranked(rows, columns=range(len(rows[0]) - len(METRIC_TITLES), len(rows[0]))))
    headers = [*(["Dataset"] if several else []), "Method", "Seeds", *METRIC_TITLES.values()]
    note = protocol_note(groups, model, average, protocol=protocol)
    return Table(f"summary-{model}-{average}", headers, sections, note)


def cost(groups: Sequence[Group]) -> Table:
    """What a run costs, mean over seeds."""
    columns = {"MiB up": ("bytes_up", 2**-20), "MiB down": ("bytes_down", 2**-20)}
    columns |= {"Wall s": ("seconds", 1.0), "CPU s": ("cpu_seconds", 1.0)}
    columns |= {"Peak MiB": ("peak_rss_mb", 1.0), "Best round": ("best_round", 1.0)}
    rows = []
    for each in groups:
        values = [mean_std(_number(run, key) * scale for run in each.runs) for key, scale in columns.values()]
        rows.append([Cell(each.label), *(measured(mean, std, digits=1) for mean, std in values)])
    note = (
        "Cost of a whole run, mean ± standard deviation over seeds. MiB up and down: sent by and to all "
        "clients in all rounds. Best round: the round whose model is scored."
    )
    return Table("cost", ["Method", *columns], [rows], note)


def classes(groups: Sequence[Group]) -> Table:
    """Every class, the largest first, with its name, tier, number of nodes and test accuracy."""
    first = groups[0].first
    sizes, names = first.partition["class_sizes"], first.dataset.get("label_names") or []
    tier_of = {c: tier for tier, members in first.summary["tiers"].items() for c in members}
    order = class_order(sizes)
    rows = [
        [
            _integer(c),
            _text(str(names[c] if names else c)),
            _text(tier_of.get(c, NOTHING)),
            _integer(int(sizes[c])),
        ]
        for c in order
    ]
    headers = ["Class", "Name", "Tier", "Nodes"]
    for each in groups:
        for model in ("headline", "adapted") if all(run.adapted for run in each.runs) else ("headline",):
            headers.append(marked_label(each) if model == "headline" else f"{each.label}, adapted")
            found = bin_accuracy(each, [[c] for c in order], model)
            for row, accuracy, low, high in zip(rows, *found, strict=True):
                tested = accuracy == accuracy
                row.append(
                    Cell(f"{100 * accuracy:.1f}", accuracy, f"{100 * low:.0f}-{100 * high:.0f}")
                    if tested
                    else _percent(None)
                )
    note = "Test accuracy in percent over all seeds, with Wilson's 95 % interval for an average seed."
    return Table("classes", headers, [rows], " ".join([note, *_dagger(groups, "headline")]))


def clients(groups: Sequence[Group]) -> Table:
    """What each client holds, how it is pruned, and its test accuracy.

    All groups must have the same clients.
    """
    held = {
        "Client": "client",
        "Nodes": "nodes",
        "Edges": "edges",
        "Train": "train",
        "Val": "val",
        "Test": "test",
        "Classes": "classes",
    }
    headers = [*held, "Label divergence", "Homophily", "Degree", "Clustering", "Isolated"]
    unknown = _unknown(groups[0].first)
    rows = [
        [_text("–") if key in unknown else _integer(c[key]) for key in held.values()]
        for c in groups[0].first.clients
    ]
    names = groups[0].first.dataset.get("owner_names") or []
    if len(names) == len(rows):
        headers.insert(1, "Name")
        for row, name in zip(rows, names, strict=True):
            row.insert(1, _text(str(name)))
    divergence = _divergence(groups[0].first)
    for row, c, apart in zip(rows, groups[0].first.clients, divergence, strict=True):
        hidden = "edges" in unknown
        isolated = _text("–") if hidden else _integer(c["isolated_before"])
        degree = None if hidden or not c["nodes"] else 2 * c["edges"] / c["nodes"]
        row += [_plain(apart), _percent(c["homophily_before"]), _plain(degree, 1)]
        row += [_plain(c.get("clustering")), isolated]
    found = prunings(groups)
    for pruning, pruned in found:
        who = f" ({pruning[0].label})" if len(found) > 1 else ""
        headers += [f"{title}{who}" for title in ("Edges kept", "Homophily after", "Isolated after")]
        for row, c in zip(rows, pruned, strict=True):
            row += [_integer(c["edges_kept"]), _percent(c["homophily_after"]), _integer(c["isolated_after"])]
    for each in groups:
        run = each.first
        matrices = run.confusions[f"{run.headline}_test"]
        own = [scores(m, Tiers((), (), ())) for m in matrices] if not run.sums_only else [{}] * len(rows)
        for title, name in {"Acc": "acc", "bAcc": "bacc", "F1": "macro_f1"}.items():
            headers.append(f"{title} {marked_label(each)}")
            for row, score in zip(rows, own, strict=True):
                row.append(_percent(score.get(name)))
    notes = [
        f"Seed {groups[0].first.seed}. Label divergence: Jensen-Shannon divergence of a client's classes to "
        "those of all clients, from 0 (the same shares) to 1 (no class in common). Homophily: share of a "
        "client's edges that join two nodes of the same class, in percent. Degree: mean number of "
        "neighbours of a node. Clustering: mean share of the pairs of a node's neighbours that are joined. "
        "Isolated: nodes without edges. Acc, bAcc, F1: accuracy, balanced accuracy and macro-F1 on the "
        "client's test nodes, in percent."
    ]
    notes += [
        f"The same edges are pruned by {', '.join(each.label for each in pruning)}."
        for pruning, _ in found
        if len(pruning) > 1
    ]
    return Table("clients", headers, [rows], " ".join([*notes, *_dagger(groups, "headline")]))


def _divergence(run: Run) -> list[float | None]:
    """How far each client's classes are from those of all. A federation's server does not know."""
    held = run.partition["client_class"]
    if run.deployed or len(held) != len(run.clients):
        return [None] * len(run.clients)
    return [label_divergence(own, held.sum(0)) for own in held]


def _plain(value: float | None, digits: int = 2) -> Cell:
    return _text("–") if value is None else Cell(f"{value:.{digits}f}", value)


def _unknown(run: Run) -> tuple[str, ...]:
    """What a federation's server does not know of a site, among the facts of a client."""
    if not run.deployed:
        return ()
    return ("edges", "nodes", "train", "val", "test", "classes") if run.sums_only else ("edges",)


def defences(groups: Sequence[Group]) -> Table | None:
    """What was refused and what the defences did, by run and client. None if nothing happened in any run."""
    rows = [row for each in groups for run in each.runs for row in _deeds(each.label, run)]
    headers = [
        "Run",
        "Seed",
        "Client",
        "Refused",
        "Missing",
        "Last reason",
        "Clipped",
        "Kept (%)",
        "Rows cut",
        "Left out",
        "Weight (%)",
    ]
    text = (
        "Refused, Missing: answers of the client that failed a check or never came. Clipped: rounds in "
        "which its update was shortened; Kept: the mean share of the update that was left. Rows cut: class "
        "rows that were shortened. Left out: rounds that did not use the client. Weight: the smallest share "
        "of its weight that counted. Clipping to the median shortens about half of the honest clients' "
        "updates a little; look for a client that keeps far less."
    )
    return Table("defences", headers, [rows], text) if rows else None


def _deeds(label: str, run: Run) -> list[list[Cell]]:
    rows = []
    deeds = [line.get("defence", {}) for line in run.rounds]
    for c in run.clients:
        client = c["client"]
        refusals = [r for line in run.rounds for r in line.get("refused", []) if r["client"] == client]
        blamed = [r for r in refusals if not r.get("absent")]
        kept, weight, cut = (
            [each[what][str(client)] for each in deeds if str(client) in each.get(what, {})]
            for what in ("clipped", "capped", "rows")
        )
        left_out = sum(client in each.get("left_out", []) for each in deeds)
        left_out += sum(client in line.get("excluded", []) for line in run.rounds)
        if not (refusals or kept or weight or cut or left_out):
            continue
        reason = f"{refusals[-1]['field']} {refusals[-1]['reason']}" if refusals else ""
        counts = [_integer(len(blamed)), _integer(len(refusals) - len(blamed)), _text(shown(reason, 160))]
        share = _percent(sum(kept) / len(kept) if kept else None)
        done = [
            _integer(len(kept)),
            share,
            _integer(sum(cut)),
            _integer(left_out),
            _percent(min(weight, default=1.0)),
        ]
        rows.append([_text(label), _integer(run.seed), _text(str(c.get("site", client))), *counts, *done])
    return rows


def hashes(groups: Sequence[Group]) -> Table:
    """Every run, with the hashes that identify it."""
    keys = {"Config": "config_hash", "Partition": "partition_sha256", "Weights": "weights_sha256"}
    rows = [
        [
            _text(run.path.name),
            _text(run.dataset["name"]),
            Cell(each.label),
            _integer(run.seed),
            *(_text(str(run.summary.get(key) or NOTHING)[:16]) for key in keys.values()),
        ]
        for each in groups
        for run in each.runs
    ]
    return Table(
        "runs",
        ["Folder", "Dataset", "Method", "Seed", *keys],
        [rows],
        "Only the first 16 digits of each hash are shown.",
    )


def tier_rule(run: Run) -> str:
    """What the metrics mean, and how classes are divided into head, medium and tail."""
    cuts = run.config["experiment"].get("evaluation", {})
    sizes = ", ".join(f"{len(classes)} {tier}" for tier, classes in run.summary["tiers"].items())
    return (
        "Classes are sorted by their number of nodes in the whole graph. Head: the fewest classes that "
        f"together hold {cuts.get('head_share', 0.5):.0%} of the nodes. Tail: the smallest "
        f"{cuts.get('tail_share', 0.3):.0%} of the classes. Medium: the rest. Here: {sizes}. "
        "bAcc (balanced accuracy) is the plain mean of all classes' accuracies; Head, Medium and Tail are "
        "that mean over the classes of a tier."
    )


def rich_table(runs: Sequence[Run], model: str = "headline", average: str = "pooled") -> rich.table.Table:
    """The summary for a terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # Choice: one digit after the point, and no columns for dataset and seeds. So the table fits 80 columns.
    groups = group(runs)
    grid = RichTable(
        title="Adapted models" if model == "adapted" else None,
        box=box.SIMPLE_HEAD,
        padding=0,
        caption=Text(plain(protocol_note(groups, model, average))),
        caption_justify="left",
    )
    grid.add_column("Method", min_width=14)
    for title in METRIC_TITLES.values():
        grid.add_column(title, justify="right", no_wrap=True)
    blocks = by_dataset(groups)
    for block in blocks:
        if len(blocks) > 1:
            grid.add_row(Text(shown(block[0].first.dataset["name"]), style="dim"))
        for row in summary(block, model, average, digits=1).sections[0]:
            method, _seeds, *scores = row
            styles = ("", "bold", "underline")
            grid.add_row(
                Text(method.text),
                *(Text(cell.text + cell.spread, style=styles[cell.rank]) for cell in scores),
            )
        grid.add_section()
    return grid


def markdown_table(runs: Sequence[Run], model: str = "headline", average: str = "pooled") -> str:
    """The summary in Markdown: the best in bold, the second underlined, the protocol below."""
    return markdown(summary(group(runs), model, average))


def markdown(table: Table) -> str:
    """A table in Markdown, with numbers aligned to the right and the note below."""
    styles = ("{}", "**{}**", "<u>{}</u>")
    everything = [row for section in table.sections for row in section]
    rows = [
        [styles[cell.rank].format(markdown_text(cell.text + cell.spread)) for cell in row]
        for row in everything
    ]
    numeric = [
        all(row[column].value is not None for row in everything) for column in range(len(table.headers))
    ]
    rule = ["---:" if each else ":---" for each in numeric]
    lines = [
        f"| {' | '.join(cells)} |"
        for cells in ([markdown_text(header) for header in table.headers], rule, *rows)
    ]
    return "\n".join([*lines, "", markdown_text(table.note), ""])


def html_table(table: Table) -> str:
    """A table in HTML, in the form that the page's script can sort."""
    head = "".join(
        f'<th scope="col">{html_text(header).replace("_", "_<wbr>")}</th>' for header in table.headers
    )
    bodies = "".join(
        f"<tbody>{''.join(f'<tr>{_html_row(row)}</tr>' for row in section)}</tbody>"
        for section in table.sections
    )
    note = f'<p class="note">{html_text(table.note)}</p>' if table.note else ""
    opening = f'<div class="scroll"><table class="sortable" data-name="{html_text(table.name)}">'
    return f"{opening}<thead><tr>{head}</tr></thead>{bodies}</table></div>{note}"


def _html_row(row: list[Cell]) -> str:
    styles = ("{}", "<strong>{}</strong>", "<u>{}</u>")
    cells = []
    for cell in row:
        spread = f" <small>{html_text(cell.spread.replace('±', '± '))}</small>" if cell.spread else ""
        value = "" if cell.value is None else f' class="number" data-value="{_javascript(cell.value)}"'
        cells.append(f"<td{value}>{styles[cell.rank].format(html_text(cell.text))}{spread}</td>")
    return "".join(cells)


def _javascript(value: float) -> str:
    return f"{value:.9g}".replace("inf", "Infinity")


def _row(each: Group, model: str, average: str, digits: int) -> list[Cell]:
    values = [mean_std(100 * run.metric(name, model, average) for run in each.runs) for name in METRIC_TITLES]
    return [
        Cell(marked_label(each, model)),
        _integer(len(each.runs)),
        *(measured(mean, std, digits) for mean, std in values),
    ]


def marked_label(each: Group, model: str = "headline") -> str:
    """The group's label, with a dagger if its headline score is that of personal models."""
    # Choice: methods without a global model are ranked with the others, as in the paper's Table 2, but are
    # always marked.
    own = model != "personal" and any(run.headline == "personal" for run in each.runs)
    return each.label + (PERSONAL if own else "")


def ranked(rows: list[list[Cell]], columns: range) -> list[list[Cell]]:
    """Mark the best and the second value of each column. Values that look equal get the same mark."""
    marked = [list(row) for row in rows]
    for column in columns if len(rows) > 1 else []:
        printed = sorted(
            {row[column].text for row in rows if row[column].text != NOTHING}, key=float, reverse=True
        )
        for row in marked:
            cell = row[column]
            rank = printed.index(cell.text) + 1 if cell.text in printed else 0
            row[column] = Cell(cell.text, cell.value, cell.spread, rank if rank <= 2 else 0)
    return marked


def protocol_note(
    groups: Sequence[Group], model: str, average: str, marked: bool = True, protocol: bool = True
) -> str:
    """How the scores of a table were measured.

    ``marked``: the best and the second are marked. ``protocol``: the runs' protocol is not said elsewhere.
    """
    runs = [run for each in groups for run in each.runs]
    over = (
        "over the pooled test nodes of all clients"
        if average == "pooled"
        else "as the mean of each client's score, weighted by its test nodes"
    )
    kinds = {run.kind(model) for run in runs}
    of = "the clients' personal models" if kinds == {"personal"} else "the global model"
    if "adapted" in kinds:
        of = "the global model after each client has adapted it to its own training nodes"
    if model == "preferred":
        of = "the kind of model (global, personal, adapted) that scores best on validation nodes"
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    spread = "mean ± standard deviation over seeds" if any(len(each.runs) > 1 for each in groups) else "seed"
    sentences = [f"Test scores of {of} in percent, {over}; {spread} {seeds}.", *_dagger(groups, model)]
    if marked and any(len(block) > 1 for block in by_dataset(groups)):
        sentences.append("Bold: best. Underlined: second.")
    if model == "adapted" and (
        kept := sum(not run.summary["adapted"]["used"] for run in runs if run.adapted)
    ):
        sentences.append(f"{kept} of {sum(run.adapted for run in runs)} runs kept the global model.")
    sentences += [protocols(groups)] if protocol else []
    proxies = sorted({shown(run.dataset["name"]) for run in runs if run.summary.get("proxy_features")})
    if proxies:
        sentences.append(
            f"Proxy features: the features of {listed(proxies, 20)} replace the official ones, so do not "
            "compare these numbers with published ones."
        )
    return " ".join(sentences)


def protocols(groups: Sequence[Group]) -> str:
    """The protocol of most runs, and how the others differ from it, for a table's note."""
    return f"Protocol: {protocol_words(groups)}"


def protocol_words(groups: Sequence[Group]) -> str:
    """The protocol of most runs, and how the others differ from it."""
    who: dict[str, dict[str, int]] = {}
    for each in groups:
        labels = who.setdefault(sentence(each.first.summary["protocol"]).rstrip("."), {})
        labels[each.label] = labels.get(each.label, 0) + len(each.runs)
    usual, *others = sorted(who, key=lambda sentence: -sum(who[sentence].values()))
    same = set(usual.split("; "))
    exceptions = [
        f" {', '.join(who[other])}: {'; '.join(p for p in other.split('; ') if p not in same)}."
        for other in others
    ]
    return f"{usual}.{''.join(exceptions)}"


def _dagger(groups: Sequence[Group], model: str) -> list[str]:
    marked = any(marked_label(each, model) != each.label for each in groups)
    return (
        [f"{PERSONAL.strip()} A method without a global model; its clients' personal models are scored."]
        if marked
        else []
    )


def _text(text: str) -> Cell:
    return Cell(shown(text))


def _integer(value: int) -> Cell:
    return Cell(str(value), float(value))


def _percent(fraction: float | None) -> Cell:
    return measured(float("nan") if fraction is None else 100 * fraction, float("nan"), digits=1)


def measured(mean: float, std: float, digits: int = 2) -> Cell:
    if isnan(mean):
        return Cell(NOTHING, float("-inf"))
    return Cell(f"{mean:.{digits}f}", mean, "" if isnan(std) else f"±{std:.{digits}f}")


def _number(run: Run, key: str) -> float:
    value = run.summary.get(key)
    return float("nan") if value is None else float(value)
