"""Files as text: UTF-8 with or without BOM, CRLF, gzip; errors that name file and line.

Decoding whole pieces of a mebibyte keeps line formats at the speed of `bytes.decode` and
`str.split`; only a piece that is not UTF-8 is looked at line by line.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

from softf1.data.problems import Problems, RecordError, say_setting
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = Callable[[int], bytes]

_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # first: it starts with the BOM of UTF-16
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class Encoded(str):
    """The path of a file in another encoding; readers get it as UTF-8.

    Attributes:
        encoding: Its encoding, by a name that Python knows.
    """

    __slots__ = ("encoding",)
    encoding: str

    def __new__(cls, path: Path | str, encoding: str) -> Self:
        """Raises for an unknown encoding."""
        try:
            "".encode(encoding)
        except (LookupError, ValueError):
            message = f"wanted the name of an encoding, such as latin-1, got {encoding!r}"
            raise InputError(message) from None
        made = super().__new__(cls, path)
        made.encoding = encoding
        return made


@contextmanager
def open_bytes(path: Path | str) -> Iterator[tuple[Read, bool]]:
    """Opens a file to be read as UTF-8, and says whether it is gzip.

    Errors of the system or of gzip become an InputError.
    """
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            read: Read = gzip.GzipFile(fileobj=file).read if packed else file.read
            yield _recode(read, path.encoding) if isinstance(path, Encoded) else read, packed
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"wanted a whole gzip file, got a damaged one ({error})", path=path
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"wanted a file to read, got: {reason}", path=path) from None


def _recode(read: Read, encoding: str) -> Read:
    """Reads about as many bytes as wanted, as UTF-8; returns none only at the end of the file."""
    decoder = codecs.getincrementaldecoder(encoding)()

    def read_utf8(size: int) -> bytes:
        while True:
            data = read(size)
            text = decoder.decode(data, final=not data)
            if text or not data:
                return text.encode(errors="replace")

    return read_utf8


def read_chunks(path: Path | str, problems: Problems) -> Iterator[bytes]:
    """Yields chunks of bytes without BOM; raises if a gzip file unpacks to more than the limit."""
    with open_bytes(path) as (read, packed):
        size, first = 0, True
        while data := read(_PIECE):
            size += len(data)
            if packed and size > problems.max_unpacked:
                message = f"wanted a gzip file of at most {problems.max_unpacked:,} bytes unpacked"
                hint = f"{say_setting('max_unpacked', 'BYTES')} allows more"
                raise InputError(f"{message}, got more; {hint}", path=path)
            yield _drop_bom(data, path) if first else data
            first = False


def read_text(path: Path | str, problems: Problems) -> Iterator[str]:
    """Yields chunks of text, regardless of lines."""
    problems.refuse_replacing(path)
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    for data in chain(read_chunks(path, problems), [b""]):
        try:
            yield decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise _not_utf8(error, path, line) from None
        line += data.count(b"\n")


def read_start(path: Path | str, size: int = 1 << 16) -> str:
    """Reads the first lines of a file, for detection; replaces undecodable bytes.

    The last line is complete, unless it is the first or the second.
    """
    with open_bytes(path) as (read, _):
        data = read(size)
    if len(data) == size and data.count(b"\n") > 1:
        data = data[: data.rfind(b"\n")]
    return _plain_newlines(_drop_bom(data, path)).decode(errors="replace")


def lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yields (line number, line without its end); skips lines that cannot be decoded."""
    number = 1
    for piece in _pieces(path, problems):
        yield from _decode(piece, b"\n", number, path, problems)
        number += piece.count(b"\n")


