"""Names of tasks and losses stand in their own packages: whoever else needs to know asks them.

What is still said elsewhere is listed with its number and the reason; the numbers only shrink.
"""

import ast
from pathlib import Path

import pytest

from softf1.data import examples
from softf1.losses.registry import _registry
from softf1.tasks.registry import TASKS

SOURCE = Path(__file__).parents[1] / "src/softf1"
EXAMPLES = {name for name in vars(examples) if name.endswith(("Example", "Sentence"))}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)

TASKS_ELSEWHERE = {
    "data/examples.py": 5,  # a type of examples names its task
    "experiments/demo.py": 1,  # the demo
}
LOSSES_ELSEWHERE = {
    "experiments/demo.py": 4,  # the demo
    "experiments/search.py": 1,  # the baseline
    "integrations/sklearn.py": 1,  # the default
    "kernels/fused.py": 2,  # which formulas have a kernel
    "recipe/sections.py": 1,  # the default
    "reports/study.py": 1,  # the baseline
    "training/progress.py": 1,  # the baseline
}


def find_names(known, own):
    """How often each file or package says one of the names in its code, documentation apart."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] == own:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        said = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
        }
        count = sum(
            set(node.value.split("+")) <= known
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in said
        )
        if count:
            found[place.as_posix()] = count
    return found


@pytest.mark.parametrize(
    ("known", "own", "elsewhere"),
    [(TASKS, "tasks", TASKS_ELSEWHERE), (_registry, "losses", LOSSES_ELSEWHERE)],
    ids=["tasks", "losses"],
)
def test_nobody_else_lists_their_names(known, own, elsewhere):
    sums = dict.fromkeys(elsewhere, 0)
    for file, count in find_names(set(known), own).items():
        place = file if file in elsewhere else file.partition("/")[0]
        assert place in elsewhere, f"{file} says the name of one of {own}; let it ask instead"
        sums[place] += count
    grown = {place: count for place, count in sums.items() if count > elsewhere[place]}
    assert grown == {}, f"more names of {own} than before"


@pytest.mark.parametrize("package", ["recipe", "training", "experiments"])
def test_nobody_asks_an_example_for_its_task(package):
    for path in (SOURCE / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                kinds = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
                assert not kinds & EXAMPLES, f"{path.name} tests for a type of examples; ask a task"
