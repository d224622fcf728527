"""A real server and two real sites on this machine, mutual TLS, separate processes.

Of NVFlare a pause between logins is shortened.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.running import MARKS, SITES, make_task
from fedepd import load_model
from fedepd.deploy import admin, kits
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.rehearse import rehearse
from fedepd.errors import BadMessage
from fedepd.model.export import export
from fedepd.report.runs import read_run
from fedepd.runs import checkpoint

pytestmark = MARKS

METHODS, OTHERS = ("fedepd",), ("fedavg", "fedproto", "fedgta")
"""More than the model; the model alone, no model, and another message for every site.

What any method sends goes through the same records in test_through_records.py.
"""


@pytest.fixture(scope="module")
def jobs(federation: Loopback) -> dict[str, admin.Submitted]:
    """Honest runs come first, then those that want something else."""
    return all_at_once(federation, METHODS, {"strict": strict_scope, "code": ship_code, **HOSTILE})


@pytest.fixture(scope="module")
def others(federation: Loopback) -> dict[str, admin.Submitted]:
    return all_at_once(federation, OTHERS, {})


def all_at_once(
    federation: Loopback, methods: Sequence[str], changes: Mapping[str, Callable[[Path], None]]
) -> dict[str, admin.Submitted]:
    """Submitted together, because starting is most of their time."""
    out = {}
    with admin.session(federation.admin) as session:
        for name in (*methods, *changes):
            task = make_task(f"run-{name}", "fedepd" if name in changes else name)
            folder = submitted(federation, name)
            admin.write_job(folder, task, resume=False)
            if name in changes:
                changes[name](folder)
            out[name] = admin.Submitted(session.submit_job(str(folder)), task)
    return out


def submitted(federation: Loopback, name: str) -> Path:
    return federation.admin.with_name("submitted") / f"run-{name}"


def edited(folder: Path, name: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / name
    content = json.loads(path.read_bytes())
    edit(content)
    path.write_text(json.dumps(content))


def touch(folder: Path, **more: Any) -> dict[str, Any]:
    """A component that leaves a trace if it is ever built."""
    return {**more, "path": "subprocess.Popen", "args": {"args": ["touch", str(folder / "owned")]}}


def at_sites(edit: Callable[[dict[str, Any], Path], Any]) -> Callable[[Path], None]:
    return lambda folder: edited(
        folder, "app/config/config_fed_client.json", lambda config: edit(config, folder)
    )


def at_server(edit: Callable[[dict[str, Any], Path], Any]) -> Callable[[Path], None]:
    return lambda folder: edited(
        folder, "app/config/config_fed_server.json", lambda config: edit(config, folder)
    )


def function_of_ours(config: dict[str, Any], folder: Path) -> None:
    """Found by the security test: the prefix ``fedepd.deploy.`` allowed this.

    It wrote folders at the site.
    """
    arguments = ["init", "--sites", "x", "--host", "localhost", "-o", str(folder / "owned")]
    config["components"] = [
        {"id": "x", "path": "fedepd.cli.federation.main", "args": {"arguments": arguments}}
    ]


def kit_of_another(config: dict[str, Any], folder: Path) -> None:
    arguments = {"out": str(folder / "owned"), "sites": ["x"], "host": "localhost", "port": 8002, "sizes": {}}
    config["executors"][0]["executor"] = {"path": "fedepd.deploy.kits.provision", "args": arguments}


def system(config: dict[str, Any], folder: Path) -> None:
    config["components"] = [
        {"id": "x", "path": "os.system", "args": {"command": f"touch {folder / 'owned'}"}}
    ]


def with_meta(**meta: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edited(folder, "meta.json", lambda content: content.update(meta))
        at_sites(lambda config, folder: config["components"].append(touch(folder, id="x")))(folder)

    return change


def drivers(folder: Path) -> None:
    """NVFlare looked for comm_config.json everywhere below the kit.

    It imported every file of the folder that the file names.
    """
    config = folder / "app" / "config"
    (config / "drivers").mkdir()
    (config / "drivers" / "evil.py").write_text(f"open({str(folder / 'owned')!r}, 'w')")
    (config / "comm_config.json").write_text(json.dumps({"comm_driver_path": str(config / "drivers")}))


def strict_scope(folder: Path) -> None:
    edited(folder, "meta.json", lambda meta: meta.update(scope="strict"))


def ship_code(folder: Path) -> None:
    (folder / "app" / "custom").mkdir()
    (folder / "app" / "custom" / "evil.py").write_text(f"open({str(folder / 'owned')!r}, 'w')")
    path = folder / "app" / "config" / "config_fed_client.json"
    path.write_text(path.read_text().replace("fedepd.deploy.executor.SiteExecutor", "evil.Executor"))


HOSTILE: dict[str, Callable[[Path], None]] = {
    "executor": at_sites(lambda config, folder: config["executors"][0].update(executor=touch(folder))),
    "nested": at_sites(
        lambda config, folder: config["executors"][0]["executor"]["args"].update(task=touch(folder))
    ),
    "data-filter": at_sites(
        lambda config, folder: config["task_data_filters"].append(
            {"tasks": ["*"], "filters": [touch(folder)]}
        )
    ),
    "longer-name": at_sites(
        lambda config, _: config["executors"][0]["executor"].update(
            path="fedepd.deploy.executor.SiteExecutor.execute"
        )
    ),
    "ours": at_sites(function_of_ours),
    "provision": at_sites(kit_of_another),
    "system": at_sites(system),
    "workflow": at_server(lambda config, folder: config.update(workflows=[touch(folder, id="x")])),
    "byoc-meta": with_meta(byoc=True),
    "odd-meta": with_meta(
        launcher_spec={"default": {"process": {"x": 1}}}, stats_pool_config={"a": 1}, study="x", scope="open"
    ),
    "drivers": drivers,
}


@pytest.mark.parametrize("method", METHODS)
def test_a_deployed_run_has_the_simulations_bits(
    federation: Loopback, jobs: dict[str, admin.Submitted], method: str, tmp_path: Path
) -> None:
    check_bits(federation, jobs, method, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("method", OTHERS)
def test_other_deployed_runs_have_the_simulations_bits(
    federation: Loopback, others: dict[str, admin.Submitted], method: str, tmp_path: Path
) -> None:
    check_bits(federation, others, method, tmp_path)


def check_bits(federation: Loopback, jobs: dict[str, admin.Submitted], method: str, tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    end = admin.supervise(federation.admin, jobs[method], said.append, patience=60)
    expected = rehearse(jobs[method].task, list(federation.files.values()))
    assert end["state"] == "done"
    assert end["digest"] == expected.digest()
    # On a busy machine a job can be taken for lost. It is then submitted again, and the last has results.
    last = [jobs[method].id, *(now["job"] for now in said if now.get("state") == "resumed")][-1]
    admin.fetch(federation.admin, replace(jobs[method], id=last), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [line["clients"] for line in run.rounds] == [[0, 1]] * 4
    assert [line["bytes_up"] for line in run.rounds] == [line["bytes_up"] for line in expected.progress.lines]
    assert run.summary["refused"] == 0
    if method in ("fedavg", "fedepd"):
        assert load_model(export(tmp_path / "run", tmp_path / "model")).info == jobs[method].task.info()
    for site in SITES:
        kept = sorted(p.name for p in (federation.kits[site] / "state" / f"run-{method}").iterdir())
        assert kept == ["checkpoint-000003", "checkpoint-000004", "final", "sent.jsonl"]
        # The server removes folders of ended jobs meanwhile. os.walk does not mind.
        files = [name for _, _, names in os.walk(federation.kits["server"]) for name in names]
        assert not [name for name in files if name.startswith(site) and "error_log" in name]


def test_the_owners_filter_acts_on_our_payload(
    federation: Loopback, jobs: dict[str, admin.Submitted], tmp_path: Path
) -> None:
    """With all classes hidden there are no prototypes and no held-out nodes.

    The run ends with that as its reason.
    """
    end = admin.supervise(federation.admin, jobs["strict"], lambda now: None, patience=60)
    assert end["state"] == "failed"
    assert "at least one labelled node" in end["error"]
    saved = sorted((federation.kits["server"] / "runs" / "run-strict").glob("checkpoint-*"))
    tensors, _ = checkpoint.load(saved[-1], jobs["strict"].task.identity())
    assert saved[-1].name == "checkpoint-000001"
    assert not tensors["server/prototype.count"].any()
    assert not tensors["server/prototype.mean"].any()


@pytest.mark.hostile
@pytest.mark.parametrize("name", HOSTILE)
def test_a_job_that_wants_something_else_is_never_built(
    federation: Loopback, jobs: dict[str, admin.Submitted], name: str
) -> None:
    end = admin.supervise(federation.admin, jobs[name], lambda now: None, patience=60, resume=False)
    assert end["state"] != "done"
    assert not (submitted(federation, name) / "owned").exists()
    assert all((kit / "local" / "resources.json").exists() for kit in federation.kits.values())


def test_shipped_code_is_refused(federation: Loopback, jobs: dict[str, admin.Submitted]) -> None:
    end = admin.supervise(federation.admin, jobs["code"], lambda now: None, patience=60, resume=False)
    with admin.session(federation.admin) as session:
        detail = session.get_job_meta(jobs["code"].id)["job_deploy_detail"]
    assert end["state"] != "done"
    assert "BYOC not permitted" in str(detail)
    assert not (submitted(federation, "code") / "owned").exists()


def test_an_admin_without_the_role_may_not_submit(federation: Loopback) -> None:
    kit = federation.admin.with_name("member")
    with pytest.raises(BadMessage, match="not authorized"):
        admin.submit(kit, make_task("run-member", "fedavg"))


def answer(federation: Loopback, request: bytes, secure: ssl.SSLContext | None) -> bytes:
    """What the server's port says; nothing if it closes the connection."""
    port = json.loads((federation.kits["server"] / "startup" / "fed_server.json").read_bytes())["servers"][0][
        "admin_port"
    ]
    try:
        with socket.create_connection(("localhost", port), timeout=5) as plain, ExitStack() as stack:
            channel = stack.enter_context(secure.wrap_socket(plain)) if secure else plain
            channel.sendall(request)
            return channel.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


