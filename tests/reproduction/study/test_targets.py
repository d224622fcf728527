"""Targets as they ship, and as a user writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.datasets.published import TABLE1
from fedepd.errors import BadConfig, UnknownName
from fedepd.reproduction.judging.contrasts import BASELINES
from fedepd.reproduction.study.cells import check_acting
from fedepd.reproduction.study.targets import (
    NOT_THE_PAPERS,
    Target,
    of_methods,
    read_target,
    read_targets,
    target_names,
)
from fedepd.runs.experiment import Experiment

MINE = """
title = "Mine"
kind = "ablation"
datasets = ["synthetic"]
[settings]
hidden = 8
epochs = 2
[[rows]]
method = "fedavg"
[[rows]]
method = "fedavg"
label = "longer"
settings = { epochs = 6 }
"""


def written(folder: Path, text: str) -> Target:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_target(str(path))


def test_every_table_and_figure_of_the_paper_ships_and_our_own_steps() -> None:
    assert target_names() == [
        "equal", "guard", "noise", "pruning-control", "related", "robustness", "steps", "table2", "table3",
        "fig-convergence", "fig-distribution", "fig-efficiency", "fig-perclass", "fig-sensitivity",
        "fig-tiers",
    ]  # fmt: skip
    assert [target.name for target in read_targets("all")] == [
        name for name in target_names() if name not in NOT_THE_PAPERS
    ]


@pytest.mark.parametrize("name", target_names())
def test_a_shipped_target_can_be_run(name: str) -> None:
    target = read_target(name)
    assert name in ("equal", "noise", "related") or set(target.datasets) <= TABLE1.keys()
    assert target.settings["shuffle_nodes"] is True  # else every seed has the same clients
    for row in target.rows:
        Experiment.recorded(row.method, row.preset, target.settings_of(row, {"seed": 1}))
    check_acting(target, {})


def test_table2_has_the_papers_methods_and_both_readings_of_fedepd() -> None:
    rows = read_target("table2").rows
    assert {row.method for row in rows} == {"fedepd", *BASELINES, "isolated", "centralised"}
    assert [row.key for row in rows if row.method == "fedepd"] == ["fedepd", "fedepd:printed"]
    assert [row.method for row in rows if row.reference] == ["isolated", "centralised"]
    assert read_target("fig-tiers").rows == rows


def test_the_study_has_fourteen_graphs_and_the_papers_methods_once() -> None:
    target = read_target("equal")
    assert len(target.datasets) == len(set(target.datasets)) == 14
    contest = [row for row in target.rows if not row.reference]
    assert {row.method for row in contest} == {"fedepd", *BASELINES}
    assert len(contest) == 12
    assert [row.method for row in contest if row.disputed] == ["fedgac"]
    assert target.settings["adapt"] is True
    assert [target.seeds_on(nodes) for nodes in (2_999, 3_000)] == [10, 5]


def test_the_pruning_control_has_every_rival_pruned_always_and_by_vote() -> None:
    rows = read_target("pruning-control").rows
    rivals = {row.method for row in read_target("equal").rows if not row.reference} - {"fedepd"}
    for how in ("always", "by_vote"):
        assert {row.method for row in rows if row.settings.get("pruned") == how} == rivals
    assert {row.method for row in rows if row.reference} == rivals  # without pruning


def test_a_row_can_be_about_the_personal_model(tmp_path: Path) -> None:
    mine = written(tmp_path, MINE + 'model = "personal"\n')
    assert [row.key for row in mine.rows] == ["fedavg", "fedavg:epochs=6:model=personal"]
    assert mine.seeds_on(1) == mine.seeds == 5


def test_a_grid_is_a_row_for_every_combination() -> None:
    """Five values of mu and five of gamma: 25 rows; the middle one is the printed preset's, so that Table 2's
    cell is shared."""
    target = read_target("fig-sensitivity")
    assert len(target.rows) == 25
    assert target.rows[0].settings == {"mu": 0.1, "gamma": 0.1}
    assert target.rows[0].label == "FedEPD (printed), mu 0.1, gamma 0.1"
    printed = Experiment.make("fedepd", "printed")
    assert Experiment.make("fedepd", "printed", mu=1.0, gamma=0.5).config_hash("g") == printed.config_hash(
        "g"
    )
    assert {"mu": 1.0, "gamma": 0.5} in [row.settings for row in target.rows]


def test_any_row_can_be_ours(tmp_path: Path) -> None:
    """Without a word it is FedEPD, or else the first row."""
    assert (read_target("table2").ours, read_target("table2").shipped) == ("fedepd", True)
    assert read_target("table2").champion == "FedEPD"
    mine = written(tmp_path, MINE)
    assert (mine.ours, mine.champion, mine.shipped) == ("fedavg", "FedAvg", False)
    other = written(tmp_path, 'ours = "fedavg:epochs=6"\n' + MINE)
    assert [row.label for row in other.champions] == ["longer"]
    assert other.champion == "longer"
    with pytest.raises(UnknownName, match="did you mean 'fedavg'"):
        written(tmp_path, 'ours = "fedagv"\n' + MINE)


def test_rows_that_differ_in_settings_are_called_by_them(tmp_path: Path) -> None:
    mine = written(tmp_path, MINE.replace('label = "longer"', ""))
    assert [row.label for row in mine.rows] == ["FedAvg", "FedAvg, epochs 6"]


def test_a_grid_of_one_setting_will_do(tmp_path: Path) -> None:
    text = MINE.replace('kind = "ablation"', 'kind = "sensitivity"') + "[grid]\nlr = [0.01, 0.1]\n"
    assert len(written(tmp_path, text).rows) == 4


def test_a_row_wins_over_the_user_who_wins_over_the_target(tmp_path: Path) -> None:
    plain, longer = (target := written(tmp_path, MINE)).rows
    assert (target.name, target.seeds, plain.label) == ("mine", 5, "FedAvg")
    assert target.settings_of(plain, {"epochs": 4}) == {"hidden": 8, "epochs": 4}
    assert target.settings_of(longer, {"epochs": 4}) == {"hidden": 8, "epochs": 6}
    assert longer.key == "fedavg:epochs=6"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            'kind = "ablation"',
            'kind = "ablatio"',
            "unknown kind in '.*mine.toml' 'ablatio'; did you mean 'ablation'",
        ),
        ('kind = "ablation"', "", "'.*mine.toml' has no 'kind'; add it"),
        ('title = "Mine"', 'titel = "Mine"', "unknown key in '.*mine.toml' 'titel'; did you mean 'title'"),
        ('label = "longer"', 'lable = "longer"', "unknown key in '.*' 'lable'; did you mean 'label'"),
        ('method = "fedavg"', 'method = "fedavq"', "unknown method in '.*' 'fedavq'; did you mean 'fedavg'"),
        ("settings = { epochs = 6 }", "", "'.*mine.toml' has the row 'fedavg' twice; remove one"),
        ('kind = "ablation"', 'kind = "sensitivity"', r"needs a \[grid\] of one or two settings; it has 0"),
        ('title = "Mine"', "title = Mine", "is not valid TOML"),
        (MINE[MINE.index("[[rows]]") :], "", r"has no \[\[rows\]\]"),
        (
            'datasets = ["synthetic"]',
            'datasets = "synthetic"',
            "'datasets' in '.*' is 'synthetic'; give a list of names",
        ),
        ('datasets = ["synthetic"]', "datasets = [1]", r"'datasets' in '.*' is \[1\]; give a list of names"),
        (
            'title = "Mine"',
            "title = 'Mine'\nseeds = 'five'",
            "'seeds' in '.*' is 'five'; give a whole number",
        ),
        (
            'title = "Mine"',
            "title = 'Mine'\nseeds = 0",
            "'seeds' in '.*' is 0; give a whole number, 1 or more",
        ),
        (
            'title = "Mine"',
            "title = 'Mine'\ngrid = { mu = 1 }",
            r"'mu' in the \[grid\] of '.*' is 1; give a list of numbers",
        ),
        (
            'title = "Mine"',
            "title = 'Mine'\nsmall = { nodes = 3000 }",
            "'small' in '.*' is .*; give a table, as { nodes = 3000, seeds = 10 }",
        ),
        (
            'title = "Mine"',
            "title = 'Mine'\nsmall = { nodes = 9, seeds = 0 }",
            "'small' in '.*' is .*; give a table",
        ),
        ('label = "longer"', 'model = "global"', "'model' in '.*' is 'global'; give \"personal\""),
        ("settings = { epochs = 6 }", "settings = 6", "'settings' in '.*' is 6; give a table"),
        (MINE[MINE.index("[settings]") :], "rows = [1]", r"'rows' in '.*' is \[1\]; give \[\[rows\]\]"),
        (
            MINE[MINE.index("[settings]") :],
            "rows = 'fig-tiers'",
            r"'fig-tiers.toml' cannot lend its rows, .* from 'table2' itself; use rows = 'table2'",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in MINE
    with pytest.raises(BadConfig, match=sentence):
        written(tmp_path, MINE.replace(old, new))


def test_an_unknown_target() -> None:
    with pytest.raises(BadConfig, match="unknown target 'tabel2'; did you mean 'table2'"):
        read_target("tabel2")
    with pytest.raises(BadConfig, match=r"cannot read the target 'none\.toml'"):
        read_target("none.toml")


@pytest.mark.parametrize(
    "grid",
    [
        'attack = ["none", "scale"]',
        'corrupt = ["edges=0.5", "edges=1"]',
        'corrupt = ["none", "edges=0"]',
        'corrupt = ["none", "edges=0.5,labels=0.1"]',
    ],
)
def test_curves_begin_at_clean_data_and_have_one_corruption_each(tmp_path: Path, grid: str) -> None:
    text = f'title = "t"\nkind = "noise"\ndatasets = []\n[[rows]]\nmethod = "fedavg"\n[grid]\n{grid}\n'
    with pytest.raises(BadConfig, match="has no curves; give corrupt"):
        written(tmp_path, text)


def test_named_methods_take_the_place_of_the_rows() -> None:
    """A row of the target keeps its label and its settings, and each new one is at each point of the grid."""
    target = read_target("noise")
    found = of_methods(target, ["fedprox", "fedavg", "logit_adjustment:balanced_softmax", "fedprox"])
    points = len(target.grid["corrupt"])
    assert [row.method for row in found.rows[::points]] == ["fedprox", "fedavg", "logit_adjustment"]
    assert found.rows[points : 2 * points] == tuple(r for r in target.rows if r.method == "fedavg")
    assert found.rows[1].label == f"FedProx, corrupt {target.grid['corrupt'][1]}"
    assert found.rows[-1].preset == "balanced_softmax"
    assert (target.shipped, found.shipped) == (True, False)
    related = of_methods(read_target("related"), ["fedgac", "fedlc"])
    assert [(row.method, row.disputed) for row in related.rows] == [("fedgac", True), ("fedlc", False)]
