"""JSON with positions: the error for a wrong value names its line and its path.

`stream` yields the elements of a list one at a time, so that memory holds one of them, however
large the file is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from softf1.data._text import read_text
from softf1.data.problems import Problems, RecordError, say_setting
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")
Step = str | int

_NAMES = {dict: "an object", list: "a list", str: "a text", int: "a number", bool: "true or false"}
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = re.compile(r"[ \t\n\r]*")
_TAIL = 16
"""An error this close to the end of the buffer may only mean that more must be read."""
_BETWEEN = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"got {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(text: str, path: Path | str, *, line: int = 1) -> object:
    """Parses a JSON text that starts at `line` of the file."""
    try:
        value: object = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        _refuse(error, path, Place(line), whole=text)
    _check_surrogates(value, text, path, line)
    return value


class Place(NamedTuple):
    """The position of a text in its file: line, and characters before it on that line."""

    line: int
    column: int = 0


def _refuse(error: Exception, path: Path | str, place: Place, *, whole: str) -> NoReturn:
    """Raises the error for invalid JSON; `whole` is the rest of the file."""
    line, message = place.line, f"wanted JSON, {error}"
    if isinstance(error, json.JSONDecodeError):
        what = error.msg.removesuffix(" starting at")
        early = error.pos >= len(whole.rstrip()) or what == "Unterminated string"
        cut = " (the text ends too early)" if early else ""
        column = error.colno + (place.column if error.lineno == 1 else 0)
        message = f"wanted JSON, got: {what} at column {column}{cut}"
        line += error.lineno - 1
    elif isinstance(error, RecursionError):
        message = "wanted JSON, got a value nested too deeply"
    raise RecordError("not JSON", message, path=path, line=line) from None


def _check_surrogates(value: object, text: str, path: Path | str, line: int) -> None:
    if not _LONE_SURROGATE.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        message = "wanted Unicode text, got half of a surrogate pair (\\ud800 … \\udfff)"
        raise RecordError("not Unicode", message, path=path, line=line) from None


class Document:
    """A JSON text and the positions that were looked up in it.

    Attributes:
        text: The text.
        path: The file that it is in.
        line: The line of the file where it begins.
        at: The keys and indices that lead to it in the file.
    """

    def __init__(
        self, text: str, path: Path | str, *, line: int = 1, at: tuple[Step, ...] = ()
    ) -> None:
        self.text, self.path, self.line, self.at = text, path, line, at
        self.one_line = "\n" not in text
        self.members: dict[tuple[Step, ...], dict[Step, int]] = {}
        self.counted = 0, line  # a position, and its line

    def line_of(self, steps: tuple[Step, ...]) -> int:
        """Finds the line of a value by scanning the text again.

        The parser keeps no positions for this, and a text of one line needs no scan. Each object or
        list on the way is scanned once; lines are counted once if values are asked for in order.
        """
        if self.one_line:
            return self.line
        place = _skip(self.text, 0)
        for depth, step in enumerate(steps):
            holder = steps[:depth]
            if holder not in self.members:
                self.members[holder] = _find_members(self.text, place)
            place = self.members[holder][step]
        known, line = self.counted if self.counted[0] <= place else (0, self.line)
        self.counted = place, line + self.text.count("\n", known, place)
        return self.counted[1]


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a JSON document, with the keys and indices that lead to it."""

    value: object
    document: Document
    steps: tuple[Step, ...] = ()

    def get(self, key: str, kind: type[T]) -> T:
        """The value under a key; raises if it is missing or of another type."""
        value = self.find(key, kind)
        if value is None:
            keys = ", ".join(map(str, self.fields()))
            raise self.error("missing key", f'wanted "{key}", got the keys {keys or "none"}')
        return value

    def find(self, key: str, kind: type[T]) -> T | None:
        """The value under a key, None if it is missing or null; raises for another type."""
        value = self.fields().get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            name = _NAMES[kind]
            raise self.error("wrong type", f'wanted {name} in "{key}", got {_show(value)}')
        return value

    def child(self, key: str) -> Node:
        """The value under a key as a node."""
        return Node(self.get(key, object), self.document, (*self.steps, key))

    def items(self, key: str) -> Iterator[Node]:
        """The elements of the list under a key."""
        for index, value in enumerate(self.get(key, list)):
            yield Node(value, self.document, (*self.steps, key, index))

    def numbers(self, key: str) -> list[int]:
        """The whole numbers of the list under a key."""
        values = self.get(key, list)
        for value in values:
            if type(value) is not int:
                raise self.error("wrong type", f'wanted numbers in "{key}", got {_show(value)}')
        return values

    @property
    def line(self) -> int:
        """The line where this value begins."""
        return self.document.line_of(self.steps)

    def error(self, reason: str, message: str) -> RecordError:
        """An error that names the line where this value begins."""
        steps = (*self.document.at, *self.steps)
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
        where = f" (at {place.lstrip('.')})" if place else ""
        return RecordError(reason, f"{message}{where}", path=self.document.path, line=self.line)

    def fields(self) -> dict[str, object]:
        """This value as a dict; raises if it is not an object."""
        if not isinstance(self.value, dict):
            raise self.error("wrong type", f"wanted an object, got {_show(self.value)}")
        return self.value


def load_document(path: Path | str) -> Node:
    """Reads a whole JSON file; an invalid file cannot be skipped in part."""
    text = "".join(read_text(path, Problems()))
    if not text.strip():
        raise InputError("wanted JSON, got an empty file", path=path)
    return Node(parse_json(text, path), Document(text.rstrip(), path))


