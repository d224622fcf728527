"""Reads run folders, and groups the runs that differ in their seed only."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any, cast

import fedepd.runs.folder as run_folder
from fedepd.errors import BadData
from fedepd.files import absolute
from fedepd.longtail import Tiers
from fedepd.metrics import scores
from fedepd.report.agreement import check_arrays, check_numbers, check_ranking, check_rounds
from fedepd.runs.folder import Arrays, Json
from fedepd.runs.frames import settings_of
from fedepd.shown import drawn, shown

LABEL = 160
"""Most characters of a group's label: a name, and the settings in which it differs from other groups."""
SCOPES: dict[str, dict[Any, list[str]]] = {
    "protocol.scope": {"alone": ["each client alone"], "pooled": ["pooled"]},
    "protocol.edges": {False: ["no edges"]},
}
"""What a label says of settings that change what a run is compared for."""


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run. Small files are read at once, the others when they are first needed."""

    path: Path
    summary: Json
    config: Json
    known_preference: str = field(default="", kw_only=True)
    """``preferred``, where it need not be found out."""

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def dataset(self) -> Json:
        """Name, sizes and hash of the graph."""
        return dict(self.config["dataset"])

    @property
    def headline(self) -> str:
        """The model whose scores stand for the method: ``global``, or the clients' ``personal`` ones."""
        return str(self.summary["headline"])

    def metric(self, name: str, model: str = "headline", average: str = "pooled", select: str = "") -> float:
        """A test metric as a fraction. NaN if it was not measured or there is no such model.

        ``select`` names the score that selects the round, if it is not the run's own choice.
        """
        of_model = self._selected_by(select).get(self.kind(model), {})
        value = of_model.get(average, {}).get(name)
        return float("nan") if value is None else float(value)

    def _selected_by(self, select: str) -> Mapping[str, Json]:
        """The scores of the rounds that were selected in this way; none if the run does not have them."""
        if not select or select == self.config["experiment"].get("protocol", {}).get("select"):
            return cast(Json, self.summary["metrics"])
        other = self.summary.get("other_selection", {})
        return cast(Json, other["metrics"]) if other.get("select") == select else {}

    @property
    def adapted(self) -> bool:
        """Whether adapted models were scored."""
        return "adapted" in self.summary["metrics"]

    def kind(self, model: str) -> str:
        """The model whose scores stand in a table of ``model``: ``headline``, or a kind of model.

        Choice: in a table of adapted models, a method without a global model has its personal ones. They are
        each client's own already.
        """
        if model == "headline" or (model == "adapted" and self.headline == "personal"):
            return self.headline
        return self.preferred if model == "preferred" else model

    @cached_property
    def preferred(self) -> str:
        """The kind of model with the best score on validation nodes; of equal ones the first of ``MODELS``.

        Choice: the score that selects the round also decides here. Where the last round is taken whatever its
        score, macro-F1 decides, as in the adaptation stage.
        """
        if self.known_preference:
            return self.known_preference
        select = self.config["experiment"].get("protocol", {}).get("select")
        metric = "acc" if select == "val_acc" else "macro_f1"
        found = {
            model: scores(self.confusions[f"{model}_val"].sum(0), Tiers((), (), ()))[metric]
            for model in run_folder.MODELS
            if model in self.summary["metrics"]
        }
        return max(found, key=lambda model: -1.0 if isnan(found[model]) else found[model])

    @property
    def scored(self) -> bool:
        """Whether any node was tested. The sites of a federation with noise send no scores."""
        return not isnan(self.metric("acc"))

    @property
    def kept_in(self) -> str:
        """The file that the scores come from where there is no run folder. Empty for a run folder."""
        return ""

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @cached_property
    def env(self) -> Json:
        found: Json = run_folder.read(self.path, run_folder.ENV)
        return found

    @cached_property
    def clients(self) -> list[Json]:
        """What each client holds, by client number."""
        return run_folder.read_clients(self.path)

    @cached_property
    def rounds(self) -> list[Json]:
        """What happened in each round."""
        lines = run_folder.read_rounds(self.path)
        name = run_folder.called(self.path, run_folder.ROUNDS)
        check_rounds(self.summary, self.config, lines, f"'{name}'")
        return lines

    @property
    def deployed(self) -> bool:
        """Whether the clients were sites of a federation. Their edges are not known then."""
        return "sites" in self.config

    @property
    def sums_only(self) -> bool:
        """Whether the server saw sums over the clients only, so that no client has scores of its own."""
        return bool(self.config["experiment"].get("privacy", {}).get("secure", False))

    @cached_property
    def confusions(self) -> Arrays:
        """``global_val``, ``global_test``, ``personal_val``, ``personal_test``: int64 [K, C, C].

        ``adapted_val`` and ``adapted_test`` are sums over the clients, [1, C, C].
        """
        return run_folder.read_confusion(self.path, self.headline)

    @cached_property
    def calibration(self) -> Json | None:
        """What ``fedepd export`` has measured. None if the run was not exported."""
        path = self.path / run_folder.CALIBRATION
        return run_folder.read(self.path, run_folder.CALIBRATION) if path.is_file() else None

    @cached_property
    def operating(self) -> Json | None:
        """What the operating point of an exported model does. None if no such model was exported."""
        if not (self.path / run_folder.OPERATING).is_file():
            return None
        found: Json = run_folder.read(self.path, run_folder.OPERATING)
        named = [c for rule in found["measured"] for c in rule["classes"]]
        if max([found["usual"], *named]) >= len(self.partition["class_sizes"]):
            name = run_folder.called(self.path, run_folder.OPERATING)
            raise BadData(f"'{name}' names a class that is none; export the run again")
        return found

    @cached_property
    def ranking(self) -> Json | None:
        """How well the headline model ranks test nodes. None if scores of single nodes were not at hand."""
        if not (self.path / run_folder.RANKING).is_file():
            return None
        found: Json = run_folder.read(self.path, run_folder.RANKING)
        name = run_folder.called(self.path, run_folder.RANKING)
        check_ranking(found, self.summary, self.confusions, f"'{name}'")
        return found

    @cached_property
    def partition(self) -> Arrays:
        """``client_class`` int64 [K, C] and ``class_sizes`` int64 [C]."""
        return run_folder.read_partition(self.path)

    def read_all(self) -> None:
        """Read every file now, so that a damaged one is refused before anything is drawn."""
        for part in ("env", "clients", "rounds", "calibration", "operating", "ranking"):
            getattr(self, part)


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one method with one set of settings on one dataset. They differ in their seed only."""

    label: str
    """Safe to show in a table or a legend, whatever the run folder says."""
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", drawn(self.label, LABEL))

    @property
    def first(self) -> Run:
        """The run with the lowest seed. It is shown where a mean over seeds makes no sense."""
        return self.runs[0]

    @property
    def method(self) -> str:
        return str(self.first.summary["method"])


def read_run(path: str | Path) -> Run:
    """The finished run in a folder.

    It is refused if its numbers do not follow from its confusion matrices.
    """
    folder = absolute(path)
    if not run_folder.is_finished(folder):
        state = "an unfinished run" if run_folder.is_begun(folder) else "not a run folder"
        raise BadData(
            f"'{path}' is {state}: it has no {run_folder.SUMMARY}; "
            "let `fedepd run` finish, or name another folder"
        )
    summary, config = (run_folder.read(folder, file) for file in (run_folder.SUMMARY, run_folder.CONFIG))
    run = Run(folder, summary, config)
    check_arrays(run.confusions, run.partition, run.config, shown(folder.name))
    check_numbers(run.summary, run.config, run.confusions, run.partition["class_sizes"], shown(folder.name))
    return run


def read_runs(path: str | Path) -> list[Run]:
    """The finished runs in a run folder or in a folder of run folders. ``unfinished`` names the others."""
    runs = [read_run(folder) for folder in _run_folders(Path(path)) if run_folder.is_finished(folder)]
    if not runs:
        started = ", ".join(folder.name for folder in unfinished(path))
        found = f"only unfinished runs ({started})" if started else "no run"
        raise BadData(
            f"'{path}' holds {found}; name a folder that `fedepd run --out` has written, or a folder of such "
            "folders"
        )
    return sorted(
        runs,
        key=lambda run: (
            run.dataset["name"],
            run.summary["method_label"],
            run.summary["preset"],
            _held_against(run),
            run.seed,
            run.path.name,
        ),
    )


def _held_against(run: Run) -> bool:
    """Whether the run is what a method is held against. Such runs come after the method's own."""
    own = settings(run)
    return any(own.get(name) == value for name, words in SCOPES.items() for value in words)


