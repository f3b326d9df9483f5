"""The compiled cases of the training benchmark: few shapes, full batches, a loop that learns."""

import copy
import csv
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks import training
from softf1.training.datasets import load_datasets
from tests.pages import ROOT
from tests.training.toys import make_data, make_recipe

CPU = torch.device("cpu")
SIDES = ("softf1", "softf1-both")


@pytest.fixture
def recipe(bert):
    return make_recipe(encoder={"name": str(bert)}, train={"epochs": 8.0})


@pytest.fixture
def datasets(recipe):
    return load_datasets(recipe, make_data(sizes={"train": 100, "dev": 10}))


@pytest.mark.parametrize("pad", [1, 8, 64])
def test_batches_of_the_compiled_loop_are_full_and_have_few_shapes(datasets, pad):
    batches = training.collate_epoch(datasets, 0, pad, CPU)
    assert len(batches) == len(datasets.features["train"]) // training.BATCH > 0
    widths = {value.shape for batch in batches for value in batch.values()}
    assert {rows for rows, _ in widths} == {training.BATCH}
    assert all(width % pad == 0 for _, width in widths)
    # Nothing is cut: every sentence keeps the ids that are its own.
    lengths = sorted(int(n) for batch in batches for n in batch["attention_mask"].sum(1))
    assert lengths[-1] <= max(datasets.features["train"]["length"])
    assert all((batch["labels"] >= 0).any(1).all() for batch in batches)


def test_the_readme_says_how_fast_training_is_by_two_runs():
    times = {}
    for name in ("fused", "more", "cpu"):
        with (ROOT / f"benchmarks/results/training-{name}.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["times_trainer"]:
                    key = (name, row["encoder"], row["case"])
                    times.setdefault(key, []).append(float(row["times_trainer"]))
    page = (ROOT / "README.md").read_text("utf-8")
    small, large = "en-minilm-l6", "bert-base"
    runs = [[times[n, small, case][0] for n in ("fused", "more")] for case in SIDES]
    (plain, plain_again), (both, both_again) = runs
    assert f"trains {plain:.0f} to {plain_again:.0f} times as fast" in page
    assert f"still {both:.0f} to {both_again:.0f} times as fast" in page
    first, second = (times["fused", large, case][0] for case in SIDES)
    cpu = min(times["cpu", small, "softf1"])
    assert f"it is {first:.0f} and {second:.0f} times as fast, on a CPU {cpu:.1f} times" in page


def test_epochs_have_other_batches(datasets):
    first, second = (training.collate_epoch(datasets, n, 64, CPU)[0] for n in (0, 1))
    assert not torch.equal(first["input_ids"], second["input_ids"])


def test_a_case_that_does_not_exist_is_an_error_that_lists_the_others(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["training.py", "--cases", "softf1,traner"])
    with pytest.raises(SystemExit) as exit_:
        training.parse()
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert "got 'traner'" in said
    assert "trainer-compiled, compile-loop" in said


@pytest.mark.slow
def test_the_loop_trains_every_step_and_scores_the_model_itself(
    recipe, datasets, tmp_path, monkeypatch
):
    # The eager backend: inductor takes half a minute of C++.
    compile_, made = torch.compile, []

    def eager(model, **options):
        made.append((model, copy.deepcopy(model.state_dict()), options))
        return compile_(model, backend="eager", dynamic=options["dynamic"])

    monkeypatch.setattr(torch, "compile", eager)
    row = training.measure_loop(
        "compile-loop", recipe, datasets, tmp_path, CPU, pad=32, mode="reduce-overhead"
    )
    ((model, before, options),) = made
    assert options == {"dynamic": False, "mode": "reduce-overhead"}
    assert all(not torch.equal(before[k], v) for k, v in model.state_dict().items() if v.ndim == 2)
    assert row["dev_f1"] == training.score_dev(model, datasets, CPU)
    assert row["sentences_per_second"] > 0
