"""Checks options against the types that their owner declares; softf1 has no other validator.

A recipe section, a task, a reader, an encoder or a loss declares its options as fields of a
dataclass or as parameters of a function. `option_types` reads the declaration, `convert_value`
checks one value and `check_options` checks all that a user gave.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path, PurePath
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as _hints

from softf1.errors import InputError

T = TypeVar("T")

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    tuple: "a list",
    Sequence: "a list",
    dict: "a table",
}
"""Names of the types in messages."""


class OptionError(InputError):
    """An unknown option or a wrong value; `key` is its name, such as `train.lr`."""

    def __init__(self, key: str, message: str):
        self.key = key
        super().__init__(f"{key}: {message}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The numbers that a key takes: `least` ≤ value ≤ `most`, `above` < value < `below`."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        """Whether a number is in the range; infinities and NaN never are."""
        inside = self.least <= value <= self.most and self.above < value < self.below
        return inside and math.isfinite(value)

    def __str__(self) -> str:
        """The range in words.

        >>> str(Range(least=0, most=1)), str(Range(above=0, below=2**32))
        ('from 0 to 1', 'above 0, below 4294967296')
        """
        ends = {"from": self.least, "above": self.above, " to": self.most, ", below": self.below}
        said = "".join(f"{word} {x:.15g}" for word, x in ends.items() if math.isfinite(x))
        return said.removeprefix(", ").lstrip()


@cache
def option_types(owner: Callable[..., Any]) -> dict[str, Any]:
    """Returns the declared type, with its range, of each option of a dataclass or function.

    An annotation whose name is only imported for type checking counts as Any.

    >>> def read(path, *, tag: int | None = -1): ...
    >>> option_types(read)
    {'path': typing.Any, 'tag': int | None}
    """
    if is_dataclass(owner):
        hints = _hints(owner, include_extras=True)
        return {field.name: hints[field.name] for field in fields(owner)}
    function: Any = owner.__init__ if isinstance(owner, type) else owner  # type: ignore[misc]
    names = inspect.unwrap(function).__globals__
    return {
        name: _evaluate(one.annotation, names)
        for name, one in inspect.signature(owner).parameters.items()
    }


def _evaluate(annotation: Any, names: dict[str, Any]) -> Any:
    """Evaluates an annotation; Any if it is missing or not available at run time."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        return _hints(holder, names, include_extras=True)["it"]
    except NameError:
        return Any


def check_options(
    options: Mapping[str, Any], types: Mapping[str, Any], *, owner: str
) -> dict[str, Any]:
    """Converts options to their declared types; the error for an unknown name lists the known ones.

    >>> check_options({"gamma": 2}, {"gamma": float}, owner="loss focal")
    {'gamma': 2.0}
    >>> check_options({"tga": 3}, {"tag": int}, owner="format conll")
    Traceback (most recent call last):
    softf1.errors.InputError: unknown option of format conll 'tga' (did you mean tag?); known: tag
    """
    return {
        name: convert_value(
            value, look_up(name, types, f"option of {owner}"), key=f"option {name} of {owner}"
        )
        for name, value in options.items()
    }


def check_fields(section: Any, where: str) -> None:
    """Checks every field and converts its value: integers to floats, lists to tuples.

    Args:
        section: A frozen dataclass; call this in its `__post_init__`.
        where: The name of the section, for messages.
    """
    cls: Any = type(section)
    for name, hint in option_types(cls).items():
        key = where if name == "options" else f"{where}.{name}"
        object.__setattr__(section, name, convert_value(getattr(section, name), hint, key=key))


def convert_value(value: Any, hint: Any, *, key: str) -> Any:
    """Checks a value against a type and converts it: integers to floats, lists to tuples.

    >>> convert_value(1, float, key="train.lr"), convert_value([1, 2], tuple[float, ...], key="x")
    (1.0, (1.0, 2.0))
    >>> convert_value("fast", Literal["linear", "cosine"], key="train.schedule")
    Traceback (most recent call last):
    softf1.options.OptionError: train.schedule: wanted linear or cosine, got 'fast'
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _in_range(convert_value(value, parts[0], key=key), parts[1], key=key)
    if origin in (UnionType, Union):
        return _convert_union(value, parts, key=key)
    if origin is Literal:
        if not isinstance(value, str) or value not in parts:
            raise wrong(key, _wording(hint), value)
        return value
    if origin is tuple:
        return _convert_tuple(value, parts, key=key)
    if origin is Sequence:
        return _convert_tuple(value, (*parts, ...), key=key)
    if origin is dict:
        return _convert_table(value, parts[1], key=key)
    if isinstance(hint, type) and is_dataclass(hint):
        known = isinstance(value, hint)
        return value if known else build_section(hint, _convert_table(value, Any, key=key), key)
    return _convert_any(value, key=key) if hint is Any else _convert_plain(value, hint, key=key)


def find_plugins(group: str) -> EntryPoints:
    """Returns the entry points that installed packages have in a group, such as `softf1.tasks`.

    Looking through all packages takes tens of milliseconds, so it is done once for each group and
    `sys.path`. A package that is installed later is found by the next process.
    """
    return _read_plugins(group, tuple(sys.path))


@cache
def _read_plugins(group: str, path: tuple[str, ...]) -> EntryPoints:  # noqa: ARG001 - for the cache
    return entry_points(group=group)


def look_up(name: str, names: Mapping[str, T], what: str) -> T:
    """Returns the entry of that name; the error for an unknown name lists the known ones."""
    if name in names:
        return names[name]
    raise InputError(say_unknown(f"{what} {name!r}", name, names))


def say_unknown(what: str, name: str, names: Collection[str]) -> str:
    """The message about an unknown name: the nearest known one, and all of them.

    >>> say_unknown("section", "los", ["loss", "train"])
    'unknown section (did you mean loss?); known: loss, train'
    """
    return f"unknown {what}{nearest(name, names)}; known: {', '.join(names)}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggests the known name nearest to an unknown one, as the end of a message.

    >>> nearest("epoch", ["epochs", "lr"]), nearest("zzz", ["lr"])
    (' (did you mean epochs?)', '')
    """
    near = get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def named(section: str, options: Iterable[str], message: str) -> str:
    """Finds the option of a section that a message names, if any.

    >>> named("loss", ["gamma", "dice.over"], "wanted over to be example or batch")
    'loss.dice.over'
    """
    keys = {name.rpartition(".")[2]: f"{section}.{name}" for name in options}
    return next((keys[word] for word in re.findall(r"\w+", message) if word in keys), section)


