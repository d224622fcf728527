"""A whole federation on this machine.

Server and sites are separate processes with mutual TLS, all stopped at the end.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fedepd.deploy.admin import wait_for_sites
from fedepd.deploy.kits import (
    Kit,
    launch_command,
    launch_environment,
    prepare_server,
    prepare_site,
    provision,
)


class Parties:
    """The server and the sites of a federation, as processes. Use it in a ``with`` statement."""

    def __init__(self, kits: Mapping[str, Path], run: Callable[[str], subprocess.Popen[bytes]]) -> None:
        """``kits``: by party, the admin's too. ``run`` starts the server or a site by its name."""
        self.kits, self.admin, self._run = dict(kits), kits["admin"], run
        self.sites = [name for name in kits if name not in ("server", "admin")]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name in ("server", *self.sites):
            self.start(name)
        return self

    def start(self, name: str) -> None:
        self._processes[name] = self._run(name)

    def wait(self, patience: float = 60.0) -> None:
        """Wait until every site is connected."""
        wait_for_sites(self.admin, len(self.sites), patience)

    def members(self, name: str) -> list[int]:
        """The live processes of one party: first its own, then its job workers."""
        own = self._processes[name].pid if name in self._processes else 0
        return sorted(processes_naming(self.kits[name]), key=lambda pid: (pid != own, pid))

    def kill(self, name: str) -> None:
        """Kill a party and all its workers at once, as if its machine had lost power."""
        for pid in self.members(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if name in self._processes:
            self._processes.pop(name).wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.kill(name)
        # A second pass finds a worker that was just being started when its parent died.
        time.sleep(0.2)
        for name in self.kits:
            self.kill(name)


class Loopback(Parties):
    """A federation with new kits. ``files`` maps each site's name to its client file."""

    def __init__(self, folder: Path, files: Mapping[str, Path], port: int | None = None) -> None:
        self.files = dict(files)
        super().__init__(provision(folder, list(files), "localhost", port or free_port(), {}), self._launch)

    def start_server(self) -> None:
        self.start("server")

    def start_site(self, site: str) -> None:
        self.start(site)

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        folder, kit = self.kits[name], self.prepare(name)
        with (folder / "console.log").open("ab") as log:
            return subprocess.Popen(
                launch_command(folder, kit.kind, kit.name), cwd=folder, env=self.environment(name),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def prepare(self, name: str) -> Kit:
        """Write the party's configuration."""
        folder = self.kits[name]
        return prepare_server(folder) if name == "server" else prepare_site(folder, self.files[name])

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a party's process."""
        return launch_environment()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def processes_naming(folder: Path) -> list[int]:
    """All other processes whose command line names ``folder``.

    NVFlare starts workers in sessions of their own, so they cannot be found as children. But each gets its
    kit's folder as an argument.
    """
    wanted = str(folder.resolve()).encode()
    running = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid()
    ]
    return [
        pid
        for pid in running
        if any(word == wanted or word.startswith(wanted + b"/") for word in command_line(pid))
    ]


def command_line(pid: int) -> list[bytes]:
    """The words of a process's command; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
