"""Options of a task against the types of its fields, so that a wrong value is said at once."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_options(cls: type, options: Mapping[str, Any], *, kind: str) -> None:
    """Raise where a value is none of the choices, or not of the type, that a field has.

    >>> from softf1.tasks.qa import QA
    >>> check_options(QA, {"positions": "both"}, kind="qa")
    Traceback (most recent call last):
    softf1.errors.InputError: option positions of task qa: wanted softmax or sigmoid, got 'both'
    """
    hints = get_type_hints(cls)
    for name, value in options.items():
        kinds = _alternatives(hints[name])
        if not any(_fits(value, one) for one in kinds):
            wanted = " or ".join(_name(one) for one in kinds if one is not NoneType)
            raise InputError(f"option {name} of task {kind}: wanted {wanted}, got {value!r}")


def _alternatives(hint: Any) -> list[Any]:
    """The types of a union, and each choice of a Literal."""
    if get_origin(hint) is Literal:
        return [Literal[choice] for choice in get_args(hint)]
    if get_origin(hint) in (UnionType, Union):
        return [part for one in get_args(hint) for part in _alternatives(one)]
    return [hint]


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return bool(value == get_args(hint)[0])
    plain = get_origin(hint) or hint
    if plain is Any:
        return True
    if plain in (int, float) and isinstance(value, bool):
        return False
    wider = {float: (float, int), tuple: (tuple, list)}
    return isinstance(value, wider.get(plain, plain))


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return str(get_args(hint)[0])
    plain = get_origin(hint) or hint
    return {dict: "a table", int: "a whole number", float: "a number", str: "a text"}.get(
        plain, str(getattr(plain, "__name__", plain))
    )
