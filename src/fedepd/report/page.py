"""One self-contained report.html.

It makes no network request, and everything on it comes from the run folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedepd.report import curves, decisions, matrices, plots, tables
from fedepd.report.adaptations import adaptations
from fedepd.report.against import differences
from fedepd.report.answer import answers
from fedepd.report.document import both, document, figure, fold, part, write_page
from fedepd.report.footer import footer
from fedepd.report.measured import measured
from fedepd.report.numbers import same_clients, same_partition
from fedepd.report.runs import Group, Run, by_dataset, group, read_runs, unfinished
from fedepd.shown import html_text, listed, sentence, shown, slug


def build_report(
    runs_path: str | Path, out: str | Path | None = None, runs: Sequence[Run] | None = None
) -> Path:
    """Write the report of a run folder, or of a folder of run folders.

    Args:
        runs_path: The folder.
        out: The file, or the folder for ``report.html``. Without it the report lies beside the runs.
        runs: What ``read_runs`` gave, if the folders were read before.

    Returns:
        Where the report is.

    Raises:
        BadData: There is no finished run, or a folder is damaged.
        BadConfig: The report cannot be written there.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> fedepd.build_report("runs/first").name
        'report.html'
    """
    html = render_page(read_runs(runs_path) if runs is None else runs, unfinished(runs_path))
    target = Path(runs_path if out is None else out)
    target = target / "report.html" if target.is_dir() else target
    write_page(target, html)
    return target


def render_page(runs: Sequence[Run], left_out: Sequence[Path] = ()) -> str:
    """The page's HTML."""
    groups = group(runs)
    for run in runs:
        run.read_all()
    datasets, found = by_dataset(groups), answers(groups)
    links = {f"data-{place}": shown(block[0].first.dataset["name"]) for place, block in enumerate(datasets)}
    several = len(datasets) > 1
    sections = [
        _dataset(block, place, each.more if several else "")
        for block, place, each in zip(datasets, links, found, strict=True)
    ]
    return document(
        _title(groups),
        _scope(groups, left_out),
        links,
        sections,
        footer(groups),
        answer=[each.first for each in found],
        more="" if several else found[0].more,
    )


def _title(groups: Sequence[Group]) -> str:
    methods = list(dict.fromkeys(each.label for each in groups))
    names = list(dict.fromkeys(shown(each.first.dataset["name"]) for each in groups))
    what = " and ".join(methods) if len(methods) <= 2 else f"{len(methods)} methods"
    return f"{what} on {names[0] if len(names) == 1 else f'{len(names)} datasets'}"


def _scope(groups: Sequence[Group], left_out: Sequence[Path]) -> str:
    count = sum(len(each.runs) for each in groups)
    runs = "1 run" if count == 1 else f"{count} runs"
    scope = f"{runs} of federated learning on graphs with long-tailed classes."
    if not left_out:
        return scope
    return f"{scope} Unfinished runs that are not shown: {listed([folder.name for folder in left_out], 20)}."


def _dataset(groups: Sequence[Group], place: str, more: str) -> str:
    """Everything about one graph. ``more``: what stands at its top, if anything."""
    data = groups[0].first.dataset
    badge = ' <span class="badge">proxy features</span>' if data.get("proxy_features") else ""
    facts = {"nodes": "nodes", "edges": "edges", "features": "features", "classes": "classes"}
    if groups[0].first.deployed:
        del facts["edges"]
    items = [
        f"<li><b>{html_text(f'{data[key]:,}')}</b> {name}</li>" for key, name in facts.items() if key in data
    ]
    if data.get("imbalance_ratio") is not None:
        items.append(
            f"<li>imbalance ratio <b>{data['imbalance_ratio']:.1f}</b> (largest class over smallest)</li>"
        )
    scored = any(run.scored for each in groups for run in each.runs)
    first = both(plots.per_class(groups), _PER_CLASS + _whose(groups)) if scored else _NO_SCORES
    parts = [part("Scores", _summary(groups), opened=True), *(_scores(groups) if scored else [])]
    if held := differences(groups):
        parts.insert(1, part("Is it worth it?", tables.html_table(held), opened=True))
    head = f'<h2 id="{slug(place)}">{html_text(shown(data["name"]))}{badge}</h2>'
    beside = f'<p class="note">{html_text(more)}</p>' if more else ""
    content = "".join([beside, first, *parts, *_clients(groups)])
    return f'<section>{head}<ul class="facts">{"".join(items)}</ul>{content}</section>\n'


