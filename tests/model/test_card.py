"""A model card whose every name was made to do harm: Markdown shows them as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedepd.longtail import Tiers
from fedepd.metrics import METRICS
from fedepd.model.card import model_card
from fedepd.model.model import Model
from fedepd.report.runs import Run
from fedepd.types import TaskInfo
from hostile_names import ALL, STRANGE, cases, unfit


def card(
    text: str, sites: list[str] | None = None, unmeasured: bool = False, spent: dict[str, Any] | None = None
) -> str:
    """Every name and every free text of a run and its model is ``text``."""
    scores: dict[str, Any] = {text: dict.fromkeys(METRICS, 0.5)}
    summary = {
        "method_label": text,
        "proxy_features": True,
        "protocol": text,
        "seed": 0,
        "rounds": 5,
        "best_rounds": {"global": 5},
    }
    summary |= {"metrics": {"global": scores}, "headline": "global", "warnings": [text], "config_hash": text}
    data = {
        "name": text,
        "nodes": 10,
        "edges": 20,
        "features": 3,
        "classes": 2,
        "imbalance_ratio": 2.0,
        "sha256": text,
    }
    summary |= {"privacy": spent} if spent else {}
    config = {"dataset": data, "experiment": {"method": {"name": "fedavg", text: text}}, "sites": sites}
    run = Run(Path("run"), summary, config)
    run.__dict__["env"] = {"fedepd": text, "torch": text}
    info = TaskInfo(3, 2, 2, "nodes")
    model = Model(None, info, {}, (text, text), Tiers((0,), (), (1,)), {})  # type: ignore[arg-type]
    point = {"nodes": 5, "ece": None, "brier": None}
    measured = {
        "before": {text: point},
        "after": {text: point},
        "temperatures": {},
        "validation_nodes": 5,
        "bins": 15,
        "resamples": 10,
    }
    return model_card(run, model, {"unmeasured": text} if unmeasured else measured, text)


def outside_code(text: str) -> str:
    return re.sub(r"```console\n.*?\n```|`[^`\n]*`", "", text, flags=re.DOTALL)


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(ALL))
@pytest.mark.parametrize("kind", ["run", "federation", "unmeasured"])
def test_names_in_a_card_are_text(kind: str, text: str) -> None:
    made = card(text, [text, text] if kind == "federation" else None, kind == "unmeasured")
    made.encode()
    assert unfit(made.replace("\n", "")) == []
    lines = [
        re.sub(r"\\[!-/:-@\[-`{-~]", "", line) for line in outside_code(made).splitlines()
    ]  # without what is escaped
    assert not any(re.search(r"[<>\[\]`$~&]|://|www\.", line) for line in lines)
    headings = [line for line in lines if line.startswith("#")]
    assert len(headings) == 10
    for line in lines:
        if line.startswith("|"):
            assert line.count("|") in (len(METRICS) + 2, 8)
        assert not re.match(r" {4}|\t|\d+[.)] |[+*] |---$|===", line)
    assert "x" * 81 not in re.sub(
        r"^(x{100}|- x{100}).*$", "", made, flags=re.MULTILINE
    )  # the protocol and a warning are sentences


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_honest_names_stay(text: str) -> None:
    assert card(text).count(text) > 10


def test_the_card_says_what_noise_there_is_and_what_it_spent() -> None:
    spent = {"epsilon_spent": 7.996, "delta": 1e-5, "multiplier": 8.4885, "clip": 0.3, "releases": 200}
    noisy, plain = card("a", spent=spent), card("a")
    assert "from 200 sums of updates with noise: epsilon 8.00 at delta 1e-05, noise 8.49 times" in noisy
    assert "Scores, temperatures and all other files of this folder were made without noise" in noisy
    assert "without differential privacy" in plain
    assert "without differential privacy" not in noisy
