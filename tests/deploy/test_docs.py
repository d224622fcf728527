"""The quick start of docs/federation.md, typed line by line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.deploy.admin import wait_for_sites
from fedepd.deploy.loopback import free_port, processes_naming

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
FEDEPD = Path(sys.executable).with_name("fedepd")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FEDEPD.exists(), reason="the command 'fedepd' is not installed beside this Python"
    ),
    pytest.mark.skipif(
        not Path("/proc/self").exists(), reason="finds the processes it started through /proc"
    ),
]


def quick_start() -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split("Step by step", 1)[1]
    block = re.search(r"```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    lines = [line.split("#")[0].strip() for line in block[1].splitlines() if line.strip()]
    assert all(line.startswith("fedepd ") for line in lines)
    return lines


@pytest.mark.heavy
def test_the_quick_start_works_as_written(
    tmp_path: Path, quick_login: None, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(free_port())
    background = []
    said = {}
    try:
        for line in quick_start():
            words = [str(FEDEPD), *line.replace("8002", port).split()[1:]]
            if words[2] in ("start", "join"):
                with (tmp_path / "log").open("ab") as log:
                    background.append(
                        subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
                    )
                continue
            if words[2] == "status":
                wait_for_sites(tmp_path / "fed" / "admin", 3, 60)
            done = subprocess.run(
                words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=170
            )
            assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            said[words[2]] = done.stdout
    finally:
        for process in background:
            process.kill()
            process.wait()
        for pid in processes_naming(tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert said["status"].count(": connected") == 3
    assert re.search(
        r"round \d+/10", said["submit"]
    )  # fast rounds may pass between two looks; the digest below is that of all 10
    files = sorted(map(str, (tmp_path / "clients").glob("*/graph.npz")))
    assert main(["federation", "rehearse", *files, "--rounds", "10"]) == 0
    assert capsys.readouterr().out.split()[1] in said["submit"]
    assert (tmp_path / "runs" / "federated" / "report.html").exists()
