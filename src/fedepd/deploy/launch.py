"""Start the four kinds of process of a federation: NVFlare's own programs, restricted before they run.

``python -P -m fedepd.deploy.launch ROLE ...`` runs NVFlare's program for that role. The restrictions are
needed because NVFlare lets the server decide whether a site checks a command, and because it also looks for
configuration in the folders of jobs:

- Configuration is read as JSON from exactly the folder it belongs to. The folders below hold the files of
  jobs and are not searched.
- A job's name is a UUID. NVFlare removes the folder of that name to make room for a job, so a job called
  "local" or "startup" would delete the kit's own folder.
- A site unpacks a job only if it is small.
- A job starts only if its folder holds the two configuration files and nothing else, whoever put it there.
- A site accepts only the commands that a run needs. There is no shell, no restart, and no logging settings
  (these can name any function).
- A site's job answers requests of the server alone. NVFlare would hand it tasks of another site too.

``-P`` keeps the kit's folder off Python's path. Otherwise a file ``torch.py`` in it would be imported.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.apis.workspace import Workspace
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.utils import zip_utils
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.private.fed.client.command_agent import CommandAgent

from fedepd.deploy.contents import JOB

MODULE = "fedepd.deploy.launch"
PROGRAMS = {
    "client": "nvflare.private.fed.app.client.client_train",
    "client-job": "nvflare.private.fed.app.client.worker_process",
    "server": "nvflare.private.fed.app.server.server_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
}
REQUESTS = (
    "ClientStatusProcessor", "ScopeInfoProcessor", "AbortAppProcessor", "AbortTaskProcessor",
    "DeployProcessor", "DeleteRunNumberProcessor", "StartJobProcessor", "CheckResourceProcessor",
    "CancelResourceProcessor", "ReportResourcesProcessor", "ReportVersionProcessor",
    "NotifyJobStatusProcessor",
)  # fmt: skip
"""Requests that a site accepts from the server."""
JOB_COMMANDS = ("CheckStatusCommand", "AbortCommand", "AbortTaskCommand", "ByeCommand")
"""Commands that a site's job accepts."""
REPLACED = (
    (ConfigFactory, "search_config_format"),
    (Workspace, "_check_job_id"),
    (zip_utils, "_validate_zip_entries"),
    (CommandAgent, "aux_communication"),
)
"""The functions of NVFlare that are replaced.

Without one of them, a restriction would silently have no effect.
"""
ARRAYS = "NVFLARE_NP_DOWNLOAD_CHUNK_SIZE"
"""With 0, arrays travel inside a message.

Otherwise NVFlare sends references, and the receiver fetches the arrays with several requests.
"""
MAX_JOB_FILES, MAX_JOB_BYTES = 100, 64 * 2**20
"""Limits of an unpacked job. NVFlare unpacks every job before it checks it."""


def check_started(job_meta: Any, fl_ctx: Any) -> None:
    """Check a job's folder once more before it starts.

    A server can start a job that it never sent, from a folder that was already in the kit and that nobody
    checked.
    """
    from fedepd.deploy.policy import check_job_files

    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
    arguments = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
    # The process gets one of these two names, and its Python path is built from the other.
    for job_id in {arguments[JobProcessArgs.JOB_ID][1], job_meta.get(JobConstants.JOB_ID)}:
        check_job_files(Path(workspace.get_app_dir(job_id)))


class SiteJobs(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a site's jobs through this module."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        check_started(job_meta, fl_ctx)
        return guarded(super().get_command(job_meta, fl_ctx), "client-job")


class ServerJobs(ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts the server's jobs through this module."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        check_started(job_meta, fl_ctx)
        return guarded(super().get_command(job_meta, fl_ctx), "server-job")


def guarded(command: str, role: str) -> str:
    """NVFlare's command line, with this module in place of NVFlare's own."""
    own = f"-m {PROGRAMS[role]} "
    if command.count(own) != 1:
        raise RuntimeError(
            "this NVFlare does not start jobs as version 2.9 does; install the version that fedepd requires"
        )
    return command.replace(own, f"-P -m {MODULE} {role} ")


def close_doors(role: str) -> None:
    for owner, name in REPLACED:
        if not hasattr(owner, name):
            raise RuntimeError(f"this NVFlare has no '{name}'; install the version that fedepd requires")
    ConfigFactory.search_config_format = staticmethod(_exact_configuration)
    Workspace._check_job_id = staticmethod(_job_id)
    if role == "client":
        from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

        ClientRequestProcessors.request_processors = _only(
            ClientRequestProcessors.request_processors, REQUESTS
        )
        _unpack_small_jobs(zip_utils._validate_zip_entries)
    if role == "client-job":
        from nvflare.private.fed.client.admin_commands import AdminCommands

        AdminCommands.commands = _only(AdminCommands.commands, JOB_COMMANDS)
        CommandAgent.aux_communication = _from_the_server(CommandAgent.aux_communication)


def _from_the_server(answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``answer``, for requests of the server only. The answer goes to whom a request names as its origin."""

    def answer_the_server(agent: Any, request: Any) -> Any:
        origin = request.get_header(MessageHeaderKey.ORIGIN)
        if not isinstance(origin, str) or FQCN.split(origin)[0] != FQCN.ROOT_SERVER:
            return make_reply(ReturnCode.INVALID_REQUEST)
        return answer(agent, request)

    return answer_the_server


def _only(known: list[Any], wanted: tuple[str, ...]) -> list[Any]:
    kept = [each for each in known if type(each).__name__ in wanted]
    if len(kept) != len(wanted):
        raise RuntimeError(
            "this NVFlare does not have the commands of version 2.9; install the version that fedepd requires"
        )
    return kept


def _unpack_small_jobs(check: Callable[[ZipFile, str], None]) -> None:
    def check_size_too(archive: ZipFile, folder: str) -> None:
        # The sizes that the archive states are enough, because Python's reader returns no more bytes than
        # stated.
        parts = archive.infolist()
        if len(parts) > MAX_JOB_FILES or sum(part.file_size for part in parts) > MAX_JOB_BYTES:
            raise ValueError(
                f"the job has more than {MAX_JOB_FILES} files or {MAX_JOB_BYTES:,} bytes and is not unpacked"
            )
        check(archive, folder)

    zip_utils._validate_zip_entries = check_size_too


def _exact_configuration(
    path: str, search_dirs: list[str] | None = None, target_fmt: Any = None
) -> tuple[Any, str | None]:
    """Look for a file in the given folders and in their ``startup`` and ``local``.

    NVFlare's own function would search everything below, including the folders of jobs.
    """
    name = ConfigFactory.get_file_basename(path) + ".json"
    if target_fmt in (None, ConfigFormat.JSON):
        for folder in search_dirs or [os.path.dirname(path)]:
            for place in (folder, os.path.join(folder, "startup"), os.path.join(folder, "local")):
                file = os.path.join(place, name)
                if os.path.isfile(file) and not os.path.islink(file):
                    return ConfigFormat.JSON, file
    return None, None


def _job_id(job_id: object) -> str:
    if not isinstance(job_id, str) or not JOB.fullmatch(job_id):
        raise ValueError("the name of a job must be a UUID")
    return job_id


def main() -> None:
    role, *rest = sys.argv[1:]
    close_doors(role)
    os.environ[ARRAYS] = "0"
    sys.argv = [PROGRAMS[role], *rest]
    runpy.run_module(PROGRAMS[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
