"""TOML of recipes: read with the line of every key, `key=value` words, and written."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.recipe.fields import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_NAMES = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAMES})\s*\]")
_KEY = re.compile(rf"\s*({_NAMES})\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_QUOTES = ("[", "{", '"', "'")
_OPEN, _CLOSE = "[{", "]}"


def load_toml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The content of a file, and the line of each key such as `train.lr`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text), find_lines(text)
    except OSError as error:
        raise InputError(f"wanted a recipe, got {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"wanted text in UTF-8, got {error.reason}", path=path) from error
    except RecursionError as error:
        raise InputError("wanted TOML, got too many brackets in each other", path=path) from error
    except ValueError as error:
        message, line = str(error), None
        if found := _AT_LINE.search(message):
            message, line = message[: found.start()], int(found[1])
        raise InputError(f"wanted TOML, got: {message}", path=path, line=line) from error


def find_lines(text: str) -> dict[str, int]:
    r"""The line of each section and key, as far as they stand at the start of one.

    >>> find_lines("[train]\nlr = 1\n\n[loss.dice]\nover = 'batch'")
    {'train': 1, 'train.lr': 2, 'loss.dice': 4, 'loss.dice.over': 5}
    """
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _HEADER.match(line):
            section = _plain(header[1])
            lines.setdefault(section, number)
        elif key := _KEY.match(line):
            name = _plain(key[1])
            lines.setdefault(f"{section}.{name}" if section else name, number)
    return lines


def parse_override(word: str) -> tuple[str, Any]:
    """Key and value of `key=value`; the value is TOML, any other word is a text.

    Nothing but `key=` gives None, which is the default of the key.

    >>> parse_override("train.lr=3e-5"), parse_override("loss.name=ce+dice")
    (('train.lr', 3e-05), ('loss.name', 'ce+dice'))
    """
    key, found, text = (part.strip() for part in word.partition("="))
    if not found or not key:
        raise InputError(f"wanted key=value, such as train.lr=3e-5, got {word!r}")
    return key, _parse_value(text, key)


def _parse_value(text: str, key: str) -> Any:
    if not text:
        return None
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        if text.startswith(_QUOTES):
            raise RecipeError(key, f"wanted a value in TOML, got {text!r}") from error
        return text
    value = parsed.pop("value")
    # Dates are texts to us; more than one key means that the text has ends of lines.
    return value if isinstance(value, (bool, int, float, str, list, dict)) and not parsed else text


def split_values(text: str) -> Iterator[str]:
    """The values of a list, at commas that are in no bracket and no quotes.

    >>> list(split_values("[1, 0.5],[1, 1]"))
    ['[1, 0.5]', '[1, 1]']
    """
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
        else:
            depth += (letter in _OPEN) - (letter in _CLOSE)
    yield text[start:].strip()


def format_toml(values: dict[str, Any], *, prefix: str = "") -> str:
    """Nested tables as TOML, texts and numbers before tables."""
    lines = [
        f"{_key(name)} = {_value(one)}" for name, one in values.items() if not isinstance(one, dict)
    ]
    text = "".join(f"{line}\n" for line in lines)
    for name, one in values.items():
        if isinstance(one, dict):
            path = f"{prefix}{_key(name)}"
            text += f"\n[{path}]\n" + format_toml(one, prefix=f"{path}.")
    return text


def _value(value: Any) -> str:
    """A value on one line.

    >>> _value([1, 2e-05, True, "a"])
    '[1, 2e-5, true, "a"]'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return re.sub(r"e([+-])0", r"e\1", repr(value)).replace("e+", "e")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"


def _text(value: str) -> str:
    """A basic string: JSON's escapes are TOML's, which also wants DEL escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _plain(names: str) -> str:
    """Dotted names without quotes and spaces."""
    return ".".join(name.strip("\"'") for name in re.findall(_NAME, names))
