"""Bytes are counted before NVFlare decodes them.

An array that is too large costs its sender, not its receiver.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.fuel.f3.cellnet import cell as cell_module
from nvflare.fuel.f3.cellnet import core_cell as core_module
from nvflare.fuel.f3.cellnet.defs import CellChannel, Encoding, MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import blob_streamer
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError, StreamFuture
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.datum import Datum, DatumManager, DatumType
from nvflare.fuel.utils.fobs.dots import NUMPY_DOWNLOAD

from fedepd.deploy.intake import (
    Dropped,
    Intake,
    Nothing,
    TooLarge,
    guarded,
    message_bytes,
    read_array,
    read_npz,
    reply_bytes,
)
from fedepd.deploy.limits import expected_message
from fedepd.deploy.loopback import free_port
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import confusions_record, reply_record
from fedepd.methods import METHODS
from toy import CLASSES, FEATURES, toy_client

MB = 2**20
flare_decomposers.register()
common_decomposers.register()


def npy(array: Any, **more: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **more)
    return stream.getvalue()


def header(shape: str, descr: str = "'<f4'", order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_, np.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_arrays_come_back_bit_for_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    value = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    turned = np.array(value, order="F")
    for back in (read_array(npy(value), MB), read_npz(npz(w=value), MB)["w"], read_array(npy(turned), MB)):
        assert back.dtype == value.dtype
        assert back.shape == value.shape
        assert np.array_equal(back, value)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header("(200000000000,)"), id="800 GB claimed"),
        pytest.param(header("(1,)") + bytes(8), id="more than claimed"),
        pytest.param(header("(4,)") + bytes(8), id="less than claimed"),
        pytest.param(header("(-4,)") + bytes(16), id="negative"),
        pytest.param(header("(True,)") + bytes(4), id="bool as size"),
        pytest.param(header("(2**70, 0)"), id="expression"),
        pytest.param(header(f"({2**70}, 0)"), id="huge times nothing"),
        pytest.param(header("(1,)", "'|O'") + b"cos\nsystem\n(S'true'\ntR.", id="pickle"),
        pytest.param(header("(1,)", "'<U4'") + bytes(16), id="text"),
        pytest.param(header("(1,)", "'<c8'") + bytes(8), id="complex"),
        pytest.param(header("(1,)", "[('a', '<f4')]") + bytes(4), id="record"),
        pytest.param(header("(1,)", "'nonsense'") + bytes(4), id="no dtype"),
        pytest.param(header("__import__('os').system('true')"), id="code"),
        pytest.param(b"\x93NUMPY\x03\x00" + bytes(20), id="version 3"),
        pytest.param(b"\x93NUMPY\x01\x00\xff\xff", id="cut header"),
        pytest.param(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b"x" * 50, id="2 GB header"),
        pytest.param(b"PK\x03\x04", id="no npy"),
        pytest.param(b"", id="nothing"),
        pytest.param(npy(np.zeros(MB, np.float32)), id="4 MB where 1 MB is the limit"),
    ],
)
def test_an_array_that_is_not_what_it_claims(content: bytes) -> None:
    with pytest.raises(TooLarge):
        read_array(content, MB)


def lying(size: int) -> bytes:
    """An npz whose directory claims another size than its member has."""
    content = bytearray(npz(w=np.zeros(4, np.float32)))
    place = content.rindex(b"PK\x01\x02")
    content[place + 20 : place + 28] = size.to_bytes(4, "little") * 2
    return bytes(content)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(npz(compressed=True, w=np.zeros(2**24, np.float32)), id="64 MB in 64 kB"),
        pytest.param(lying(2**31), id="directory claims 2 GB"),
        pytest.param(lying(10), id="directory claims too little"),
        pytest.param(npz(w=np.zeros(4, np.float32))[:-40], id="cut"),
        pytest.param(b"x" * 100, id="no archive"),
        pytest.param(b"", id="nothing"),
        pytest.param(npz(w=np.array([{}], dtype=object)), id="pickle"),
    ],
)
def test_an_archive_that_is_not_what_it_claims(content: bytes) -> None:
    with pytest.raises(TooLarge):
        read_npz(content, MB)


OURS = [
    (name, preset)
    for name, method in METHODS.items()
    if not method.merges_clients
    for preset in method.presets
]


@pytest.mark.parametrize(("method", "preset"), OURS)
def test_the_bound_has_room_for_every_honest_record(method: str, preset: str) -> None:
    """And not much more: twice the record and 1 MB."""
    task = FederationTask("r", method, preset, {"hidden": 8, "rounds": 1}, FEATURES, CLASSES, ("a",))
    participant, message = task.participant(toy_client(0)), expected_message(task, 0)
    reply = reply_record(participant.step(1, message))
    matrices = confusions_record(1, participant.evaluate(1, message))
    for record, bound in (
        (reply, reply_bytes(task)),
        (matrices, reply_bytes(task)),
        ({"m": message}, message_bytes(task, 0)),
    ):
        size = len(
            fobs.dumps(Shareable({**record, "m": {n: v.numpy() for n, v in record.get("m", {}).items()}}))
        )
        assert size < bound < 2 * size + 1.2 * MB


# --- what NVFlare's hooks do --------------------------------------------------------------------------------


def stream(size: Any, origin: str = "bank-b.job") -> tuple[StreamFuture, Any]:
    headers = {MessageHeaderKey.ORIGIN: origin}
    return StreamFuture(1, headers), SimpleNamespace(headers=headers, get_size=lambda: size)


@pytest.mark.hostile
@pytest.mark.parametrize("size", [MB + 1, 800 * MB, 2**62, 10**400, -1, "5", None, 5.0, True])
def test_a_stream_is_refused_by_its_declared_size(size: Any) -> None:
    with guarded(Intake(MB)) as intake, pytest.raises(BlobSizeError):
        blob_streamer.BlobTask(*stream(size))
    assert intake.noted("bank-b")


@pytest.mark.hostile
@pytest.mark.parametrize("declared", [0, 1000])
def test_a_stream_that_sends_more_than_it_declared_is_cut(declared: int) -> None:
    with guarded(Intake(MB)) as intake:
        future, source = stream(declared)
        chunks = iter([b"x" * MB] * 5)
        source.read = lambda size: next(chunks)
        handler = blob_streamer.BlobHandler(lambda *a: None)
        handler._read_stream(blob_streamer.BlobTask(future, source, preserve_chunks=True))
    assert future.error is not None
    assert len(list(chunks)) >= 3  # the rest was never read
    assert "limit of 1,048,576 bytes" in str(intake.take("bank-b"))


def test_a_broken_line_is_no_offence() -> None:
    with guarded(Intake(MB)) as intake:
        future, source = stream(10)
        blob_streamer.BlobTask(future, source)
        future.set_exception(blob_streamer.StreamError("read timed out"))
    assert not intake.noted("bank-b")


def test_one_question_has_one_fault() -> None:
    intake = Intake(MB)
    intake.note("bank-b.job", "is 5 bytes too long")
    intake.note("bank-b.job", "is sent again")
    assert intake.noted("bank-b")
    assert not intake.noted("bank-a")
    assert intake.take("bank-b") == ("is 5 bytes too long", True)
    assert intake.take("bank-b") is None


def test_lost_arrays_are_nobodys_offence() -> None:
    intake = Intake(MB)
    intake.note("bank-b.job", "failed to download", offence=False)
    assert intake.take("bank-b") == ("failed to download", False)


def submitted(content: bytes, origin: str = "bank-b.job") -> Message:
    headers = {MessageHeaderKey.ORIGIN: origin, StreamHeaderKey.CHANNEL: CellChannel.SERVER_COMMAND}
    return Message(
        {**headers, StreamHeaderKey.TOPIC: "submit_update", StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS},
        content,
    )


def reference(to: str, dot: int = NUMPY_DOWNLOAD) -> bytes:
    """A record whose arrays are to be fetched from somewhere."""
    manager = DatumManager()
    manager.add_datum(Datum(DatumType.TEXT, json.dumps({"fqcn": to, "ref_id": "1"}), dot))
    from nvflare.fuel.utils.fobs import lobs

    out, body = io.BytesIO(), fobs.serialize({"a": 1}, DatumManager())
    out.write(lobs._Header(lobs.MARKER_MAIN, 0, len(body)).to_bytes() + body)
    for name, datum in manager.get_datums().items():
        value = datum.value.encode()
        lobs._write_datum_header(out, lobs.MARKER_DATUM_TEXT, datum.dot, name, len(value))
        out.write(value)
    return out.getvalue()


@pytest.mark.hostile
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage" * 10, id="garbage"),
        pytest.param(reference("bank-a.job"), id="arrays of another site"),
        pytest.param(reference("server"), id="arrays of the server"),
        pytest.param(reference("bank-b.job", dot=2), id="tensors, not arrays"),
        pytest.param(b"\x64\x00" + (2**40).to_bytes(8, "big") + b"x", id="1 TB section"),
        pytest.param(b"\x64\x00" + (9).to_bytes(8, "big") + b"\x91" * 9, id="cut list"),
        pytest.param(b"\x64\x00" + (5000).to_bytes(8, "big") + b"\x91" * 5000, id="5000 levels"),
    ],
)
def test_a_result_that_cannot_be_decoded_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """NVFlare calls os._exit(1) in the server's job process on any Exception here."""
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the job process was ended"))
    holder = SimpleNamespace(
        decode_pass_through_channels=(),
        decode_pass_through_topics=(),
        get_fobs_context=lambda props: {"cell": object()},
    )
    adapter = cell_module.Adapter(
        lambda request: pytest.fail("it was taken"), SimpleNamespace(fqcn="server.job"), holder
    )
    message = submitted(content)
    future = SimpleNamespace(headers=message.headers, result=lambda: content)
    with guarded(Intake(MB)) as intake, pytest.raises(Dropped):
        adapter.call(future)
    assert intake.noted("bank-b")


