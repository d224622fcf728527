"""The plan of a federation: what it derives, and the one sentence for every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.plans import PLAN, WEIGHTS, write_plan
from fedepd.datasets.tables import Roles
from fedepd.deploy.plan import MAX_CLASSES, read_plan
from fedepd.deploy.plan_task import check_runs
from fedepd.errors import BadConfig, FedEPDError
from hostile import ANY_FILE
from hostile_names import ESCAPES, STRANGE, check_lines


def test_what_follows_from_a_plan(tmp_path: Path) -> None:
    """Two values of country, then balance, logins and business: five features, balance at position 2."""
    plan = read_plan(write_plan(tmp_path / "task.toml"))
    assert plan.task == "account-fraud"
    assert plan.classes == ("honest", "mule", "fraud")
    assert plan.num_features == 5
    assert plan.scaled == (2,)
    assert plan.schema.feature_names == ("country=AT", "country=DE", "balance", "logins", "business")
    assert {(rule.mean, rule.std) for rule in plan.schema.rules} == {(0.0, 1.0)}
    assert plan.agreed == (plan.classes, plan.schema.to_json(), False)
    assert plan.settings == {
        "rounds": 3, "hidden": 8, "evaluate_every": 1, "split": "floor", "train_share": 0.6,
        "val_share": 0.2, "guard": True, "min_count": 5, "min_holders": 3, "secure": True,
    }  # fmt: skip
    assert (plan.method, plan.preset, plan.min_sites) == ("fedavg", "default", 3)


def test_edges_may_have_weights(tmp_path: Path) -> None:
    """The columns are the same, so only the schema's word on tables differs."""
    usual = read_plan(write_plan(tmp_path / "usual.toml"))
    plan = read_plan(write_plan(tmp_path / "a.toml", WEIGHTS))
    assert plan.edges == Roles(edge_weight="amount", edge_weight_as="log1p")
    assert plan.agreed == (plan.classes, plan.schema.to_json(), True)
    assert plan.schema.to_json().endswith(', {"tables": {"edge_weight": "amount"}}]')
    assert plan.schema.rules == usual.schema.rules
    way = ('weight = "amount"', 'weight = "amount"\nweight_as = "none"')
    by_sum = read_plan(write_plan(tmp_path / "b.toml", WEIGHTS, way))
    assert by_sum.edges == Roles(edge_weight="amount", edge_weight_as="none")
    assert len({each.agreed.schema for each in (usual, plan, by_sum)}) == 3


def test_privacy_that_is_not_mentioned_is_on(tmp_path: Path) -> None:
    text = PLAN.partition("[privacy]")[0]
    assert read_plan(write_plan(tmp_path / "a.toml", text=text)).settings["guard"] is True
    assert read_plan(tmp_path / "a.toml") == read_plan(write_plan(tmp_path / "b.toml"))


