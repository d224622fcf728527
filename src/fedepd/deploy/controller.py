"""The coordinator's side of a job: the server's half of a method, and the rounds driven over NVFlare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.impl.controller import Controller
from nvflare.fuel.utils.memory_utils import cleanup_memory

from fedepd import plugins
from fedepd.deploy.exchange import OverNVFlare
from fedepd.deploy.intake import Intake, guarded, reply_bytes
from fedepd.deploy.kits import feature_names_in, site_keys
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.line import QuorumLost, Stopped
from fedepd.deploy.policy import allowed_at
from fedepd.deploy.sums import SumsOverNVFlare
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import STATUS, TIDY_EVERY
from fedepd.errors import BadConfig, FedEPDError
from fedepd.files import clean, write_json
from fedepd.rounds.loop import Round
from fedepd.rounds.questions import STATISTICS
from fedepd.rounds.statistics import in_words
from fedepd.runs.drive import drive
from fedepd.runs.folder import Json, copy_finished

RESULT = "fedepd"
"""The folder inside the job's own that is downloaded with its result."""
LAST_WORD = "status.json"
"""In that folder, beside the run: how the job ended."""


class FederationController(Controller):  # type: ignore[misc]
    def __init__(self, task: str, resume: bool = False) -> None:
        super().__init__()
        self.task, self.resume = task, resume
        self._status: dict[str, Any] = {"state": "starting"}

    def start_controller(self, fl_ctx: Any) -> None:
        fl_ctx.get_engine().register_app_command(STATUS, lambda topic, data, fl_ctx: clean(self._status))

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: Any
    ) -> None:
        self.log_warning(fl_ctx, f"dropped an answer of {client.name} that came after its round was closed")

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        workspace = fl_ctx.get_engine().get_workspace()
        result = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / RESULT
        result.mkdir(parents=True, exist_ok=True)
        try:
            with plugins.only(allowed_at(workspace)):
                task = FederationTask.from_json(self.task)
                kit = Path(workspace.get_root_dir())
                folder = kit / "runs" / task.run
                self._train(task, kit, folder, fl_ctx, abort_signal)
            copy_finished(folder, result)
        except Stopped:
            self._status.update(state="stopped")
        except FedEPDError as mistake:
            self._status.update(
                state="waiting" if isinstance(mistake, QuorumLost) else "failed", error=str(mistake)
            )
            self.system_panic(str(mistake), fl_ctx)
        finally:
            write_json(result / LAST_WORD, self._status)

    def _train(self, task: FederationTask, kit: Path, folder: Path, fl_ctx: Any, abort_signal: Any) -> None:
        torch.set_num_threads(1)
        if folder.exists() and not self.resume:
            raise BadConfig(
                f"the server already holds a run '{task.run}'; submit under another name or resume it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(task)
        ledger.load(folder)
        with ExitStack() as stack:
            intake = stack.enter_context(guarded(Intake(reply_bytes(task))))
            secure = ledger.experiment.privacy.secure
            reach = intake, self, fl_ctx, abort_signal
            exchange: OverNVFlare | SumsOverNVFlare
            if secure:
                past = ledger.progress.lines
                exchange = SumsOverNVFlare(task, ledger.together, site_keys(kit), *reach, past)
            else:
                exchange = OverNVFlare(task, ledger.declared(), *reach)
            stack.callback(exchange.close)

            def add(each: Round) -> Json:
                if isinstance(exchange, SumsOverNVFlare):
                    ledger.together = exchange.summed
                    return ledger.add(each, evaluated=exchange.evaluated)
                ledger.declare(exchange.sizes)
                return ledger.add(each, exchange.counts, exchange.evaluated)

            ledger.measure(exchange, folder, feature_names_in(kit))
            if STATISTICS in ledger.progress.answers:
                for line in in_words(ledger.progress.answers[STATISTICS]):
                    self.log_info(fl_ctx, f"statistics of all sites: {line}")
            drive(
                ledger.course(exchange, folder),
                ledger.progress,
                add,
                lambda *_: ledger.save_round(folder),
                lambda _, line: self._tell(ledger, line, exchange.missing()),
                tidy,
            )
            ledger.conclude(exchange)
            ledger.save(folder)
        summary = ledger.finish(folder)
        self._status.update(state="done", digest=summary["digest"])

    def _tell(self, ledger: Ledger, line: Mapping[str, Any], missing: list[str]) -> None:
        noisy = ledger.experiment.privacy.noisy
        val = None if noisy else line.get("val") or self._status.get("val")
        self._status = {
            "state": "training",
            "run": ledger.task.run,
            "round": line["round"],
            "rounds": ledger.server.last_round,
            "loss": line["loss"],
            "seconds": line["seconds"],
            "answered": [ledger.task.sites[k] for k in line["clients"]],
            "missing": missing,
            "refused": [
                f"{ledger.task.sites[r['client']]}: {r['field']} {r['reason']}"
                for r in line.get("refused", [])
            ],
            "defence": told(line, ledger.task.sites),
            "val": val,
            "spent": spent(line, ledger.experiment.privacy.dp_epsilon),
        }


def tidy(each: Round, _: Json) -> None:
    if each.number % TIDY_EVERY == 0:
        cleanup_memory()


def spent(line: Mapping[str, Any], epsilon: float | None) -> str | None:
    """What was spent of the privacy budget, in words; None without noise."""
    if (privacy := line.get("privacy")) is None:
        return None
    return f"epsilon {privacy['epsilon_spent']:.2f} of {epsilon:g} spent in {privacy['releases']} sums"


def told(line: Mapping[str, Any], sites: Sequence[str]) -> list[str]:
    """What the defences did in a round, in words.

    Of the clippings only those that cut more than half are told. All of them are in the folder.
    """
    deeds = line.get("defence", {})
    out = [
        f"{sites[k]}: update cut to {100 * share:.0f} %"
        for k, share in deeds.get("clipped", {}).items()
        if share < 0.5
    ]
    out += [f"{sites[k]}: {rows} class rows shortened" for k, rows in deeds.get("rows", {}).items()]
    out += [f"{sites[k]}: weight cut to {100 * share:.3g} %" for k, share in deeds.get("capped", {}).items()]
    out += [f"{sites[k]}: left out of this round" for k in deeds.get("left_out", [])]
    out += [
        f"{sites[k]}: left out of the run, its answers were refused too often"
        for k in line.get("excluded", ())
    ]
    return out + ([deeds["skipped"]] if "skipped" in deeds else [])
