"""What a federation on one machine needs to know of the machine: a free port, and its own processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.deploy.loopback import free_port, processes_naming


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as server:
        server.bind(("localhost", free_port()))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes through /proc")
def test_processes_are_found_by_the_folder_that_they_name(tmp_path: Path) -> None:
    """The folder itself and what is in it count; a folder whose name only begins alike does not."""
    named = [tmp_path / "kit", tmp_path / "kit" / "startup", tmp_path / "kit-of-another"]
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    started = [
        subprocess.Popen([*wait, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for path in named
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()  # its command line is its own by now
        assert sorted(processes_naming(tmp_path / "kit")) == sorted(p.pid for p in started[:2])
    finally:
        for process in started:
            process.communicate()
    assert processes_naming(tmp_path / "kit") == []