CLASSES = 'classes = ["honest", "mule", "fraud"]'
VALUES = 'values = ["AT", "DE"]'
FAULTS: dict[str, tuple[str, str, str]] = {
    "another version": ("version = 1", "version = 2", "version is 2, but this fedepd reads version 1"),
    "no version": ("version = 1", "", "has no version, but this fedepd reads version 1"),
    "a version that is true": ("version = 1", "version = true", "version is True"),
    "an unknown key": ("min_sites = 3", "min_sites = 3\nmin_site = 2", "unknown key 'min_site'; did you"),
    "an unknown key of a column": ('kind = "flag"', 'kind = "flag"\nscale = 1', "unknown key in .column."),
    "an unknown key of privacy": ("secure = true", "secure = true\nopen = 1", "unknown key in .privacy."),
    "a missing key": ("min_sites = 3", "", "has no 'min_sites'; correct it"),
    "a key of another type": (CLASSES, "classes = 3", "'classes' is 3, not a list"),
    "a date": ("min_sites = 3", "min_sites = 2020-01-01", "'min_sites' is a date, not a whole number"),
    "too many sites": ("min_sites = 3", "min_sites = 1001", "whole number from 1 to 1000"),
    "a class twice": (CLASSES, 'classes = ["a", "b", "a"]', "class 'a' is there twice; name each once"),
    "classes alike": (CLASSES, 'classes = ["fraud", "Fraud"]', "'fraud' and 'Fraud' differ only in"),
    "an empty class": (CLASSES, 'classes = ["a", ""]', "class '' is empty"),
    "a blank class": (CLASSES, 'classes = ["a", "  "]', "class '  ' is empty"),
    "a class with a blank": (CLASSES, 'classes = ["a", "b "]', "class 'b ' begins or ends with a blank"),
    "a missing class": (CLASSES, 'classes = ["a", "NA"]', "class 'NA' means a missing value"),
    "one class": (CLASSES, 'classes = ["a"]', "names 1 classes; name 2 to"),
    "an escape": (CLASSES, 'classes = ["a", "b\\u001b[2J"]', "class 'b.\\[2J' is empty, too long or has"),
    "a long class": (CLASSES, f'classes = ["a", "{"b" * 201}"]', "give 1 to 200 printable characters"),
    "weights without a column": ("[run]", "[edges]\n[run]", "has no 'weight'"),
    "weights of no column": ("[run]", '[edges]\nweight = ""\n[run]', "edges.weight '' is empty"),
    "weights of a number": ("[run]", "[edges]\nweight = 3\n[run]", "'edges.weight' is 3, not a text"),
    "weights with an escape": ("[run]", '[edges]\nweight = "\\u001b[2J"\n[run]', "edges.weight '.\\[2J' is"),
    "weights by another way": (
        "[run]", '[edges]\nweight = "a"\nweight_as = "sqrt"\n[run]', "unknown value of edges.weight_as 'sqrt'"
    ),
    "an unknown key of edges": ("[run]", '[edges]\nweight = "a"\nof = "b"\n[run]', "unknown key in .edges."),
    "no column": (PLAN[PLAN.index("[[column]]") : PLAN.index("[run]")], "", "has no 'column'"),
    "a column twice": ('name = "logins"', 'name = "balance"', "column 'balance' is there twice"),
    "an empty column": ('name = "logins"', 'name = ""', "column '' is empty"),
    "a column with a blank": ('name = "logins"', 'name = " logins"', "begins or ends with a blank"),
    "text": ('kind = "flag"', 'kind = "text"', "column 4 'business' is of kind text, which cannot be a"),
    "another kind": ('kind = "flag"', 'kind = "flagg"', "unknown kind of column 4 'business' 'flagg'"),
    "no word on scaling": ("scaled = false", "", "column 3 'logins' is of kind number without scaled; add"),
    "a scaled flag": ('kind = "flag"', 'kind = "flag"\nscaled = true', "which only the kind number"),
    "values of a number": ("scaled = false", "scaled = false\nvalues = []", "only the kind category"),
    "no values": (VALUES, "", "column 1 'country' is of kind category without values; add"),
    "empty values": (VALUES, "values = []", "column 'country' has 0 values; a category has 1 to 1,000"),
    "a value twice": (VALUES, 'values = ["AT", "AT"]', "column 'country': value 'AT' is there twice"),
    "values that differ in case": (VALUES, 'values = ["AT", "at"]', "value 'AT' and 'at' differ only in"),
    "values that differ in blanks": (VALUES, 'values = ["AT", "AT "]', "value 'AT' and 'AT ' differ only"),
    "values that differ in form": (VALUES, 'values = ["\\u00e9", "e\\u0301"]', "differ only in"),
    "a missing value": (VALUES, 'values = ["AT", "null"]', "value 'null' means a missing value"),
    "too many values": (VALUES, f"values = {[f'v{k}' for k in range(1001)]}", "has 1,001 values"),
    "the seed": ("rounds = 3", "seed = 3", "run.seed is chosen with 'submit --seed'; remove it from .run."),
    "a partition": ("rounds = 3", "clients = 3", "run.clients has no meaning here, because the sites are"),
    "an attack": ("rounds = 3", "attackers = 3", "run.attackers is only for simulations"),
    "privacy elsewhere": ("rounds = 3", "guard = false", "run.guard belongs to .privacy."),
    "split elsewhere": ("rounds = 3", "train_share = 0.5", "run.train_share belongs to .split."),
    "a setting that is a table": ("rounds = 3", "rounds = {a = 1}", "'run.rounds' is a table, not a text or"),
    "a setting that is NaN": ("rounds = 3", "lr = nan", "NaN"),
    "shares": ("test = 0.2", "test = 0.3", "which add up to 1.1; give shares that add up to 1"),
    "a share": ("test = 0.2", "test = 2.0", "'split.test' is 2, not a finite number from 0 to 1"),
    "a guard that is a word": ("guard = true", 'guard = "yes"', "'privacy.guard' is the text 'yes', not"),
    "noise and scaling": ("guard = true", "guard = false\ndp_epsilon = 8.0", "not in its budget; write"),
    "a task's name": ('task = "account-fraud"', 'task = "../x"', "task '../x' is not a usable name"),
    "a long task": ('task = "account-fraud"', f'task = "{"a" * 41}"', "at most 40 lower-case letters"),
    "an empty purpose": ('purpose = "Find', 'purpose = ""\n#', "purpose '' is empty"),
    "a purpose of two lines": ('purpose = "Find', 'purpose = "Find\\n', "purpose 'Find. accounts"),
    "a long purpose": ('purpose = "Find', f'purpose = "{"x" * 300}', "give 1 to 300 printable characters"),
    "something else to get": ('site_gets = "model"', 'site_gets = "money"', "site_gets is 'money'; write"),
    "no TOML": ("version = 1", "version = ", "is not valid TOML"),
}  # fmt: skip


