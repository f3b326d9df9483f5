"""What a user does first, with the installed package: `python .ci/smoke.py` in an empty folder."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

NAMES = ("Ada", "Bruno", "Carla", "Dmitri")
PLACES = ("Graz", "Oslo", "Lima", "Bonn")


def main() -> None:
    """Every command, and every library that an extra brings."""
    check_origin()
    check_losses()
    write_data()
    softf1("list", "recipes")
    softf1("stats", "train.conll")
    softf1("new", "train.conll", "test.conll", "--encoder", "bilstm")
    softf1("train", "recipe.toml", "train.epochs=2", "train.lr=0.01", "--quiet")
    softf1("evaluate", "runs/recipe-auto-s0")
    softf1("predict", "runs/recipe-auto-s0", "test.conll", "--out", "out.jsonl")
    assert len(Path("out.jsonl").read_text().splitlines()) == 16
    softf1("report", "runs/recipe-auto-s0")
    assert Path("runs/recipe-auto-s0/report.html").stat().st_size > 1_000_000
    softf1("export", "runs/recipe-auto-s0", "--onnx")
    softf1("new", "pairs.tsv", "--encoder", "minilm", "--out", "pairs.toml")
    softf1("train", "pairs.toml", "train.max_steps=1", "eval.tune=false", "--quiet")
    softf1("reproduce", "figure1")
    check_datasets()
    check_sklearn()
    check_integrations()
    print("all well")


def softf1(*words: str) -> None:
    """Runs a command of the installed package; warnings of ours are errors."""
    command = [str(Path(sys.executable).with_name("softf1")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    print("softf1", *words)


def check_origin() -> None:
    """The package is the installed one, and its version is one."""
    import softf1 as package

    assert "site-packages" in package.__file__, package.__file__
    assert package.__version__ == version("softf1")


def check_losses() -> None:
    """Each loss has a gradient, for texts with several labels, which all of them take."""
    import torch

    from softf1.losses import loss_names, make_loss

    for name in loss_names():
        weight = {"weight": torch.ones(3)} if name in ("wce", "wfocal", "la") else {}
        logits = torch.zeros(4, 3, requires_grad=True)
        make_loss(name, **weight)(logits, torch.eye(4, 3)).backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


def write_data() -> None:
    """Files of two tasks."""
    text = "Dr O\n{} B-PER\nlives O\nin O\n{} B-LOC\n\n"
    rows = "".join(text.format(a, b) for a in NAMES for b in PLACES)
    Path("train.conll").write_text(rows * 3)
    Path("test.conll").write_text(rows)
    pairs = [f"{n % 2}\tis it in {PLACES[n % 4]}?\twas it there at {n}?" for n in range(20)]
    Path("pairs.tsv").write_text("\n".join(["label\tsentence1\tsentence2", *pairs]) + "\n")


def check_datasets() -> None:
    """`hf:` reads a folder of the datasets library."""
    import datasets

    from softf1.data import read

    rows = [{"text": f"this is {n}", "label": "ab"[n % 2]} for n in range(4)]
    datasets.Dataset.from_list(rows).save_to_disk("folder")
    assert len(read("hf:folder")) == 4


def check_sklearn() -> None:
    """The classifier fits and predicts."""
    from softf1.integrations.sklearn import SoftF1Classifier

    texts = [f"{word} number {n}" for n in range(10) for word in ("good", "bad")]
    found = SoftF1Classifier(encoder="textcnn", epochs=1).fit(texts, ["yes", "no"] * 10)
    assert set(found.predict(texts[:4])) <= {"yes", "no"}


def check_integrations() -> None:
    """Trainer and Lightning can be had."""
    from softf1.integrations.lightning import ExactLossMixin
    from softf1.integrations.transformers import loss

    assert ExactLossMixin
    assert loss("dice")


if __name__ == "__main__":
    main()
    print(json.dumps({name: version(name) for name in ("numpy", "torch", "transformers")}))
