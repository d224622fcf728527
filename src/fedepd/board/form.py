"""The form that starts a run: every setting of ``fedepd run``, with its help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedepd.board.pages import address, document, said
from fedepd.board.processes import word
from fedepd.errors import UnknownName
from fedepd.shown import html_text, shown

Json = dict[str, Any]
FIRST = "fedepd"
"""The method that an empty form begins with."""


def form_page(method: str, about: Json, token: str, name: str) -> str:
    """``about``: what ``settings.described`` gives."""
    methods = "".join(
        f"<option{' selected' if each == method else ''}>{html_text(each)}</option>"
        for each in about["methods"]
    )
    basic = "".join(
        [
            f'<label>Method<select name="method" data-go="/new?method=">{methods}</select>'
            "<small>another method has other settings: the form is made anew</small></label>",
            _text("name", name, "", "folder of the run, below this board's folder", required=True),
            _text("data", "", "synthetic", "a dataset (see 'fedepd data list') or an npz file"),
            _choice("preset", about["presets"], "default", "named settings of the method"),
        ]
    )
    groups = "".join(
        f"<details{' open' if place < 2 else ''}><summary>{html_text(group['title'])}</summary>"
        f'<fieldset class="fields">{"".join(map(_field, group["settings"]))}</fieldset></details>'
        for place, group in enumerate(about["groups"])
        if group["settings"]
    )
    return document(
        "New run",
        [
            said("What is left empty keeps its default. The run is a process of its own: 'fedepd run'."),
            '<form action="/start" method="post" id="new">',
            hidden(token),
            f'<fieldset class="fields">{basic}</fieldset>{groups}',
            '<p><button type="submit">Start</button></p></form>',
        ],
    )


def hidden(token: str) -> str:
    return f'<input type="hidden" name="form" value="{html_text(token)}">'


def button(action: str, run: str, word: str, token: str) -> str:
    """A form of one button."""
    return (
        f'<form action="{html_text(action)}" method="post">{hidden(token)}'
        f'<input type="hidden" name="run" value="{html_text(run)}"><button type="submit">{html_text(word)}'
        "</button></form>"
    )


def _field(setting: Json) -> str:
    name, choices = setting["name"], ["on", "off"] if setting["switch"] else setting["choices"]
    default = setting["default"]
    if setting["switch"]:
        default = "on" if default == "True" else "off"
    if choices:
        return _choice(name, choices, default, setting["help"])
    return _text(name, "", default, setting["help"])


def _text(name: str, value: str, default: str, help: str, required: bool = False) -> str:
    return (
        f'<label>{html_text(name)}<input name="{html_text(name)}" value="{html_text(value)}" '
        f'placeholder="{html_text(default)}" maxlength="300"{" required" if required else ""} '
        f'autocomplete="off"><small>{html_text(help)}</small></label>'
    )


def _choice(name: str, choices: list[str], default: str, help: str) -> str:
    options = "".join(f"<option>{html_text(each)}</option>" for each in choices)
    return (
        f'<label>{html_text(name)}<select name="{html_text(name)}"><option value="">default: '
        f"{html_text(default)}</option>{options}</select><small>{html_text(help)}</small></label>"
    )


def asked(sent: Mapping[str, str], about: Json) -> list[str]:
    """The options that were filled in, as words of a command. A name that is no setting is refused."""
    known = {setting["name"]: setting["switch"] for group in about["groups"] for setting in group["settings"]}
    known |= {"data": False, "preset": False}
    words = []
    for name, value in sent.items():
        if name in ("form", "name", "method") or not value.strip():
            continue
        if name not in known:
            raise UnknownName("setting", shown(name), list(known))
        words.append(word(name, value.strip(), known[name]))
    return words


def starting_page(name: str, failure: str) -> str:
    """Between the click and the first file."""
    text = failure or "The run is starting. This page goes on by itself once there is something to see."
    wait = "" if failure else f'<p id="wait" data-next="{address("/run", run=name)}"></p>'
    return document(shown(name), [said(text, warned=bool(failure)), wait])
