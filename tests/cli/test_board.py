"""``fedepd board`` from the command line: it prints its address, answers, and ends on Ctrl-C."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fedepd.cli import main

pytest.importorskip("starlette", reason="needs the extra 'board'")
pytest.importorskip("uvicorn", reason="needs the extra 'board'")
pytest.importorskip("plotly", reason="needs the extra 'board'")


def test_it_answers_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedepd", "board", str(tmp_path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as board:
        assert board.stdout is not None
        assert board.stderr is not None
        address = urlsplit(board.stdout.readline().removeprefix("board: ").strip())
        assert address.hostname == "127.0.0.1"
        wire = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=30)
        wire.request("GET", "/")
        assert wire.getresponse().status == 403
        wire.close()
        wire.request("GET", f"/?{address.query}")
        answer = wire.getresponse()
        cookie = (answer.getheader("set-cookie") or "").split(";")[0]
        assert answer.status == 303
        wire.close()
        wire.request("GET", "/events", headers={"Cookie": cookie})
        assert wire.getresponse().status == 200  # an open stream does not keep the board alive
        board.send_signal(signal.SIGINT)
        assert board.wait(30) == 0
        wire.close()
        assert board.stderr.read() == ""


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(tmp_path / "nothing"), "--no-browser"]) == 2
    assert (
        capsys.readouterr().err
        == f"fedepd: '{tmp_path / 'nothing'}' is not a folder; name one that holds runs\n"
    )
    assert main(["board", str(tmp_path), "--port", "70000", "--no-browser"]) == 2
    assert "--port is 70000" in capsys.readouterr().err
