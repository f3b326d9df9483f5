"""The examples are short and learn what they are about."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name, *, needs):
    for module in needs:
        pytest.importorskip(module, reason=f"the example needs {module}")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_are_under_60_lines():
    sizes = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(sizes) >= 5
    assert not {name: size for name, size in sizes.items() if size >= 60}


def test_plain_loop():
    assert load("plain_classifier", needs=[]).main(epochs=5) > 0.5


def test_plain_loop_does_not_depend_on_the_cut(capsys):
    example = load("plain_classifier", needs=[])
    example.main(epochs=1, accumulate=1)
    whole = capsys.readouterr().out
    example.main(epochs=1, accumulate=8)
    assert capsys.readouterr().out == whole


def test_accelerate():
    assert load("accelerate_classifier", needs=["accelerate"]).main(epochs=5) > 0.5


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*isinstance.treespec, LeafSpec"
)
def test_lightning(tmp_path):
    if importlib.util.find_spec("lightning") is None:
        pytest.importorskip("pytorch_lightning", reason="the example needs lightning")
    options = {"accelerator": "cpu", "enable_progress_bar": False, "default_root_dir": tmp_path}
    assert load("lightning_classifier", needs=[]).main(epochs=5, **options) > 0.5


@pytest.mark.filterwarnings("ignore:.*pin_memory. argument is set as true")
def test_trainer(tmp_path):
    scores = load("trainer_tagger", needs=["transformers"]).main(epochs=3, folder=str(tmp_path))
    assert scores["eval_f1"] > 0.9
    assert scores["eval_tuned_f1"] > 0.9
