"""``fedepd explain``: which features and neighbours moved a model's decisions."""

from __future__ import annotations

from pathlib import Path

from fedepd.cli.console import complain, say, say_json
from fedepd.cli.parser import Parser
from fedepd.cli.subject import add_subject_options, subject_of
from fedepd.errors import BadConfig


def explain(arguments: list[str]) -> int:
    values = _parser().parse(arguments)
    if (values.ids is None) == (values.alerts is None):
        raise BadConfig("say which nodes to explain, either with --ids or with --alerts N")
    out = None if values.out is None else Path(values.out)
    if out is not None and out.suffix not in (".html", ".json"):
        raise BadConfig(f"cannot tell the format of '{values.out}'; give a name that ends in .html or .json")
    import torch

    from fedepd.files import write_json
    from fedepd.model.explain import Explainer
    from fedepd.model.explain_page import render
    from fedepd.model.gnnexplainer import MaskExplainer
    from fedepd.model.model import load_model
    from fedepd.model.subject import read_ids
    from fedepd.report.document import write_page

    torch.set_num_threads(1)
    ids = None if values.ids is None else read_ids(values.ids)
    model = load_model(values.model)
    subject = subject_of(values, model)
    explainer = (MaskExplainer if values.by == MaskExplainer.by else Explainer)(model, subject.graph)
    label = None if values.label is None else explainer.class_number(values.label)
    if ids is None:
        chosen = [*explainer.alerts(values.alerts, values.label, subject.asked)]
        cases = [explainer.case(node, each) for node, each in chosen]
    else:
        explainer.predictions.of(ids)  # all are there, before the first is explained
        cases = [explainer.case(node, label) for node in ids]
    if ids is None and model.operating is not None and len(cases) < values.alerts:
        complain(f"note: the model's operating point alerts {len(cases):,} nodes, so these are explained")
    content = [case.as_json() for case in cases]
    if out is not None and out.suffix == ".html":
        write_page(out, render(cases, model, subject.graph.name))
    elif out is not None:
        write_json(out, content)
    if values.json:
        say_json(content)
    elif out is None:
        say(*(line for case in cases for line in case.sentences()))
    else:
        say(f"{len(cases):,} nodes explained in {out}")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="fedepd explain",
        allow_abbrev=False,
        description="Say which features and which neighbours moved a model's decisions about some nodes.",
    )
    parser.add_argument("model", metavar="MODEL", help="a folder made by 'fedepd export'")
    add_subject_options(parser)
    parser.add_argument(
        "--ids", default=None, metavar="A,B|@FILE", help="the nodes, named here or one per line in a file"
    )
    parser.add_argument(
        "--alerts",
        type=int,
        default=None,
        metavar="N",
        help="instead of --ids: the first N alerts of the model's operating point; without a point, the N "
        "nodes with the highest probability of a class other than the most frequent one",
    )
    parser.add_argument(
        "--class",
        dest="label",
        default=None,
        metavar="NAME",
        help="explain the probability of this class; with --alerts, choose the nodes by it (default: what "
        "the model calls the node)",
    )
    parser.add_argument(
        "--by",
        choices=["gradients", "gnnexplainer"],
        default="gradients",
        help="how reasons are found: integrated gradients, whose contributions add up, or PyG's "
        "GNNExplainer, whose importances from 0 to 1 do not, for models of gcn and sage (default: gradients)",
    )
    parser.add_argument(
        "-o", "--out", default=None, metavar="FILE", help="page or file to write, .html or .json"
    )
    parser.add_argument("--json", action="store_true", help="print only one JSON list")
    return parser
