"""However a training is stopped, going on ends with the same bits as never stopping."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.toys import read_files

ROOT = Path(__file__).parents[2]


def run(folder, *, kills=0, seed=0, stride=0):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    environment |= {"CUDA_VISIBLE_DEVICES": ""}  # no device survives a fork
    words = map(str, (folder, kills, seed, stride))
    command = [sys.executable, "-m", "tests.training.killer", *words]
    subprocess.run(
        command, cwd=ROOT, env=environment, check=True, timeout=1200, stdout=subprocess.DEVNULL
    )
    return folder, json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return run(tmp_path_factory.mktemp("short"), kills=3, seed=5, stride=40)


def text(folder, name):
    return (folder / name).read_text("utf-8")


def check_kills(folder, found, kills):
    codes = [code for code, _ in found["often"]["kills"]]
    assert codes[:-1] == [-9] * (kills - 1)
    assert codes[-1] in (-9, 0)  # the last comes after the last step, and may come after the end
    assert found["often"]["code"] == 0
    assert read_files(folder / "often") == read_files(folder / "whole")
    whole, often = (json.loads(text(folder, f"{name}/result.json")) for name in ("whole", "often"))
    for key in ("scores", "best", "steps", "epochs", "examples", "warnings", "class_counts"):
        assert whole[key] == often[key]
    assert not (folder / "often/checkpoints").exists()


def test_killed_at_random_moments_and_resumed_it_ends_with_the_same_bits(short):
    folder, found = short
    assert found["whole"] == 0
    check_kills(folder, found, 3)


def check_operations(found, kills):
    assert found["whole"] == 0
    assert found["wrong"] == []
    assert found["kills"] > kills


def test_killed_before_some_operations_on_files_it_ends_with_the_same_bits(short):
    check_operations(short[1]["operations"], 3)


def test_killed_with_a_crf_an_adversarial_step_and_consistency_it_ends_with_the_same_bits(short):
    check_operations(short[1]["hardened"], 1)


@pytest.mark.slow
@pytest.mark.attack
def test_killed_before_any_operation_on_a_file_it_ends_with_the_same_bits(tmp_path, attacked):
    _, found = run(tmp_path, stride=1)
    check_operations(found["operations"], 100)
    kills = found["operations"]["kills"]
    attacked("SIGKILL before an operation on a file, in training", kills, used=kills, refused=0)


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_ten_random_moments_it_ends_with_the_same_bits(tmp_path, seed, attacked):
    folder, found = run(tmp_path, kills=10, seed=seed)
    check_kills(folder, found, 10)
    # The last may come when the checkpoints of the finished run are gone.
    steps = [step for _, step in found["often"]["kills"][:-1]]
    assert steps == sorted(steps)
    assert len(set(steps)) > 5
    attacked("SIGKILL at a random moment of a training", 10, used=10, refused=0)


@pytest.mark.parametrize(("signal", "name"), [("SIGINT", "int"), ("SIGTERM", "term")])
def test_an_interrupted_training_saves_and_says_so(short, signal, name):
    folder, found = short
    code, step = found["suffer"][signal]
    assert code == 1
    last = text(folder, f"suffer.{name}-stderr").splitlines()[-1]
    assert last == f"softf1 train: stopped at step {step:,}, saved; --resume continues from there"
    assert text(folder, f"suffer.{name}-stdout") == ""


def test_it_goes_on_where_it_was_interrupted(short):
    folder, found = short
    _, step = found["suffer"]["SIGINT"]
    assert 0 < step < found["suffer"]["SIGTERM"][1] < found["steps"]
    first = text(folder, "suffer.term-stderr").splitlines()[0]
    assert first.endswith(f"; continuing at step {step:,}")


def test_the_second_signal_stops_at_once(short):
    folder, found = short
    code, seconds, step = found["twice"]
    assert code == 1
    assert seconds < 15  # its step takes 20
    assert step == 0
    assert text(folder, "twice.stderr").splitlines()[-1] == "softf1 train: interrupted"


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(short):
    folder, found = short
    step = found["suffer"]["killed"][1]
    (line,) = (x for x in text(folder, "suffer.full-stderr").splitlines() if "damaged" in x)
    assert line.startswith("warning: ")
    assert f"step-{step:08d} is damaged (model.safetensors has another checksum)" in line
    assert line.endswith(f": step-{step - 1:08d} is used")


def test_a_full_disk_is_one_line_and_loses_nothing(short):
    folder, found = short
    code, step = found["suffer"]["full"]
    assert code == 1
    assert step == found["suffer"]["killed"][1] - 1  # what there was before
    last = text(folder, "suffer.full-stderr").splitlines()[-1]
    assert last.startswith("softf1 train: ")
    assert "cannot save a checkpoint: File too large" in last
    assert "Traceback" not in text(folder, "suffer.full-stderr")


def test_after_all_of_that_it_ends_with_the_same_bits(short):
    folder, found = short
    assert found["suffer"]["last"][0] == 0
    assert read_files(folder / "suffer") == read_files(folder / "whole")


def test_progress_goes_to_standard_error_and_the_result_to_standard_output(short):
    folder, _ = short
    err, out = text(folder, "whole.stderr"), text(folder, "whole.stdout")
    assert err.startswith("toy: tagging, bilstm (0.0 M parameters), loss ce+dice, seed 0; ")
    assert "epoch 1.00 · step 10 · dev f1 " in err
    assert out.split()[:2] == ["f1", "precision"]
    assert out.rstrip().endswith("/whole")
    assert "label  precision" in out
    assert "\r" not in err + out
