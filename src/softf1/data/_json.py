"""JSON that knows where it stands: every wrong value is an error with its line and its path."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
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
_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA_OR_END = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*")


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
        cut = " (the text ends too early)" if error.pos >= len(text.rstrip()) else ""
        message = f"wanted JSON, got: {error.msg} at column {error.colno}{cut}"
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
class Node:
    """A value in a JSON document, with the steps that lead to it."""

    value: object
    text: str
    path: Path | str
    steps: tuple[Step, ...] = ()

    def get(self, key: str, kind: type[T]) -> T:
        """The value under a key, which must be there and of that kind."""
        value = self.find(key, kind)
        if value is None:
            keys = ", ".join(map(str, self._object()))
            raise self.error("missing key", f'wanted "{key}", got the keys {keys or "none"}')
        return value

    def find(self, key: str, kind: type[T]) -> T | None:
        """The value under a key if it is there and not null; it must be of that kind."""
        value = self._object().get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            name = _NAMES[kind]
            raise self.error("wrong type", f'wanted {name} in "{key}", got {_show(value)}')
        return value

    def items(self, key: str) -> Iterator[Node]:
        """The elements of the list under a key."""
        for index, value in enumerate(self.get(key, list)):
            yield Node(value, self.text, self.path, (*self.steps, key, index))

    def error(self, reason: str, message: str) -> RecordError:
        """An error that names the line where this value begins."""
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)
        where = f" (at {place.lstrip('.')})" if place else ""
        line = _line_of(self.text, self.steps)
        return RecordError(reason, f"{message}{where}", path=self.path, line=line)

    def _object(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            raise self.error("wrong type", f"wanted an object, got {_show(self.value)}")
        return self.value


def load(path: Path | str) -> Node:
    """Reads a whole JSON file; a file that is not JSON cannot be skipped in part."""
    text = read_text(path)
    if not text.strip():
        raise InputError("wanted JSON, got an empty file", path=path)
    return Node(parse(text, path), text, path)


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def _line_of(text: str, steps: tuple[Step, ...]) -> int:
    """The line of the value that the steps lead to, found by walking the text again.

    Only errors need it, so the parser itself does not have to keep positions.
    """
    place = _skip(text, 0)
    for step in steps:
        place = _enter(text, _skip(text, place + 1), step)
    return text.count("\n", 0, place) + 1


def _enter(text: str, place: int, step: Step) -> int:
    """The place of one element of the list or object whose content begins at `place`."""
    found: int | None = None
    index = 0
    while text[place] not in "]}":
        key: object = index
        if isinstance(step, str):
            key, place = _DECODER.raw_decode(text, place)
            place = _skip(text, place)
        if key == step:
            found = place
            if isinstance(step, int):
                break
        _, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
        index += 1
    return place if found is None else found


def _skip(text: str, place: int) -> int:
    match = _COMMA_OR_END.match(text, place)
    return match.end() if match else place
