"""`softf1 train` as a user meets it."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from softf1.cli.main import main
from softf1.cli.show import format_result
from softf1.training.step import Stepper
from tests.training.toys import write_recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(tmp_path):
    return str(write_recipe(tmp_path))


def train(capsys, *words):
    """Exit code, standard output and the lines of standard error."""
    code = main(["train", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def check_bad(found, pattern):
    """One line, exit 2, nothing else."""
    code, out, err = found
    assert code == 2
    assert out == ""
    assert len(err) == 1
    assert re.search(pattern, err[0]), err
    assert err[0].startswith("softf1 train: ")


def test_help_answers_at_once_and_without_torch():
    code = (
        "import sys; sys.argv = ['softf1', 'train', '--help']\n"
        "from softf1.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'transformers', 'accelerate'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["nothing"], "nothing"),
        (["conl03"], "conl03.*conll03"),
        (["RECIPE", "train.lrr=1"], r"train\.lrr: unknown key.*lr"),
        (["RECIPE", "loss.name=dise"], "unknown loss 'dise'.*dice"),
        (["RECIPE", "train.lr=fast"], r"train\.lr: wanted a number"),
        (["RECIPE", "train.seed"], "train.seed"),
        (["RECIPE", "task.train=missing.txt"], r"missing\.txt"),
        (["RECIPE", "train.accumulate=2", "loss.dice.ohem_ratio=1"], "ohem_ratio is refused"),
        (["RECIPE", "loss.dice.exclude=ORG"], r"loss\.exclude: wanted one of .*, got 'ORG'"),
        (["RECIPE", "eval.metric=f2"], r"eval\.metric: wanted one of .*, got 'f2'"),
        (["RECIPE", 'train.trackers=["paper"]'], "got 'paper'"),
    ],
)
def test_bad_input_is_one_line(words, pattern, recipe, capsys, tmp_path):
    words = [recipe if word == "RECIPE" else word for word in words]
    check_bad(train(capsys, *words, "--out", tmp_path / "run"), pattern)
    assert not (tmp_path / "run").exists()


def test_a_bad_line_of_a_data_file_is_named(recipe, capsys, tmp_path):
    lines = (tmp_path / "dev.txt").read_text().splitlines()
    at = lines.index("") - 1
    lines[at] = lines[at].split()[0]
    (tmp_path / "dev.txt").write_text("\n".join(lines))
    found = train(capsys, recipe, "--out", tmp_path / "run")
    check_bad(found, rf"dev\.txt:{at + 1}: ")


def test_a_run_prints_its_scores_and_a_finished_one_says_when_that_was(recipe, capsys, tmp_path):
    words = (recipe, "train.max_steps=2", "--out", tmp_path / "run")
    code, out, err = train(capsys, *words)
    assert code == 0
    assert err[0].startswith("toy: tagging, bilstm")
    assert out.split()[:2] == ["f1", "precision"]
    assert "label  precision" in out
    start = time.process_time()
    code, again, err = train(capsys, *words)
    assert time.process_time() - start < 2
    assert (code, err) == (0, [])
    today = rf"{datetime.now(UTC):%Y-%m-%d} \d\d:\d\d UTC"
    assert re.search(rf"run: finished before, on {today}; nothing was trained", again)
    assert "precision" not in again  # no table as if it had been trained
    assert re.search(r"^dev f1 [\d.]+, test f1 [\d.]+$", again, re.MULTILINE)
    found = train(capsys, *words, "train.lr=0.5")
    check_bad(found, r"run: .* train\.lr was 0\.01 and is 0\.5: use --out .*, or --force ")


@pytest.mark.parametrize("word", ["--no-such-option=1", "train.lr"])
def test_words_that_are_no_changes_are_not_taken_for_some(word, recipe, capsys):
    with pytest.raises(SystemExit):
        main(["train", recipe, "--quiet", word])
    said = capsys.readouterr().err
    assert said == f"softf1 train: unrecognized arguments: {word}; see softf1 train --help\n"


def test_nothing_but_the_result_is_shown_when_it_is_quiet(recipe, capsys, tmp_path):
    words = (recipe, "train.max_steps=1", "--quiet", "--out", tmp_path / "run")
    code, out, err = train(capsys, *words)
    assert (code, err) == (0, [])
    assert "1 steps, best at epoch" in out


def test_the_folder_is_named_after_recipe_loss_and_seed(recipe, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = train(capsys, recipe, "train.max_steps=1", "train.seed=3")
    assert code == 0
    assert out.splitlines()[-1] == "runs/toy-ce+dice-s3"
    assert (tmp_path / "runs/toy-ce+dice-s3/result.json").is_file()


def test_a_dry_run_trains_nothing_and_writes_nothing(recipe, capsys, tmp_path, monkeypatch):
    before = sorted(tmp_path.rglob("*"))
    steps, step = [], Stepper.step
    monkeypatch.setattr(Stepper, "step", lambda *args: steps.append(1) or step(*args))
    code, out, err = train(capsys, recipe, "--dry-run", "--out", tmp_path / "run")
    assert (code, err) == (0, [])
    assert "memory: about" in out
    assert "40 steps in rows of " in out
    assert 1 <= len(steps) <= 3  # to tell how long one takes
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("word", ["eval.metric=f2", "loss.dice.exclude=ORG", "task.dev=gone.txt"])
def test_a_dry_run_finds_what_a_run_would(word, recipe, capsys, tmp_path):
    check_bad(train(capsys, recipe, word, "--dry-run", "--out", tmp_path / "run"), "wanted|gone")


def test_what_was_tuned_is_used_by_evaluate(recipe, capsys, tmp_path):
    """Scores of evaluate are those that training gave with the tuned task."""
    run = tmp_path / "run"
    words = ("eval.tune=true", "train.head_bias=zero", "train.max_steps=3", "loss.name=ce")
    assert train(capsys, recipe, *words, "--out", run)[0] == 0
    result = json.loads((run / "result.json").read_text())
    assert result["tuned"]["test"] != result["scores"]["test"]
    assert main(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == result["tuned"]["test"]


def test_labels_are_those_of_the_decision_that_the_model_keeps():
    labels = {"a": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}}
    better = {"a": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 2}}
    result = {
        "headline": "f1", "warnings": [], "steps": 1, "best": {"epoch": 1},
        "tokens_per_second": 1, "seconds": {"train": 1, "evaluate": 1},
        "scores": {"dev": {"f1": 0.5, "labels": labels}},
    }  # fmt: skip
    assert "\nlabel  precision" in format_result(result, Path("run"))
    tuned = result | {"tuned": {"dev": {"f1": 1.0, "labels": better}}}
    said = format_result(tuned, Path("run"))
    assert re.search(r"label, dev tuned +precision.*\na +100\.00", said)
    kept = "no better threshold or bias was found on dev: they stay at 0.5 and 0"
    assert kept not in said
    assert kept in format_result(result | {"tuned": result["scores"]}, Path("run"))
