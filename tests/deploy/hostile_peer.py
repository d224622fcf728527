"""Two processes for test_intake.py.

One takes task results over NVFlare's real cells, the other sends what it is told to.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message


def high_water() -> int:
    """Bytes: the most memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def receive(cell: Cell, limit: int) -> None:
    from fedepd.deploy.intake import Intake, guarded  # only here: it loads torch

    intake, seen = Intake(limit), dict[str, Any]()

    def received(message: Any) -> Any:
        origin = message.get_header(MessageHeaderKey.ORIGIN)
        seen[origin] = {name: list(value.shape) for name, value in message.payload["tensors"].items()}
        return make_reply(ReturnCode.OK)

    cell.register_request_cb(channel=CellChannel.SERVER_COMMAND, topic="submit_update", cb=received)
    cell.core_cell.start()
    before = high_water()
    with guarded(intake) if limit else nullcontext():
        say("ready")
        for site in sys.stdin:
            say(
                json.dumps({"grown": high_water() - before, "seen": seen, "fault": intake.take(site.strip())})
            )


def send(cell: Cell) -> None:
    say("ready")
    for number, line in enumerate(sys.stdin):
        if number == 0:
            cell.core_cell.start()  # now the receiver listens
        sizes = json.loads(line)
        while not submit(cell, sizes) and number == 0:
            time.sleep(0.1)  # not connected yet
        say("sent")


def submit(cell: Cell, sizes: dict[str, int]) -> bool:
    request = Message(
        {}, Shareable({"tensors": {name: np.zeros(size // 4, np.float32) for name, size in sizes.items()}})
    )
    place = {"channel": CellChannel.SERVER_COMMAND, "topic": "submit_update", "target": "server"}
    return bool(
        cell.send_request(**place, request=request, timeout=20.0).get_header(MessageHeaderKey.RETURN_CODE)
        == ReturnCode.OK
    )


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    flare_decomposers.register()
    common_decomposers.register()
    name, port, limit = sys.argv[1:]
    made = Cell(fqcn=name, root_url=f"tcp://localhost:{port}", secure=False, credentials={})
    receive(made, int(limit)) if name == "server" else send(made)
