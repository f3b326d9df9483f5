"""Who may import whom, as docs/architecture.md draws it; imports for type checking count too."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.toys import write_recipe

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/softf1"
FILES = sorted(SOURCE.rglob("*.py"))

BASE = {"errors", "files", "options", "__version__"}
"""Single files that every package but losses, kernels and metrics may use."""
MAY_IMPORT = {
    "losses": set(),
    "kernels": {"losses"},
    "metrics": set(),
    "models": set(),
    "data": {"metrics"},
    "tasks": {"data", "metrics", "models"},
    "recipe": {"data", "losses", "metrics", "models", "tasks"},
    "training": {"data", "kernels", "losses", "metrics", "models", "recipe", "tasks"},
    "experiments": {"data", "losses", "metrics", "recipe", "tasks", "training"},
    "reports": {"metrics"},
    "scaffold": {"data", "metrics", "recipe", "tasks"},
    "integrations": {"data", "losses", "metrics", "models", "recipe", "tasks", "training"},
}
"""What each package imports of the others; cli, the top, may import all."""
LOADED_IN_THE_CALL = {("losses._dispatch", "kernels.fused")}
"""A loss loads its kernel when it is called on a GPU."""
STANDALONE = {"losses", "kernels", "metrics"}
TORCH_FREE = ("recipe", "data", "metrics", "scaffold", "reports")


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def imported(path):
    """The modules of softf1 that a file imports anywhere, below `if TYPE_CHECKING` too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{one.name}" for one in node.names]
            modules = [name for name in whole if name.removeprefix("softf1.") in MODULES]
            names = modules or [node.module]
        else:
            continue
        yield from (name.removeprefix("softf1.") for name in names if name.startswith("softf1."))


def package(module):
    return module.partition(".")[0]


def test_packages_import_only_what_is_below_them():
    wrong = []
    for name, path in MODULES.items():
        own = package(name)
        if own not in MAY_IMPORT:
            continue
        allowed = MAY_IMPORT[own] | {own} | (set() if own in STANDALONE else BASE)
        wrong += [
            f"{name} imports {other}"
            for other in imported(path)
            if package(other) not in allowed and (name, other) not in LOADED_IN_THE_CALL
        ]
    assert wrong == []


def test_every_package_has_its_place():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == {*MAY_IMPORT, "cli"}


def test_packages_make_no_circle():
    left = {name: set(below) for name, below in MAY_IMPORT.items()}
    while left:
        bottom = {name for name, below in left.items() if not below & left.keys()}
        assert bottom, f"a circle among {sorted(left)}"
        left = {name: below for name, below in left.items() if name not in bottom}


def test_modules_make_no_circle():
    below = {name: {*imported(path)} & {*MODULES} - {name} for name, path in MODULES.items()}
    for name, other in LOADED_IN_THE_CALL:
        below[name].discard(other)
    assert sorted(name for name in below if name in reached(name, below)) == []


def reached(start, below):
    """All modules that importing one brings along."""
    found, waiting = set(), [*below[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += below[name]
    return found


@pytest.mark.parametrize("own", TORCH_FREE)
def test_torch_is_not_loaded_for_a_recipe_or_a_file(own):
    for name, path in MODULES.items():
        if package(name) == own:
            body = ast.parse(path.read_text("utf-8")).body
            heads = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
            names = {getattr(node, "module", None) or node.names[0].name for node in heads}
            assert not {package(one) for one in names} & {"torch", "transformers"}, name


def test_the_page_draws_the_same_arrows():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/` \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE))
    drawn = {name: set(re.findall(r"`(\w+)`", below)) for name, below in rows.items()}
    assert {name: drawn.get(name) for name in MAY_IMPORT} == MAY_IMPORT


PROTOCOLS = {"add_options", "run", "iterate", "main"}
"""Every verb of the command line and every reader has these."""
TWICE = {
    "divide": "0 / 0 is 0, with arrays in metrics and with tensors in losses, which share no file",
    "family_loss": "the dice family in PyTorch, and its fused twin",
    "ExactLossMixin": "of transformers' Trainer, and of Lightning",
    "MrcNer": "the task, and the model that it trains: its name stands in saved configurations",
    "SpanNer": "the same",
    "is_short": "rows of a loss, and texts of an encoder's kernel",
    "Pool": "of processes, and of candidates: both are in pages and benchmarks",
}
"""Names that two files define, and why."""


def test_a_name_has_one_meaning():
    defined = {}
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(name)
    several = {name: where for name, where in defined.items() if len(where) > 1}
    assert {
        name: where for name, where in several.items() if name not in {*PROTOCOLS, *TWICE}
    } == {}
    assert {*TWICE} <= {*several}, "an exception that is not needed any more"


VISITS = """
import sys, threading
from pathlib import Path

visited, source = set(), sys.argv[1]


def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename and code.co_filename.startswith(source):
        while frame and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if not (frame and frame.f_code.co_filename.startswith(source)):  # not while importing
            visited.add(code.co_filename)


sys.setprofile(note)
threading.setprofile(note)
from softf1.cli.main import main

assert main(["train", sys.argv[2], "--out", "run", "--quiet"]) == 0
assert main(["report", "run", "--out", "report.html"]) == 0
sys.setprofile(None)
Path("visited").write_text("\\n".join(sorted(visited)), "utf-8")
"""


@pytest.mark.slow
def test_from_training_to_the_report_a_reader_visits_70_files_at_most(tmp_path):
    recipe = write_recipe(tmp_path, {"train": 12, "dev": 4, "test": 4})
    command = [sys.executable, "-c", VISITS, str(SOURCE), str(recipe)]
    path = {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, cwd=tmp_path, env=os.environ | path, check=True, timeout=300)
    visited = (tmp_path / "visited").read_text("utf-8").splitlines()
    assert 40 < len([name for name in visited if name.endswith(".py")]) <= 70
