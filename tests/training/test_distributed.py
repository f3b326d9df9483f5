"""Two processes give the curve of one, count every example once, save, resume and stop together."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from softf1.training import trainer
from tests.training import together
from tests.training.toys import (
    make_data,
    read_files,
    read_lines,
    read_metrics,
    write_recipe,
)

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
CPU = {"PYTHONPATH": PATHS, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def two(bert, tmp_path_factory):
    """The folder of all runs of two processes, and what each process found."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "tests.training.together", str(folder), str(bert)]
    subprocess.run(command, cwd=ROOT, env=os.environ | CPU, check=True, timeout=300)
    found = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in (0, 1)]
    return folder, found


@pytest.fixture(scope="module")
def one(bert, tmp_path_factory):
    """The folder of the same runs with one process, and their results."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "LEAST", 1)
        patch.setenv("ACCELERATE_USE_FSDP", "false")
        found = {case: together.run(case, bert, folder / case) for case in together.CASES}
    return folder, found


def curve(folder):
    steps = [line for line in read_metrics(folder) if line["event"] == "step"]
    return [line["step"] for line in steps], [line["loss"] for line in steps]


def check_curves(ours, theirs):
    """The same losses, scores and weights."""
    (steps, losses), (known, wanted) = curve(ours), curve(theirs)
    assert steps == known
    np.testing.assert_allclose(losses, wanted, rtol=0, atol=1e-5)
    evaluations = [
        [line["scores"] for line in read_metrics(folder) if line["event"] == "eval"]
        for folder in (ours, theirs)
    ]
    assert evaluations[0] == evaluations[1]
    found, weights = (load_file(folder / "model/model.safetensors") for folder in (ours, theirs))
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", together.CASES)
def test_two_processes_give_the_curve_of_one(two, one, case):
    (folder, (found, _)), (alone, wanted) = two, one
    check_curves(folder / case, alone / case)
    for key in ("scores", "best", "steps", "examples"):
        assert found[case][key] == wanted[case][key], key
    assert found[case]["world"] == 2


def test_the_losses_of_a_step_are_not_all_the_same(one):
    """So that the comparison of curves means something."""
    folder, _ = one
    for case in together.CASES:
        steps, losses = curve(folder / case)
        assert len(steps) >= 4
        assert np.ptp(losses) > 1e-2


@pytest.mark.parametrize("case", together.CASES)
def test_evaluation_counts_every_example_once(two, one, case):
    (folder, _), (alone, _) = two, one
    for part in ("dev", "test"):
        ours, theirs = (read_lines(f / case / f"predictions.{part}.jsonl") for f in (folder, alone))
        words = [example.words for example in make_data()[part]]
        assert [tuple(line["words"]) for line in ours] == words
        for own, other in zip(ours, theirs, strict=True):  # sums in another order round otherwise
            assert own.pop("confidence") == pytest.approx(other.pop("confidence"), abs=1e-4)
            for one in (own, other):
                one["entities"] = [{**e, "confidence": None} for e in one["entities"]]
            assert own == other


def test_all_processes_have_the_result(two):
    _, (first, second) = two
    assert first == second


@pytest.mark.parametrize("case", together.RESUMED)
def test_two_processes_go_on_to_the_same_bits(two, case):
    folder, _ = two
    assert read_files(folder / f"{case}-resumed") == read_files(folder / case)


@pytest.mark.parametrize("case", together.RESUMED)
def test_one_process_goes_on_with_what_two_began(two, one, case, bert, tmp_path, monkeypatch):
    (folder, _), (alone, wanted) = two, one
    shutil.copytree(folder / f"{case}-alone", tmp_path / "run")
    monkeypatch.setattr(trainer, "LEAST", 1)
    result = together.run(case, bert, tmp_path / "run", resume=True)
    check_curves(tmp_path / "run", alone / case)
    assert result["world"] == 1
    assert result["examples"] == wanted[case]["examples"]


def test_when_one_is_asked_to_stop_all_save_and_stop(two):
    folder, found = two
    said = {result["interrupted"] for result in found}
    assert said == {"stopped at step 5, saved; --resume continues from there"}
    assert [path.name for path in (folder / "interrupted/checkpoints").glob("step-*")] == [
        "step-00000005"
    ]


def test_what_rank_0_refuses_all_refuse(two):
    _, found = two
    for result in found:
        assert "holds a finished run, but train.seed was 0 and is 9" in result["another"]


PLAIN = ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--num_processes=2"]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LAUNCHERS = {
    "torchrun-ddp": (TORCHRUN, {}),
    "torchrun-fsdp": (TORCHRUN, {"ACCELERATE_USE_FSDP": "true"}),
    "accelerate-ddp": (["accelerate.commands.launch", "--multi_gpu", *PLAIN], {}),
    "accelerate-fsdp": (["accelerate.commands.launch", "--use_fsdp", *PLAIN], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_commands_of_the_manual(launcher, tmp_path):
    launch, variables = LAUNCHERS[launcher]
    recipe = write_recipe(tmp_path)
    words = [str(recipe), "train.max_steps=12", "encoder.dropout=0.0", "train.eps=1e-6"]
    environment = os.environ | CPU | variables

    def train(launch, out):
        command = [sys.executable, *launch, "-m", "softf1", "train", *words, "--out", str(out)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = train(["-m", *launch], tmp_path / "two")
    train([], tmp_path / "one")
    check_curves(tmp_path / "two", tmp_path / "one")
    assert shown.count("12 steps, best at epoch") == 1  # rank 0 speaks for all
    assert json.loads((tmp_path / "two/result.json").read_text())["world"] == 2
