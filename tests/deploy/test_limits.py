"""The owner's limits: every run and message of ours passes.

What a coordinator could abuse is refused by the line that forbids it.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.deploy.limits import (
    LIMITS_FILE,
    MOST_BYTES,
    Limits,
    Tally,
    ensure_limits,
    evaluations,
    expected_message,
)
from fedepd.deploy.task import FederationTask
from fedepd.errors import FedEPDError
from fedepd.methods import METHODS, make_method
from fedepd.rounds.guard import OPEN
from toy import CLASSES, FEATURES, run_rounds, toy_clients

OURS = [
    (name, preset)
    for name, method in METHODS.items()
    if not method.merges_clients
    for preset in method.presets
]


def task(
    method: str = "fedavg", preset: str = "default", classes: int = CLASSES, **settings: Any
) -> FederationTask:
    return FederationTask("r", method, preset, settings, FEATURES, classes, ("a", "b", "c"))


@pytest.mark.parametrize(("method", "preset"), OURS)
def test_the_safe_limits_permit_our_own_methods(method: str, preset: str) -> None:
    """Some methods compare single answers, as FedGTA does. An owner must permit that."""
    if make_method(method, preset).needs_single_replies:
        alone = task(method, preset, secure=False)
        refusal = "the run asks for secure = false, but this site's limits.toml says 'secure = true'"
        assert Limits().refusal(alone) == refusal
        assert Limits(secure=False).refusal(alone) is None
    else:
        assert Limits().refusal(task(method, preset)) is None


@pytest.mark.parametrize(("method", "preset"), OURS)
def test_no_honest_message_is_refused(method: str, preset: str) -> None:
    secure = not make_method(method, preset).needs_single_replies
    made = task(method, preset, hidden=8, rounds=3, secure=secure)
    rounds, _ = run_rounds(made.experiment().method, toy_clients(3, one_node_class=True), rounds=3)
    expected, opened = expected_message(made, 1), {OPEN: torch.tensor([1.0, 0.0, 1.0])}
    for each in rounds:
        message = {**made.experiment().method.message(each.tensors, 1), **opened}
        assert Limits().message_fault(message, expected) is None
        for number in (0.5, 2.0, -1.0):
            odd = {**message, OPEN: torch.tensor([1.0, 0.0, number])}
            assert "neither 0 nor 1" in str(Limits().message_fault(odd, expected))


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"hidden": 2048}, "hidden = 2048", "max_hidden = 256"),
    ({"hidden": 257}, "hidden = 257", "max_hidden = 256"),
    ({"hidden": 10**12}, "hidden = 1000000000000", "max_hidden = 256"),
    ({"method": "fedproto", "widths": "16-2048"}, "hidden = 2048", "max_hidden = 256"),
    ({"method": "fedproto", "widths": "16-32", "hidden": 257}, "hidden = 257", "max_hidden = 256"),
    ({"optimizer": "sgd"}, 'optimizer = "sgd"', 'optimizers = ["adam"]'),
    ({"lr": 1e6}, "lr = 1000000.0", "max_lr = 0.1"),
    ({"lr": 0.11}, "lr = 0.11", "max_lr = 0.1"),
    ({"lr": 1e-9}, "lr = 1e-09", "min_lr = 0.005"),
    ({"epochs": 1}, "epochs = 1", "min_epochs = 2"),
    ({"epochs": 0}, "epochs = 0", "min_epochs = 2"),
    ({"epochs": 10**9}, "epochs = 1000000000", "max_epochs = 50"),
    ({"weight_decay": 0}, "weight_decay = 0.0", "min_weight_decay = 0.0005"),
    ({"weight_decay": 1e5}, "weight_decay = 100000.0", "max_weight_decay = 0.01"),
    ({"rounds": 10**6}, "rounds = 1000000", "max_rounds = 1000"),
    ({"rounds": 300, "evaluate_every": 1}, "evaluations = 301", "max_evaluations = 250"),
    ({"classes": 10**5}, "classes = 100000", "max_classes = 1000"),
    ({"method": "fedepd", "rho": 1e-9}, "rho = 1e-09", "min_rho = 0.1"),
    (
        {"method": "fedepd", "train_share": 1e-9, "split": "keep_one"},
        "train_share = 1e-09",
        "min_train_share = 0.1",
    ),
    ({"method": "fedepd", "walk_steps": 10**9}, "walk_steps = 1000000000", "max_method_number = 5000.0"),
    ({"method": "graphsmote", "up_scale": 1e9}, "up_scale = 1000000000.0", "max_method_number = 5000.0"),
    ({"method": "graphfedmig", "warm_up": 10**8}, "warm_up = 100000000", "max_method_number = 5000.0"),
    (
        {"method": "fedgta", "orders": 10**7, "secure": False},
        "secure = false",
        "secure = true",
    ),
    ({"guard": False}, "guard = false", "guard = true"),
    ({"secure": False}, "secure = false", "secure = true"),
    ({"min_count": 4}, "count = 4", "min_count = 5"),
    ({"min_holders": 1}, "holders = 1", "min_holders = 3"),
]


@pytest.mark.hostile
@pytest.mark.parametrize(("settings", "asked", "line"), REFUSED)
def test_a_run_outside_is_refused_by_the_line_that_forbids_it(
    settings: dict[str, Any], asked: str, line: str
) -> None:
    refusal = Limits().refusal(task(**settings))
    assert refusal == f"the run asks for {asked}, but this site's limits.toml says '{line}'"


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("limits", "settings", "line"),
    [
        ({"methods": ("fedepd",)}, {}, 'methods = ["fedepd"]'),
        ({"backbones": ("gcn",)}, {"backbone": "sage"}, 'backbones = ["gcn"]'),
        ({"backbones": ("gcn", "sage")}, {"backbone": "gat"}, 'backbones = ["gcn", "sage"]'),
        ({"backbones": ("gcn", "sage")}, {"backbone": "auto"}, "backbones"),
        ({"min_dropout": 0.3}, {"dropout": 0.0}, "min_dropout = 0.3"),
        (
            {"own_optimizers": False},
            {"method": "creff", "preset": "authors_values"},
            "own_optimizers = false",
        ),
        (
            {"own_optimizers": False},
            {"method": "graphsmote", "optimizer_own": True},
            "own_optimizers = false",
        ),
        ({"max_hidden": 32}, {"hidden": 64}, "max_hidden = 32"),
    ],
)
def test_an_owner_may_be_stricter(limits: dict[str, Any], settings: dict[str, Any], line: str) -> None:
    refusal = Limits(**limits).refusal(task(**settings))
    assert refusal is not None
    assert line in refusal


def test_every_group_of_settings_with_a_limit_is_checked() -> None:
    """A limit that nothing reads would be a promise only.

    Each name appears in a refusal above, or is read elsewhere.
    """
    named = " ".join(line for _, _, line in REFUSED)
    elsewhere = {
        "methods",
        "backbones",
        "own_optimizers",
        "min_dropout",
        "max_message_norm",
        "tell_reasons",
        "new_cohorts",
    }
    assert {f.name for f in fields(Limits)} - elsewhere == {
        f.name for f in fields(Limits) if f"{f.name} = " in named
    }


def message() -> dict[str, torch.Tensor]:
    return expected_message(task("fedepd", hidden=8), 0)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("encoder.weight", torch.full((FEATURES, 8), float("nan")), "NaN or infinite"),
        ("encoder.weight", torch.full((FEATURES, 8), float("inf")), "NaN or infinite"),
        ("encoder.weight", torch.full((FEATURES, 8), 1e30), "max_message_norm = 1000.0"),
        ("encoder.bias", torch.full((8,), -400.0), "max_message_norm = 1000.0"),
        ("encoder.weight", torch.zeros(FEATURES, 2048), "not torch.float32 [6, 8]"),
        ("encoder.weight", torch.zeros(8, FEATURES), "not torch.float32 [6, 8]"),
        ("encoder.weight", torch.zeros(FEATURES, 8, dtype=torch.float64), "torch.float64"),
        ("encoder.weight", torch.zeros(FEATURES, 8, dtype=torch.int64), "torch.int64"),
        ("encoder.weight", torch.zeros(0), "[0]"),
        ("prototype.count", torch.full((CLASSES,), float("inf")), "NaN or infinite"),
        ("trap.weight", torch.zeros(2), "holds 'trap.weight'"),
        ("\x1b[2Jevil", torch.zeros(2), "holds '?[2Jevil'"),
        ("encoder.weight", None, "lacks 'encoder.weight'"),
    ],
)
def test_a_message_that_no_honest_server_sends(name: str, value: torch.Tensor | None, says: str) -> None:
    sent = message()
    if value is None:
        del sent[name]
    else:
        sent[name] = value
    fault = Limits().message_fault(sent, message())
    assert fault is not None
    assert says in fault


def test_counts_may_be_large() -> None:
    assert (
        Limits().message_fault({**message(), "prototype.count": torch.full((CLASSES,), 1e6)}, message())
        is None
    )


def test_evaluations_are_counted_as_the_loop_evaluates() -> None:
    for rounds, every, times in ((10, 5, 2), (11, 5, 3), (1, 5, 1), (200, 5, 40), (3, 1, 3)):
        found = evaluations(task(rounds=rounds, evaluate_every=every))
        assert found == times + 1  # and the last message


def test_the_written_file_comes_back(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    assert ensure_limits(tmp_path) == Limits()
    path = tmp_path / "local" / LIMITS_FILE
    text = path.read_text(encoding="utf-8")
    assert all(f"\n# {f.metadata['help']}\n{f.name} = " in text for f in fields(Limits))
    assert path.stat().st_mode & 0o777 == 0o600
    assert Limits().looser() == []


def test_join_never_overwrites_the_owners_word(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    path = tmp_path / "local" / LIMITS_FILE
    path.write_text("max_hidden = 16\n")
    assert ensure_limits(tmp_path) == Limits(max_hidden=16)
    assert path.read_text() == "max_hidden = 16\n"
    with pytest.raises(FedEPDError, match="exists already"):
        Limits.write_default(path)


def test_what_permits_more_than_the_safe_limits_is_named() -> None:
    loose = Limits(max_hidden=4096, min_epochs=1, optimizers=("adam", "sgd"), tell_reasons=True, max_lr=0.05)
    assert loose.looser() == [
        'optimizers = ["adam", "sgd"]',
        "max_hidden = 4096",
        "min_epochs = 1",
        "tell_reasons = true",
    ]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "text",
    [
        "max_hidden = ",
        "max_hidden",
        "max_hidden = 64\nmax_hidden = 4096",
        "max_hiden = 64",
        "max_hidden = '64'",
        "max_hidden = 64.5",
        "max_hidden = true",
        "max_hidden = -1",
        "max_hidden = 99999999999999999999999999",
        "max_lr = nan",
        "max_lr = inf",
        "max_lr = '0.1'",
        "max_lr = 1979-05-27",
        "methods = 'fedavg'",
        "methods = ['fedavgg']",
        "methods = [3]",
        "methods = ['centralised']",
        "backbones = ['auto']",
        "optimizers = [['adam']]",
        "tell_reasons = 1",
        "tell_reasons = 'yes'",
        "[local]\nmax_hidden = 64",
        "x = " + "[" * 30000,
        "\x1b]0;owned\x07 = 3",
        "# " + "x" * MOST_BYTES,
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / LIMITS_FILE
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FedEPDError) as refused:
        Limits.read(path)
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.hostile
@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes", "nowhere"])
def test_a_file_that_is_no_text_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "local" / LIMITS_FILE
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00max_hidden = 3")
    else:
        path.symlink_to(tmp_path / "missing")
    with pytest.raises(FedEPDError):
        ensure_limits(tmp_path)


def test_answers_are_counted_over_restarts(tmp_path: Path) -> None:
    limits, path = Limits(max_rounds=3, max_evaluations=1), tmp_path / "answers" / "r.json"
    first = Tally(path, limits)
    first.add("rounds")
    first.add("rounds")
    second = Tally(path, limits)
    second.add("rounds")
    second.add("evaluations")
    with pytest.raises(FedEPDError, match="max_rounds = 3"):
        second.add("rounds")
    with pytest.raises(FedEPDError, match="max_evaluations = 1"):
        Tally(path, limits).add("evaluations")


@pytest.mark.hostile
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"rounds": -5, "evaluations": 0}', '{"rounds": "0", "evaluations": 0}', "[" * 9999],
)
def test_a_damaged_count_is_not_taken_for_zero(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(FedEPDError):
        Tally(tmp_path / "r.json", Limits())
