"""How a site leaves a federation: its processes end, and its state is removed if the owner wants it.

Choice: the processes are found by their command lines and not by a noted number. A number outlives its
process, and may then be another's. A command line says which program runs from which kit.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from fedepd.deploy.launch import MODULE
from fedepd.deploy.loopback import command_line, processes_naming
from fedepd.deploy.taken import ANSWERS, runs_in
from fedepd.errors import BadConfig
from fedepd.shown import shown

ROLES = ("client", "client-job")
PATIENCE = 20.0
"""Seconds that a process has to end."""


def site_processes(kit: Path) -> list[int]:
    """The processes of the site that runs from a kit, itself first, then its workers.

    Each runs our own program in one of a site's roles, from this kit, and belongs to this user.
    """
    if not Path("/proc/self").exists():
        raise BadConfig("this system does not say what its processes run; stop the site where it was started")
    found = {pid: _role(pid) for pid in processes_naming(kit) if _owner(pid) == os.getuid()}
    return sorted((pid for pid, role in found.items() if role), key=lambda pid: (found[pid] != "client", pid))


def _role(pid: int) -> str:
    """What our program does in this process; empty if it is another program, or another part of it."""
    words = command_line(pid)
    wanted = [MODULE.encode(), b"-m"]
    at = words.index(wanted[0]) if wanted[0] in words else 0
    if not at or words[at - 1] != wanted[1] or at + 1 >= len(words):
        return ""
    role = words[at + 1].decode(errors="replace")
    return role if role in ROLES else ""


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def end_site(kit: Path, patience: float = PATIENCE) -> int:
    """Ask the site's processes to end, and wait until they have. Returns how many there were.

    Its files stay whole whenever it ends. To the server it is a site that was lost, and the run goes on
    with the others if they are enough.
    """
    asked: set[int] = set()
    deadline = time.monotonic() + patience
    while running := site_processes(kit):
        if time.monotonic() > deadline:
            raise BadConfig(
                f"the site's process {running[0]} does not end; stop it with 'kill -9 {running[0]}', then "
                "leave again"
            )
        for pid in running:
            if pid not in asked:
                _ask_to_end(pid)
        asked.update(running)
        time.sleep(0.1)
    return len(asked)


def _ask_to_end(pid: int) -> None:
    """Signal a process that is still one of ours. The handle stays with it, whoever gets its number next."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _role(pid):
                signal.pidfd_send_signal(handle, signal.SIGTERM)
        finally:
            os.close(handle)


def remove_state(kit: Path) -> list[str]:
    """Remove what the site keeps of its runs, models included. Returns the names of the runs.

    Choice: the books in ``answers`` stay. They hold no model, but what the site has answered so far, and
    keep a server from asking the same nodes again in another way after the site has joined again.
    """
    runs = runs_in(kit)
    for run in runs:
        try:
            shutil.rmtree(kit / "state" / run)
        except OSError as cause:
            raise BadConfig(
                f"cannot remove '{shown(kit / 'state' / run, 300)}' ({cause.strerror}); check its permissions"
            ) from cause
    return runs


def books(kit: Path) -> Path:
    """Where the site's books of answers are."""
    return kit / "state" / ANSWERS
