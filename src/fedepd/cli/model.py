"""``fedepd resume``, ``export`` and ``predict``, and how a long command stops and shows its result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedepd.cli.console import complain, console, progress_bar, say, say_json, say_table
from fedepd.cli.parser import Parser, add_checkpoint_option, add_shards_option
from fedepd.cli.point import add_aim_options
from fedepd.cli.subject import add_subject_options, subject_of
from fedepd.shown import plain, shown

if TYPE_CHECKING:
    from fedepd.runs.run import RunResult


def resume(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd resume",
        allow_abbrev=False,
        description="Finish an interrupted run. The result is the same as without the interruption.",
    )
    parser.add_argument("folder", metavar="RUN", help="the folder given to 'fedepd run --out'")
    add_data_options(parser)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of clients trained at the same time; results do not depend on it (default: 1)",
    )
    add_checkpoint_option(parser)
    add_shards_option(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    values = parser.parse(arguments)
    from fedepd.runs.resume import is_finished, read_config
    from fedepd.runs.resume import resume as finish

    folder = Path(values.folder)
    if is_finished(folder):
        say(f"the run in '{folder}' is already finished")
        return 0
    config = read_config(folder)
    title = f"{config['method']} in {folder}"
    with (
        stoppable(lambda: by_resuming(folder)),
        progress_bar(title, config["rounds"], values.quiet) as advance,
    ):
        done = 0

        def watch(round: int) -> None:
            nonlocal done
            advance(round - done)
            done = round

        result = finish(
            folder, values.data, workers=values.workers, shards=values.shards, data_dir=values.data_dir,
            on_round=lambda each: watch(each.number), checkpoint_every=values.checkpoint_every,
        )  # fmt: skip
    return show_result(result, values.json)


def add_data_options(parser: Parser) -> None:
    parser.add_argument(
        "--data",
        default=None,
        metavar="FILE.npz|FOLDER",
        help="where the run's data are now, if they were moved",
    )
    parser.add_argument(
        "--data-dir", default=None, metavar="FOLDER", help="where the datasets are now, if they were moved"
    )


# --- export and predict -------------------------------------------------------------------------------------


def export(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd export",
        allow_abbrev=False,
        description="Make a model folder with a model card from a finished run.",
    )
    parser.add_argument("folder", metavar="RUN", help="the folder given to 'fedepd run --out'")
    parser.add_argument("-o", "--out", required=True, metavar="MODEL", help="new folder for the model")
    parser.add_argument(
        "--distil",
        action="store_true",
        help="write a model that was trained on predicted classes only; it tells less about the training "
        "nodes and scores lower (takes three times as long as the run)",
    )
    parser.add_argument(
        "--client",
        default=None,
        metavar="NAME|N",
        help="write the personal model of this client instead, measured on its own nodes (if the method also "
        "has a global model, the first time takes as long as the run)",
    )
    parser.add_argument(
        "--adapted",
        action="store_true",
        help="with --client: the model of all clients as this client has adapted it, in a run with --adapt",
    )
    add_aim_options(parser)
    add_data_options(parser)
    values = parser.parse(arguments)
    from fedepd.model.aim import aim_of_words
    from fedepd.model.export import export as write_model
    from fedepd.model.pointed import point_in_words

    aim = aim_of_words(values.cost, values.recall, values.alerts, values.per)
    own = {"client": values.client, "adapted": values.adapted, "aim": aim}
    out = write_model(values.folder, values.out, values.data, values.data_dir, values.distil, **own)
    for line in point_in_words(out):
        say(line)
    say(f"model: {out}; model card: {out / 'README.md'}; to use it: 'fedepd predict {out} --data FILE.npz'")
    return 0


def predict(arguments: list[str]) -> int:
    values = _predict_parser().parse(arguments)
    from fedepd.model.model import as_csv, load_model, write_predictions
    from fedepd.model.subject import read_ids

    ids = None if values.ids is None else read_ids(values.ids)
    model = load_model(values.model)
    subject = subject_of(values, model)
    predictions = model.predict(subject.graph, values.abstain_below)
    if ids is not None or len(subject.asked) < subject.graph.num_nodes:
        predictions = predictions.of(subject.asked if ids is None else ids)
    if values.why is not None:
        from fedepd.model.explain import Explainer

        predictions = Explainer(model, subject.graph).with_reasons(predictions, values.why)
    if values.out is None:
        say_table(as_csv(predictions, plain))
    else:
        write_predictions(predictions, Path(values.out))
        unsure = predictions.labels.count(None)
        without = f", {unsure:,} of them without a label" if unsure else ""
        say(f"{len(predictions.node_ids):,} nodes in {values.out}{without}")
    return 0


def _predict_parser() -> Parser:
    parser = Parser(
        prog="fedepd predict",
        allow_abbrev=False,
        description="Predict labels and calibrated probabilities for the nodes of a graph.",
    )
    parser.add_argument("model", metavar="MODEL", help="a folder made by 'fedepd export'")
    add_subject_options(parser)
    parser.add_argument(
        "--ids",
        default=None,
        metavar="A,B|@FILE",
        help="predict only these nodes, named here or one per line in a file; the whole graph is still used",
    )
    parser.add_argument(
        "--why",
        type=int,
        default=None,
        metavar="N",
        help="add a column with the first reasons of the N nodes to look at first: alerts by rank; without "
        "an operating point, the highest probabilities of a class other than the most frequent one",
    )
    parser.add_argument(
        "--abstain-below",
        type=float,
        default=0.0,
        metavar="P",
        help="give no label where the probability of the likeliest class is below P (default: 0)",
    )
    parser.add_argument(
        "-o",
        "--out",
        default=None,
        metavar="FILE",
        help="file to write, .csv, .parquet or .jsonl (default: print CSV)",
    )
    return parser


# --- how runs end -------------------------------------------------------------------------------------------


def by_resuming(folder: Path | None) -> str:
    """How to continue a run; empty if there is nothing to continue."""
    from fedepd.runs.folder import is_begun

    return f"'fedepd resume {folder}' continues the run" if folder is not None and is_begun(folder) else ""


@contextmanager
def stoppable(how_to_continue: Callable[[], str]) -> Iterator[None]:
    """Let SIGINT and SIGTERM end a run at once, with exit codes 130 and 143. Files on disk stay whole.

    ``how_to_continue`` is called then, and its text is printed if it is not empty.
    """

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit:
        hint = how_to_continue()
        complain(f"stopped; {hint}" if hint else "stopped")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_result(result: RunResult, as_json: bool) -> int:
    said = [result.summary["one_class"]] if "one_class" in result.summary else []
    for warning in [*said, *result.summary["warnings"]]:
        complain(f"warning: {warning}")
    if as_json:
        say_json(result.summary)
    else:
        _print_result(result)
    return 0


def _print_result(result: RunResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fedepd.metrics import METRICS

    s = result.summary
    proxy = ", proxy features" if s["proxy_features"] else ""
    title = f"{shown(s['method_label'])} on {shown(s['dataset'])}{proxy}, seed {s['seed']} (test, %)"
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
    kept = "not saved; add --out FOLDER to save a run"
    if result.folder:
        kept = f"saved in {result.folder}; 'fedepd report {result.folder}' makes a page of it"
    place = console()
    place.print(table)
    if "adapted" in s:
        from fedepd.runs.adaptation import in_words

        place.print(in_words(s["adapted"]), soft_wrap=True)
    place.print(f"{s['seconds']:.1f} s, {up:.1f} MiB up, {down:.1f} MiB down, {identity}", soft_wrap=True)
    place.print(kept, soft_wrap=True)
