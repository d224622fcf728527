"""Runs that the board starts: each is ``fedepd run`` or ``fedepd resume`` in a process of its own.

A command is a list of words and never a line for a shell. Only a process that the board started is stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import fedepd.runs.folder as run_folder
from fedepd.errors import BadConfig
from fedepd.shown import sentence, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", re.ASCII)
"""What a new run may be called. It is the name of its folder."""
LONGEST = 300
"""Most characters of a value."""
MOST = 4
"""Choice: runs at a time that the board starts. Each takes a core; more would only take turns."""
PATIENCE = 20.0
"""Seconds that a run has to end after it was told to."""


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    words: IO[bytes]
    """What it said on stderr."""
    told: bool = False
    """Whether it was asked to end."""

    def said(self) -> str:
        """The end of it, as one sentence."""
        size = os.fstat(self.words.fileno()).st_size
        tail = os.pread(self.words.fileno(), 2000, max(0, size - 2000))
        return sentence(tail.decode("utf-8", "replace").strip(), 600)


class Processes:
    """What the board has started below its folder."""

    def __init__(self, root: Path) -> None:
        self._root, self._started, self._lock = root, dict[str, Started](), threading.Lock()

    def start(self, name: str, method: str, options: Sequence[str]) -> None:
        """Begin a run in the folder ``name``. ``options``: words of a command, which ``word`` made."""
        if not NAME.fullmatch(name):
            raise BadConfig(
                f"'{shown(name)}' cannot be the name of a run; use letters, digits, '_', '.' and '-'"
            )
        if os.path.lexists(self._root / name):
            raise BadConfig(f"there is '{name}' in this folder already; give the run another name")
        self._begin(name, ["run", method, f"--out={self._root / name}", "--quiet", *options])

    def resume(self, name: str) -> None:
        """Go on with a run that stopped. Its process may end a little later than it lets go of the run."""
        if self.is_ending(name):
            with suppress(subprocess.TimeoutExpired):
                self._started[name].process.wait(PATIENCE)
        self._begin(name, ["resume", str(self._root / name), "--quiet"])

    def _begin(self, name: str, words: list[str]) -> None:
        with self._lock:
            if self.is_ours(name):
                raise BadConfig(f"'{shown(name)}' is running already; stop it first")
            if sum(self.is_ours(each) for each in self._started) >= MOST:
                raise BadConfig(f"{MOST} runs of this board are running; wait for one, or stop one")
            if before := self._started.pop(name, None):  # the same run, which has ended
                before.words.close()
            said = tempfile.TemporaryFile()  # noqa: SIM115 (it is open as long as the process is known)
            self._started[name] = Started(
                subprocess.Popen(
                    [sys.executable, "-m", "fedepd", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,  # Ctrl-C is for the board; it passes the word on
                ),
                said,
            )

    def is_ours(self, name: str) -> bool:
        """Whether the board started the run and it goes on."""
        return name in self._started and self._started[name].process.poll() is None

    def is_ending(self, name: str) -> bool:
        """Whether the run was asked to end, and its process has not yet."""
        return self.is_ours(name) and self._started[name].told

    def is_starting(self, name: str) -> bool:
        """Whether the run was started and has written nothing yet."""
        return self.is_ours(name) and not run_folder.is_begun(self._root / name)

    def failure(self, name: str) -> str:
        """Why a run that the board started has ended early; empty if it has not."""
        found = self._started.get(name)
        if found is None or found.process.poll() in (None, 0, 128 + signal.SIGINT, -signal.SIGINT):
            return ""
        return found.said() or f"it ended with exit code {found.process.returncode}"

    def failures(self) -> dict[str, str]:
        """All of them, by name."""
        return {name: why for name in list(self._started) if (why := self.failure(name))}

    def stop(self, name: str) -> None:
        """Ask a run to end. Its rounds are kept."""
        if not self.is_ours(name):
            raise BadConfig(f"this board did not start '{shown(name)}'; stop it where it was started")
        self._started[name].told = True
        self._started[name].process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Ask all to end, and wait for them. Who does not hear is killed; that run can be resumed, too."""
        running = [each.process for name, each in self._started.items() if self.is_ours(name)]
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            if process.poll() is None:
                process.kill()
                process.wait()
        for each in self._started.values():
            each.words.close()


def word(option: str, value: str, is_switch: bool = False) -> str:
    """One word of a command. A value can never be taken for an option, because it stands behind '='."""
    flag = option.replace("_", "-")
    if len(value) > LONGEST or not value.isprintable():
        raise BadConfig(f"{option} is '{shown(value)}'; give at most {LONGEST} printable characters")
    if not is_switch:
        return f"--{flag}={value}"
    if value not in ("on", "off"):
        raise BadConfig(f"{option} is '{shown(value)}'; choose on or off")
    return f"--{flag}" if value == "on" else f"--no-{flag}"
