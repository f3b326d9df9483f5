"""Values of a recipe against the types and ranges of its sections."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin
from typing import get_type_hints as _hints

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class RecipeError(InputError):
    """A wrong value or name in a recipe; `key` says where, such as `train.lr`."""

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
        """Whether a number is in the range; what is not finite never is."""
        inside = self.least <= value <= self.most and self.above < value < self.below
        return inside and math.isfinite(value)

    def __str__(self) -> str:
        """The range in words.

        >>> str(Range(least=0, most=1)), str(Range(above=0, below=2**32))
        ('from 0 to 1', 'above 0, below 4294967296')
        """
        ends = {"from": self.least, "above": self.above, " to": self.most, ", below": self.below}
        found = "".join(f"{word} {x:.15g}" for word, x in ends.items() if math.isfinite(x))
        return found.removeprefix(", ").lstrip()


@cache
def field_types(cls: type) -> dict[str, Any]:
    """The types of a section's fields, with their ranges."""
    return _hints(cls, include_extras=True)


def check_fields(section: Any, where: str) -> None:
    """Check every field and bring its value to its type: whole numbers to floats, lists to tuples.

    Args:
        section: A frozen dataclass, in its `__post_init__`.
        where: The name of the section, for messages.
    """
    cls: type = type(section)
    for name, hint in field_types(cls).items():
        key = where if name == "options" else f"{where}.{name}"
        object.__setattr__(section, name, convert(getattr(section, name), hint, key=key))


def convert(value: Any, hint: Any, *, key: str) -> Any:
    """The value as the type wants it.

    >>> convert(1, float, key="train.lr"), convert([1, 2], tuple[float, ...], key="x")
    (1.0, (1.0, 2.0))
    >>> convert("fast", Literal["linear", "cosine"], key="train.schedule")
    Traceback (most recent call last):
    softf1.recipe.fields.RecipeError: train.schedule: wanted linear or cosine, got 'fast'
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _in_range(convert(value, parts[0], key=key), parts[1], key=key)
    if origin in (UnionType, Union):  # the only kind of union there is: with None
        kept = next(part for part in parts if part is not NoneType)
        return None if value is None else convert(value, kept, key=key)
    if origin is Literal:
        if not isinstance(value, str) or value not in parts:
            raise _wrong(key, " or ".join(parts), value)
        return value
    if origin is tuple:
        return _convert_tuple(value, parts, key=key)
    if origin is dict:
        return _convert_table(value, parts[1], key=key)
    return _convert_any(value, key=key) if hint is Any else _convert_plain(value, hint, key=key)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint at the name that was meant, to be put behind a message.

    >>> nearest("epoch", ["epochs", "lr"]), nearest("zzz", ["lr"])
    (' (did you mean epochs?)', '')
    """
    near = get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def named(section: str, options: Iterable[str], message: str) -> str:
    """The option of a section that a message is about, if it names one.

    >>> named("loss", ["gamma", "dice.over"], "wanted over to be example or batch")
    'loss.dice.over'
    """
    keys = {name.rpartition(".")[2]: f"{section}.{name}" for name in options}
    return next((keys[word] for word in re.findall(r"\w+", message) if word in keys), section)


def _convert_any(value: Any, *, key: str) -> Any:
    """What both TOML and JSON can say: texts, numbers, lists and tables of them."""
    if isinstance(value, dict):
        return _convert_table(value, Any, key=key)
    if isinstance(value, (list, tuple)):
        return [_convert_any(one, key=key) for one in value]
    if isinstance(value, PurePath):
        return str(value)
    if not isinstance(value, (bool, int, float, str)):
        raise _wrong(key, "a text, a number, true or false, a list or a table", value)
    if isinstance(value, str):
        _check_text(value, key=key)
    return value


def _convert_plain(value: Any, hint: type, *, key: str) -> Any:
    if hint is str and isinstance(value, PurePath):
        return str(value)
    fits = isinstance(value, (int, float) if hint is float else hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise _wrong(key, WORDS[hint], value)
    if value == "":
        raise _wrong(key, "a text that is not empty", value)
    if hint is str:
        _check_text(value, key=key)
    return hint(value)


def _check_text(value: str, *, key: str) -> None:
    """Refuses what UTF-8 cannot say, such as the name of a file in another encoding."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(key, "a text that UTF-8 can say", value) from None


def _convert_tuple(value: Any, parts: tuple[Any, ...], *, key: str) -> tuple[Any, ...]:
    several = parts[-1] is Ellipsis
    if not isinstance(value, (list, tuple)) or not (several or len(value) == len(parts)):
        raise _wrong(key, "a list" if several else f"a list of {len(parts)}", value)
    kinds = parts[:1] * len(value) if several else parts
    return tuple(convert(one, kind, key=key) for one, kind in zip(value, kinds, strict=True))


def _convert_table(value: Any, hint: Any, *, key: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise _wrong(key, "a table", value)
    return {name: convert(one, hint, key=f"{key}.{name}") for name, one in value.items()}


def _in_range(value: Any, allowed: Range, *, key: str) -> Any:
    """Check a number, or each number of a tuple or table."""
    numbers = value.values() if isinstance(value, dict) else value
    for one in numbers if not isinstance(value, (int, float, NoneType)) else [value]:
        if one is not None and one not in allowed:
            raise _wrong(key, f"a number {allowed}", one)
    return value


def _wrong(key: str, wanted: str, value: Any) -> RecipeError:
    return RecipeError(key, f"wanted {wanted}, got {value!r}")