def credentials(kit: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    return context


def test_the_port_talks_to_certified_members_only(federation: Loopback, tmp_path: Path) -> None:
    foreign = kits.provision(tmp_path / "other", ["bank-a"], "localhost", 8002, {})["bank-a"]
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert answer(federation, upgrade, credentials(federation.kits["bank-a"])).startswith(b"HTTP/1.1")
    assert answer(federation, upgrade, credentials(foreign)) == b""
    assert answer(federation, upgrade, credentials(None)) == b""
    assert answer(federation, upgrade, None) == b""


def test_a_site_cannot_take_another_sites_name(federation: Loopback, tmp_path: Path) -> None:
    """bank-b's own, valid certificate, but it calls itself bank-a.

    The server's log must say that it was refused.
    """
    for part in ("startup", "local"):
        shutil.copytree(federation.kits["bank-b"] / part, tmp_path / "thief" / part)
    settings = tmp_path / "thief" / "startup" / "fed_client.json"
    settings.write_text(settings.read_text().replace('"fqsn": "bank-b"', '"fqsn": "bank-a"'))
    server_log = federation.kits["server"] / "console.log"
    before = len(server_log.read_text())
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(
            kits.launch_command(tmp_path / "thief", "client", "bank-a"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and process.poll() is None and not refusals(server_log, before):
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
    assert "Successfully registered client" not in (tmp_path / "log").read_text()
    assert refusals(server_log, before), (tmp_path / "log").read_text()[-3000:] + server_log.read_text()[
        before:
    ][-3000:]


def refusals(log: Path, start: int) -> list[str]:
    return [line for line in log.read_text()[start:].splitlines() if "claimed endpoint" in line]
