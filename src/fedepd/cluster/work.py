"""What a worker of a cluster does: one job, in a process of its own, and the files that it leaves.

A job travels as JSON and comes back as the bytes of its files. The process ends when the worker ends, because
it then reads the end of its input. ``python -m fedepd.cluster.work`` is that process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from fedepd.errors import BadConfig, FedEPDError
from fedepd.files import parse_json, regular_content
from fedepd.runs.jobs import Job
from fedepd.shown import shown

KINDS = {
    "run": ("fedepd.runs.jobs", "Job"),
    "cell": ("fedepd.tune.cells", "Cell"),
    "training": ("fedepd.privacy.elsewhere", "TrainingJob"),
}
"""The jobs that may travel. No other class is ever imported by a worker."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MOST_FILES, MOST_BYTES = 5000, 2**31
_running: set[subprocess.Popen[bytes]] = set()
Files = dict[str, bytes]
"""Relative path -> content. A job whose result is one file has the empty path."""


def as_message(job: Job, graph_sha256: str, shared: bool) -> str:
    """A job as text. ``graph_sha256`` is that of the graph here, and a worker with another one refuses."""
    kind = next(kind for kind, (_, name) in KINDS.items() if name == type(job).__name__)
    values = {**asdict(job), "out": str(job.out.absolute())}
    about = {"kind": kind, "graph": graph_sha256, "shared": shared, "version": versions()}
    return json.dumps({**about, "job": values})


def versions() -> dict[str, str]:
    """What must be the same on all machines."""
    return {package: version(package) for package in ("fedepd", "torch")}


def work_there(message: str) -> tuple[str, Files]:
    """At the worker: do the job in a process of its own. Returns why it failed, and the files it made."""
    with tempfile.TemporaryDirectory(prefix="fedepd-job-") as folder:
        place = Path(folder)
        command = [sys.executable, "-m", "fedepd.cluster.work", str(place / "result")]
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said) as process,
        ):
            assert process.stdin is not None
            _running.add(process)
            try:
                process.stdin.write(message.encode() + b"\n")
                process.stdin.flush()
                process.wait()  # its input stays open: where it ends, the process ends
            finally:
                _running.discard(process)
                process.kill()
            said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
            last = said.read()
        if process.returncode == 0:
            content = parse_json(message, "the job")
            return "", {} if content["shared"] else packed(place / "result")
        tail = last.decode("utf-8", "replace").strip()
        ended = f"its process ended with code {process.returncode}"
        return shown(tail.splitlines()[-1] if tail else ended, 2000), {}


def stop_all() -> None:
    """End the jobs that run here."""
    for process in list(_running):
        process.kill()


def do(message: str, place: Path) -> None:
    """In the job's own process: check what came, and work."""
    content = parse_json(message, "the job")
    if content["version"] != versions():
        raise BadConfig(
            f"this worker has {versions()}, and the sender {content['version']}; install the same versions"
        )
    values, shared = content["job"], content["shared"]
    module, name = KINDS[content["kind"]]
    out = Path(values["out"]) if shared else place
    job: Job = getattr(import_module(module), name)(**{**values, "out": out, "notes": tuple(values["notes"])})
    check_graph(job, content["graph"])
    from fedepd.folders import claimed

    with claimed(job.lock):
        if not job.is_finished:
            job.work()


def check_graph(job: Job, sha256: str) -> None:
    from fedepd.datasets import graph_sha256, load

    if graph_sha256(load(job.data, job.data_dir)) != sha256:
        raise BadConfig(
            f"'{shown(job.data)}' is another graph on this worker than where the job comes from; "
            "give all machines the same data folder"
        )


def packed(result: Path) -> Files:
    """The content of a file, or of all files of a folder."""
    if result.is_file():
        return {"": regular_content(result, MOST_BYTES)}
    paths = sorted(path for path in result.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(result).as_posix(): regular_content(path, MOST_BYTES) for path in paths}


def unpack(files: Files, out: Path) -> None:
    """Put what came back in its place, whole or not at all. Names and sizes are checked first."""
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise BadConfig("a worker sent more files or bytes than a run has; look at that machine")
    for name in files:
        if name and not all(NAME.fullmatch(part) for part in name.split("/")):
            raise BadConfig(f"a worker sent a file named '{shown(name)}'; look at that machine")
    out.parent.mkdir(parents=True, exist_ok=True)
    if set(files) == {""}:
        from fedepd.files import write_bytes

        write_bytes(out, files[""])
        return
    if "" in files or not files:
        raise BadConfig("a worker sent no whole result; run the same command again")
    part = Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.", suffix=".part", dir=out.parent))
    try:
        for name, content in files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        part.chmod(0o755)
        shutil.rmtree(out, ignore_errors=True)  # begun here once, and now finished elsewhere
        os.rename(part, out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def main() -> int:
    message = sys.stdin.readline()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    try:
        do(message, Path(sys.argv[1]))
    except FedEPDError as mistake:
        sys.stderr.write(f"{mistake}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
