"""One self-contained report.html: no request leaves it, and everything on it comes from the run folders."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from fedepd.errors import BadConfig
from fedepd.files import write_text
from fedepd.report import plots, tables
from fedepd.report.numbers import same_clients
from fedepd.report.runs import Group, Run, by_dataset, group, read_runs, unfinished
from fedepd.shown import html_text, listed, sentence, shown, slug

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; script-src {script}; "
    "style-src 'unsafe-inline'; style-src-elem {style}; style-src-attr 'unsafe-inline'"
)
"""Our own script and style by their hashes, so that none that came with data counts.

Choice: style attributes are allowed, because matplotlib puts one on every line it draws; they can fetch nothing, and hashes of them would
be thousands. ``style-src`` itself is for browsers that do not know the two narrower ones.
"""


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
    datasets = by_dataset(groups)
    links = {f"data-{place}": shown(block[0].first.dataset["name"]) for place, block in enumerate(datasets)}
    sections = [_dataset(block, place) for block, place in zip(datasets, links, strict=True)]
    return document(_title(groups), _scope(groups, left_out), links, sections, footer(groups))


def document(title: str, scope: str, links: Mapping[str, str], sections: Iterable[str], foot: str) -> str:
    """A whole page of HTML from its parts; ``links``: id -> text, of what is worth a jump. The footer's id is protocol."""
    asset = resources.files("fedepd.report")
    script, style = (
        "\n" + asset.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css")
    )
    policy = POLICY.format(script=_hash(script), style=_hash(style))
    jumps = "".join(f'<a href="#{slug(place)}">{html_text(text)}</a>' for place, text in links.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{html_text(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{html_text(title)}</h1>
<p>{html_text(scope)}</p>
<nav>{jumps}<a href="#protocol">protocol, settings, hashes</a></nav>
</header>
<main>
{"".join(sections)}</main>
{foot}
<script>{script}</script>
</body>
</html>
"""


def _hash(content: str) -> str:
    """As a page's policy names the element that holds ``content``."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _title(groups: Sequence[Group]) -> str:
    methods = list(dict.fromkeys(each.label for each in groups))
    names = list(dict.fromkeys(shown(each.first.dataset["name"]) for each in groups))
    what = " and ".join(methods) if len(methods) <= 2 else f"{len(methods)} methods"
    return f"{what} on {names[0] if len(names) == 1 else f'{len(names)} datasets'}"


def _scope(groups: Sequence[Group], left_out: Sequence[Path]) -> str:
    count = sum(len(each.runs) for each in groups)
    scope = f"{count} run{'s' if count > 1 else ''} of federated learning on graphs whose classes are long-tailed."
    names = listed([folder.name for folder in left_out], 20)
    return f"{scope} Left out because unfinished: {names}." if left_out else scope


def _dataset(groups: Sequence[Group], place: str) -> str:
    data = groups[0].first.dataset
    badge = ' <span class="badge">proxy features</span>' if data.get("proxy_features") else ""
    facts = {"nodes": "nodes", "edges": "edges", "features": "features", "classes": "classes"}
    items = [
        f"<li><b>{html_text(f'{data[key]:,}')}</b> {name}</li>" for key, name in facts.items() if key in data
    ]
    if data.get("imbalance_ratio") is not None:
        items.append(
            f"<li>imbalance ratio <b>{data['imbalance_ratio']:.1f}</b> (largest class over smallest)</li>"
        )
    alike = same_clients(groups)
    parts = [
        section("Summary", _summary(groups)),
        section("Accuracy by class", _figure(plots.per_class(groups), _PER_CLASS + _whose(groups))),
        section(
            "Classes",
            f"<details><summary>All classes, by name</summary>{tables.html_table(tables.classes(groups))}</details>",
        ),
        section("Head, medium and tail", _figure(plots.tier_bars(groups), _TIERS + _whose(groups))),
        *(
            [section("Calibration", _calibration(groups))]
            if any(run.calibration for each in groups for run in each.runs)
            else []
        ),
        section("Convergence", _figure(plots.convergence_lines(groups), _CONVERGENCE + _whose(groups))),
        section("Partition", "".join(_partition(same) for same in alike)),
        section("Purification", "".join(_purification(same) for same in alike)),
        section(
            "Communication and cost",
            _figure(plots.communication(groups), _COMMUNICATION) + tables.html_table(tables.cost(groups)),
        ),
        section("Clients", "".join(tables.html_table(tables.clients(same)) for same in alike)),
        *(
            [section("Refused answers and defences", tables.html_table(deeds))]
            if (deeds := tables.defences(groups))
            else []
        ),
    ]
    head = f'<h2 id="{slug(place)}">{html_text(shown(data["name"]))}{badge}</h2><ul class="facts">{"".join(items)}</ul>'
    return f"<section>{head}{''.join(parts)}</section>\n"


_PER_CLASS = (
    "Classes stand from the largest on the left to the smallest on the right, cut evenly into at most ten bins. Grey bars: nodes of each "
    "class (right axis). Lines: mean test accuracy of a bin's classes (left axis); whiskers: its 95 % interval, from the classes' Wilson "
    "intervals."
)
_TIERS = "Mean test accuracy of the classes of each tier, as cut under the summary; whiskers: one standard deviation over seeds."
_CONVERGENCE = "Macro-F1 on all clients' validation nodes in the rounds that were evaluated; mean and one standard deviation over seeds."
_CALIBRATION = (
    "Test nodes in 15 bins of equal mass by the probability of their likeliest class, by the tier of that class; dotted: perfectly "
    "calibrated. Left: softmax; right: after one temperature per tier, fitted on validation nodes by 'fedepd export'."
)
_COMMUNICATION = (
    "Payload of all messages of a whole run by field, summed over clients and rounds, mean over seeds."
)


def _whose(groups: Sequence[Group]) -> str:
    personal = [each.label for each in groups if each.first.headline == "personal"]
    if not personal:
        return " Global model."
    if len(personal) == len(groups):
        return " The clients' personal models."
    return f" Global model; {', '.join(personal)}: the clients' personal models, for want of a global one."


def section(title: str, content: str) -> str:
    return f"<h3>{html_text(title)}</h3>{content}\n"


def _figure(svg: str, caption: str) -> str:
    return f"<figure><div>{svg}</div><figcaption>{html_text(caption)}</figcaption></figure>"


def _summary(groups: Sequence[Group]) -> str:
    more = {
        "Personal models, pooled": ("personal", "pooled"),
        "Headline models, mean over clients": ("headline", "client_mean"),
    }
    more |= {"Personal models, mean over clients": ("personal", "client_mean")}
    folded = {title: tables.html_table(tables.summary(groups, *how)) for title, how in more.items()}
    hidden = [
        f"<details><summary>{html_text(title)}</summary>{table}</details>" for title, table in folded.items()
    ]
    rule = f'<p class="note">{html_text(tables.tier_rule(groups[0].first))}</p>'
    return tables.html_table(tables.summary(groups)) + rule + "".join(hidden)


def _calibration(groups: Sequence[Group]) -> str:
    """Choice: of each method the first run that was exported, since a mean of several runs' bins is no run's reliability."""
    figures = [(each, plots.reliability(each)) for each in groups]
    return "".join(_figure(svg, f"{each.label}. {_CALIBRATION}") for each, svg in figures if svg)


def _partition(groups: Sequence[Group]) -> str:
    run = groups[0].first
    share = run.summary.get("test_without_local_train")
    caption = f"Nodes of each class at each client (blank: none) of {_who(groups)}, seed {run.seed}."
    if share is not None:
        caption += (
            f" {share:.1%} of the test nodes have a class of which their own client has no training node."
        )
    return _figure(plots.partition_heatmap(run), caption)


def _purification(groups: Sequence[Group]) -> str:
    svg = plots.purification(groups)
    if not svg:
        return f"<p>No edges are pruned by {html_text(_who(groups))}.</p>"
    caption = (
        "Left: share of a client's edges that the method does not train on. Right: share of its edges that join two nodes of one class, "
        f"before (ring) and after (dot), seed {groups[0].first.seed}. Only methods that prune are shown."
    )
    return _figure(svg, caption)


def _who(groups: Sequence[Group]) -> str:
    return (
        ", ".join(each.label for each in groups)
        if len(groups) <= 4
        else f"{groups[0].label} and {len(groups) - 1} more methods"
    )


def footer(groups: Sequence[Group]) -> str:
    runs = [run for each in groups for run in each.runs]
    protocols = dict.fromkeys(f"{shown(run.dataset['name'])}: {run.summary['protocol']}" for run in runs)
    environments = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in run.env.items() if name != "command") for run in runs
    )
    commands = dict.fromkeys(_command(run) for run in runs)
    warnings = dict.fromkeys(
        f"{shown(run.dataset['name'])}: {warning}"
        for run in runs
        for warning in run.summary.get("warnings", [])
    )
    settings = [
        f"<details><summary>{html_text(each.label)} on {html_text(shown(each.first.dataset['name']))}</summary>"
        f"<pre>{html_text(json.dumps(each.first.config['experiment'], indent=2, ensure_ascii=False), newlines=True)}</pre></details>"
        for each in groups
    ]
    table = tables.html_table(tables.hashes(groups))
    return f"""<footer id="protocol">
<h2>Protocol</h2>{paragraphs(protocols)}
{f"<h2>Warnings</h2>{paragraphs(warnings)}" if warnings else ""}
<h2>Environment</h2>{paragraphs(environments)}
<h2>Runs and hashes</h2>{f"<details><summary>All {len(runs)} runs</summary>{table}</details>" if len(runs) > 30 else table}
<h2>Settings</h2>{"".join(settings)}
<h2>Commands</h2><pre>{chr(10).join(map(html_text, commands))}</pre>
</footer>"""


def paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{html_text(sentence(line))}</p>" for line in lines)


def _command(run: Run) -> str:
    """The recorded command line; a run from Python has none that makes sense, so the one that names its main settings."""
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


def write_page(target: Path, text: str) -> None:
    """All of the file or nothing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
    except (OSError, BadConfig) as error:
        why = getattr(error.__cause__ or error, "strerror", None) or "the name cannot be used"
        raise BadConfig(
            f"the report cannot be written to '{shown(target, 300)}' ({why}); name another place with --out"
        ) from None
