"""The README.md of an exported model: data, protocol, scores, calibration, limits and privacy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from fedepd.metrics import METRICS
from fedepd.model.card_numbers import by_class, by_group, operating_point, table
from fedepd.model.model import Model
from fedepd.report.runs import Run
from fedepd.rounds.calibrate import MIN_NODES
from fedepd.shown import markdown_code, markdown_text, sentence, shown

USE = (
    "This model classifies the nodes of a graph. The columns, edges and classes of that graph must mean the "
    "same as in training. The scores below were measured on other nodes of the graphs that it was trained "
    "on (transductive), so expect lower scores on a new graph. The model is not meant to make decisions "
    "about people on its own."
)

LIMITS = (
    "All scores above come from one run with one seed. Reports over several seeds show how much they vary.",
    "A new graph is treated as one client. If the method prunes, it compares each edge with all "
    "edges of that graph.",
    "A node without edges is classified by its own features. A category that was not seen in training "
    "is encoded as zeros.",
)

LIMITS_OF_CALIBRATION = (
    "Calibration was fitted on validation nodes and measured on test nodes of the same graphs. It does not "
    "carry over to a graph with other class frequencies.",
    "A node's tier is the tier of its predicted class. A tail node that is mistaken for a head class is "
    "calibrated as a head node.",
)

NO_NOISE = (
    "The weights are averages of models that were trained at the clients, without differential privacy. "
    "They can reveal training nodes."
)
PRIVACY = (
    "labels.json and schema.json name classes, columns and categories, and give means and standard "
    "deviations over all owners. Read them before you pass the folder on.",
    "reference.json, if it is there, gives shares of training rows by column, of at least 20 rows each.",
    "This folder holds only tensors that change a prediction. Class prototypes, class counts and moments "
    "that do not were left out.",
)


DISTILLED = (
    "The weights were distilled: they were trained on predicted classes, and for no node did a model predict "
    "that was trained on it. Training nodes are harder to tell from others than by the run's model, but they "
    "are not hidden."
)


OWN_WEIGHTS = (
    "The weights were trained on the nodes of one client, without differential privacy. They reveal more of "
    "these nodes than a model of all clients does, so keep the folder where the nodes are."
)
OWN_LIMIT = (
    "The scores above are those of one client, with one seed. How far they can be trusted depends on its "
    "number of test nodes."
)


@dataclass(frozen=True)
class Owned:
    """Whose model it is, and on which nodes it was measured."""

    others: tuple[str, ...]
    """The names of the other clients of the run."""
    nodes: int
    edges: int
    train: int
    val: int
    test: int
    sha256: str
    """Of the client's graph."""
    held: tuple[int, ...] = ()
    """Under the guard: the closed classes that the client has columns of."""