@pytest.mark.hostile
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_with_file_key_and_cure(tmp_path: Path, fault: str) -> None:
    old, new, says = FAULTS[fault]
    path = write_plan(tmp_path / "task.toml", (old, new))
    if fault == "a setting that is NaN":
        plan = read_plan(path)
        with pytest.raises(BadConfig, match="setting 'lr' is nan"):
            check_runs(plan, "the plan")
        return
    with pytest.raises(BadConfig, match=f"the plan '.*task.toml'.*{says}") as told:
        read_plan(path)
    assert "\n" not in str(told.value)
    assert ";" in str(told.value)


SETTINGS: dict[str, tuple[tuple[str, str], str]] = {
    "a setting that does not exist": (("rounds = 3", "round = 3"), "unknown setting 'round'; did you mean"),
    "a method that does not exist": (('"fedavg"', '"fedavgg"'), "unknown method 'fedavgg'"),
    "a preset that does not exist": (('"fedavg"', '"fedavg"\npreset = "x"'), "unknown preset of fedavg 'x'"),
    "a value out of range": (("rounds = 3", "rounds = 0"), "rounds is 0; give at least 1"),
    "a value of another type": (("rounds = 3", 'rounds = "many"'), "rounds is 'many'; give a whole number"),
    "a setting that changes nothing": (("guard = true", "guard = false\nmin_count = 9\n#"), "min_count is 9"),
    "another method's setting": (("rounds = 3", "gamma = 0.3"), "unknown setting 'gamma'"),
    "a method of one place": (('"fedavg"', '"centralised"'), "needs the whole graph in one place"),
    "a method without sums": (('"fedavg"', '"fedgta"'), "secure is on, but"),
    "shares that leave nothing": (("train = 0.6\nval = 0.2", "train = 0.0\nval = 0.8"), "leave no test or"),
    "a split rule": (("train = 0.6", 'rule = "x"\ntrain = 0.6'), "unknown split rule 'x'|value of split 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SETTINGS)
def test_settings_are_checked_as_those_of_a_run(tmp_path: Path, fault: str) -> None:
    change, says = SETTINGS[fault]
    text = PLAN.replace("min_count = 5\n", "") if "min_count" in change[1] else PLAN
    plan = read_plan(write_plan(tmp_path / "task.toml", change, text=text))
    with pytest.raises(BadConfig, match=f"^the plan 'x': .*({says})"):
        check_runs(plan, "the plan 'x'")


@pytest.mark.hostile
@pytest.mark.parametrize("put", ANY_FILE)
def test_what_is_no_plan_at_all(tmp_path: Path, put: str) -> None:
    path = write_plan(tmp_path / "task.toml")
    ANY_FILE[put](path)
    with pytest.raises(FedEPDError, match=r"task\.toml"):
        read_plan(path)


@pytest.mark.hostile
def test_sizes_are_bounded(tmp_path: Path) -> None:
    many = ", ".join(f'"c{k}"' for k in range(MAX_CLASSES + 1))
    with pytest.raises(BadConfig, match="names 10,001 classes"):
        read_plan(write_plan(tmp_path / "a.toml", (CLASSES, f"classes = [{many}]")))
    deep = "a = " + "[" * 200 + "]" * 200
    with pytest.raises(BadConfig, match=r"nested more than 64 levels|unknown key"):
        read_plan(write_plan(tmp_path / "b.toml", ("min_sites = 3", f"min_sites = 3\n{deep}")))
    (tmp_path / "c.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(FedEPDError, match="more than 1,048,576 bytes"):
        read_plan(tmp_path / "c.toml")


@pytest.mark.hostile
@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("place", ['"mule"', '"logins"', '"DE"', '"Find accounts', '"fedavg"'])
def test_names_with_unfit_characters_are_refused_and_not_repeated(
    tmp_path: Path, name: str, place: str
) -> None:
    text = "".join(f"\\U{ord(c):08X}" if ord(c) < 0x20 or ord(c) > 0x7E else c for c in ESCAPES[name])
    quoted = f'"{text}'.replace("\\\\", "\\")
    path = write_plan(tmp_path / "task.toml", (place, quoted + ('"' if place.endswith('"') else " ")))
    with pytest.raises(FedEPDError) as told:
        read_plan(path)
    check_lines(str(told.value))


@pytest.mark.parametrize("name", STRANGE)
def test_names_of_all_languages_are_kept(tmp_path: Path, name: str) -> None:
    plan = read_plan(write_plan(tmp_path / "a.toml", ('"mule"', f'"{STRANGE[name]}"')))
    assert plan.classes[1] == STRANGE[name]
