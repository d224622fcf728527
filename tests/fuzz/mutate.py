"""One change after another to bytes that a reader accepts.

Some are blind, some know what a zip, a JSON text or a header is.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from typing import Any

NUMBERS = [
    0, 1, 2, 3, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, -1, -2, -(2**63),
]  # fmt: skip
WORDS = [
    "", "0", "-1", "1e999", "-1e999", "NaN", "Infinity", "null", "true", "9" * 30, "9" * 5000, "0.1", "\0",
    "\n", "\x1b[31m", "\u202e", "\ufeff", "../../x", "/dev/zero", "=1+1", "<script>", "\U0010ffff", "\udcff",
    "a" * 300, "__class__", "(1,)", "1,2", ";", '"', "'",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 10**400, -(10**400), 2**63, float("nan"), float("inf"), "", "a",
    "\ud800", "\x1b[31m", "x" * 10_000, [], {}, [[]], [None], {"": None}, [0] * 1000, {"a": {"b": {"c": []}}},
]  # fmt: skip
TYPES = b"<i8 <u8 <f8 <f4 <f2 |i1 |u1 |b1 <U1 <U2 |S8 <c16 >i8 <M8[s] |V8 |O".split()
SHAPES = [
    b"()",
    b"(0,)",
    b"(1,)",
    b"(-1,)",
    b"(4, 1)",
    b"(1, 4)",
    b"(2, 2)",
    b"(8,)",
    b"(999999999999,)",
    b"(2, 2, 2)",
]
ENDINGS = {"json": "json", "jsonl": "jsonl", "npz": "zip", "safetensors": "safetensors", "toml": "text"}


def mutate(content: bytes, kind: str, rng: random.Random) -> bytes:
    """A changed copy; ``kind`` says what the content is, and now and then it is treated as mere bytes."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4, 8])):
        change = CHANGES.get(kind, _bytes) if rng.random() < 0.85 else _bytes
        try:
            content = change(content, rng)[: 2**20]
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            RecursionError,
            zipfile.BadZipFile,
            zlib.error,
            struct.error,
            OSError,
        ):
            content = _bytes(content, rng)  # an earlier change has broken its form
    return content


# --- bytes --------------------------------------------------------------------------------------------------


def _bytes(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return rng.randbytes(rng.randint(1, 20))
    data, at = bytearray(content), rng.randrange(len(content))
    end = min(len(data), at + rng.choice([1, 2, 4, 8, 16, 64, 256]))
    match rng.randrange(9):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x28, 0x2C, 0x3C, rng.randrange(256)])
        case 2:
            del data[at:]
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = data[at:end]
        case 5:
            data[at:at] = rng.randbytes(rng.randint(1, 16))
        case 6:
            width, order = rng.choice([1, 2, 4, 8]), rng.choice(["little", "big"])
            data[at : at + width] = (rng.choice(NUMBERS) % 256**width).to_bytes(width, order)
        case 7:
            other = rng.randrange(len(data))
            data[at:end] = data[other : other + end - at]
        case _:
            data[at:end] = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    return bytes(data)


def _text(content: bytes, rng: random.Random) -> bytes:
    """A word or a number for another, or a line moved."""
    if rng.random() < 0.3:
        lines = content.splitlines(keepends=True) or [b""]
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[at] = lines[other] if rng.random() < 0.7 else lines[at] * rng.choice([0, 2, 50])
        return b"".join(lines)
    places = list(re.finditer(rb"[\w.+-]+", content))
    place = rng.choice(places)
    new = rng.choice([*WORDS, *map(str, NUMBERS), rng.choice(places).group().decode("latin-1")])
    return content[: place.start()] + new.encode("utf-8", "surrogatepass") + content[place.end() :]


# --- JSON ---------------------------------------------------------------------------------------------------


def _json(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.05:
        return b"[" * rng.choice([70, 5_000, 200_000])
    return json.dumps(changed(json.loads(content), rng)).encode()


def changed(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one change somewhere in it."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    if not places or rng.random() < 0.03:
        return rng.choice(VALUES)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice([*WORDS, *holder])] = holder[key]
        case 2:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        case 3:
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
        case 4 if isinstance(holder[key], (int, float)):
            holder[key] = rng.choice(NUMBERS)
        case _:
            holder[key] = rng.choice(VALUES)
    return value


def _places(value: Any) -> Any:
    """Every (holder, key) inside a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _json_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at] = _json(lines[at], rng) + b"\n"
    return b"".join(lines)


# --- files with an inner form -------------------------------------------------------------------------------


def _zip(content: bytes, rng: random.Random) -> bytes:
    """A member changed, and the archive written again, so that its checksums fit."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, other = rng.randrange(len(members)), rng.randrange(len(members))
    name, data = members[at]
    match rng.randrange(8):
        case 0:
            members.pop(at)
        case 1:
            members[at] = (members[other][0] + rng.choice(["", "x", "\0"]), data)
        case 2:
            members[at] = (name, members[other][1])
        case 3:
            members[at] = (name, _bytes(data, rng))
        case _:
            members[at] = (name, _npy(data, rng) if data.startswith(b"\x93NUMPY") else _bytes(data, rng))
    buffer, method = io.BytesIO(), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # a name may come twice
        for key, value in dict(members).items() if rng.random() < 0.98 else members:
            archive.writestr(zipfile.ZipInfo(key), value, method)
    return buffer.getvalue()


def _npy(content: bytes, rng: random.Random) -> bytes:
    """Another number in the data, another type over the same bytes, or a changed header whose length fits."""
    start = 10 + struct.unpack("<H", content[8:10])[0]
    header, data = content[10:start], bytearray(content[start:])
    match rng.randrange(4):
        case 0 if len(data) >= 8:
            at = 8 * rng.randrange(len(data) // 8)
            data[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) % 2**64)
        case 1:
            header = re.sub(rb"'descr': '[^']*'", b"'descr': '" + rng.choice(TYPES) + b"'", header)
        case 2:
            header = re.sub(rb"'shape': \([^)]*\)", b"'shape': " + rng.choice(SHAPES), header)
        case _:
            header = _text(header, rng)
    return content[:8] + struct.pack("<H", len(header) % 65536) + header + bytes(data)


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    """8 bytes that say how long the JSON header is, the header, the data."""
    length = struct.unpack("<Q", content[:8])[0]
    header, data = content[8 : 8 + length], content[8 + length :]
    header = _json(header, rng) if rng.random() < 0.7 else header
    data = data if rng.random() < 0.7 else _bytes(data, rng)
    return (
        struct.pack("<Q", len(header) if rng.random() < 0.95 else rng.choice(NUMBERS) % 2**64) + header + data
    )


def _folder(content: bytes, rng: random.Random) -> bytes:
    """A folder is a JSON table of file names and base64 of their bytes.

    One file changes, by what its name says it is.
    """
    files = json.loads(content)
    name = rng.choice(sorted(files))
    if rng.random() < 0.03:
        del files[name]
    else:
        kind = ENDINGS.get(name.rpartition(".")[2], "bytes")
        files[name] = base64.b64encode(mutate(base64.b64decode(files[name]), kind, rng)).decode()
    return json.dumps(files).encode()


CHANGES = {
    "text": _text,
    "json": _json,
    "jsonl": _json_lines,
    "zip": _zip,
    "npy": _npy,
    "safetensors": _safetensors,
    "folder": _folder,
}
