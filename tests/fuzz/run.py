"""Change sound files at random and see what their readers do.

``make fuzz SECONDS=600``, or FORMAT=npz for one format.

Each format takes its turn in a process of its own, so that a reader that crashes, hangs or swells ends that
process and not the search. A case is made from the seed, the format and its number alone, so that the parent
can make again what killed its child.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

from fuzz.corpus import FOLDER, read_cases, write_case
from fuzz.formats import FORMATS, crash_of
from fuzz.mutate import mutate

TURN = 5.0
"""Seconds that a format has at a time."""
SLOW, HUNG = 5, 30
"""Seconds for one case: until it is stopped, and until its process is ended."""
MEGABYTES = 400
"""How far one case may raise the peak of its process."""
CEILING = 6 * 2**30


class TooSlow(BaseException):
    """No reader catches it."""


def make(format: str, seed: int, number: int, sources: dict[str, list[bytes]]) -> bytes:
    rng = random.Random(f"{seed}/{format}/{number}")
    return mutate(rng.choice(sources[format]), FORMATS[format].kind, rng)


def judged(format: str, content: bytes) -> str | None:
    """As ``crash_of``, and whether it took too long or too much memory."""
    before = _peak()
    signal.alarm(SLOW)
    try:
        crash = crash_of(format, content)
    except TooSlow:
        return f"took more than {SLOW} seconds"
    finally:
        signal.alarm(0)
    grown = _peak() - before
    return crash or (f"took {grown} MB" if grown > MEGABYTES else None)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def turn(
    format: str, seed: int, first: int, seconds: float, sources: dict[str, list[bytes]]
) -> tuple[int, int | None, str]:
    """Cases from number ``first`` on, in a child.

    Gives the number after the last, and the number and fault of one that failed.
    """
    counter = mmap.mmap(-1, 8)
    end, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        _child(format, seed, first, seconds, sources, counter, told)
    os.close(told)
    status = _wait(child, seconds + HUNG)
    with os.fdopen(end, "rb") as pipe:
        fault = pipe.read().decode(errors="replace")
    last = struct.unpack("<q", counter[:8])[0]
    if os.WIFSIGNALED(status):
        fault = f"ended its process by signal {os.WTERMSIG(status)}"
    return last + 1, last if fault else None, fault


def _child(
    format: str,
    seed: int,
    first: int,
    seconds: float,
    sources: dict[str, list[bytes]],
    counter: mmap.mmap,
    told: int,
) -> NoReturn:
    def too_slow(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_DATA, (CEILING, CEILING))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    start, number = time.monotonic(), first
    fault: str | None = None
    while fault is None and time.monotonic() - start < seconds:
        counter[:8] = struct.pack("<q", number)
        fault = judged(format, make(format, seed, number, sources))
        number += 1
    os.write(told, (fault or "").encode())
    os._exit(0)


def _wait(child: int, seconds: float) -> int:
    """The child's status; one that hangs is killed."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def search(seconds: float, formats: list[str], seed: int, folder: Path = FOLDER) -> list[Path]:
    """New cases for the corpus, one per fault that has not been seen in this search."""
    sources: dict[str, list[bytes]] = {format: [] for format in FORMATS}
    for case in read_cases():
        sources.setdefault(case.format, []).append(case.content)
    found: dict[str, Path] = {}
    next_number, tried = dict.fromkeys(formats, 0), 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for format in formats:
            left = deadline - time.monotonic()
            if left <= 0 and next_number[format]:  # on a busy machine every format has one turn all the same
                break
            share = min(TURN, max(0.2, seconds / len(formats)), max(0.2, left))
            after, bad, fault = turn(format, seed, next_number[format], share, sources)
            tried += after - next_number[format]
            next_number[format] = after
            signature = f"{format}: {fault.split(': ')[0]}"
            if bad is not None and signature not in found:
                found[signature] = write_case(format, fault, make(format, seed, bad, sources), folder=folder)
                print(f"{signature}\n  {fault}\n  -> {found[signature]}", flush=True)
    print(f"{tried:,} cases of {len(formats)} formats in {seconds:.0f} s, seed {seed}: {len(found)} faults")
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--format", choices=[*FORMATS, ""], default="", help="default: all, in turn")
    parser.add_argument(
        "--seed", type=int, default=None, help="default: another one each time; it is printed"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="where new cases go; default: the corpus")
    values = parser.parse_args()
    os.environ |= {"FEDEPD_CACHE": "off", "FEDEPD_MAX_GB": "2"}
    seed = values.seed if values.seed is not None else random.SystemRandom().randrange(2**32)
    warm()
    return (
        1
        if search(values.seconds, [values.format] if values.format else list(FORMATS), seed, values.out)
        else 0
    )


def warm() -> None:
    """Import what readers import, once, so that no child pays for it."""
    for case in read_cases():
        if "--seed" in case.name:
            crash_of(case.format, case.content)


if __name__ == "__main__":
    sys.exit(main())
