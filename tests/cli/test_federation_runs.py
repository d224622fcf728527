"""Runs of a federation on the command line: what is refused before the server is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.deploy import kits


def test_a_run_needs_sizes_before_and_a_submission_after(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    admin = kits.provision(tmp_path / "fed", ["a"], "localhost", 8002, {})["admin"]
    assert main(["federation", "submit", str(admin)]) == 2
    assert "add --features N --classes N" in capsys.readouterr().err
    for action in ("watch", "stop"):
        assert main(["federation", action, str(admin)]) == 2
        assert "nothing yet" in capsys.readouterr().err
    assert main(["federation", "fetch", str(admin), "-o", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()
