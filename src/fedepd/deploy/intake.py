"""A limit on the bytes that a peer may send, enforced before NVFlare decodes anything.

The limit follows from the fields that the job's method exchanges.

NVFlare 2.9 receives a task result in two parts. The record arrives in memory as a stream ("blob"), and FOBS
decodes it. The record holds references instead of arrays. FOBS fetches the arrays from the sender as npz
files, in chunks of any size, and ``numpy.load`` unpacks them. NVFlare itself allows 4 GiB per stream and sets
no limit per array. A record that it cannot decode ends the whole job process.

Here both parts are counted first. A stream is counted by the size that it declares and by what arrives. An
array is counted by its header, before memory is allocated. Anything too large or broken is dropped and
reported, and the job continues without it.

The hooks are installed in the process of one job and removed when it ends.
"""

from __future__ import annotations

import io
import math
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.lib.format as npy
from numpy.typing import NDArray
from nvflare.apis.fl_constant import ServerCommandNames
from nvflare.apis.signal import Signal
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_common.np.np_downloader import ArrayConsumer
from nvflare.fuel.f3.cellnet import cell as cell_module
from nvflare.fuel.f3.cellnet import core_cell as core_module
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import buffer_len
from nvflare.fuel.f3.streaming import blob_streamer as blob_module
from nvflare.fuel.f3.streaming.download_service import download_object
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.fuel.utils.fobs.decomposers.via_downloader import ViaDownloaderDecomposer

from fedepd.deploy.limits import expected_message
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import KINDS
from fedepd.rounds.evaluate import SPLITS
from fedepd.rounds.questions import QUESTIONS, asked_of
from fedepd.rounds.sums import ADVERT_BYTES, SEALED_BYTES
from fedepd.shown import shown
from fedepd.types import Fields

SLACK = 2**20
"""Bytes allowed for names, headers and NVFlare's own entries."""
PER_ARRAY = 1024
"""Bytes allowed for the npz around each array; a real one needs less."""
SPENT = "fedepd_bytes"
"""Key in the context of one decoding: the bytes of arrays fetched so far."""


class TooLarge(ValueError):
    """Data that the job's fields cannot produce: too large, or not an array of numbers."""


class Dropped(BaseException):
    """Raised to drop a task result. If it were an ``Exception``, NVFlare would end the whole job process."""


class Fault(NamedTuple):
    reason: str
    offence: bool
    """False if the connection broke and nobody is to blame."""


class Intake:
    """How many bytes each peer of this job may send, and whose last answer was too large or unreadable."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._faults: dict[str, Fault] = {}
        self._fetching: dict[str, set[Signal]] = {}
        self._lock = threading.Lock()

    def note(self, origin: Any, reason: str, offence: bool = True) -> None:
        """Remember what is wrong with the current answer of a peer.

        ``origin`` is the cell's full name, which the server ties to the site's token. A broken connection is
        not an ``offence``.
        """
        site = site_of(origin)
        with self._lock:
            self._faults.setdefault(site, Fault(reason, offence))
            waiting = list(self._fetching.get(site, ()))
        for signal in waiting:
            signal.trigger(reason)

    def take(self, site: str) -> Fault | None:
        """What is wrong with the site's current answer. The note is removed, so it is returned once."""
        with self._lock:
            return self._faults.pop(site, None)

    def noted(self, site: str) -> bool:
        """Whether the site's answer is already known to be bad, so that waiting for it is useless."""
        return site in self._faults

    @contextmanager
    def fetching(self, origin: str, parent: Any) -> Iterator[Signal]:
        """A signal that stops fetching arrays as soon as something is wrong with their sender."""
        signal, site = Signal(parent=parent), site_of(origin)
        with self._lock:
            self._fetching.setdefault(site, set()).add(signal)
        try:
            yield signal
        finally:
            with self._lock:
                self._fetching[site].discard(signal)

    def fault(self, origin: Any, size: Any) -> str | None:
        """Why a stream that declares this size is refused; None if it may be read."""
        if type(size) is not int or size < 0:
            return "declares no usable size"
        return f"is {size:,} bytes, but at most {self.limit:,} are expected" if size > self.limit else None


def site_of(origin: Any) -> str:
    return str(origin).partition(".")[0]


def reply_bytes(task: FederationTask) -> int:
    """The largest possible answer of a site in bytes: to a step, an evaluation or a question."""
    server, method, classes = task.server(), task.experiment().method, task.num_classes
    tensors = method.server_init(server, server.model.initial(server.info, server.seed))
    stages = (method.reply_fields(replace(server, round=round), tensors) for round in (1, server.last_round))
    matrices = 4 * len(SPLITS) * (8 * classes * classes + PER_ARRAY)
    largest = max(matrices, *(_field_bytes(fields, classes) for fields in stages))
    # A masked vector has 8 bytes a number instead of 4, and every averaged field has its weights beside it.
    masked = 3 * largest if task.experiment().privacy.secure else 0
    asked = [QUESTIONS[name].layout(task.setting()) for name in asked_of(task.setting())]
    answers = (8 * sum(math.prod(shape) for _, shape in parts) + PER_ARRAY for parts in asked)
    return _with_slack(max(largest, masked, _sum_bytes(task), *answers))


