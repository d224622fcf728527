"""``fedepd completion``: what a shell offers when a person presses the tab key.

The words are taken from the commands' own help, so a new option is known as soon as it is there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field

from fedepd.cli.console import say
from fedepd.cli.parser import Parser

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
ACTION = re.compile(r"^ {2,4}([a-z][a-z-]*)(?:  +|\n +)(.+)$", re.MULTILINE)
PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
"""A word that no shell reads as anything but a word."""
SHELLS = ("bash", "zsh", "fish")
BY_METHOD = ("run", "sweep")
"""Commands whose options depend on the method."""
METHODS = (*BY_METHOD, "compare", "tune")


@dataclass
class Words:
    """What may follow a command."""

    about: str
    actions: dict[str, Words] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


def completion(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd completion",
        allow_abbrev=False,
        description="Print a script that completes commands, options, methods and datasets. For bash: "
        "fedepd completion bash > ~/.local/share/bash-completion/completions/fedepd. For zsh, put it into a "
        "file and source it from ~/.zshrc. For fish: fedepd completion fish > "
        "~/.config/fish/completions/fedepd.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell to write for")
    shell = parser.parse(arguments).shell
    text = fish(known()) if shell == "fish" else bash(known(), zsh=shell == "zsh")
    say(*text.splitlines())
    return 0


def known() -> dict[str, Words]:
    """All commands and what may follow each."""
    from fedepd.cli.dispatch import COMMANDS
    from fedepd.methods import METHODS as REGISTERED
    from fedepd.reproduction.study.targets import target_names

    methods = plain(REGISTERED.names())
    out = {}
    for command, (about, _) in COMMANDS.items():
        text, words = help_of(command), Words(about)
        if "ACTION" in text.splitlines()[0]:
            for name, what in ACTION.findall(text):
                words.actions[name] = Words(what, options=options(help_of(command, name)))
        else:
            words.options = options(text)
        if command in BY_METHOD:
            every = (options(help_of(command, method)) for method in methods)
            words.options = list(dict.fromkeys([*words.options, *(each for some in every for each in some)]))
        if command in METHODS:
            words.names = methods
        elif command == "reproduce":
            words.names = plain(target_names())
        elif command == "completion":
            words.names = list(SHELLS)
        out[command] = words
    return out


def help_of(*words: str) -> str:
    """What ``fedepd WORDS --help`` prints. Empty if the command's extra is not installed."""
    from fedepd.cli.dispatch import main

    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        main([*words, "--help"])
    return text.getvalue() or "\n"


def options(text: str) -> list[str]:
    return list(dict.fromkeys(["--help", *OPTION.findall(text)]))


def plain(names: Iterable[str]) -> list[str]:
    return [name for name in names if PLAIN.fullmatch(name)]


def datasets() -> list[str]:
    from fedepd.datasets import DATASETS

    return plain(DATASETS)


def bash(words: dict[str, Words], zsh: bool = False) -> str:
    """A script for bash. zsh reads it too, through its own layer for such scripts."""
    cases = []
    for command, own in words.items():
        for action, under in own.actions.items():
            cases.append(f"    '{command} {action}') words='{' '.join(under.options)}' ;;")
        following = " ".join([*own.actions, *own.names, *([] if own.actions else own.options)])
        cases.append(f"    '{command} '*) words='{following}' ;;")
    head = "".join(f"autoload -U +X {each} && {each}\n" for each in ("compinit", "bashcompinit"))
    return f"""{head if zsh else ""}# Made by: fedepd completion {"zsh" if zsh else "bash"}
_fedepd() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=''
  if [ "$COMP_CWORD" = 1 ]; then
    words='{" ".join(words)} --help --version'
  elif [ "$before" = --data ]; then
    words='{" ".join(datasets())}'
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{chr(10).join(cases)}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fedepd fedepd"""


def fish(words: dict[str, Words]) -> str:
    """A script for fish, with a description of every command."""
    lines = ["# Made by: fedepd completion fish"]
    first = "__fish_use_subcommand"
    for command, own in words.items():
        seen = f"__fish_seen_subcommand_from {command}"
        lines.append(f"complete -c fedepd -n {first} -a {command} -d {quoted(own.about)}")
        none = f"{seen}; and not __fish_seen_subcommand_from {' '.join(own.actions)}"
        for action, under in own.actions.items():
            lines.append(f"complete -c fedepd -n {quoted(none)} -a {action} -d {quoted(under.about)}")
            both = f"{seen}; and __fish_seen_subcommand_from {action}"
            lines += [f"complete -c fedepd -n {quoted(both)} -l {each[2:]}" for each in under.options]
        lines += [f"complete -c fedepd -n {quoted(seen)} -a {name}" for name in own.names]
        if not own.actions:
            lines += [f"complete -c fedepd -n {quoted(seen)} -l {each[2:]}" for each in own.options]
    lines.append(f"complete -c fedepd -l data -r -a {quoted(' '.join(datasets()))}")
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A word for fish. In its single quotes only two characters mean anything."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
