"""How the four processes of a federation start: NVFlare's own programs, with some doors closed before they run.

``python -P -m fedepd.deploy.launch ROLE ...`` runs NVFlare's program of that role. Closed before, because NVFlare leaves it to the server
to say whether a site shall check a command, and looks for configuration in the folders of jobs too:

- configuration is read as JSON from the very folder it belongs to, never from a folder below, where a job's files are;
- a job is called by a UUID, never "local" or "startup", whose folder NVFlare would remove to make room for the job;
- a job is unpacked at a site only if it is small;
- a job is started only if its folder holds two configuration files, whoever put it there;
- a site knows no command but those that a run needs: no shell, no logging settings (they can name any function), no restart.

``-P`` keeps the kit's folder off Python's path: else a file ``torch.py`` there would be imported.
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
from nvflare.fuel.utils import zip_utils
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory

from fedepd.deploy.contents import JOB

MODULE = "fedepd.deploy.launch"
PROGRAMS = {
    "client": "nvflare.private.fed.app.client.client_train",
    "client-job": "nvflare.private.fed.app.client.worker_process",
    "server": "nvflare.private.fed.app.server.server_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
}
REQUESTS = (
    "ClientStatusProcessor", "ScopeInfoProcessor", "AbortAppProcessor", "AbortTaskProcessor", "DeployProcessor",
    "DeleteRunNumberProcessor", "StartJobProcessor", "CheckResourceProcessor", "CancelResourceProcessor",
    "ReportResourcesProcessor", "ReportVersionProcessor", "NotifyJobStatusProcessor",
)  # fmt: skip
"""What a server may ask of a site."""
JOB_COMMANDS = ("CheckStatusCommand", "AbortCommand", "AbortTaskCommand", "ByeCommand")
"""What may be asked of a site's job."""
REPLACED = (
    (ConfigFactory, "search_config_format"),
    (Workspace, "_check_job_id"),
    (zip_utils, "_validate_zip_entries"),
)
"""What is put in the place of NVFlare's own; in an NVFlare without it a door would stay open in silence."""
MAX_JOB_FILES, MAX_JOB_BYTES = 100, 64 * 2**20
"""Of an unpacked job; NVFlare unpacks whatever comes before it looks at it."""


def check_started(job_meta: Any, fl_ctx: Any) -> None:
    """A server can start a job that it never sent, of a folder that lay in the kit and that nobody has looked at."""
    from fedepd.deploy.policy import check_job_files

    workspace, arguments = (
        fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT),
        fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS),
    )
    # The process is told one name, and its Python path is made from the other.
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
    """NVFlare's command with this module in the place of NVFlare's own."""
    own = f"-m {PROGRAMS[role]} "
    if command.count(own) != 1:
        raise RuntimeError(
            "this NVFlare starts jobs in another way than 2.9; install the version that fedepd asks for"
        )
    return command.replace(own, f"-P -m {MODULE} {role} ")


def close_doors(role: str) -> None:
    for owner, name in REPLACED:
        if not hasattr(owner, name):
            raise RuntimeError(f"this NVFlare has no '{name}'; install the version that fedepd asks for")
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


def _only(known: list[Any], wanted: tuple[str, ...]) -> list[Any]:
    kept = [each for each in known if type(each).__name__ in wanted]
    if len(kept) != len(wanted):
        raise RuntimeError(
            "this NVFlare has other commands than 2.9; install the version that fedepd asks for"
        )
    return kept


def _unpack_small_jobs(check: Callable[[ZipFile, str], None]) -> None:
    def check_size_too(archive: ZipFile, folder: str) -> None:
        # By the sizes that the archive states: Python's reader gives no more bytes than stated.
        parts = archive.infolist()
        if len(parts) > MAX_JOB_FILES or sum(part.file_size for part in parts) > MAX_JOB_BYTES:
            raise ValueError(
                f"a job of more than {MAX_JOB_FILES} files or {MAX_JOB_BYTES:,} bytes is not unpacked"
            )
        check(archive, folder)

    zip_utils._validate_zip_entries = check_size_too


def _exact_configuration(
    path: str, search_dirs: list[str] | None = None, target_fmt: Any = None
) -> tuple[Any, str | None]:
    """In the given folder, or in its ``startup`` or ``local``; NVFlare would walk through everything below, jobs included."""
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
        raise ValueError("a job must be called by a UUID")
    return job_id


def main() -> None:
    role, *rest = sys.argv[1:]
    close_doors(role)
    sys.argv = [PROGRAMS[role], *rest]
    runpy.run_module(PROGRAMS[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