def model_card(
    run: Run,
    model: Model,
    calibration: dict[str, Any],
    origin: str,
    scores: dict[str, dict[str, Any]] | None = None,
    owned: Owned | None = None,
    point: dict[str, Any] | None = None,
) -> str:
    """The card in Markdown. Names from the data are escaped, so they are shown as text.

    ``scores`` are the model's own on test nodes, if they are not the run's. ``owned``: of a model that was
    made for one client. ``point``: what its operating point does, if it has one.
    """
    data, settings, s, env = run.dataset, run.config["experiment"]["method"], run.summary, run.env
    proxy = (
        " Its features replace the official ones (proxy features), so do not compare the scores with "
        "published ones."
        if s["proxy_features"]
        else ""
    )
    chosen = [
        _name(f"{name} = {value}") for name, value in settings.items() if name not in ("name", "preset")
    ]
    sites, graph, method = run.config.get("sites"), _name(data["name"]), _name(s["method_label"])
    edges = "" if sites else f"{data['edges']:,} edges, "  # the coordinator never learns their number
    nodes = f"{data['nodes']:,} nodes, " if data["nodes"] else ""  # under noise it does not learn this either
    facts = f"{nodes}{edges}{data['features']:,} features, {data['classes']:,} classes"
    ratio = data["imbalance_ratio"]
    imbalance = "" if ratio is None else f" The imbalance ratio (largest class over smallest) is {ratio:.1f}."
    origin_of_data = (
        f"The data are at the sites {', '.join(map(_name, sites))}"
        if sites
        else f"The graph's sha256 is {markdown_code(data['sha256'])}"
    )
    calibrated = [] if "unmeasured" in calibration else LIMITS_OF_CALIBRATION
    said = [s["one_class"]] if "one_class" in s and scores is None else []
    warnings = [markdown_text(sentence(warning)) for warning in [*said, *s.get("warnings", [])]]
    versions = f"fedepd {_name(env.get('fedepd'))}, torch {_name(env.get('torch'))}"
    parts = [
        f"# {method} on {graph}{f', model of {_name(model.client)}' if owned else ''}",
        _what(run, model, owned),
        *_section("Intended use", USE),
        *([] if owned is None else _section("Whose model", _whose(model, owned))),
        *_section(
            "Data",
            f"{graph}: {facts}.{imbalance}{proxy} {origin_of_data}.",
        ),
        *_section(
            "Protocol",
            f"{markdown_text(sentence(s['protocol']))}; seed {markdown_text(s['seed'])}.",
            f"Settings of the method: {', '.join(chosen) or 'none'}.",
        ),
        *_section("Test metrics", _scores(run, scores, owned), _tiers(model)),
        *(_section("Test metrics by class", *classes) if (classes := _by_class(run, model, scores)) else []),
        *(_section("Operating point", *operating_point(point, model)) if point else []),
        *_section("Calibration", *_calibration(calibration)),
        *_section(
            "Limits",
            _list([*(LIMITS if owned is None else (OWN_LIMIT, *LIMITS[1:])), *calibrated, *warnings]),
        ),
        *_section("Privacy", _list(_privacy(run, model, owned))),
        *_section(
            "How to use",
            "```console\n$ fedepd predict MODEL --nodes nodes.csv --edges edges.csv -o predictions.csv\n```",
        ),
        *_section(
            "Identity", f"Run {markdown_code(origin)}, config {markdown_code(s['config_hash'])}, {versions}."
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _by_class(run: Run, model: Model, scores: dict[str, Any] | None) -> list[str]:
    """The run's numbers by class, unless the model is another one than the run measured."""
    return [*by_class(run, model), *by_group(run, model)] if scores is None else []


def _what(run: Run, model: Model, owned: Owned | None) -> str:
    """The method, the clients, and the round of the weights."""
    s, method = run.summary, _name(run.summary["method_label"])
    chosen = s["best_rounds"]["personal" if model.kind == "personal" else run.headline]
    round = f"{markdown_text(chosen)} of {markdown_text(s['rounds'])}"
    last = run.config["experiment"].get("protocol", {}).get("select") == "last"
    scored_last = "the last that was scored" if run.scored else "the last; it was not scored"
    chosen_by = scored_last if last else "which was selected on validation nodes"
    if owned is None:
        return (
            f"A node classifier, trained with {method} over {model.info.num_clients} clients. Its weights "
            f"are {'distilled from ' if model.distilled else ''}those of round {round}, {chosen_by}."
        )
    others = ", ".join(map(_name, owned.others[:12])) + (", ..." if len(owned.others) > 12 else "")
    together = f"together with {len(owned.others)} other clients ({others})" if others else "alone"
    what = {
        "global": "It is the model of all clients, with this client's own columns of classes that are not "
        "shared" if owned.held else "It is the model of all clients",
        "personal": "It is the model that this client has trained and keeps",
        "adapted": "It is the model of all clients, trained further on this client's training nodes",
    }[model.kind]  # fmt: skip
    return (
        f"A node classifier for {_name(model.client)}, trained with {method} {together}. {what}. Its weights "
        f"are those of round {round}, {chosen_by}."
    )


def _whose(model: Model, owned: Owned) -> str:
    return (
        f"This is the {model.kind} model of {_name(model.client)}. The client's graph has {owned.nodes:,} "
        f"nodes and {owned.edges:,} edges; {owned.train:,} of the nodes were for training. Scores and "
        f"calibration below were measured on its other labelled nodes, {owned.val:,} for validation and "
        f"{owned.test:,} for the test, and on no node of another client."
    )


def _scores(run: Run, scores: dict[str, dict[str, Any]] | None, owned: Owned | None) -> str:
    if owned is not None:
        return _table_of_scores({how: values for how, values in (scores or {}).items()})
    return _metrics(run.summary["metrics"][run.headline], scores)


def _privacy(run: Run, model: Model, owned: Owned | None) -> list[str]:
    """Which settings of privacy the run had, which classes the model lacks for it, and what stays."""
    privacy, opened = run.config["experiment"].get("privacy", {}), run.summary.get("open_classes", [])
    lines = []
    if privacy.get("secure"):
        lines.append("The server saw sums over the clients only, no client's own numbers.")
    if privacy.get("guard"):
        mine = owned.held if owned else ()
        closed = [name for k, name in enumerate(model.label_names) if k not in (*opened, *mine)]
        named = f"Never predicted: {', '.join(map(_name, closed))}." if closed else "No class was below that."
        kept = "does not have them"
        if mine:
            names = ", ".join(_name(model.label_names[k]) for k in mine)
            kept, named = f"has this client's own columns of them: {names}", named if closed else ""
        lines.append(
            f"The guard was on: classes with fewer than {shown(privacy.get('min_count'))} training nodes "
            f"or {shown(privacy.get('min_holders'))} holders stayed at the clients, and this model "
            f"{kept}. {named}".rstrip()
        )
    lines.append(OWN_WEIGHTS if owned and model.kind != "global" else spent_on_weights(run.summary))
    return [*lines, *PRIVACY, *([DISTILLED] if model.distilled else [])]


def spent_on_weights(summary: dict[str, Any]) -> str:
    """What the weights may reveal, with the privacy budget that was spent on them."""
    spent = summary.get("privacy")
    if not spent:
        return NO_NOISE
    return (
        f"The weights come from {spent['releases']} sums of updates with noise: epsilon "
        f"{spent['epsilon_spent']:.2f} at delta {spent['delta']:g}, noise {spent['multiplier']:.2f} times "
        f"the largest update ({spent['clip']:g}). This bounds what they say about one client as a whole. "
        "Scores, temperatures and all other files of this folder were made without noise."
    )


def _name(text: object) -> str:
    return markdown_text(shown(text))


def _section(title: str, *content: str) -> list[str]:
    return [f"## {title}", *content]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _metrics(of_run: dict[str, dict[str, Any]], distilled: dict[str, dict[str, Any]] | None) -> str:
    """The model's scores. Beside those of a distilled model stand those of the run's, as its price."""
    named = {how.replace("_", " "): values for how, values in (distilled or of_run).items()}
    if distilled:
        named |= {f"{how.replace('_', ' ')}, not distilled": values for how, values in of_run.items()}
    return _table_of_scores(named)


def _table_of_scores(named: dict[str, dict[str, Any]]) -> str:
    rows = [[_name(how), *(_percent(values[name]) for name in METRICS)] for how, values in named.items()]
    return table(["in percent", *(name.replace("_", " ") for name in METRICS)], rows)


def _percent(value: float | None) -> str:
    return "–" if value is None or isnan(value) else f"{100 * value:.2f}"


def _tiers(model: Model) -> str:
    named = {
        tier: [_name(model.label_names[c]) for c in classes] for tier, classes in vars(model.tiers).items()
    }
    more = {tier: ", ..." if len(names) > 12 else "" for tier, names in named.items()}
    return " ".join(
        f"{tier.capitalize()} classes ({len(names)}): {', '.join(names[:12])}{more[tier]}."
        for tier, names in named.items()
        if names
    )


def _calibration(calibration: dict[str, Any]) -> list[str]:
    if "unmeasured" in calibration:
        return [markdown_text(sentence(calibration["unmeasured"]))]
    rows = []
    for tier, before in calibration["before"].items():
        after = calibration["after"][tier]
        heat = calibration["temperatures"].get(tier)
        scores = [_interval(each[name]) for name in ("ece", "brier") for each in (before, after)]
        rows.append([_name(tier), f"{before['nodes']:,}", "" if heat is None else f"{heat:.3f}", *scores])
    header = [
        "predicted tier",
        "test nodes",
        "temperature",
        "ECE before",
        "ECE after",
        "Brier before",
        "Brier after",
    ]
    return [table(header, rows), _how(calibration)]


def _interval(triple: Sequence[float] | None) -> str:
    return "–" if triple is None else f"{triple[0]:.3f} ({triple[1]:.3f} to {triple[2]:.3f})"


def _how(calibration: dict[str, Any]) -> str:
    return (
        "Each tier of the predicted class has one temperature, which minimises the negative log-likelihood "
        f"on {calibration['validation_nodes']:,} validation nodes. A tier with fewer than {MIN_NODES} of "
        "them uses the temperature of all nodes. Temperatures do not change which class is predicted. ECE "
        f"is the expected calibration error of the predicted class, in {calibration['bins']} bins with "
        "equally many nodes; with few nodes it is too high by chance, and in a resample more so, so that its "
        "interval may lie above it. Brier is the squared error over all "
        f"classes, from 0 to 2. Brackets hold 95 % intervals from {calibration['resamples']:,} bootstrap "
        "resamples of the test nodes."
    )
