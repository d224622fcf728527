"""A plan in plain words, for the owner who decides."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.plans import WEIGHTS, write_plan
from fedepd.deploy.inspection import KINDS, edges_in_words, inspect, kept, leaving, lines
from fedepd.deploy.kits import Kit, open_kit
from fedepd.deploy.plan import read_plan
from fedepd.deploy.plan_task import plan_task
from fedepd.errors import BadConfig
from fedepd.methods import METHODS
from hostile_names import ALL, check_lines

SITES = ("a", "b", "c")


@pytest.fixture
def planned(planned_kits: Path) -> Kit:
    return open_kit(planned_kits / "a", "client")


def test_all_that_an_owner_asks(planned: Kit) -> None:
    seen = inspect(planned)
    assert (seen.site, seen.sites, seen.server) == ("a", ["a", "b", "c", "d"], "localhost:8002")
    assert (seen.task, seen.purpose) == ("account-fraud", "Find accounts that are used for fraud.")
    assert seen.classes == ["honest", "mule", "fraud"]
    assert seen.columns == {
        "country": "one of: AT, DE",
        "balance": "a number, scaled by the mean and deviation of all sites",
        "logins": "a number, used as it is",
        "business": "0 or 1",
    }
    assert seen.edges == "two ids, and all edges count alike"
    assert seen.signed_by == f"SHA-256 {planned.fingerprint}"
    assert sorted(seen.certificates) == ["the federation's", "your"]
    assert all(day.startswith("20") for day in seen.certificates.values())
    assert "sum over all sites" in seen.seen
    assert seen.refusal is None
    assert "the trained model at the end" in seen.gets
    said = "\n".join(lines(seen))
    for words in (*seen.classes, *seen.columns, seen.purpose, planned.fingerprint, "clients (sites)"):
        assert words in said
    assert "sum and sum of squares of each of 1 scaled columns" in said
    assert "number of rows of each of 2 categories" in said


def test_limits_that_would_refuse_the_run_are_told(planned: Kit, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "limits.toml").write_text("max_hidden = 3\n")
    (folder / "startup").mkdir()
    for name in ("startup/client.crt", "startup/rootCA.pem"):
        (folder / name).write_bytes((planned.folder / name).read_bytes())
    seen = inspect(replace(planned, folder=folder))
    assert seen.refusal == "the run asks for hidden = 8, but this site's limits.toml says 'max_hidden = 3'"


def test_a_kit_without_a_plan(planned: Kit) -> None:
    with pytest.raises(BadConfig, match=r"has no plan .local/plan.toml.; ask the coordinator"):
        inspect(replace(planned, plan=None))


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if not each.merges_clients])
def test_every_methods_fields_have_words(tmp_path: Path, method: str) -> None:
    """Training alone sends no field at all."""
    changes = ('"fedavg"', f'"{method}"'), ("secure = true", "secure = false")
    plan = read_plan(write_plan(tmp_path / "a.toml", *changes))
    every = [each.what for each in leaving(plan, plan_task(plan, "r", SITES)) if each.when == "every round"]
    assert bool(every) == (method != "isolated")
    assert all(what.startswith(tuple(KINDS.values())) for what in every)


def test_an_owner_reads_by_what_edges_count(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path / "a.toml", WEIGHTS))
    assert edges_in_words(plan) == (
        "two ids and a number 'amount'; an edge counts by log(1 + amount), summed over rows"
    )


def test_an_owner_reads_which_counts_an_aim_needs(tmp_path: Path) -> None:
    aimed = ('"fedavg"', '"fedavg"\naim = "recall fraud=0.8"')
    plan = read_plan(write_plan(tmp_path / "a.toml", aimed))
    last = leaving(plan, plan_task(plan, "r", SITES))[-1]
    assert last.what == "how many validation nodes have which score, for the aim 'recall fraud=0.8'"
    assert last.when == "once, after the last round"
    wrong = read_plan(write_plan(tmp_path / "b.toml", (aimed[0], aimed[1].replace("fraud", "burglar"))))
    with pytest.raises(BadConfig, match="burglar"):
        plan_task(wrong, "r", SITES)


def test_without_sums_and_guard_it_says_so(tmp_path: Path) -> None:
    changes = ("guard = true", "guard = false"), ("secure = true", "secure = false")
    plan = read_plan(write_plan(tmp_path / "a.toml", *changes))
    assert len(kept(plan_task(plan, "r", SITES))) == 1


@pytest.mark.hostile
def test_foreign_texts_are_made_fit(planned: Kit) -> None:
    seen = inspect(planned)
    for name in ALL.values():
        hostile = replace(seen, task=name, purpose=name, classes=[name], columns={name: "0 or 1"})
        for line in lines(hostile):
            check_lines(line)
            assert "\n" not in line
    assert asdict(seen)
