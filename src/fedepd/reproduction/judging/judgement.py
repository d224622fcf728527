"""The verdicts on the paper's claims that a target can test, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedepd.report.tables import NOTHING, PERSONAL, Cell, Table
from fedepd.reproduction.judging.claims import CLAIMS
from fedepd.reproduction.judging.comparisons import p_cell
from fedepd.reproduction.judging.verdicts import ALL, Verdict, judge, row_name
from fedepd.reproduction.study.measures import align_seeds
from fedepd.reproduction.study.results import HEADLINE, Results, Scoring
from fedepd.reproduction.study.targets import read_target, target_names

RULE = (
    "Holds: Welch's test over seeds shows it against each row that the claim is about, Holm-corrected p below 0.05. Does not hold: not "
    "shown, and the contrary is against one of them, its p multiplied by their number. Otherwise it cannot be told. All datasets together: "
    "the same by Wilcoxon's test over their means. FedEPD is our reading of the paper, FedEPD (printed) its text to the letter."
)
SCORES = (
    "Scores are pooled over all test nodes, of the global model; † has none: its clients' personal models."
)

SIGNS = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}


def verdicts_of(results: Results, scoring: Scoring = HEADLINE) -> list[Verdict]:
    """On the claims about this target, or for one of the user's own about targets of its kind; for rows that are in it.

    Choice: HEADLINE decides what we say of a claim. Who holds that the paper scored as its test bed does finds every verdict of its tables
    by OPENFGL too, corrected for themselves.
    """
    name, kind = results.target.name, results.target.kind
    claims = [
        claim
        for claim in CLAIMS
        if (claim.target == name if name in target_names() else read_target(claim.target).kind == kind)
    ]
    if not claims or not results.runs:
        return []
    measured = {
        dataset: {
            entry.row.key: align_seeds(entry.runs, _seeds(results), scoring)
            for entry in results.finished(dataset)
        }
        for dataset in results.datasets
    }
    keys = [row.key for row in results.target.rows]
    found = [
        each
        for each in judge(measured, claims)
        if any(key == each.row or key.startswith(f"{each.row}:") for key in keys)
    ]
    if scoring.model == "personal":  # of all rows, so that none needs the mark
        found = [replace(each, because=each.because.replace(PERSONAL, "")) for each in found]
    return found


def glance_table(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> Table:
    """A line per claim and judged row, a column per dataset that was run; ``titles``: how these are called."""
    lines: dict[tuple[str, str], dict[str, Verdict]] = {}
    for each in verdicts:
        lines.setdefault((each.claim.id, each.row), {})[each.dataset] = each
    sections: dict[str, list[list[Cell]]] = {}
    for (_, row), found in lines.items():
        claim = next(iter(found.values())).claim
        cells = [
            Cell(SIGNS[found[dataset].outcome]) if dataset in found else Cell(NOTHING) for dataset in titles
        ]
        over_all = [f"{SIGNS[found[ALL].outcome]} {found[ALL].outcome}"] if ALL in found else []
        absent = [f"not run: {dataset}" for dataset in found if dataset not in (*titles, ALL)]
        told = [Cell(", ".join(over_all + absent) or NOTHING), *cells]
        sections.setdefault(claim.target, []).append(
            [Cell(claim.sentence), Cell(claim.where), Cell(row_name(row)), *told]
        )
    headers = ["Claim", "In the paper", "Judged", "All together", *titles.values()]
    legend = ", ".join(f"{sign} {outcome}" for outcome, sign in SIGNS.items())
    return Table(
        "glance", headers, list(sections.values()), f"{legend}, – not claimed there. {RULE} {SCORES}"
    )


def verdict_table(verdicts: Sequence[Verdict], titles: Mapping[str, str], name: str, note: str) -> Table:
    """Every verdict with its reason; ``note``: the rule, and the scores' protocol."""
    rows = [
        [
            Cell(each.claim.sentence),
            Cell(titles.get(each.dataset, each.dataset)),
            Cell(row_name(each.row)),
            Cell(each.outcome),
            p_cell(each.p),
            Cell(each.because),
        ]
        for each in verdicts
    ]
    return Table(f"{name}-verdicts", ["Claim", "Dataset", "Judged", "Verdict", "p", "Because"], [rows], note)


def verdict_lines(judged: Mapping[Scoring, Sequence[Verdict]]) -> list[list[object]]:
    header: list[object] = [
        "scoring",
        "claim",
        "sentence",
        "where",
        "dataset",
        "row",
        "verdict",
        "p",
        "because",
    ]
    lines = [
        [
            scoring.name,
            v.claim.id,
            v.claim.sentence,
            v.claim.where,
            v.dataset,
            v.row,
            v.outcome,
            v.p,
            v.because,
        ]
        for scoring, verdicts in judged.items()
        for v in verdicts
    ]
    return [header, *lines] if lines else []


def in_words(verdicts: Sequence[Verdict]) -> str:
    """``3 hold, 5 do not hold, 2 cannot be told``: a claim counts once per dataset and judged row."""
    count = Counter[str](each.outcome for each in verdicts)
    words = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
    return ", ".join(f"{count[outcome]} {text}" for outcome, text in words.items())


def _seeds(results: Results) -> list[int]:
    return sorted({seed for entry in results.entries for seed in (*entry.runs, *entry.failures)})