def message_bytes(task: FederationTask, client_id: int) -> int:
    """The largest possible message of the server in bytes."""
    tensors = sum(value.nbytes + PER_ARRAY for value in expected_message(task, client_id).values())
    return _with_slack(tensors + _sum_bytes(task))


def _sum_bytes(task: FederationTask) -> int:
    """The keys or shares of all sites."""
    return len(task.sites) * (ADVERT_BYTES + SEALED_BYTES) + 2 * PER_ARRAY


def _field_bytes(fields: Fields, classes: int) -> int:
    # The only size that a method leaves open is the number of classes with a row of their own.
    return sum(
        4 * math.prod(classes if size < 0 else size for size in field.shape) + PER_ARRAY
        for field in fields.values()
    )


def _with_slack(size: int) -> int:
    return size + size // 4 + SLACK


@contextmanager
def guarded(intake: Intake) -> Iterator[Intake]:
    """Check everything that arrives in this process against ``intake``, until the block ends."""
    hooks: list[tuple[Any, str, Any]] = [
        (blob_module, "BlobTask", _bounded_stream(intake, blob_module.BlobTask)),
        (cell_module, "decode_payload", _bounded_decoding(intake, cell_module.decode_payload)),
        (core_module, "decode_payload", _bounded_frame(intake, core_module.decode_payload)),
        (
            ViaDownloaderDecomposer,
            "_download_from_remote_cell",
            _own_arrays(ViaDownloaderDecomposer._download_from_remote_cell),
        ),
        (NumpyArrayDecomposer, "_get_download_kwargs", lambda decomposer, fobs_ctx: {"fobs_ctx": fobs_ctx}),
        (NumpyArrayDecomposer, "download", _bounded_download(intake)),
        (
            NumpyArrayDecomposer,
            "native_recompose",
            lambda decomposer, data, manager=None: read_array(data, intake.limit),
        ),
    ]
    with ExitStack() as stack:
        for owner, name, hook in hooks:
            stack.enter_context(patch.object(owner, name, hook))
        yield intake


def _bounded_stream(intake: Intake, original: Any) -> Any:
    class BoundedTask(original):  # type: ignore[misc]
        """NVFlare's buffer for one stream, made when the first chunk arrives.

        An error here refuses the rest.
        """

        def __init__(
            self, future: Any, stream: Any, max_size: int = 0, preserve_chunks: bool = False
        ) -> None:
            origin = (stream.headers or {}).get(MessageHeaderKey.ORIGIN)
            fault = intake.fault(origin, stream.get_size())
            if fault:
                intake.note(origin, fault)
                raise BlobSizeError(f"the stream {fault}")
            future.add_done_callback(_note_overrun, intake, origin, future)
            # NVFlare cuts a stream that declares no size at this limit.
            super().__init__(future, stream, intake.limit, preserve_chunks)

    return BoundedTask


def _note_overrun(intake: Intake, origin: Any, future: Any) -> None:
    # NVFlare has no error type for an overrun. All its other errors come from the connection.
    if "more data than" in str(future.error):
        intake.note(origin, f"is larger than the limit of {intake.limit:,} bytes, or larger than it declared")


