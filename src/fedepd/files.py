"""Read files that somebody else may have written, and write files so that none is ever half written.

Only regular files of a limited size are read, and JSON only to a limited depth.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import math
import os
import re
import stat
import struct
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedepd.errors import BadConfig, BadData
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.types import Tensors

MAX_JSON_BYTES = 64 * 2**20
"""Largest JSON file. No JSON file of this package is as large."""
MAX_TOML_BYTES = 2**20
MAX_TENSOR_BYTES = 8 * 2**30
"""Largest file of weights, or largest checkpoint."""
MAX_DEPTH = 64
"""Most levels of nesting. No file of this package has more than ten."""
AGAIN = "restore it or make it again"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate, as ASCII text in UTF-8 can hold it: other bytes, or UTF-16, have other ways to."""
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError, ValueError,
    TypeError, SyntaxError, RuntimeError, OSError, OverflowError, LookupError, AttributeError, AssertionError,
    MemoryError,
)  # fmt: skip
"""What zipfile, numpy and other readers raise on files that are truncated, damaged, encrypted or harmful."""

# --- reading ------------------------------------------------------------------------------------------------


def read_bytes(path: Path, limit: int, cure: str = "check its name and permissions", name: str = "") -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    ``name`` is the name of the file in an error, if not its path.
    """
    where = f"'{name or shown(path, 300)}'"
    try:
        return regular_content(path, limit)
    except FileNotFoundError:
        raise BadData(f"{where} is missing; {cure}") from None
    except OSError as cause:
        raise BadData(f"{where} cannot be read ({cause.strerror}); {cure}") from cause


def absolute(path: str | Path) -> Path:
    """The absolute path with every link followed, so that it can be found from any folder."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as cause:  # a loop of links, or a null byte
        raise BadConfig(f"'{shown(path, 300)}' is not a usable path; check its name") from cause


