"""What a terminal shows: a bar on stderr while a run goes on, a table on stdout after it. rich is imported when something is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from fedepd.run import RunResult


def console(stderr: bool = False) -> Console:
    """Names and paths are shown as they are: brackets and colons in them mean nothing."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextmanager
def progress_bar(text: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Nothing where stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    place = console(stderr=True)
    shown = TextColumn("{task.description}", markup=False)
    columns = (shown, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=place, disable=quiet or not place.is_terminal, transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount: bar.advance(task, amount)


def print_result(result: RunResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fedepd.metrics import METRICS

    s = result.summary
    proxy = ", proxy features" if s["proxy_features"] else ""
    title = f"{s['method_label']} on {s['dataset']}{proxy}, seed {s['seed']} (test, %)"
    table = Table(title=title, caption=s["protocol"], box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("model", no_wrap=True)
    for column in ("round", *(name.removesuffix("_acc") for name in METRICS)):
        table.add_column(column, justify="right", no_wrap=True)
    for model, rows in s["metrics"].items():
        for averaged, scores in rows.items():
            numbers = [f"{100 * scores[m]:.2f}" if scores[m] == scores[m] else "-" for m in METRICS]
            table.add_row(f"{model}, {averaged.replace('_', ' ')}", str(s["best_rounds"][model]), *numbers)
    up, down = s["bytes_up"] / 2**20, s["bytes_down"] / 2**20
    identity = f"config {s['config_hash']}, weights {s['weights_sha256'][:12]}"
    kept = f"kept in {result.folder}; 'fedepd report {result.folder}' draws it" if result.folder else "not kept: add --out FOLDER"
    place = console()
    place.print(table)
    place.print(f"{s['seconds']:.1f} s, {up:.1f} MiB up, {down:.1f} MiB down, {identity}", soft_wrap=True)
    place.print(kept, soft_wrap=True)
