"""What a site has at home after a run: its graph, the selected model, and its own one.

All of it is in the kit, so the coordinator is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedepd import plugins
from fedepd.clients.scaling import scaled_by, with_features
from fedepd.deploy.kits import SITE_FILE, Kit, open_kit
from fedepd.deploy.state import FINAL, Final, read_final
from fedepd.deploy.task import NAME, FederationTask, site_data
from fedepd.errors import BadConfig, BadData, FedEPDError, UnknownName
from fedepd.files import file_sha256, read_json
from fedepd.longtail import Tiers
from fedepd.rounds.final import CLASS_TIERS, ENTRIES, KINDS, SELECTED, THRESHOLDS, USUAL
from fedepd.rounds.guard import HOME, OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.point import NEVER, goals_of, names_of, rules_of
from fedepd.rounds.questions import QUESTIONS
from fedepd.rounds.statistics import SCALING, of_method, scaling_fault
from fedepd.runs.folder import checkpoints, round_of
from fedepd.runs.predict import with_adapted
from fedepd.shapes import TEXT, TIERS, expect
from fedepd.shown import listed, shown
from fedepd.types import ClientData, Tensors

MAX_SITE_FILE = 2**20
ANSWERS = "answers"
"""A folder beside the runs' that belongs to no single run."""
SitePoint = tuple[int, tuple[tuple[tuple[int, ...], float], ...]]
"""The largest class, and the classes and the threshold of every rule."""
FINAL_QUESTION = QUESTIONS["final"]
ABOUT = {"task": TEXT, "nodes_sha256": TEXT, "data_sha256": TEXT}


@dataclass(frozen=True, eq=False)
class Taken:
    """A run that is over, as one of its sites has it."""

    kit: Kit
    task: FederationTask
    data: ClientData
    final: Final
    rounds: dict[str, int]
    """The selected round of each model, by kind."""

    @property
    def tiers(self) -> Tiers:
        """The federation's tiers. The order within a tier is not known here."""
        tier = self.final.model[CLASS_TIERS].tolist()
        return Tiers(*(tuple(c for c, own in enumerate(tier) if own == number) for number in range(3)))

    @property
    def opened(self) -> list[int] | None:
        """Under the guard: the classes that are open."""
        opened = self.final.model.get(OPEN)
        return None if opened is None else [int(c) for c in opened.nonzero().reshape(-1)]

    @property
    def point(self) -> SitePoint | None:
        """The operating point that the sites chose together; None if the run had no aim or found none."""
        goals = goals_of(self.task.experiment().protocol.aim)
        if not goals or bool((self.final.model[THRESHOLDS] == NEVER).any()):
            return None
        usual, names = int(self.final.model[USUAL]), names_of(self.task.label_names, self.task.num_classes)
        rules = rules_of(goals, names, usual)
        return usual, tuple(zip(rules, self.final.model[THRESHOLDS].tolist(), strict=True))

    def participant(self, kind: str) -> Participant:
        """The site as it was when the model of this kind was selected."""
        participant = self.task.participant(self.data)
        participant.state = self._personal() if kind == "personal" else self.final.state
        return participant

    @property
    def means(self) -> dict[int, tuple[float, float]]:
        """Mean and deviation by the position of the feature, of columns that the sites scaled together."""
        found = self.final.model.get(SCALING)
        if found is None:
            return {}
        pairs = zip(*found.tolist(), strict=True)
        return dict(zip(self.task.scaled, pairs, strict=True))

    def model(self, kind: str) -> Tensors:
        """The tensors of the global, the personal or the adapted model, for ``runs.predict``.

        Under the guard, closed classes have the site's own columns.
        """
        method = self.task.experiment().method
        if kind != "personal" and not method.has_global:
            raise BadConfig(f"{method.label} has no model for all sites; give --personal")
        if kind == "adapted":
            return with_adapted(of_method(self.message), self._adapted())
        participant = self.participant(kind)
        try:
            found = participant.models(self.rounds[kind], self.message)[kind]
        except (KeyError, RuntimeError, IndexError, ValueError) as cause:
            raise BadData(
                f"the saved model of run '{self.task.run}' does not fit its settings ({shown(cause)}); "
                "restore the kit's state from a backup"
            ) from cause
        return {name: value for name, value in found.items() if not name.startswith(HOME)}

    @property
    def message(self) -> Tensors:
        """What the server sent, as in any round."""
        return {name: value for name, value in self.final.model.items() if name not in ENTRIES}

    def _personal(self) -> Tensors:
        if self.final.personal is None:
            raise BadConfig(
                f"this site has no personal model of run '{self.task.run}', because it was away in the "
                "round that was selected; leave --personal out"
            )
        return self.final.personal

    def _adapted(self) -> Tensors:
        if self.final.adapted is None:
            raise BadConfig(
                f"this site has no adapted model of run '{self.task.run}': the run had no stage of "
                "adaptation, the sites kept the global model, or this one was away; leave --adapted out"
            )
        return self.final.adapted


