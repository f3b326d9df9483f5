"""Recipes in TOML: read with the line of every key, changed by dotted keys, and written."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import softf1
from softf1.errors import InputError
from softf1.models.encoders import MINILM, list_encoders
from softf1.options import OptionError, build_section, convert_value, nearest, say_unknown, wrong
from softf1.recipe.sections import SECTIONS, LossSection, Recipe

_NO_RESULT = ("checkpoint_seconds", "trackers")
"""Keys of `[train]` that do not change the result."""
OF_ANY_LOSS = ("statistics", "keys")
"""Keys of `[loss]` that stay when the loss is replaced."""
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_NAMES = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAMES})\s*\]")
_KEY = re.compile(rf"\s*({_NAMES})\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_QUOTES = ("[", "{", '"', "'")
_COMMENT = re.compile(r"# (Run|Paper): +(.+)")


def read_recipe(path_or_name: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe from a file or by its shipped name, with changes such as `train.lr=3e-5`.

    This checks names, types and ranges of keys; `check_recipe` also checks the options of task and
    loss, for which it loads torch.

    Raises:
        InputError: Names the file and the line of the key.
    """
    path = find_recipe_file(path_or_name)
    values, lines = load_toml(path)
    given = dict(parse_override(word) for word in overrides)
    try:
        recipe = build_recipe({"name": path.stem} | change(values, given))
    except OptionError as error:
        raise locate(error, path, lines, given) from error
    return resolve_paths(recipe, path.parent)


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe with other values of dotted keys; None resets a key to its default.

    Another `loss.name` drops the options and class weights of the old loss.

    >>> old = build_recipe({"name": "a", "task": {"kind": "tagging", "train": "train.conll"},
    ...                     "encoder": {"name": "bilstm"}, "loss": {"name": "focal", "gamma": 3}})
    >>> new = with_values(old, {"train.lr": 1e-3, "loss.name": "dice", "loss.over": "batch"})
    >>> new.train.lr, new.loss.name, new.loss.options
    (0.001, 'dice', {'over': 'batch'})
    """
    return build_recipe(change(describe_recipe(recipe), values))


def build_recipe(values: Mapping[str, Any]) -> Recipe:
    """Builds a recipe from nested tables, as read from TOML."""
    for key in values:
        if key != "name" and key not in SECTIONS:
            raise OptionError(key, say_unknown("section", key, SECTIONS))
    name = convert_value(values.get("name"), str, key="name")
    if any(mark in name for mark in "/\\\0"):  # the run folder has this name
        raise OptionError("name", f"wanted a name, not a path, got {name!r}")
    for key in SECTIONS:
        if not isinstance(values.get(key, {}), dict):
            raise wrong(key, f"a section [{key}]", values[key])
    parts = {key: build_section(cls, values.get(key, {}), key) for key, cls in SECTIONS.items()}
    return Recipe(name=name, **parts)


def describe_recipe(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as nested tables with all defaults; the inverse of `build_recipe`."""
    values = asdict(recipe)
    for section in SECTIONS:
        values[section] |= values[section].pop("options", {})
    return dict(_describe(values))


def format_recipe(recipe: Recipe) -> str:
    """Returns the recipe as TOML; `read_recipe` reads back an equal one."""
    return format_toml(describe_recipe(recipe))


def hash_recipe(recipe: Recipe) -> str:
    """Hashes everything in the recipe that decides the result."""
    values = describe_recipe(recipe)
    del values["name"]
    for key in _NO_RESULT:
        del values["train"][key]
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _describe(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _describe(one) for key, one in value.items() if one is not None}
    return list(value) if isinstance(value, tuple) else value


