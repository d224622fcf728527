"""The doors that are closed before NVFlare's programs run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.apis.workspace import Workspace

from fedepd.deploy import kits, launch
from fedepd.errors import BadMessage

LOOK = """
import sys
from fedepd.deploy import launch
launch.close_doors(sys.argv[1])
"""


def after_closing(role: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is closed stays closed."""
    words = [sys.executable, "-P", "-c", LOOK + code, role, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_a_site_knows_few_commands() -> None:
    """NVFlare leaves it to the server to say whether a site checks a command.

    Logging settings may name any function.
    """
    code = """
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors as P
from nvflare.private.fed.client.admin_commands import AdminCommands as C
print(sorted(t for p in P.request_processors for t in p.get_topics()))
print(sorted(c.get_command_name() for c in C.commands))
"""
    topics, _ = after_closing("client", code).stdout.splitlines()
    _, commands = after_closing("client-job", code).stdout.splitlines()
    for gone in ("shell", "log", "restart", "shutdown", "env", "sys.info"):
        assert gone not in topics
    assert "train.deploy" in topics
    assert "log" not in commands
    assert "abort" in commands


@pytest.mark.hostile
def test_a_sites_job_answers_no_other_site() -> None:
    """NVFlare hands a request of any participant to the executor, and sends it the answer."""
    code = """
from types import SimpleNamespace
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.client.command_agent import CommandAgent
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as H
asked = []
agent = CommandAgent(SimpleNamespace())
agent._aux_communication = lambda request: asked.append(request.get_header(H.ORIGIN)) or "answer"
for origin in ("server", "server.job", "bank-b", "bank-b.server", "", None, 7):
    print(agent.aux_communication(Message({H.ORIGIN: origin})) == "answer")
print(asked)
"""
    *answered, asked = after_closing("client-job", code).stdout.splitlines()
    assert answered == ["True", "True"] + ["False"] * 5
    assert asked == "['server', 'server.job']"


@pytest.mark.hostile
@pytest.mark.parametrize("role", ["client", "client-job", "server", "server-job"])
def test_configuration_in_a_jobs_folder_is_not_found(tmp_path: Path, role: str) -> None:
    """Before, the first such file anywhere below the kit was taken.

    comm_config.json can name a folder of code.
    """
    for path in (
        "job/app_x/config/comm_config.json",
        "job/resources.json",
        "local/resources.json",
        "job/app_x/config/x.conf",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    code = """
from nvflare.fuel.utils.config_factory import ConfigFactory as F
for name in ("comm_config.json", "resources.json", "x.json"):
    print(F.search_config_format(name, [sys.argv[2]])[1])
"""
    found = after_closing(role, code, str(tmp_path)).stdout.splitlines()
    assert found == ["None", str(tmp_path / "local" / "resources.json"), "None"]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "job", ["local", "startup", "state", "..", "a/b", "", "0F8FAD5B-D9CB-469F-A165-70867728950E", "7"]
)
def test_a_job_is_called_by_a_uuid(job: str) -> None:
    """NVFlare removes the folder of this name to make room for the job.

    With "local" the owner's filters would be gone.
    """
    with pytest.raises(ValueError, match="UUID"):
        launch._job_id(job)
    assert launch._job_id("0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("names", "size"), [(["a"], 65 * 2**20), ([str(k) for k in range(101)], 1)], ids=["large", "many"]
)
def test_a_job_that_would_fill_the_disk_is_not_unpacked(tmp_path: Path, names: list[str], size: int) -> None:
    """Zeros shrink a thousand times.

    The archive is small, and NVFlare would unpack it before looking at it.
    """
    with zipfile.ZipFile(tmp_path / "job.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(size))
    (tmp_path / "out").mkdir()
    code = """
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
unzip_all_from_bytes(open(sys.argv[2], "rb").read(), sys.argv[3])
"""
    done = after_closing("client", code, str(tmp_path / "job.zip"), str(tmp_path / "out"))
    assert "is not unpacked" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_job_of_ours_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("config/x.json", "{}")
    code = """
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
unzip_all_from_bytes(open(sys.argv[2], "rb").read(), sys.argv[3])
"""
    (tmp_path / "out").mkdir()
    assert after_closing("client", code, str(tmp_path / "job.zip"), str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out" / "config" / "x.json").read_text() == "{}"


def test_jobs_start_through_the_same_module() -> None:
    command = f"python -m {launch.PROGRAMS['client-job']} -m /kit -n 1"
    assert (
        launch.guarded(command, "client-job") == "python -P -m fedepd.deploy.launch client-job -m /kit -n 1"
    )
    with pytest.raises(RuntimeError, match=r"2\.9"):
        launch.guarded("python -m something.else -m /kit", "client-job")


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["fedepd", "nvflare", "torch"])
def test_a_module_in_the_kit_is_not_imported(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("open('owned', 'w').close()\n")
    command = [*kits.launch_command(tmp_path, "client", "x"), "--help"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert not (tmp_path / "owned").exists()


@pytest.mark.hostile
@pytest.mark.parametrize(("owner", "name"), launch.REPLACED)
def test_an_nvflare_without_what_is_replaced_does_not_start(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(RuntimeError, match=name):
        launch.close_doors("server")


class Started:
    """As much of NVFlare's context as the start of a job needs."""

    def __init__(self, kit: Path, job: str) -> None:
        arguments = {
            JobProcessArgs.EXE_MODULE: ("-m", launch.PROGRAMS["client-job"]),
            JobProcessArgs.WORKSPACE: ("-m", str(kit)),
        }
        arguments[JobProcessArgs.JOB_ID] = "-n", job
        self.props = {
            FLContextKey.WORKSPACE_OBJECT: Workspace(str(kit), site_name="bank-a"),
            FLContextKey.JOB_PROCESS_ARGS: arguments,
        }

    def get_prop(self, name: str) -> Any:
        return self.props[name]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "path", ["custom/sitecustomize.py", "custom/usercustomize.pyc", "config/more.json", "x.py"]
)
def test_a_job_that_lay_in_the_kit_is_not_started(tmp_path: Path, path: str) -> None:
    """A server starts a job by its name alone.

    NVFlare puts the folder 'custom' of that job on the Python path.
    """
    job = "0f8fad5b-d9cb-469f-a165-70867728950e"
    app = tmp_path / job / "app_bank-a"
    for name in (
        "startup/x",
        "local/x",
        f"{job}/app_bank-a/config/config_fed_client.json",
        f"{job}/app_bank-a/{path}",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("open('owned', 'w').close()")
    other = job.replace("0f", "1f")
    shutil.copytree(
        tmp_path / job / "app_bank-a" / "config",
        tmp_path / other / "app_bank-a" / "config",
        ignore=lambda *_: ["more.json"],
    )
    for named, told in ((job, job), (job, other), (other, job)):
        with pytest.raises(BadMessage, match=path):
            launch.SiteJobs().launch_job({JobConstants.JOB_ID: named}, Started(tmp_path, told))
    (app / path).unlink()
    assert "-P -m fedepd.deploy.launch client-job" in launch.SiteJobs().get_command(
        {JobConstants.JOB_ID: job}, Started(tmp_path, other)
    )