def _scores(groups: Sequence[Group]) -> list[str]:
    """The sections about scores and classes."""
    measured_so = any(run.calibration for each in groups for run in each.runs)
    return [
        part("Every class", tables.html_table(tables.classes(groups))),
        part("Found and false alarms", _decisions(groups)),
        part("Head, medium and tail", both(plots.tier_bars(groups), _TIERS + _whose(groups))),
        *([part("Calibration", _calibration(groups))] if measured_so else []),
        part("Convergence", both(plots.convergence_lines(groups), _CONVERGENCE + _whose(groups))),
        part("Partition", "".join(_partition(same) for same in same_partition(groups))),
    ]


def _clients(groups: Sequence[Group]) -> list[str]:
    """The sections about clients, and what was sent."""
    alike, scaling, deeds = same_clients(groups), measured(groups), tables.defences(groups)
    sent = figure(plots.communication(groups), _COMMUNICATION)
    return [
        *([part("Refused answers and defences", tables.html_table(deeds), opened=True)] if deeds else []),
        part("Clients", "".join(tables.html_table(tables.clients(same)) for same in alike)),
        part("Purification", "".join(_purification(same) for same in alike)),
        part("Communication and cost", sent + tables.html_table(tables.cost(groups))),
        *([part("What the clients measured together", tables.html_table(scaling))] if scaling else []),
    ]


def _decisions(groups: Sequence[Group]) -> str:
    """Precision and recall by tier, and then everything about each method, folded if there are several."""
    parts = [tables.html_table(decisions.by_tier(groups))]
    for each in groups:
        content = "".join(_of_one(each))
        if len(groups) > 1:
            content = fold(each.label, content)
        parts.append(content)
    return "".join(parts)


def _of_one(each: Group) -> list[str]:
    figures = {_CONFUSION: matrices.confusion_map(each), _PRECISION: curves.precision_recall(each)}
    folded = {
        "Every class at every client": decisions.by_client(each),
        "Alerts at every client": decisions.alerts_at_clients(each),
    }
    alerts = decisions.at_alerts(each)
    point = curves.operating_curve(each)
    return [
        *([figure(point, _POINT)] if point else []),
        tables.html_table(decisions.by_class(each)),
        *(figure(svg, caption + _whose([each])) for caption, svg in figures.items() if svg),
        *([tables.html_table(alerts)] if alerts else []),
        *(fold(title, tables.html_table(table)) for title, table in folded.items() if table),
    ]


_POINT = (
    "The operating point of the model that was exported last: found cases against false alarms on test "
    "nodes. Its threshold was chosen on validation nodes. Whiskers: 95 % intervals by bootstrap, in which "
    "the threshold is chosen anew. Band: 95 % interval of the curve, by bootstrap of the test nodes."
)
_CONFUSION = (
    "Test nodes of each true class (row) and what they are called (column), mean over seeds. Colour: share "
    "of the true class. Up to 20 classes run from the largest to the smallest; more are put in clusters, so "
    "that classes that are mixed up stand side by side."
)
_PRECISION = (
    "Precision against recall as the number of alerts grows from one to all test nodes. Of many classes, "
    "some from the largest to the smallest are shown."
)
_NO_SCORES = "<p>No node was scored in these runs, so there are no figures of scores and classes.</p>"
_PER_CLASS = (
    "Classes run from the largest on the left to the smallest on the right; many are put in ten bins of "
    "equal size. Grey bars: nodes of each class (right axis). Marks: test accuracy, which is the share of a "
    "class that is found, and in a bin the mean of its classes (left axis). Whiskers: 95 % interval, by "
    "Wilson."
)
_TIERS = (
    "Mean test accuracy of the classes in each tier. The note under the scores defines the tiers. "
    "Whiskers: one standard deviation over seeds."
)
_CONVERGENCE = (
    "Macro-F1 on the validation nodes of all clients, in the rounds that were evaluated. "
    "Line: mean over seeds. Band: one standard deviation."
)
_CALIBRATION = (
    "Test nodes are sorted by the probability of their predicted class and put into 15 bins with equally "
    "many nodes, for all nodes and for each tier of the predicted class. Dotted line: perfectly calibrated. "
    "Left: plain softmax. Right: with one temperature per tier, which 'fedepd export' has fitted on "
    "validation nodes."
)
_COMMUNICATION = (
    "Bytes of all messages of a whole run by message field, summed over clients and rounds. Mean over seeds."
)


