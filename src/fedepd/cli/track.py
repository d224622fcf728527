"""``fedepd track``: finished runs for TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

from pathlib import Path

from fedepd.cli.console import mention, say
from fedepd.cli.parser import Parser
from fedepd.shown import listed


def track(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd track",
        allow_abbrev=False,
        description="Send finished runs to a tracker: settings, every round, test scores, figures. With "
        "--track, 'fedepd run', 'compare' and 'sweep' do it while they train.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a run folder, or a folder of run folders")
    parser.add_argument(
        "--to",
        required=True,
        metavar="TRACKER",
        help="tensorboard:DIR, mlflow:URI (such as mlflow:sqlite:///m.db), wandb or wandb:PROJECT (wandb "
        "writes files only, unless $WANDB_MODE says otherwise)",
    )
    values = parser.parse(arguments)
    from fedepd.report.runs import read_runs, unfinished
    from fedepd.trackers.follow import send
    from fedepd.trackers.target import tracker_of, without_password

    folder = Path(values.folder)
    tracker_of(values.to)  # a mistake in it is said before all runs are read
    runs, left_out = read_runs(folder), unfinished(folder)
    sent = send(values.to, folder, runs)
    if left_out:
        mention(f"note: unfinished runs were left out: {listed([each.name for each in left_out])}")
    say(f"{sent} {'run' if sent == 1 else 'runs'} sent to {without_password(values.to)}")
    return 0