def stream(
    path: Path | str, problems: Problems, *, key: str | None = None, rows: str = ""
) -> Iterator[Node]:
    """Yields the elements of a file's list, or of the list under a key of its object.

    Args:
        path: The file.
        problems: Has the limits on what is read.
        key: The key; None if the file is a list.
        rows: A key that marks an object as an element itself. If it is given, the file may also be
            a plain list, or have one object after another (JSON lines).
    """
    window = _Window(path, problems)
    if not window.peek():
        raise InputError("wanted JSON, got an empty file", path=path)
    if key is None or (rows and window.peek() == "["):
        if window.peek() != "[":
            node = window.read(())
            raise node.error("wrong type", f"wanted a list, got {_show(node.value)}")
        yield from window.elements(())
    else:
        yield from _elements_under(window, key, rows)
    if window.peek():
        window.refuse("Extra data")


def _elements_under(window: _Window, key: str, rows: str) -> Iterator[Node]:
    """Yields the elements of the list under a key, or the objects themselves; see `stream`."""
    if window.peek() != "{":
        window.read(()).fields()  # raises
    others: dict[str, object] = {}
    listed = False
    for name in window.names():
        if name == key and window.peek() == "[":
            listed = True
            yield from window.elements((key,))
        else:
            others[name] = window.read((name,)).value
    own = Node(others, Document("", window.path))
    if rows and rows in others:
        yield own
        while window.peek():
            yield window.read(())
    elif not listed:
        own.get(key, list)  # raises


class _Window:
    """A buffer over a JSON file, and the position in it."""

    def __init__(self, path: Path | str, problems: Problems) -> None:
        self.path, self.limit = path, problems.max_line
        self.pieces = read_text(path, problems)
        self.text, self.at, self.ended = "", 0, False
        self.known, self.place = 0, Place(1)  # a position in the text, and where it is in the file

    def peek(self) -> str:
        """The next character that is not white space, "" at the end."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def take(self, wanted: str, message: str) -> str:
        """Consumes one of the expected characters."""
        character = self.peek()
        if not character or character not in wanted:
            self.refuse(message)
        self.at += 1
        return character

    def names(self) -> Iterator[str]:
        """Yields the keys of an object; read the value after each key."""
        for _ in self._members("}"):
            if self.peek() != '"':
                self.refuse("Expecting property name enclosed in double quotes")
            name = self.read(()).value
            self.take(":", "Expecting ':' delimiter")
            yield str(name)

    def elements(self, steps: tuple[Step, ...]) -> Iterator[Node]:
        """Yields the elements of a list."""
        return (self.read((*steps, index)) for index in self._members("]"))

    def _members(self, end: str) -> Iterator[int]:
        """Yields the number of each member of the object or list that begins here."""
        self.at += 1
        if self.peek() == end:
            self.at += 1
            return
        for index in count():
            yield index
            if self.take(f",{end}", "Expecting ',' delimiter") == end:
                return

    def read(self, steps: tuple[Step, ...]) -> Node:
        """Reads the next value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
                # A number may continue beyond the buffer.
                if end < len(self.text) or not self._more():
                    break
            except json.JSONDecodeError as error:
                cut = error.pos + _TAIL >= len(self.text) or error.msg.startswith("Unterminated")
                if not cut or not self._more():
                    self.refuse(error.msg, error.pos)
            except (ValueError, RecursionError) as error:
                _refuse(error, self.path, self.where(), whole=self.text)
            if len(self.text) - self.at > 2 * self.limit:
                message = f"wanted values of at most {self.limit:,} characters, got a longer one"
                hint = f"{say_setting('max_line', 'NUMBER')} allows more"
                raise InputError(f"{message}; {hint}", path=self.path, line=self.where().line)
        own, line = self.text[self.at : end], self.where().line
        _check_surrogates(value, own, self.path, line)
        self.at = end
        return Node(value, Document(own, self.path, line=line, at=steps))

    def refuse(self, message: str, position: int | None = None) -> NoReturn:
        """Raises the error for the given position of the text, or the next one."""
        own = self.text[self.at :]
        error = json.JSONDecodeError(message, own, (position or self.at) - self.at)
        _refuse(error, self.path, self.where(), whole=own)

    def where(self) -> Place:
        """The position of the next value."""
        line, column = self.place
        ends = self.text.count("\n", self.known, self.at)
        if ends:
            line, column = line + ends, self.at - self.text.rfind("\n", self.known, self.at) - 1
        else:
            column += self.at - self.known
        self.known, self.place = self.at, Place(line, column)
        return self.place

    def _more(self) -> bool:
        """Drops what was consumed and reads more, doubling the size for a long value."""
        self.where()
        self.text, self.at, self.known = self.text[self.at :], 0, 0
        size, parts = 0, []
        while not self.ended and size <= len(self.text):
            piece = next(self.pieces, None)
            self.ended = piece is None
            parts.append(piece or "")
            size += len(parts[-1])
        self.text += "".join(parts)
        return size > 0


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:60] + "…"


def _find_members(text: str, place: int) -> dict[Step, int]:
    """Returns the positions of all values in the object or list at `place`, by key or index."""
    members: dict[Step, int] = {}
    keyed, place = text[place] == "{", _skip(text, place + 1)
    while text[place] not in "}]":
        step: Step = len(members)
        if keyed:
            step, place = _DECODER.raw_decode(text, place)
            place = _skip(text, place)
        members[step] = place
        _, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
    return members


def _skip(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return match.end() if match else place
