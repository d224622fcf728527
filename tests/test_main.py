"""``python -m fedepd`` is the command."""

from __future__ import annotations

import subprocess
import sys


def test_the_module_is_the_command() -> None:
    asked = [sys.executable, "-m", "fedepd", "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()[0].isdigit()


def test_its_exit_code_is_the_command_s() -> None:
    asked = [sys.executable, "-m", "fedepd", "rnu"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "did you mean 'run'?" in done.stderr


def test_its_end_does_not_wait_for_a_search_for_cycles() -> None:
    code = "import atexit, gc, fedepd.cli; atexit._run_exitfuncs(); print(gc.get_freeze_count() > 0)"
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n")
