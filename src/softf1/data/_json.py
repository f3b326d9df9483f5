"""JSON that knows where it stands: every wrong value is an error with its line and its path."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from softf1.data._text import read_text
from softf1.data.problems import RecordError
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")
Step = str | int

_NAMES = {dict: "an object", list: "a list", str: "a text", int: "a number", bool: "true or false"}
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BETWEEN = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"got {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(text: str, path: Path | str, *, line: int = 1) -> object:
    """The value of a JSON text that starts at `line` of the file."""
    try:
        value: object = _DECODER.decode(text)
        if _LONE_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at")
        early = error.pos >= len(text.rstrip()) or what == "Unterminated string"
        cut = " (the text ends too early)" if early else ""
        message = f"wanted JSON, got: {what} at column {error.colno}{cut}"
        raise RecordError("not JSON", message, path=path, line=line + error.lineno - 1) from None
    except RecursionError:
        raise RecordError("not JSON", "wanted JSON, got it nested too deep", path=path) from None
    except UnicodeEncodeError:
        message = "wanted Unicode text, got half of a surrogate pair (\\ud800 … \\udfff)"
        raise RecordError("not Unicode", message, path=path, line=line) from None
    except ValueError as error:
        raise RecordError("not JSON", f"wanted JSON, {error}", path=path, line=line) from None
    return value


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON text and the places in it that were asked for."""

    text: str
    path: Path | str
    one_line: bool
    reached: dict[tuple[Step, ...], tuple[int, int]] = field(default_factory=dict)

    def line_of(self, steps: tuple[Step, ...]) -> int:
        """The line of the value that the steps lead to, found by walking the text again.

        The parser does not have to keep positions, and files of one line are not walked. What was
        reached is remembered, so that the lines of many values cost one walk together.
        """
        if self.one_line:
            return 1
        place = _skip(self.text, 0)
        for depth, step in enumerate(steps):
            if isinstance(step, str):
                place = self._key(steps[: depth + 1], place, step)
            else:
                place = self._index(steps[:depth], place, step)
        known, line = self.reached.get((), (0, 1))
        known, line = (known, line) if known <= place else (0, 1)
        line += self.text.count("\n", known, place)
        self.reached[()] = (place, line)
        return line

    def _key(self, steps: tuple[Step, ...], place: int, key: str) -> int:
        if steps not in self.reached:
            self.reached[steps] = (_find_key(self.text, _skip(self.text, place + 1), key), 0)
        return self.reached[steps][0]

    def _index(self, steps: tuple[Step, ...], place: int, index: int) -> int:
        steps = (*steps, -1)  # a list's own last element, apart from the list itself
        known, last = self.reached.get(steps, (_skip(self.text, place + 1), 0))
        if last > index:
            known, last = _skip(self.text, place + 1), 0
        found = _find_index(self.text, known, index - last)
        self.reached[steps] = (found, index)
        return found


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a JSON document, with the steps that lead to it."""

    value: object
    document: Document
    steps: tuple[Step, ...] = ()

    def get(self, key: str, kind: type[T]) -> T:
        """The value under a key, which must be there and of that kind."""
        value = self.find(key, kind)
        if value is None:
            keys = ", ".join(map(str, self.fields()))
            raise self.error("missing key", f'wanted "{key}", got the keys {keys or "none"}')
        return value

    def find(self, key: str, kind: type[T]) -> T | None:
        """The value under a key if it is there and not null; it must be of that kind."""
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
        self.get(key, list)
        return self.child(key).elements()

    def elements(self) -> Iterator[Node]:
        """The elements of this list."""
        if not isinstance(self.value, list):
            raise self.error("wrong type", f"wanted a list, got {_show(self.value)}")
        for index, value in enumerate(self.value):
            yield Node(value, self.document, (*self.steps, index))

    def names(self) -> tuple[str, ...]:
        """The keys of this object."""
        return tuple(self.fields())

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
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)
        where = f" (at {place.lstrip('.')})" if place else ""
        return RecordError(reason, f"{message}{where}", path=self.document.path, line=self.line)

    def fields(self) -> dict[str, object]:
        """This value as a dict, which it must be."""
        if not isinstance(self.value, dict):
            raise self.error("wrong type", f"wanted an object, got {_show(self.value)}")
        return self.value


def load(path: Path | str) -> Node:
    """Reads a whole JSON file; a file that is not JSON cannot be skipped in part."""
    text = read_text(path)
    if not text.strip():
        raise InputError("wanted JSON, got an empty file", path=path)
    return Node(parse(text, path), Document(text, path, one_line="\n" not in text.rstrip()))


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def _find_key(text: str, place: int, wanted: str) -> int:
    """The value of a key in the object whose content begins at `place` (the last, as in dict)."""
    found = place
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
        found = place if key == wanted else found
        _, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
    return found


def _find_index(text: str, place: int, count: int) -> int:
    """The element that comes `count` after the one at `place`."""
    for _ in range(count):
        _, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
    return place


def _skip(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return match.end() if match else place
