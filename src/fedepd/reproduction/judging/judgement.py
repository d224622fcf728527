"""The verdicts on the paper's claims that a target can test, and the tables that show them."""

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

RULE = (
    "A claim compares the judged row with one or more other rows. It holds if Welch's t test over seeds "
    "confirms every one of these comparisons. It does not hold if the test confirms the opposite in at "
    "least one of them; the opposite of a gain is a gain below half a point. The p-value of that one is "
    "first multiplied by the number of comparisons, because the worst of many can look bad by chance. If "
    "neither is confirmed, the verdict is 'cannot be told'. Confirmed means p < 0.05 after Holm's "
    "correction over all claims and datasets of the same table or figure and the same judged row. Verdicts "
    "on all datasets together use Wilcoxon's signed-rank test over the datasets' means instead. FedEPD is "
    "our reading of the paper; FedEPD (printed) follows the paper's text to the letter."
)
SCORES = (
    "All scores are computed over the pooled test nodes of all clients, with the global model. A method "
    "marked † has no global model; it is scored with its clients' personal models."
)

SIGNS = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}


def verdicts_of(results: Results, scoring: Scoring = HEADLINE) -> list[Verdict]:
    """The verdicts on every claim that this target can test, for the rows that it has.

    The paper's claims are about this package's own targets. A user's target asks its own question.

    Choice: HEADLINE scores decide what we say about a claim. The paper may have scored as its test bed
    (OpenFGL) does, so its two tables are also judged by OPENFGL scores. Those verdicts are corrected among
    themselves.
    """
    claims = [each for each in CLAIMS if results.target.shipped and each.target == results.target.name]
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
    if scoring.model == "personal":  # then every row has personal scores, and the mark says nothing
        found = [replace(each, because=each.because.replace(PERSONAL, "")) for each in found]
    return found


def glance_table(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> Table:
    """A line per claim and judged row, and a column per dataset that was run.

    ``titles`` maps a dataset's name to its column heading.
    """
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
    note = f"{legend}, – the paper makes no such claim. {RULE} {SCORES}"
    return Table("glance", headers, list(sections.values()), note)


def verdict_table(verdicts: Sequence[Verdict], titles: Mapping[str, str], name: str, note: str) -> Table:
    """Every verdict with its reason. ``note`` explains the rule and how the scores were measured."""
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
    return Table(f"{name}-verdicts", ["Claim", "Dataset", "Judged", "Verdict", "p", "Reason"], [rows], note)


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
    """``3 hold, 5 do not hold, 2 cannot be told``. A claim counts once per dataset and judged row."""
    count = Counter[str](each.outcome for each in verdicts)
    words = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
    return ", ".join(f"{count[outcome]} {text}" for outcome, text in words.items())


def _seeds(results: Results) -> list[int]:
    return sorted({seed for entry in results.entries for seed in (*entry.runs, *entry.failures)})