def blocks(path: Path | str, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yields (first line number, text) of blocks between empty lines."""
    number = 1
    for piece in _whole_blocks(path, problems):
        for start, part in _decode(piece, b"\n\n", number, path, problems):
            body = part.strip("\n")
            if body:
                yield start if part[0] != "\n" else start + part.index(body), body
        number += piece.count(b"\n")


def _whole_blocks(path: Path | str, problems: Problems) -> Iterator[bytes]:
    """Yields pieces that end at an empty line."""
    parts: list[bytes] = []
    size = 0
    for piece in _pieces(path, problems):
        cut = piece.rfind(b"\n\n") + 2
        if cut == 1 and not (parts and piece.startswith(b"\n")):
            parts.append(piece)
            size += len(piece)
            if size > problems.max_line:
                raise _too_long("an empty line after", path, problems)
            continue
        yield b"".join([*parts, piece[:cut]])
        parts = [piece[cut:]] if piece[cut:] else []
        size = len(piece) - cut
    if parts:
        yield b"".join(parts)


def _pieces(path: Path | str, problems: Problems) -> Iterator[bytes]:
    """Yields pieces that end at the end of a line, with plain newlines."""
    parts: list[bytes] = []
    size, line = 0, 1
    for read in read_chunks(path, problems):
        cut = read.rfind(b"\n") + 1
        ends = read.find(b"\n") if cut else len(read)
        if size + ends > problems.max_line:
            raise _too_long("lines of", path, problems, line=line)
        if cut:
            whole = b"".join([*parts, read[:cut]])
            yield _plain_newlines(whole)
            line += whole.count(b"\n")
            parts, size = [], 0
        parts.append(read[cut:])
        size += len(read) - cut
    if rest := b"".join(parts):
        yield _plain_newlines(rest)


def _too_long(
    wanted: str, path: Path | str, problems: Problems, *, line: int | None = None
) -> InputError:
    message = f"wanted {wanted} at most {problems.max_line:,} bytes, got more"
    hint = f"{say_setting('max_line', 'BYTES')} allows more"
    return InputError(f"{message}; {hint}", path=path, line=line)


def _drop_bom(data: bytes, path: Path | str) -> bytes:
    wide = next((name for bom, name in _WIDE_BOMS.items() if data.startswith(bom)), None)
    if wide:
        raise InputError(
            f"wanted UTF-8, got {wide} (by its byte order mark); use --encoding {wide.lower()}, "
            f"or task.encoding={wide.lower()} to train",
            path=path,
            line=1,
        )
    return data.removeprefix(codecs.BOM_UTF8)


def _plain_newlines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def _decode(
    data: bytes, separator: bytes, number: int, path: Path | str, problems: Problems
) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) of the parts of `data`, which starts at line `number`."""
    try:
        parts = data.decode().split(separator.decode())
    except UnicodeDecodeError:
        yield from _decode_each(data.split(separator), len(separator), number, path, problems)
        return
    if not parts[-1]:
        parts.pop()
    if len(separator) == 1:
        yield from enumerate(parts, number)
        return
    for part in parts:
        yield number, part
        number += part.count("\n") + len(separator)


def _decode_each(
    parts: list[bytes], step: int, number: int, path: Path | str, problems: Problems
) -> Iterator[tuple[int, str]]:
    for part in parts[: -1 if not parts[-1] else None]:
        try:
            yield number, part.decode()
        except UnicodeDecodeError as error:
            wrong = _not_utf8(error, path, number, hint=True)
            if problems.encoding_errors == "replace":
                problems.change("bytes that are not UTF-8 replaced", str(wrong))
                yield number, part.decode(errors="replace")
            else:
                problems.add(wrong)
        number += part.count(b"\n") + step


def _not_utf8(
    error: UnicodeDecodeError, path: Path | str, line: int, *, hint: bool = False
) -> RecordError:
    line += error.object.count(b"\n", 0, error.start)
    got = error.object[error.start : error.start + 1].hex()
    say = "--encoding latin-1 or another (to train, task.encoding=latin-1)"
    more = ", or --set encoding_errors=replace (task.reader.encoding_errors)" if hint else ""
    message = f"wanted UTF-8 text, got byte 0x{got}; use {say}{more}"
    return RecordError("not UTF-8", message, path=path, line=line)
