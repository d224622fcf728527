"""The board's addresses, and what each of them answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from importlib import resources, util
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fedepd.board import charts, live, pages, tables
from fedepd.board.actions import Actions
from fedepd.board.catalogue import Catalogue, Entry
from fedepd.board.guard import Guard, Secret
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.report.against import MAIN, Pair, points, sign
from fedepd.report.paired import FEWEST_PAIRS
from fedepd.report.runs import Group, by_dataset, group
from fedepd.report.tables import METRIC_WORDS, Table, summary
from fedepd.shown import shown, slug

MOST_COMPARED = 60
"""Most runs that are compared at a time: each is read whole."""
Answer = Callable[[Request], Response]


class Board:
    """What the pages need to know: the folder and the secret."""

    def __init__(self, catalogue: Catalogue, secret: Secret) -> None:
        self.catalogue, self.secret = catalogue, secret
        self.actions = Actions(catalogue, secret)
        self.streams = 0
        self.closing: live.Closing = live.never

    # --- pages ---

    def index(self, request: Request) -> Response:
        folder = shown(self.catalogue.root.name or "/", 120)
        return HTMLResponse(
            pages.list_page(self.catalogue.entries(), folder, self.actions.processes.failures())
        )

    def run(self, request: Request) -> Response:
        if starting := self.actions.starting(request.query_params.get("run", "")):
            return starting
        entry = self._asked(request)
        try:
            found, warnings, facts = self._run_parts(entry)
        except FedEPDError as mistake:
            return HTMLResponse(pages.refused_page(entry, shown(mistake, 600)))
        return HTMLResponse(pages.run_page(entry, found, facts, self.actions.buttons(entry), warnings))

    def _run_parts(self, entry: Entry) -> tuple[list[Table], list[str], list[tuple[str, str]]]:
        run = self.catalogue.run_of(entry)
        facts = [("method", entry.method), ("data", entry.data), ("seed", str(entry.seed))]
        if entry.state != "finished":
            return tables.before_the_end(run), [], facts
        facts.append(("scored round", str(run.summary["best_round"])))
        warnings = [shown(text, 600) for text in run.summary.get("warnings", [])]
        return tables.of_run(group([run])[0]), warnings, facts

    def compare(self, request: Request) -> Response:
        names, groups = self._compared(request)
        return HTMLResponse(pages.compare_page(names, compared_tables(groups), answers(groups)))

    def study(self, request: Request) -> Response:
        folder = request.query_params.get("folder", "")
        entries = self.catalogue.entries()
        if not any(each.study == folder for each in entries):
            raise BadData(f"there is no study '{shown(folder)}' here; go back to the list")
        return HTMLResponse(pages.study_page(entries, folder))

    # --- what the pages' script asks for ---

    def figures(self, request: Request) -> Response:
        try:
            if "compare" in request.query_params:
                found = charts.of_several(self._compared(request)[1])
            else:
                entry = self._asked(request)
                run = self.catalogue.run_of(entry)
                is_whole = entry.state == "finished"
                found = charts.of_run(group([run])[0]) if is_whole else charts.before_the_end(run)
        except FedEPDError as mistake:
            return JSONResponse({"figures": [], "why": shown(mistake, 600)})
        return JSONResponse({"figures": found})

    def table(self, request: Request) -> Response:
        wanted = request.query_params.get("table", "")
        for each in self._tables(request):
            if each.name == wanted:
                name = slug("-".join([wanted, request.query_params.get("run", "")]))
                plain = name.encode("ascii", "replace").decode()
                head = {"Content-Disposition": f'attachment; filename="{plain}.csv"'}
                return Response(tables.as_csv(each), media_type="text/csv; charset=utf-8", headers=head)
        raise BadData(f"there is no table '{shown(wanted)}' here; go back to the list")

    def _tables(self, request: Request) -> list[Table]:
        query = request.query_params
        if "run" in query:
            return self._run_parts(self._asked(request))[0]
        if "compare" in query:
            return compared_tables(self._compared(request)[1])
        entries = self.catalogue.entries()
        if "study" in query:
            return [tables.grid([each for each in entries if each.study == query["study"]])]
        return [tables.listing(entries)]

    async def events(self, request: Request) -> Response:
        if self.streams >= live.MOST_STREAMS:
            raise BadConfig("too many pages of this board are open; close some")
        query = request.query_params
        if "run" in query:
            source = live.rounds(self.catalogue, self._asked(request), last_seen(request), self.closing)
        elif "study" in query:
            source = live.study(self.catalogue, query["study"], self.closing)
        else:
            source = live.runs(self.catalogue, self.closing)
        return StreamingResponse(self._counted(source), media_type="text/event-stream")

    async def _counted(self, source: AsyncIterator[str]) -> AsyncIterator[str]:
        self.streams += 1
        try:
            async for each in source:
                yield each
        finally:
            self.streams -= 1

    # --- what was asked for ---

    def _asked(self, request: Request) -> Entry:
        return self.catalogue.entry(request.query_params.get("run", ""))

    def _compared(self, request: Request) -> tuple[list[str], list[Group]]:
        query = request.query_params
        names = list(dict.fromkeys([*query.getlist("run"), *query.getlist("compare")]))
        entries = self.catalogue.entries()
        if "study" in query:
            names += [
                each.id for each in entries if each.study == query["study"] and each.state == "finished"
            ]
        if not 2 <= len(names) <= MOST_COMPARED:
            raise BadConfig(f"{len(names)} runs are ticked; tick 2 to {MOST_COMPARED} finished ones")
        known = {each.id: each for each in entries}
        for name in names:
            if name not in known or known[name].state != "finished":
                raise BadData(f"'{shown(name)}' is not a finished run; go back to the list")
        return names, group([self.catalogue.run_of(known[name]) for name in names])


def last_seen(request: Request) -> int:
    """The last round that the browser has: what it says on its own after a cut, or what the page says."""
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    if not (given.isascii() and given.isdigit() and len(given) <= 12):
        raise BadConfig(f"'{shown(given)}' is not the number of a round; open the page again")
    return int(given)


def compared_tables(groups: list[Group]) -> list[Table]:
    told = tables.differences(groups)
    return [summary(groups), *([told] if told else [])]


def answers(groups: list[Group]) -> list[str]:
    """What can be told between the rows, in sentences."""
    out = []
    for block in by_dataset(groups):
        for other in block[1:]:
            found = Pair(other, block[0], "", "").by(MAIN)
            if found.n < FEWEST_PAIRS:
                out.append(
                    f"{other.label} against {block[0].label}: {points(found)} points of "
                    f"{METRIC_WORDS[MAIN]}. Whether that is chance takes {FEWEST_PAIRS} seeds to tell, and "
                    f"they share {found.n}."
                )
                continue
            verb = {1: "is ahead of", -1: "is behind", 0: "cannot be told from"}[sign(found)]
            out.append(
                f"{other.label} {verb} {block[0].label}: {points(found)} points of {METRIC_WORDS[MAIN]} "
                f"over {found.n} seeds."
            )
    return out or ["No two of these runs differ in anything but the seed, or share a dataset."]


def plotly_script() -> Path:
    """The script that the package plotly brings along. The package itself is not imported: it is large."""
    found = util.find_spec("plotly")
    path = Path(found.origin or "").parent / "package_data" / "plotly.min.js" if found else None
    if path is None or not path.is_file():
        raise BadConfig("'fedepd board' needs the package plotly; run: pip install 'fedepd[board]'")
    return path


def _asset(room: str, name: str, kind: str) -> Answer:
    content = resources.files(room).joinpath(name).read_text(encoding="utf-8")
    return lambda request: Response(content, media_type=kind)


def told(request: Request, mistake: Exception) -> Response:
    """A mistake as one sentence on a page."""
    return HTMLResponse(pages.mistake_page(shown(mistake, 600)), 404 if isinstance(mistake, BadData) else 400)


def make_app(board: Board) -> Guard:
    """The application, behind its guard."""
    script = plotly_script()
    kept = {"Cache-Control": "private, max-age=86400"}
    routes = [
        Route("/", board.index),
        Route("/run", board.run),
        Route("/compare", board.compare),
        Route("/study", board.study),
        Route("/figures", board.figures),
        Route("/table.csv", board.table),
        Route("/events", board.events),
        Route("/plotly.js", lambda _: FileResponse(script, media_type="text/javascript", headers=kept)),
        Route("/page.css", _asset("fedepd.report", "page.css", "text/css")),
        Route("/page.js", _asset("fedepd.report", "page.js", "text/javascript")),
        Route("/board.css", _asset("fedepd.board", "board.css", "text/css")),
        Route("/board.js", _asset("fedepd.board", "board.js", "text/javascript")),
        *board.actions.routes(),
    ]
    app = Starlette(routes=routes, exception_handlers={FedEPDError: told})
    return Guard(app, board.secret)