@pytest.mark.hostile
def test_a_message_outside_streams_is_measured_too() -> None:
    message = Message(
        {MessageHeaderKey.ORIGIN: "bank-b.job", MessageHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS},
        b"x" * (3 * MB),
    )
    with guarded(Intake(MB)) as intake, pytest.raises(TooLarge, match="3,145,728 bytes"):
        core_module.decode_payload(message)
    assert intake.noted("bank-b")


def test_the_hooks_end_with_the_job() -> None:
    before = (
        blob_streamer.BlobTask,
        cell_module.decode_payload,
        core_module.decode_payload,
        NumpyArrayDecomposer.download,
    )
    with guarded(Intake(MB)):
        assert blob_streamer.BlobTask is not before[0]
    assert before == (
        blob_streamer.BlobTask,
        cell_module.decode_payload,
        core_module.decode_payload,
        NumpyArrayDecomposer.download,
    )


def test_what_was_not_fetched_is_empty() -> None:
    assert "T7" in Nothing()
    assert Nothing().get("T7").shape == (0,)


# --- over real cells ----------------------------------------------------------------------------------------


class Peers:
    """A receiver with a limit, or none (0), and a site that sends."""

    def __init__(self, limit: int) -> None:
        port = str(free_port())
        self.receiver, self.site = [self._started(name, port, str(limit)) for name in ("server", "bank-b")]
        self._line(self.receiver, "ready")
        self._line(self.site, "ready")

    def _started(self, name: str, port: str, limit: str) -> subprocess.Popen[str]:
        script, path = Path(__file__).with_name("hostile_peer.py"), os.pathsep.join(sys.path)
        return subprocess.Popen(
            [sys.executable, str(script), name, port, limit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _line(self, process: subprocess.Popen[str], start: str) -> str:
        assert process.stdout is not None
        for line in process.stdout:  # NVFlare may print, too
            if line.startswith(start):
                return line
        raise AssertionError(f"{process.args!r} ended")

    def _tell(self, process: subprocess.Popen[str], line: str, start: str) -> str:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return self._line(process, start)

    def send(self, **sizes: int) -> dict[str, Any]:
        """Arrays of so many bytes; returns what the receiver says of them."""
        self._tell(self.site, json.dumps(sizes), "sent")
        found: dict[str, Any] = json.loads(self._tell(self.receiver, "bank-b", "{"))
        return found

    def close(self) -> None:
        for process in (self.site, self.receiver):
            process.kill()
            process.communicate()


@pytest.fixture
def peers(request: pytest.FixtureRequest) -> Iterator[Peers]:
    opened = Peers(request.param)
    yield opened
    opened.close()


BIG = 96 * MB


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads its memory from /proc")
@pytest.mark.hostile
@pytest.mark.parametrize("peers", [0, 3 * MB], indirect=True, ids=["without", "with"])
def test_an_array_costs_several_times_its_size_without_the_guard_and_nothing_with_it(
    peers: Peers, request: pytest.FixtureRequest
) -> None:
    honest = peers.send(w=4000, b=12)
    assert honest["seen"]["bank-b"] == {"w": [1000], "b": [3]}
    assert honest["fault"] is None
    large = peers.send(w=BIG)
    if request.node.callspec.id == "without":
        assert large["seen"]["bank-b"] == {"w": [BIG // 4]}
        assert large["grown"] - honest["grown"] > 2 * BIG
        return
    assert "bytes, but at most 3,145,728 are expected" in large["fault"][0]
    assert large["seen"]["bank-b"] == {
        "w": [0]
    }  # the record arrived, so its sender is known; its array did not
    many = peers.send(**{f"w{k}": MB // 2 for k in range(24)})  # each small, 12 MB together
    assert "holds arrays of more than" in many["fault"][0]
    assert many["grown"] - honest["grown"] < BIG / 2
