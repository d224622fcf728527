"""From a plan to a task, and the runs that contradict one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.plans import write_plan
from fedepd.datasets.tables import Roles
from fedepd.deploy.agreement import schema_sha256
from fedepd.deploy.limits import Limits
from fedepd.deploy.plan import Plan, read_plan
from fedepd.deploy.plan_task import check_runs, contradiction, plan_task
from fedepd.deploy.plan_text import EXAMPLE
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig
from fedepd.methods import METHODS

SITES = ("a", "b", "c")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path / "task.toml"))


def test_a_task_has_all_that_the_plan_says(plan: Plan) -> None:
    task = plan_task(plan, "r", SITES, seed=7, deadline=5.0)
    assert (task.num_features, task.num_classes, task.min_sites, task.deadline) == (5, 3, 3, 5.0)
    assert task.label_names == plan.classes
    assert task.schema_sha256 == schema_sha256(plan.schema.to_json())
    assert task.scaled == (2,)
    e = task.experiment()
    assert (e.protocol.seed, e.protocol.rounds, e.model.hidden) == (7, 3, 8)
    assert (e.privacy.guard, e.privacy.secure, e.split.train_share) == (True, True, 0.6)
    assert FederationTask.from_json(task.to_json()) == task
    assert contradiction(plan, task) is None


def test_a_coordinator_may_choose_name_seed_deadline_and_more_sites(plan: Plan) -> None:
    task = plan_task(plan, "other", [*SITES, "d"], seed=9, deadline=1.0, min_sites=4, max_nodes=77)
    assert contradiction(plan, task) is None


def test_weights_need_a_method_that_uses_them(plan: Plan) -> None:
    weighted = replace(plan, edges=Roles(edge_weight="amount"))
    task = plan_task(weighted, "r", SITES)
    assert task.weighted
    assert FederationTask.from_json(task.to_json()) == task
    assert task.identity() != plan_task(plan, "r", SITES).identity()
    said = contradiction(weighted, replace(task, weighted=False))
    assert said == "the run asks for weighted = false, but the plan in this kit says weighted = true"
    settings = {**plan.settings, "secure": False}
    for name, method in METHODS.items():
        if method.merges_clients:
            continue
        other = replace(weighted, method=name, settings=settings)
        if method().weighs_edges:
            assert plan_task(other, "r", SITES).weighted
            continue
        with pytest.raises(
            BadConfig, match=r"the edges of this federation have weights, and .* does not use"
        ):
            plan_task(other, "r", SITES)
    assert sum(not method().weighs_edges for method in METHODS.values()) > 5


def test_too_few_sites(plan: Plan) -> None:
    with pytest.raises(BadConfig, match="there are 2 sites, but the plan says min_sites = 3; name more"):
        plan_task(plan, "r", SITES[:2])
    with pytest.raises(BadConfig, match="min_sites is 2, but the plan says min_sites = 3; leave --min-sites"):
        plan_task(plan, "r", SITES, min_sites=2)


def settings(**more: Any) -> Any:
    return lambda task: {"settings": {**task.settings, **more}}


AGAINST: dict[str, tuple[Any, str]] = {
    "method": (lambda task: {"method": "fedlc"}, "method = fedlc, but the plan in this kit says method ="),
    "rounds": (settings(rounds=4), "rounds = 4, but the plan in this kit says rounds = 3"),
    "a setting left at its default": (settings(lr=0.05), "lr = 0.05, but the plan in this kit says lr = 0"),
    "no guard": (settings(guard=False), "guard = false, but the plan in this kit says guard = true"),
    "no sums": (settings(secure=False), "secure = false, but the plan in this kit says secure = true"),
    "fewer nodes": (settings(min_count=2), "min_count = 2, but the plan in this kit says min_count = 5"),
    "fewer holders": (settings(min_holders=1), "min_holders = 1, but the plan in this kit says min_holders"),
    "the split": (settings(train_share=0.5), "train_share = 0.5, but the plan in this kit says train_share"),
    "classes swapped": (
        lambda task: {"label_names": ("honest", "fraud", "mule")},
        "calls class 1 'fraud', but the plan in this kit calls it 'mule'",
    ),
    "no class names": (lambda task: {"label_names": ()}, "does not name its classes, but the plan in this"),
    "another class": (
        lambda task: {"label_names": (*task.label_names, "x"), "num_classes": 4},
        "classes = 4, but the plan in this kit says classes = 3",
    ),
    "another column": (lambda task: {"num_features": 6}, "features = 6, but the plan in this kit says feat"),
    "columns of another kind": (lambda task: {"schema_sha256": "0" * 64}, "the columns of the run are not"),
    "columns unsaid": (lambda task: {"schema_sha256": ""}, "the columns of the run are not those of the"),
    "nothing scaled": (lambda task: {"scaled": ()}, r"scaled = \[\], but the plan in this kit says scaled"),
    "fewer sites": (lambda task: {"min_sites": 2}, "min_sites = 2, but the plan in this kit says min_sites"),
}  # fmt: skip


@pytest.mark.hostile
@pytest.mark.parametrize("what", AGAINST)
def test_a_run_against_the_plan_is_told_in_one_sentence(plan: Plan, what: str) -> None:
    import re

    change, says = AGAINST[what]
    task = plan_task(plan, "r", SITES)
    told = contradiction(plan, replace(task, **change(task)))
    assert told is not None
    assert re.search(says, told), told


def test_the_templates_run_is_within_the_safe_limits() -> None:
    check_runs(EXAMPLE, "the template")
    assert Limits().refusal(plan_task(EXAMPLE, "r", SITES)) is None


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if not each.merges_clients])
def test_every_method_can_be_planned(plan: Plan, method: str) -> None:
    """Those that need single replies without sums."""
    secure = METHODS[method]().needs_single_replies is None
    planned = replace(plan, method=method, settings={**plan.settings, "secure": secure})
    assert contradiction(planned, plan_task(planned, "r", SITES)) is None


@pytest.mark.hostile
@pytest.mark.parametrize(
    "scaled", [[1, 0], [0, 0], [-1], [5], [10**400], [True], ["0"], [None], [0.0], {"0": 1}, "0", None, 3]
)
def test_positions_that_no_task_may_have(plan: Plan, scaled: Any) -> None:
    import json

    from fedepd.errors import FedEPDError

    text = json.dumps({**json.loads(plan_task(plan, "r", SITES).to_json()), "scaled": scaled})
    with pytest.raises(FedEPDError, match="scaled"):
        FederationTask.from_json(text)
