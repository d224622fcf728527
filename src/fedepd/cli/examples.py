"""``fedepd examples``: tables to try the other commands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedepd.cli.console import say
from fedepd.cli.parser import Parser
from fedepd.errors import BadConfig, UnknownName


class Example(NamedTuple):
    text: str
    next: str
    """What to type, once the files are there."""
    made: Callable[[], tuple[Mapping[str, str], Callable[[Path, int], None]]]
    """The files, each with what it holds, and what writes them into a folder from a seed."""


def _bank() -> tuple[Mapping[str, str], Callable[[Path, int], None]]:
    from fedepd.datasets.example_bank import FILES, write_bank

    return FILES, write_bank


EXAMPLES = {
    "bank": Example(
        "a bank's accounts and transfers with rare kinds of fraud, and a later month; docs/tutorial-bank.md",
        "fedepd data import --nodes {0}/accounts.csv --edges {0}/transfers.csv --id account_id --label fraud "
        "--owner branch --scale --one-hot --dates --impute median --unknown-ends drop --leave-out note "
        "-o bank.npz",
        _bank,
    )
}


def examples(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd examples",
        allow_abbrev=False,
        description="Write tables to try the other commands on. Without a name, list what there is.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"an example: {', '.join(EXAMPLES)}")
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="new folder for its files")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other tables (default: 0)")
    values = parser.parse(arguments)
    if values.name is None:
        say(*(f"{name}: {example.text}" for name, example in EXAMPLES.items()))
        return 0
    if values.name not in EXAMPLES:
        raise UnknownName("example", values.name, EXAMPLES)
    if values.folder is None:
        raise BadConfig(
            f"no folder is given for the example '{values.name}'; add one, as in "
            f"'fedepd examples {values.name} {values.name}'"
        )
    if not 0 <= values.seed < 2**31:
        raise BadConfig(f"--seed is {values.seed}; give 0 to {2**31 - 1}")
    _write(EXAMPLES[values.name], Path(values.folder), values.seed)
    return 0


def _write(example: Example, folder: Path, seed: int) -> None:
    from fedepd.folders import check_new_folder, new_folder

    files, write = example.made()
    check_new_folder(folder)
    with new_folder(folder, files):
        write(folder, seed)
    width = max(map(len, files))
    say(*(f"{folder / name!s:<{len(str(folder)) + 1 + width}}  {text}" for name, text in files.items()))
    say(f"next: {example.next.format(folder)}")
