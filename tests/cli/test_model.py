"""How a run ends on the command line: a signal, and the way to go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fedepd.cli.model import by_resuming, stoppable


def test_only_a_folder_with_a_run_can_be_resumed(tmp_path: Path) -> None:
    assert by_resuming(None) == ""
    assert by_resuming(tmp_path) == ""
    (tmp_path / "config.json").write_text("{}")
    assert by_resuming(tmp_path) == f"'fedepd resume {tmp_path}' continues the run"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_says_how_to_go_on(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """128 and the signal's number, as shells have it; afterwards the signals mean what they meant before."""
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stopped, stoppable(lambda: "do this"):
        os.kill(os.getpid(), number)
    assert stopped.value.code == code
    assert capsys.readouterr().err.endswith("stopped; do this\n")
    assert signal.getsignal(number) is before