def take(folder: Path, run: str | None = None) -> Taken:
    """What a site has of a run that is over. Everything is checked before it is used.

    Args:
        folder: The site's kit.
        run: The run's name; needed if there are several.

    Raises:
        BadConfig: No run, several runs, or the run is not over.
        BadData: The kit, the saved model or the data file is damaged or was changed.
    """
    kit = open_kit(folder, "client")
    state = chosen_run(folder, run)
    if not (state / FINAL).is_file():
        raise BadConfig(_not_over(state))
    settings = site_file(folder)
    try:
        final = read_final(state)
    except BadData as cause:
        raise BadData(
            f"the saved model of run '{state.name}' cannot be used: {cause}; restore the kit's state from a "
            "backup, or ask the coordinator to run again"
        ) from cause
    with plugins.only(settings["allow"]):
        return _checked(kit, state, final, Path(settings["data"]))


def _checked(kit: Kit, state: Path, final: Final, file: Path) -> Taken:
    where = f"the saved model of run '{state.name}'"
    cure = "restore the kit's state from a backup, or ask the coordinator to run again"
    expect(final.about, ABOUT, where, cure)
    try:
        task = FederationTask.from_json(final.about["task"])
    except FedEPDError as cause:
        raise BadData(f"{where} names settings that cannot be used: {cause}") from cause
    foreign = task.identity() != final.about["config_hash"] or task.run != state.name
    if foreign or kit.name not in task.sites or not set(task.sites) <= set(kit.sites):
        raise BadData(f"{where} belongs to another run or another federation; {cure}")
    _check_entries(final.model, task, where, cure)
    if file_sha256(file) != final.about["data_sha256"]:
        raise BadData(
            f"'{shown(file, 300)}' has changed since run '{task.run}', so the model cannot be measured on "
            "the nodes that it was not trained on; give the old file back"
        )
    data = completed(site_data(task, kit.name, file), task, final.model.get(SCALING), where, cure)
    return Taken(kit, task, data, final, dict(zip(KINDS, final.model[SELECTED].tolist(), strict=True)))


def completed(
    data: ClientData, task: FederationTask, scaling: Tensor | None, where: str, cure: str
) -> ClientData:
    """The site's data with all features: columns that the sites scaled together are scaled as in the run."""
    if data.unscaled is None:
        return data
    if scaling is None or scaling_fault(scaling, len(data.unscaled.columns)):
        raise BadData(f"{where} does not say how columns are scaled; {cure}")
    data = scaled_by(data, scaling.numpy())
    return replace(data, graph=with_features(data.graph, task.experiment().protocol.features))


def _check_entries(model: Tensors, task: FederationTask, where: str, cure: str) -> None:
    """Its checksum is right, but a checksum says nothing of who wrote the file."""
    wanted = {SELECTED: len(KINDS), CLASS_TIERS: task.num_classes}
    wanted |= {OPEN: task.num_classes} if task.experiment().privacy.guard else {}
    goals = goals_of(task.experiment().protocol.aim)
    wanted |= {THRESHOLDS: len(goals), USUAL: 1} if goals else {}
    for name, size in wanted.items():
        if name not in model or tuple(model[name].shape) != (size,):
            raise BadData(f"{where} does not hold '{name}' as this version writes it; {cure}")
    if not set(model[CLASS_TIERS].tolist()) <= set(range(len(TIERS))):
        raise BadData(f"{where} names a tier that is none; {cure}")
    if goals and (fault := FINAL_QUESTION.fault(model, task.setting())):
        raise BadData(f"{where} cannot be used: {fault}; {cure}")
    if not all(0 <= round <= task.server().last_round for round in model[SELECTED].tolist()):
        raise BadData(f"{where} names a round that is none; {cure}")


def runs_in(folder: Path) -> list[str]:
    """The runs that this site has a state of."""
    state = folder / "state"
    found = [path.name for path in state.iterdir() if path.is_dir()] if state.is_dir() else []
    return sorted(name for name in found if name != ANSWERS and NAME.fullmatch(name))


def chosen_run(folder: Path, run: str | None) -> Path:
    """The folder of a run's state. Without a name there must be exactly one."""
    runs = runs_in(folder)
    if not runs:
        raise BadConfig(
            f"'{shown(folder, 300)}' took part in no run yet; start the site with "
            "'fedepd federation join KIT --data FILE.npz' and wait for the end of a run"
        )
    if run is None and len(runs) > 1:
        raise BadConfig(f"this site took part in several runs ({listed(runs)}); give --run NAME")
    if run is not None and run not in runs:
        raise UnknownName("run", run, runs)
    return folder / "state" / (run or runs[0])


def _not_over(state: Path) -> str:
    """Before the end, or after a run that failed: a site cannot tell the two apart."""
    done = [round_of(path) for path in checkpoints(state)]
    so_far = f"its last round here is {done[0]}" if done else "it has no round here yet"
    return (
        f"run '{state.name}' has not given this site a model ({so_far}); wait for its end, or if it failed, "
        "was stopped, or ended while the site was away, ask the coordinator to submit it with --resume"
    )


def site_file(folder: Path) -> dict[str, Any]:
    """What ``join`` has written: where the owner's graph is, and which further classes the owner allows."""
    path = folder / "local" / SITE_FILE
    cure = "start the site with 'fedepd federation join KIT --data FILE.npz'"
    if not path.is_file():
        raise BadConfig(f"the kit has no local/{SITE_FILE}; {cure}")
    content = read_json(path, MAX_SITE_FILE, cure)
    expect(content, {"data": TEXT, "allow?": [TEXT]}, f"local/{SITE_FILE} of '{shown(folder, 300)}'", cure)
    return {"allow": [], **content}
