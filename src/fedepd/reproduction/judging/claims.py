"""The paper's claims about FedEPD, as data, as far as runs can test them.

Runs cannot test privacy and the complexities of Section 4.6. The single classes of Section 4.3 have too few
test nodes. These claims are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedepd.methods import METHODS
from fedepd.report.tables import METRIC_WORDS
from fedepd.reproduction.judging.contrasts import (
    BASELINES,
    COMPARABLE_TIME,
    NEGLIGIBLE_TRAFFIC,
    PARTS,
    STANDARD,
    ContrastOf,
    best,
    cheap,
    comparable,
    part_helps,
    purification_matters_most,
    small_range,
    steadier,
    tail_is_worse,
)
from fedepd.reproduction.judging.paper import PAPER_SENSITIVITY, Printed, paper_table2, paper_table3

FEDEPD = ("fedepd", "fedepd:printed")
"""The judged rows: our reading of the paper, and its text to the letter."""


@dataclass(frozen=True)
class Claim:
    id: str
    sentence: str
    where: str
    target: str
    """The target of ``fedepd reproduce`` whose rows it needs. Tests of one target are corrected together."""
    contrast: ContrastOf
    metric: str = ""
    judged: tuple[str, ...] = FEDEPD
    datasets: tuple[str, ...] | None = None
    """Set where the paper makes the claim about these datasets only."""
    except_for: tuple[str, ...] = ()
    """Datasets on which the paper itself says the opposite."""
    scope: Literal["each", "all", "both"] = "both"
    """Whether it is judged on each dataset, on all datasets together, or both.

    "each" where a dataset's own scores decide which rows are compared: then datasets cannot be put together.
    """
    printed: Mapping[str, float] = field(default_factory=dict)
    """Dataset -> the difference that the paper reports, in points."""


CURVES = ("fedavg", "fedgta", "fedlc", "creff", "graphfedmig")
"""The baselines whose curves we draw. The paper does not name all of its "representative" ones."""
IN_THE_TAIL = ("fedgta", "creff", "fedlc", "graphfedmig")
"""The baselines that Section 4.3 compares FedEPD's tail accuracy with."""


def _gains(printed: Printed, metric: str, rivals: tuple[str, ...]) -> dict[str, float]:
    """Dataset -> FedEPD minus the best of these rivals. Rivals that ran out of memory do not count."""
    gains = {}
    for dataset in dict.fromkeys(dataset for dataset, _, _ in printed):
        theirs = [mean for mean, _ in (printed[dataset, rival, metric] for rival in rivals) if mean == mean]
        if theirs:
            gains[dataset] = round(printed[dataset, "fedepd", metric][0] - max(theirs), 2)
    return gains


def _overall() -> Iterator[Claim]:
    """Section 4.2."""
    table = paper_table2()
    for metric, words in METRIC_WORDS.items():
        text = f"FedEPD has the best {words} of all methods."
        where = {"bacc": "Section 4.2: on all six datasets", "acc": "Table 2: on all six datasets"}.get(
            metric, "Table 2: on five of six"
        )
        roman = ("roman_empire",) if metric == "macro_f1" else ()
        gains = _gains(table, metric, BASELINES)
        yield Claim(
            f"best-{metric}",
            text,
            where,
            "table2",
            best(metric),
            metric,
            except_for=roman,
            scope="each",
            printed=gains,
        )
    for metric in ("bacc", "macro_f1"):
        text = (
            "FedEPD is state of the art across diverse long-tailed benchmarks "
            f"(above every baseline in {METRIC_WORDS[metric]})."
        )
        yield Claim(f"first-{metric}", text, "Abstract", "table2", best(metric), metric, scope="all")
    for metric in ("bacc", "macro_f1"):
        words = METRIC_WORDS[metric]
        text = f"FedEPD improves on FedGTA, the best standard baseline, in {words} on Amazon-Electronics."
        gains, only = _gains(table, metric, ("fedgta",)), ("electronics",)
        yield Claim(
            f"over-fedgta-{metric}",
            text,
            "Section 4.2",
            "table2",
            best(metric, ("fedgta",)),
            metric,
            datasets=only,
            printed=gains,
        )
    text, gains = (
        "FedEPD gains macro-F1 over GraphSMOTE on ogbn-arxiv.",
        _gains(table, "macro_f1", ("graphsmote",)),
    )
    smote = best("macro_f1", ("graphsmote",))
    yield Claim(
        "over-graphsmote",
        text,
        "Section 4.2",
        "table2",
        smote,
        "macro_f1",
        datasets=("arxiv",),
        printed=gains,
    )
    text, gains = (
        "On Roman-Empire FedEPD's macro-F1 is comparable with FedGAC's, which leads.",
        _gains(table, "macro_f1", ("fedgac",)),
    )
    gac = comparable("macro_f1", ("fedgac",))
    yield Claim(
        "comparable-roman",
        text,
        "Section 4.2",
        "table2",
        gac,
        "macro_f1",
        datasets=("roman_empire",),
        printed=gains,
    )
    # Choice: the paper says that these two drop to 32-34 %. We call it a drop if they are below FedAvg.
    for rival in ("graphsmote", "lws"):
        text = f"On Roman-Empire {METHODS[rival].label} degrades in macro-F1 (we test: below FedAvg)."
        falls = best("macro_f1", (rival,))
        yield Claim(
            f"{rival}-falls",
            text,
            "Section 4.2",
            "table2",
            falls,
            "macro_f1",
            judged=("fedavg",),
            datasets=("roman_empire",),
        )