def _convert_union(value: Any, parts: tuple[Any, ...], *, key: str) -> Any:
    """Converts a value to the first type of a union that accepts it."""
    if value is None and NoneType in parts:
        return None
    kept = [part for part in parts if part is not NoneType]
    lists = [part for part in kept if get_origin(part) in (tuple, Sequence)]
    only = lists if isinstance(value, (list, tuple)) else kept
    if len(only) == 1:  # its message says more than "wanted this or that"
        return convert_value(value, only[0], key=key)
    for part in kept:
        try:
            return convert_value(value, part, key=key)
        except OptionError:
            continue
    raise wrong(key, " or ".join(dict.fromkeys(map(_wording, kept))), value)


def _wording(hint: Any) -> str:
    """The name of a type in a message."""
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    plain = get_origin(hint) or hint
    return WORDS.get(plain) or str(getattr(plain, "__name__", plain))


def _convert_any(value: Any, *, key: str) -> Any:
    """Accepts what both TOML and JSON can hold: strings, numbers, lists and tables."""
    if isinstance(value, dict):
        return _convert_table(value, Any, key=key)
    if isinstance(value, (list, tuple)):
        return [_convert_any(one, key=key) for one in value]
    if isinstance(value, PurePath):
        return str(value)
    if not isinstance(value, (bool, int, float, str)):
        raise wrong(key, "a string, a number, true or false, a list or a table", value)
    _check_size(value, key=key)
    return value


def _convert_plain(value: Any, hint: Any, *, key: str) -> Any:
    hint = str if hint is Path else hint
    if hint is str and isinstance(value, PurePath):
        return str(value)
    wider = {float: (int, float), tuple: (tuple, list)}
    fits = isinstance(value, wider.get(hint, hint))
    if not fits or (isinstance(value, bool) and hint is not bool):
        number = hint is str and type(value) in (int, float) and abs(value) < 2**63
        raise wrong(key, _wording(hint) + (f' in quotes ("{value}")' if number else ""), value)
    if value == "":
        raise wrong(key, "a string that is not empty", value)
    _check_size(value, key=key)
    return hint(value) if hint in (bool, int, float, str, tuple) else value


def _check_size(value: Any, *, key: str) -> None:
    """Refuses text that UTF-8 cannot encode, and integers that do not fit into 64 bits."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # such as a file name in another encoding
            raise wrong(key, "a string that UTF-8 can encode", value) from None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OptionError(key, f"wanted a number of 64 bits, got one of {value.bit_length():,}")


def _convert_tuple(value: Any, parts: tuple[Any, ...], *, key: str) -> tuple[Any, ...]:
    several = parts[-1] is Ellipsis
    if not isinstance(value, (list, tuple)) or not (several or len(value) == len(parts)):
        raise wrong(key, "a list" if several else f"a list of {len(parts)}", value)
    kinds = parts[:1] * len(value) if several else parts
    return tuple(convert_value(one, kind, key=key) for one, kind in zip(value, kinds, strict=True))


def _convert_table(value: Any, hint: Any, *, key: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise wrong(key, "a table", value)
    return {name: convert_value(one, hint, key=f"{key}.{name}") for name, one in value.items()}


def build_section(section: Any, values: Mapping[str, Any], where: str) -> Any:
    """Builds a dataclass from a table; its field `options`, if it has one, takes the other keys."""
    known = {field.name: field for field in fields(section)}
    free = known.pop("options", None) is not None
    options = {key: value for key, value in values.items() if key not in known}
    if options and not free:
        key = next(iter(options))
        raise OptionError(f"{where}.{key}", say_unknown("key", key, known))
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            near = get_close_matches(name, options, n=1)
            if near:
                message = f"unknown key (did you mean {name}?); known: {', '.join(known)}"
                raise OptionError(f"{where}.{near[0]}", message)
            raise OptionError(f"{where}.{name}", f"wanted this key in [{where}], got none")
    typed = {key: value for key, value in values.items() if key in known}
    return section(**typed, **({"options": options} if free else {}))


def _in_range(value: Any, allowed: Range, *, key: str) -> Any:
    """Checks a number, or each number of a tuple or table."""
    numbers = value.values() if isinstance(value, dict) else value
    for one in numbers if not isinstance(value, (int, float, NoneType)) else [value]:
        if one is not None and one not in allowed:
            raise wrong(key, f"a number {allowed}", one)
    return value


def wrong(key: str, wanted: str, value: Any) -> OptionError:
    """The error about a value that is not what was wanted."""
    try:
        got = repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        got = "a number that is too long to show"
    return OptionError(key, f"wanted {wanted}, got {got}")