def open_regular(path: str | Path, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading. Raises an OSError that says why if that fails.

    A pipe or a device is refused at once, so that nothing waits for it. Without ``follow``, a link is refused
    too.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except ValueError as cause:
        raise OSError(errno.EINVAL, "the name cannot be used") from cause
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(handle, "rb")


def size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def regular_content(path: Path, limit: int) -> bytes:
    """All bytes of a regular file. Raises an OSError that says why if it cannot be read."""
    with open_regular(path) as file:
        size = size_of(file)
        if size > limit:
            raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes, so fedepd did not write it")
        return file.read(size)


def file_sha256(path: Path) -> str:
    """The hash of a file's bytes, or one sentence on why it cannot be read."""
    try:
        digest = hashlib.sha256()
        with open_regular(path) as file:
            while part := file.read(2**20):
                digest.update(part)
        return digest.hexdigest()
    except OSError as cause:
        raise BadData(
            f"cannot read '{shown(path, 300)}': {cause.strerror}; check its name and permissions"
        ) from cause


def parse_json(content: bytes | str, where: str, cure: str = AGAIN) -> Any:
    """Parse JSON of at most ``MAX_DEPTH`` levels. ``where`` names it in an error."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise BadData(
            f"{where} cannot be read: it is not valid JSON, or is nested too deeply; {cure}"
        ) from cause
    raw = encoded(content) if isinstance(content, str) else content
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:  # with fewer brackets, it cannot be too deep
        check_depth(parsed, where, cure)
    return parsed


def read_json(path: Path, limit: int = MAX_JSON_BYTES, cure: str = AGAIN, name: str = "") -> Any:
    return parse_json(read_bytes(path, limit, cure, name), f"'{name or shown(path, 300)}'", cure)


def parse_shown(content: bytes, where: str, cure: str = AGAIN) -> Any:
    """Parse JSON whose text is shown: with '?' for each half of a surrogate pair (``without_halves``)."""
    parsed = parse_json(content, where, cure)
    plain = content.isascii() and b"\0" not in content and not _HALF.search(content)
    return parsed if plain else without_halves(parsed)


def without_halves(content: Any) -> Any:
    """Replace each half of a surrogate pair by '?'. JSON can hold such a half, but UTF-8 cannot.

    Use it for text that is shown, not for paths.
    """
    if isinstance(content, str):
        return content if content.isascii() else encoded(content).decode()
    if isinstance(content, dict):
        return {without_halves(key): without_halves(value) for key, value in content.items()}
    return [without_halves(each) for each in content] if isinstance(content, list) else content


def read_lines(path: Path, limit: int = MAX_JSON_BYTES, cure: str = AGAIN, name: str = "") -> list[Any]:
    """Read JSON with one value per line. Empty lines are skipped."""
    where = f"'{name or shown(path, 300)}'"
    lines = [line for line in read_bytes(path, limit, cure, name).splitlines() if line.strip()]
    return [parse_json(line, f"line {number} of {where}", cure) for number, line in enumerate(lines, start=1)]


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read settings from a TOML file. ``what`` names the file in an error."""
    try:
        content = tomllib.loads(regular_content(path, MAX_TOML_BYTES).decode())
        check_depth(content, what, "correct it")
    except OSError as cause:
        raise BadConfig(f"cannot read {what}: {cause.strerror}; check its name") from cause
    except (ValueError, RecursionError) as cause:
        raise BadConfig(f"{what} is not valid TOML: {shown(cause, 200)}; correct it") from cause
    except BadData as cause:
        raise BadConfig(str(cause)) from cause
    return content


def check_depth(parsed: Any, where: str, cure: str = AGAIN) -> None:
    level: list[Iterable[Any]] = [[parsed]]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise BadData(f"{where} is nested more than {MAX_DEPTH} levels deep; {cure}")
        inside = [each for values in level for each in values if each and isinstance(each, dict | list)]
        level = [each.values() if isinstance(each, dict) else each for each in inside]


def read_tensors(path: Path, cure: str = AGAIN, name: str = "") -> Tensors:
    return parse_tensors(
        read_bytes(path, MAX_TENSOR_BYTES, cure, name), f"'{name or shown(path, 300)}'", cure
    )


def parse_tensors(content: bytes, where: str, cure: str = AGAIN) -> Tensors:
    """The tensors of a safetensors file. Only the number types that this package writes are accepted."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except (SafetensorError, *DAMAGE) as cause:
        raise BadData(f"{where} cannot be read ({shown(cause, 200)}); {cure}") from cause
    known = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
    for each, value in tensors.items():
        if value.dtype not in known:
            raise BadData(f"{where}: tensor '{shown(each)}' has type {value.dtype}; {cure}")
    return tensors


# --- writing ------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[IO[bytes]]:
    """A file that replaces ``path`` once it is whole. Raises ``BadConfig`` if it cannot be written."""
    try:
        with swapped_in(path) as file:
            yield file
    except (OSError, ValueError) as cause:
        raise _unwritten(path, cause, size) from cause


@contextmanager
def swapped_in(path: Path, flush: bool = True) -> Iterator[IO[bytes]]:
    """A temporary file that replaces ``path`` once it is whole. Errors of the system are passed on.

    It is flushed to disk before it is renamed. This is the package's only atomic write.
    """
    temporary = path.parent / f".{path.name[:40]}.{os.getpid()}.part"
    try:
        with suppress(FileNotFoundError):
            # It may be left from a killed process with our number. It may also be a link that somebody put
            # there so that we write to its target.
            temporary.unlink()
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
        )
        with os.fdopen(handle, "wb") as file:
            yield file
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(
            OSError, ValueError
        ):  # on a read-only file system this fails too, and would hide the cause
            temporary.unlink()


def _unwritten(path: Path, cause: Exception, size: int | None) -> BadConfig:
    reason = getattr(cause, "strerror", None) or "the name cannot be used"
    cure = "give another place, or allow writing there"
    if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        cure = "make room and try again"
        if size is not None:
            cure = f"{size:,} bytes are needed, so make room for them and try again"
    return BadConfig(f"cannot write '{shown(path, 300)}' ({reason}); {cure}")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with replacing(path, len(content)) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8. Half of a surrogate pair, from a path or another program's JSON, becomes '?'."""
    write_bytes(path, encoded(text))


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def json_text(content: Any) -> str:
    """What ``write_json`` writes."""
    return json.dumps(clean(content), indent=1, allow_nan=False) + "\n"


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, json_text(content).encode())


def append_line(path: Path, content: Mapping[str, Any]) -> None:
    line = as_line(content).encode()
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
            file.write(line)
    except OSError as cause:
        raise _unwritten(path, cause, None) from cause


def as_line(content: Mapping[str, Any]) -> str:
    return json.dumps(clean(content), allow_nan=False) + "\n"


def clean(content: Any) -> Any:
    """Content that JSON can hold: NaN and infinity become None, numpy numbers become Python numbers."""
    if isinstance(content, Mapping):
        return {str(k): clean(v) for k, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [clean(v) for v in content]
    if isinstance(content, np.generic):
        return clean(content.item())
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
