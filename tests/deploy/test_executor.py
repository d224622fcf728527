"""A site's executor without NVFlare's processes.

Limits come before data, and a hostile server gets no answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.event_type import EventType
from nvflare.apis.shareable import Shareable

from fedepd.clients.client_file import write_client_file
from fedepd.deploy import executor as module
from fedepd.deploy.executor import SiteExecutor
from fedepd.deploy.limits import LIMITS_FILE, expected_message
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import EVALUATE, REASON, STEP, message_record
from toy import CLASSES, FEATURES, toy_client


class Site:
    """A kit's folder, and what NVFlare would hand to an executor."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.log = folder, list[str]()
        (folder / "local").mkdir(exist_ok=True)
        write_client_file(toy_client(0), folder / "a.npz")
        (folder / "local" / "fedepd.json").write_text(json.dumps({"data": str(folder / "a.npz")}))
        self.task = FederationTask(
            "r",
            "fedavg",
            "default",
            {"rounds": 4, "hidden": 4, "evaluate_every": 2, **settings},
            FEATURES,
            CLASSES,
            ("a",),
        )
        workspace = SimpleNamespace(
            get_file_path_in_site_config=lambda name: str(folder / "local" / name),
            get_root_dir=lambda: str(folder),
        )
        engine = SimpleNamespace(
            get_workspace=lambda: workspace, register_aux_message_handler=lambda *a: None
        )
        self.context = SimpleNamespace(get_engine=lambda: engine, get_identity_name=lambda: "a")

    def limits(self, text: str) -> None:
        (self.folder / "local" / LIMITS_FILE).write_text(text)

    def start(self) -> SiteExecutor:
        made = SiteExecutor(self.task.to_json())
        made.log_error = lambda fl_ctx, text: self.log.append(text)
        made.handle_event(EventType.START_RUN, self.context)
        return made

    def ask(self, made: SiteExecutor, name: str = STEP, round: int = 1, **change: Any) -> Any:
        message = {**expected_message(self.task, 0), **change}
        return made.execute(name, Shareable(message_record(round, message)), self.context, None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def stop(made: SiteExecutor, site: Site) -> None:
    made.handle_event(EventType.END_RUN, site.context)


def test_an_honest_run_is_answered(site: Site) -> None:
    made = site.start()
    for round in range(1, 5):
        assert site.ask(made, round=round)["round"] == round
    assert site.ask(made, EVALUATE, 4)["confusions"]
    assert site.log == []
    stop(made, site)


@pytest.mark.hostile
@pytest.mark.parametrize("told", [False, True])
def test_a_run_outside_the_limits_never_touches_the_data(
    site: Site, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    monkeypatch.setattr(module, "site_data", lambda *a: pytest.fail("the data was read"))
    site.limits(f"max_hidden = 3\ntell_reasons = {str(told).lower()}\n")
    made = site.start()
    reply = site.ask(made)
    assert reply.get_return_code() == "TASK_UNSUPPORTED"
    why = "the run asks for hidden = 4, but this site's limits.toml says 'max_hidden = 3'"
    assert site.log == [f"this site takes no part in the run: {why}"]
    assert reply.get_header(REASON) == (why if told else "")


@pytest.mark.hostile
@pytest.mark.parametrize("text", ["max_hidden = oops", "max_hiden = 3", "methods = 3"])
def test_a_limits_file_that_cannot_be_read_refuses_every_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(module, "site_data", lambda *a: pytest.fail("the data was read"))
    site.limits(text)
    assert site.ask(site.start()).get_return_code() == "TASK_UNSUPPORTED"
    assert len(site.log) == 1


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("name", "round", "change", "says"),
    [
        (STEP, 0, {}, "round 0, but the run has rounds 1 to 4"),
        (STEP, 5, {}, "round 5, but the run has rounds 1 to 4"),
        (STEP, 10**9, {}, "but the run has rounds 1 to 4"),
        (EVALUATE, 1, {}, "does not evaluate"),
        (EVALUATE, 3, {}, "does not evaluate"),
        (STEP, 1, {"encoder.weight": torch.full((FEATURES, 4), 1e6)}, "max_message_norm"),
        (STEP, 1, {"encoder.weight": torch.full((FEATURES, 4), float("nan"))}, "NaN"),
        (STEP, 1, {"encoder.weight": torch.zeros(FEATURES, 4096)}, "[6, 4096]"),
        (STEP, 1, {"more": torch.zeros(1)}, "holds 'more'"),
        (EVALUATE, 2, {"encoder.bias": torch.full((4,), float("inf"))}, "NaN or infinite"),
    ],
)
def test_a_message_that_no_honest_server_sends(
    site: Site, name: str, round: int, change: dict[str, Any], says: str
) -> None:
    made = site.start()
    assert made._admitted is not None
    for method in ("step", "evaluate"):
        setattr(made._admitted.participant, method, lambda *a: pytest.fail("the data was touched"))
    assert site.ask(made, name, round, **change).get_return_code() == "EXECUTION_EXCEPTION"
    assert says in site.log[0]
    stop(made, site)


@pytest.mark.hostile
def test_a_server_that_asks_again_and_again(site: Site) -> None:
    """Every answer to another crafted model tells more: restarts do not begin the count again."""
    site.limits("max_rounds = 4\nmax_evaluations = 3\n")
    for asked in range(6):
        made = site.start()
        code = "OK" if asked < 4 else "EXECUTION_EXCEPTION"
        assert site.ask(made, STEP, 1).get_return_code() == code
        stop(made, site)
    for asked in range(5):
        made = site.start()
        assert site.ask(made, EVALUATE, 2).get_return_code() == ("OK" if asked < 3 else "EXECUTION_EXCEPTION")
        stop(made, site)


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["fedepd_dump", "", "train", "../x"])
def test_an_unknown_task_is_not_answered(site: Site, name: str) -> None:
    made = site.start()
    assert site.ask(made, name).get_return_code() == "TASK_UNKNOWN"
    stop(made, site)


def test_a_kit_without_the_sites_settings_says_so(site: Site) -> None:
    (site.folder / "local" / "fedepd.json").unlink()
    site.start()
    assert "the kit has no local/fedepd.json" in site.log[0]
