"""What reaches a terminal, whatever was given to the functions that print."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from fedepd.cli import console as cli_print
from fedepd.cli import main
from fedepd.cli.console import complain, console, mention, progress_bar, say, say_json, say_table
from hostile_names import ALL, PAYLOADS, cases, check_lines

pytestmark = pytest.mark.hostile
every = pytest.mark.parametrize("text", cases(ALL))


def framed(text: str) -> Table:
    table = Table("name", text, title=text, caption=text)
    table.add_row(text, "end")
    return table


def styled(text: str) -> Text:
    return Text(f"it is {text}", style="bold")


PRINTERS: dict[str, Callable[[str], None]] = {
    "say": lambda text: say(f"name: {text}"),
    "complain": lambda text: complain(f"there is no '{text}'; give another"),
    "mention": lambda text: mention(f"1/2 {text}"),
    "console": lambda text: console().print(f"name: {text}"),
    "console, no wrap": lambda text: console().print(f"name: {text}", soft_wrap=True),
    "console, text": lambda text: console().print(styled(text.replace("\n", " "))),
    "table": lambda text: console().print(framed(text)),
}


@every
@pytest.mark.parametrize("printer", PRINTERS.values(), ids=PRINTERS)
def test_nothing_steers_the_terminal(
    printer: Callable[[str], None], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printer(text)
    said = "".join(capsys.readouterr())
    check_lines(said)
    assert said.strip()


@every
def test_a_line_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for printer in ("say", "complain", "mention"):
        PRINTERS[printer](text)
        assert "".join(capsys.readouterr()).count("\n") == 1


@every
def test_json_is_ascii_and_keeps_the_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"name": text, text: 1})
    said = capsys.readouterr().out
    assert said.isascii()
    check_lines(said)
    assert json.loads(said) == {"name": text, text: 1}


def test_a_table_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say_table("a,b\n\x1b[2J,c\n")
    assert capsys.readouterr().out == "a,b\n?[2J,c\n"


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_title_of_a_progress_display(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal rich moves the cursor itself; what is left between its own escapes is the title."""
    stream = io.StringIO()
    terminal = console()
    terminal.file, terminal._force_terminal = stream, True
    monkeypatch.setattr(cli_print, "console", lambda stderr: terminal)
    with progress_bar(PAYLOADS[name], 3, False) as advance:
        advance(1)
    said = stream.getvalue()
    assert said
    for part in (
        "]0;owned\x07",
        "\x1b[H",
        "\x9b",
        "\x1b]",
        "\x07",
        "\b",
        "\x00",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ud800",
        "x" * 81,
    ):
        assert part not in said


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("channel", ["command", "method", "option", "data", "folder", "action", "target"])
def test_a_mistake_is_one_line_of_bounded_length(
    channel: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAYLOADS[name].replace("\x00", "\x01")  # no argument of a process holds a null
    arguments: dict[str, list[str]] = {
        "command": [f"x{text}"],
        "method": ["run", f"x{text}"],
        "option": ["run", "fedavg", f"--x{text}"],
        "data": ["data", "show", f"x{text}"],
        "folder": ["report", f"x{text}"],
        "action": ["data", f"x{text}"],
        "target": ["reproduce", f"x{text}"],
    }
    assert main(arguments[channel]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fedepd: ")
    assert err.count("\n") == 1
    assert len(err) <= 2010
    check_lines(err)
    if channel in ("command", "method", "option", "action", "target") and len(text) > 100:
        assert text[:81] not in err
        assert "...'" in err


def test_a_terminal_of_few_characters_gets_no_traceback(tmp_path: Any) -> None:
    code = "import sys; from fedepd.cli.dispatch import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "data", "list", "--data-dir", str(tmp_path)]
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "欺诈-é-–.npz").write_bytes(b"")
    done = subprocess.run(
        command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert rb"\u6b3a" in done.stdout