def _tiers() -> Iterator[Claim]:
    """Sections 1 and 4.3."""
    text = "Standard models keep a high accuracy on head classes and lose it on tail classes."
    yield Claim("tail-is-worse", text, "Section 1, Figure 2", "fig-tiers", tail_is_worse, judged=STANDARD)
    text = "FedEPD improves the tail accuracy over FedGTA, CReFF, FedLC and GraphFedMig."
    yield Claim(
        "best-tail", text, "Section 4.3, Figure 4", "fig-tiers", best("tail_acc", IN_THE_TAIL), "tail_acc"
    )
    for tier in ("head", "medium"):
        text = f"FedEPD does not sacrifice the {tier} classes (against FedAvg)."
        kept = comparable(f"{tier}_acc", ("fedavg",))
        yield Claim(f"keeps-{tier}", text, "Sections 1 and 4.3", "fig-tiers", kept, f"{tier}_acc")


def _ablation() -> Iterator[Claim]:
    """Section 4.4."""
    table = paper_table3()
    for part, (_, preset) in PARTS.items():
        for metric, words in METRIC_WORDS.items():
            text, gains = (
                f"Without {part} FedEPD loses {words}.",
                _gains(table, metric, (f"fedepd:{preset}",)),
            )
            yield Claim(
                f"{part}-{metric}",
                text,
                "Section 4.4, Table 3",
                "table3",
                part_helps(part, metric),
                metric,
                printed=gains,
            )
    # The paper's own Table 3 says otherwise on CoraFull: 65.87 without purification, 65.77 without
    # recalibration.
    text = "Without purification the accuracy falls most."
    yield Claim("purification-most", text, "Section 4.4", "table3", purification_matters_most, "acc")


def _hyperparameters_and_cost() -> Iterator[Claim]:
    """Sections 4.5 and 4.6."""
    text = "FedEPD is hardly sensitive to mu and gamma: its macro-F1 varies by at most 1.45 points."
    ranges = {dataset: round(low - high, 2) for dataset, (low, high) in PAPER_SENSITIVITY.items()}
    where = "Section 4.5, Figure 5"
    yield Claim(
        "insensitive", text, where, "fig-sensitivity", small_range, "macro_f1", scope="each", printed=ranges
    )
    text = "FedEPD's running time is comparable to, or lower than, that of the cheapest baselines."
    yield Claim(
        "fast",
        text,
        "Section 4.6, Figure 7",
        "fig-efficiency",
        cheap("cpu_seconds", COMPARABLE_TIME, BASELINES),
    )
    text = "Methods that synthesise nodes take significantly longer than FedEPD (GraphSMOTE)."
    yield Claim(
        "faster-than-synthesis",
        text,
        "Section 4.6",
        "fig-efficiency",
        cheap("cpu_seconds", 1.0, ("graphsmote",)),
    )
    text = "What FedEPD sends in addition to the model is negligible."
    yield Claim(
        "little-traffic",
        text,
        "Section 4.6",
        "fig-efficiency",
        cheap("megabytes", NEGLIGIBLE_TRAFFIC, ("fedavg",)),
    )
    text = "FedEPD reaches a higher accuracy plateau than representative baselines."
    yield Claim("plateau", text, "Section 4.6, Figure 6", "fig-convergence", best("plateau", CURVES))
    text = (
        "FedEPD converges more steadily than methods for long tails "
        "(compared with the average of FedLC, CReFF and GraphFedMig)."
    )
    yield Claim(
        "steadier",
        text,
        "Section 4.6, Figure 6",
        "fig-convergence",
        steadier(("fedlc", "creff", "graphfedmig")),
    )


CLAIMS = (*_overall(), *_tiers(), *_ablation(), *_hyperparameters_and_cost())
