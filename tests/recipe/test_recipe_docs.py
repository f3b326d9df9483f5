"""The page about recipes has every key, as the sections themselves describe it."""

import dataclasses
import inspect
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest

from softf1.options import WORDS, option_types
from softf1.recipe import SECTIONS
from softf1.recipe.loading import list_recipes, read_header
from softf1.recipe.sections import LoraSection

PAGE = Path(__file__).parents[2] / "docs/recipes.md"
TABLES = SECTIONS | {"encoder.lora": LoraSection}


def meanings(cls):
    """Attribute → meaning, from the docstring."""
    block = inspect.getdoc(cls).partition("Attributes:\n")[2]
    found = re.findall(r"^ {4}(\w+): ((?:.+\n)(?: {8}.+\n)*)", block + "\n", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def kind(hint):
    """A type in words.

    >>> kind(Annotated[float | None, "x"])
    'a number x'
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{kind(parts[0])} {parts[1]}"
    if origin in (UnionType, Union):
        return " or ".join(kind(part) for part in parts if part is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        many = "" if parts[-1] is Ellipsis else f"{len(parts)} "
        return f"a list of {many}{kind(parts[0]).removeprefix('a ')}s"
    if origin is dict:
        return f"a table of {kind(parts[1]).removeprefix('a ')}s"
    return "a table" if dataclasses.is_dataclass(hint) else WORDS[hint]


def default(field):
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return "must be given"
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    shown = f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value).lower()
    return f"`{shown}`"


def rows(section):
    cls = TABLES[section]
    hints, said = option_types(cls), meanings(cls)
    known = [
        f"| `{field.name}` | {kind(hints[field.name])} | {default(field)} | {said[field.name]} |"
        for field in dataclasses.fields(cls)
        if field.name != "options"
    ]
    options = said.get("options", "").removeprefix("Every other key: ")
    return [*known, f"| any other | | | {options} |"] if options else known


@pytest.mark.parametrize("section", TABLES)
def test_every_key_is_on_the_page_as_it_is(section):
    text = PAGE.read_text("utf-8")
    block = text.partition(f"### `[{section}]`\n")[2].partition("\n#")[0]
    found = [line for line in block.splitlines() if line.startswith("| `") or "any other" in line]
    assert found == rows(section), "wanted:\n" + "\n".join(rows(section))


def test_every_shipped_recipe_is_on_the_page():
    text = PAGE.read_text("utf-8").partition("## Shipped recipes\n")[2]
    wanted = {
        name: f"| `{name}` | {header.title} | {header.paper} |"
        for name, header in ((name, read_header(path)) for name, path in list_recipes().items())
    }
    found = re.findall(r"^\| `(.+?)` \|.*$", text, re.MULTILINE)
    assert found == list(wanted)
    for line in wanted.values():
        assert line in text, "wanted:\n" + "\n".join(wanted.values())