def _bounded_decoding(intake: Intake, original: Callable[..., None]) -> Callable[..., None]:
    def decode_payload(message: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(message, *args, **kwargs)
        except Exception as cause:
            reason = str(cause) if isinstance(cause, TooLarge) else f"cannot be decoded ({shown(cause)})"
            intake.note(
                message.get_header(MessageHeaderKey.ORIGIN),
                reason,
                offence="failed to download" not in reason,
            )
            place = message.get_header(StreamHeaderKey.CHANNEL), message.get_header(StreamHeaderKey.TOPIC)
            if place == (CellChannel.SERVER_COMMAND, ServerCommandNames.SUBMIT_UPDATE):
                raise Dropped(reason) from cause
            raise

    return decode_payload


def _bounded_frame(intake: Intake, original: Callable[..., None]) -> Callable[..., None]:
    """Check messages outside streams, and the frames of streams."""

    def decode_payload(message: Any, *args: Any, **kwargs: Any) -> None:
        size, most = buffer_len(message.payload), intake.limit + SLACK
        if size > most:
            reason = f"is a message of {size:,} bytes, but at most {most:,} are expected"
            intake.note(message.get_header(MessageHeaderKey.ORIGIN), reason)
            raise TooLarge(reason)
        original(message, *args, **kwargs)

    return decode_payload


def _own_arrays(original: Callable[..., Any]) -> Callable[..., Any]:
    def _download_from_remote_cell(decomposer: Any, fobs_ctx: dict[str, Any], ref: Any) -> Any:
        message = fobs_ctx.get(FOBSContextKey.MESSAGE)
        origin = message.get_header(MessageHeaderKey.ORIGIN) if message is not None else None
        if type(decomposer) is not NumpyArrayDecomposer:
            raise TooLarge(f"refers to objects of {type(decomposer).__name__}; only arrays are expected")
        if not isinstance(ref, Mapping) or ref.get("fqcn") != origin:
            raise TooLarge("refers to arrays of another participant")
        return original(decomposer, fobs_ctx, ref)

    return _download_from_remote_cell


def _bounded_download(intake: Intake) -> Callable[..., tuple[str | None, Any]]:
    def download(
        decomposer: Any, from_fqcn: str, fobs_ctx: dict[str, Any], **more: Any
    ) -> tuple[str | None, Any]:
        consumer = _Counting(intake.limit, fobs_ctx)
        with intake.fetching(from_fqcn, more.pop("abort_signal", None)) as signal:
            download_object(from_fqcn=from_fqcn, consumer=consumer, abort_signal=signal, **more)
        if consumer.fault:
            intake.note(from_fqcn, consumer.fault)
        if consumer.fault or signal.value:
            # The record still arrives, with empty arrays. NVFlare can then tell whose answer it is, and the
            # site can continue.
            return None, Nothing()
        return consumer.error, consumer.result

    return download


class Nothing(dict[str, Any]):
    """Stands in for arrays that were not fetched: gives an empty array for any name."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return np.empty(0, np.float32)


class _Counting(ArrayConsumer):  # type: ignore[misc]
    """Takes the arrays of one record as long as they stay below the limit.

    Each is measured before unpacking.
    """

    supports_pipelining = False  # otherwise the next chunk is already on its way when this one is refused

    def __init__(self, limit: int, fobs_ctx: dict[str, Any]) -> None:
        super().__init__(None, {})
        self._limit, self._fobs_ctx = limit, fobs_ctx
        self.fault = ""

    def consume_items(self, items: list[Any], result: Any) -> Any:
        try:
            for item in items:
                if not isinstance(item, bytes | bytearray | memoryview):
                    raise TooLarge("holds arrays that are not bytes")
                spent = self._fobs_ctx.get(SPENT, 0) + len(item)
                if spent > self._limit:
                    raise TooLarge(
                        f"holds arrays of more than {spent:,} bytes, but at most {self._limit:,} are expected"
                    )
                self._fobs_ctx[SPENT] = spent
                result = {**(result or {}), **read_npz(bytes(item), self._limit)}
        except TooLarge as cause:
            self.fault = str(cause)
            raise
        return result


def read_npz(content: bytes, limit: int) -> dict[str, NDArray[Any]]:
    """The arrays of an uncompressed npz, as NVFlare writes it.

    It cannot unpack to more than its own bytes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                    raise TooLarge(
                        f"holds the compressed array '{shown(member.filename)}'; arrays are sent uncompressed"
                    )
            if sum(member.file_size for member in members) > min(limit, len(content)):
                raise TooLarge("holds an archive that claims more bytes than it has")
            return {
                member.filename.removesuffix(".npy"): read_array(archive.read(member), limit)
                for member in members
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as cause:
        raise TooLarge(f"holds an array that cannot be read ({shown(cause)})") from cause


def read_array(content: Any, limit: int) -> NDArray[Any]:
    """One npy file of numbers. Its header must match its bytes before memory is allocated."""
    stream = io.BytesIO(content)
    try:
        version = npy.read_magic(stream)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read_header is None:
            raise TooLarge(f"holds an array of an unknown format {version}")
        shape, fortran, dtype = read_header(stream)
    except TooLarge:
        raise
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, EOFError) as cause:
        raise TooLarge(f"holds an array that cannot be read ({shown(cause)})") from cause
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in KINDS or dtype.hasobject or any(type(n) is not int or n < 0 for n in shape):
        raise TooLarge(f"holds an array of {shown(dtype)}, not of numbers")
    if size > limit or size != len(content) - stream.tell():
        raise TooLarge(f"holds an array that claims {size:,} bytes and has {len(content) - stream.tell():,}")
    try:
        flat = np.frombuffer(content, dtype, math.prod(shape), stream.tell())
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError) as cause:
        raise TooLarge(f"holds an array of an impossible shape ({shown(cause)})") from cause