def change(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested tables with other values of dotted keys."""
    changed = deepcopy(dict(values))
    loss = changed.get("loss", {})
    name = loss.get("name", LossSection().name) if isinstance(loss, dict) else None
    if name is not None and changes.get("loss.name", name) != name:
        changed["loss"] = {key: loss[key] for key in OF_ANY_LOSS if key in loss}
    for key, value in changes.items():
        _set(changed, key, value)
    return changed


def locate(
    error: OptionError, path: Path, lines: Mapping[str, int], given: Iterable[str]
) -> InputError:
    """Adds file and line to the error, unless an override caused it."""
    if any(_inside(error.key, key) or _inside(key, error.key) for key in given):
        return error
    around = [key for key in lines if _inside(error.key, key)]  # the key and its sections
    line = lines[max(around, key=len)] if around else None
    return InputError(str(error), path=path, line=line)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key in nested tables; None removes it."""
    *path, last = key.split(".")
    if not path and last != "name":
        near = "" if last in SECTIONS else nearest(key, SECTIONS)
        raise OptionError(key, f"wanted name or section.key, such as train.lr{near}")
    for name in path:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise wrong(key, f"a table {name}", values)
    if value is None:
        values.pop(last, None)
    else:
        values[last] = value


def _inside(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


class Header(NamedTuple):
    """The comments at the top of a recipe; fields are empty if not given.

    Attributes:
        title: The first line.
        run: The command.
        paper: The figure to compare with.
    """

    title: str
    run: str
    paper: str


def recipe_folder() -> Path:
    """The folder of shipped recipes: in the installed package, or beside `src` in a checkout."""
    package = Path(softf1.__file__).parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def list_recipes() -> dict[str, Path]:
    """Lists the shipped recipes by name."""
    return dict(sorted((path.stem, path) for path in recipe_folder().glob("*.toml")))


def read_header(path: Path) -> Header:
    """Reads the comments at the top of a recipe."""
    lines = path.read_text("utf-8").splitlines()
    comments = {match[1]: match[2] for line in lines if (match := _COMMENT.match(line))}
    title = lines[0].removeprefix("# ") if lines and lines[0].startswith("# ") else ""
    return Header(title, comments.get("Run", ""), comments.get("Paper", ""))


def find_recipe_file(path_or_name: Path | str) -> Path:
    """Returns the file of a recipe given by path or by name."""
    path = Path(path_or_name)
    if _exists(path) and not path.is_dir():
        return path
    shipped = list_recipes()
    name = str(path_or_name)
    if _exists(path) and name not in shipped:
        inside = path / "recipe.toml"
        hint = f"; its recipe is {inside}" if _exists(inside) else ""
        raise InputError(f"wanted a recipe, a TOML file; got a folder{hint}", path=path)
    if name in shipped:
        return shipped[name]
    if path.suffix == ".toml" or path.name != name:
        raise InputError("wanted a recipe, found no such file", path=path)
    raise InputError(
        f"wanted a recipe file or one of the shipped recipes, got {name!r}"
        f"{nearest(name, shipped)}; known: {', '.join(shipped)}"
    )


def resolve_paths(recipe: Recipe, folder: Path) -> Recipe:
    """Resolves data files that are not in the current folder relative to the recipe's folder."""
    task, encoder, options = recipe.task, recipe.encoder, recipe.task.options
    if isinstance(queries := options.get("queries"), str):
        options = options | {"queries": _resolve(queries, folder)}
    named = {MINILM, *list_encoders()}  # a folder of the same name, such as a run, does not count
    if encoder.name not in named and _exists(folder / encoder.name / "config.json"):
        encoder = replace(encoder, name=_resolve(encoder.name, folder))
    task = replace(
        task,
        train=_resolve(task.train, folder),
        dev=task.dev and _resolve(task.dev, folder),
        test=task.test and _resolve(task.test, folder),
        options=options,
    )
    return replace(recipe, task=task, encoder=encoder)


def _resolve(name: str, folder: Path) -> str:
    here, beside = Path(name), folder / name
    return str(beside) if _exists(beside) and not _exists(here) else name


def _exists(path: Path) -> bool:
    """Whether a path exists; False for an impossible file name."""
    try:
        return path.exists()
    except OSError:  # too long for a file name
        return False


def load_toml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Reads a TOML file; also returns the line of each key, such as `train.lr`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text), find_lines(text)
    except OSError as error:
        raise InputError(f"wanted a recipe, got {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"wanted text in UTF-8, got {error.reason}{_point_to_new(path)}", path=path, line=line
        ) from error
    except RecursionError as error:
        raise InputError("wanted TOML, got too many nested brackets", path=path) from error
    except ValueError as error:
        message, line = str(error), None
        if match := _AT_LINE.search(message):
            message, line = message[: match.start()], int(match[1])
        message += _point_to_new(path)
        raise InputError(f"wanted TOML, got: {message}", path=path, line=line) from error


def _point_to_new(path: Path) -> str:
    """A hint for a file that may hold data, since its name is not that of a recipe."""
    if path.suffix == ".toml":
        return ""
    return f"; for a data file, write a recipe first: softf1 new {shlex.quote(str(path))}"


def find_lines(text: str) -> dict[str, int]:
    r"""Finds the line of each section and key that starts a line.

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
    """Parses `key=value`; the value is TOML, or else a string.

    `key=` alone gives None, which means the default of the key.

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
            raise OptionError(key, f"wanted a value in TOML, got {text!r}") from error
        return text
    value = parsed.pop("value")
    # Dates stay strings; more than one key means that the text contains line breaks.
    return value if isinstance(value, (bool, int, float, str, list, dict)) and not parsed else text


def split_values(text: str) -> Iterator[str]:
    """Splits a list at commas outside brackets and quotes.

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
            depth += (letter in "[{") - (letter in "]}")
    yield text[start:].strip()


def format_toml(values: dict[str, Any], *, prefix: str = "") -> str:
    """Formats nested tables as TOML, plain values before tables."""
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
    """Formats a value on one line.

    >>> _value([1, 2e-05, True, "a"])
    '[1, 2e-5, true, "a"]'
    """
    if isinstance(value, float):
        return re.sub(r"e([+-])0", r"e\1", repr(value)).replace("e+", "e")
    if isinstance(value, (bool, int, str)):
        return _text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"


def _text(value: str | int) -> str:
    """Formats a value that TOML writes as JSON does, except that DEL must be escaped too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _plain(names: str) -> str:
    """Removes quotes and spaces from dotted names."""
    return ".".join(name.strip("\"'") for name in re.findall(_NAME, names))