def unfinished(path: str | Path) -> list[Path]:
    """Run folders without summary.json, which ``read_runs`` leaves out."""
    return [folder for folder in _run_folders(Path(path)) if not run_folder.is_finished(folder)]


def group(runs: Iterable[Run]) -> list[Group]:
    """Group the runs that differ in their seed only. Labels are unique within a dataset."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(
            json.dumps([_dataset_key(run), _name(run), settings(run)], sort_keys=True), []
        ).append(run)
    members = [tuple(sorted(same, key=lambda run: run.seed)) for same in found.values()]
    for same in members:
        for one, other in itertools.pairwise(same):
            if one.seed == other.seed:
                raise BadData(
                    f"'{shown(one.path.name)}' and '{shown(other.path.name)}' are the same run "
                    f"({shown(_name(one))} on {shown(one.dataset['name'])}, seed {one.seed}); remove one of "
                    "them, or their mean counts it twice"
                )
    firsts = [same[0] for same in members]
    return [Group(_label(same[0], firsts), same) for same in members]


def by_dataset(groups: Iterable[Group]) -> list[list[Group]]:
    """The groups of each graph."""
    found: dict[tuple[str, str], list[Group]] = {}
    for each in groups:
        found.setdefault(_dataset_key(each.first), []).append(each)
    return list(found.values())


def settings(run: Run) -> Json:
    """Dotted name -> value of every resolved setting except the seed."""
    return {name: value for name, value in settings_of(run.config) if name.rsplit(".", 1)[-1] != "seed"}


def _label(run: Run, others: list[Run]) -> str:
    """The method's name, and the settings in which it differs from groups of the same name on its dataset."""
    rivals = [
        other for other in others if (_dataset_key(other), _name(other)) == (_dataset_key(run), _name(run))
    ]
    own, theirs = settings(run), [settings(other) for other in rivals]
    differing = [
        name
        for name in sorted({name for each in theirs for name in each})
        if len({json.dumps(e.get(name)) for e in theirs}) > 1
    ]
    words = [] if run.summary["preset"] == "default" else [shown(run.summary["preset"])]
    for name in differing:
        short, value = name.removeprefix("method."), own.get(name)
        if name in SCOPES:
            words += SCOPES[name].get(value, [])
        elif value is False:
            words.append(f"no {shown(short)}")
        elif value not in (True, None):
            words.append(shown(f"{short}={value}"))
    name = shown(run.summary["method_label"])
    return f"{name} ({', '.join(words)})" if words else name


def _name(run: Run) -> str:
    return f"{run.summary['method_label']}/{run.summary['preset']}"


def _dataset_key(run: Run) -> tuple[str, str]:
    # Choice: the hash counts, too. A file with the same name and other content is another dataset.
    return str(run.dataset["name"]), str(run.dataset.get("sha256"))


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise BadData(f"'{path}' is not a folder; name one that `fedepd run --out` has written")
    folders = [path.resolve(), *sorted(child for child in path.resolve().iterdir() if child.is_dir())]
    runs = [folder for folder in folders if run_folder.is_begun(folder) or run_folder.is_finished(folder)]
    return runs[:1] if runs[:1] == folders[:1] else runs