def _whose(groups: Sequence[Group]) -> str:
    personal = [each.label for each in groups if each.first.headline == "personal"]
    if not personal:
        return " Scores are those of the global model."
    if len(personal) == len(groups):
        return " Scores are those of the clients' personal models."
    who = f"{', '.join(personal)} {'has' if len(personal) == 1 else 'have'} none"
    return f" Scores are those of the global model. {who}, so the clients' personal models are scored."


def _summary(groups: Sequence[Group]) -> str:
    more = {
        "Personal models, pooled": ("personal", "pooled"),
        "Headline models, mean over clients": ("headline", "client_mean"),
    }
    more |= {"Personal models, mean over clients": ("personal", "client_mean")}
    if any(run.adapted for each in groups for run in each.runs):
        more = {"Adapted models, pooled": ("adapted", "pooled"), **more}
    if all(each.first.sums_only for each in groups):  # no client has scores of its own to take the mean of
        more = {title: how for title, how in more.items() if how[1] == "pooled"}
    hidden = [
        fold(title, tables.html_table(tables.summary(groups, *how, protocol=False)))
        for title, how in more.items()
    ]
    rule = f'<p class="note">{html_text(tables.tier_rule(groups[0].first))}</p>'
    if decided := adaptations(groups):
        hidden.insert(0, fold("Adaptation", tables.html_table(decided)))
    said = [line for each in groups for line in decisions.notices(each)]
    warned = "".join(f'<p class="warned">{html_text(sentence(line))}</p>' for line in said)
    return warned + tables.html_table(tables.summary(groups, protocol=False)) + rule + "".join(hidden)


def _calibration(groups: Sequence[Group]) -> str:
    """One figure per method.

    Choice: it shows the first run that was exported. A mean over the bins of several runs would describe none
    of them.
    """
    figures = [(each, plots.reliability(each)) for each in groups]
    return "".join(figure(svg, f"{each.label}. {_CALIBRATION}") for each, svg in figures if svg)


def _partition(groups: Sequence[Group]) -> str:
    run = groups[0].first
    if not run.partition["client_class"].any():
        return (
            '<p class="note">The server saw sums over all sites only, so it does not know who has what.</p>'
        )
    share = run.summary.get("test_without_local_train")
    caption = f"Nodes of each class at each client, seed {run.seed}. Blank: none. Used by {_who(groups)}."
    if share is not None:
        caption += (
            f" {share:.1%} of the test nodes belong to a class without any training node at their client."
        )
    return figure(plots.partition_heatmap(run), caption)


def _purification(groups: Sequence[Group]) -> str:
    svg = plots.purification(groups)
    if not svg:
        return f"<p>{html_text(_who(groups))}: no edges are pruned.</p>"
    caption = (
        "Left: share of a client's edges that the method does not train on. Right: share of its edges that "
        "join two nodes of the same class, before pruning (ring) and after it (dot). Seed "
        f"{groups[0].first.seed}. Only methods that prune are shown."
    )
    return figure(svg, caption)


def _who(groups: Sequence[Group]) -> str:
    return (
        ", ".join(each.label for each in groups)
        if len(groups) <= 4
        else f"{groups[0].label} and {len(groups) - 1} more methods"
    )
