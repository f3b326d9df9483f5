"""Checkpoints: whole or not there, exact, and readable by any number of processes."""

import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from softf1.errors import InputError
from softf1.training.checkpoint import load_checkpoint, save_checkpoint, view_bytes, write_tensors
from softf1.training.state_dict import (
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_groups,
    optimizer_tensors,
    random_state,
    set_random_state,
)
from tests.training import sharing

ROOT = Path(__file__).parents[2]


def run(module, *arguments):
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # processes of one machine, on its CPU
    command = [sys.executable, "-W", "error", "-m", module, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, timeout=170, capture_output=True, text=True
    ).stdout


def save(folder, step, **options):
    tensors = {"model": {"weight": torch.full((5,), float(step))}}
    return save_checkpoint(folder, step, tensors, {"epoch": step / 10}, **options)


def steps(folder):
    return sorted(path.name for path in folder.iterdir())


# Files


TENSORS = {
    "float": torch.randn(3, 4),
    "double": torch.randn(7, dtype=torch.float64),
    "half": torch.randn(3).half(),
    "brain": torch.randn(2, 3).bfloat16(),
    "flag": torch.tensor([True, False, True]),
    "long": torch.arange(5),
    "byte": torch.arange(5, dtype=torch.uint8),
    "scalar": torch.tensor(3.0),
    "nothing": torch.empty(0),
    "turned": torch.randn(3, 4).t(),
    "part": torch.randn(10)[2:7],
    "naïve/name": torch.ones(1),
}


def test_files_are_safetensors_bit_by_bit(tmp_path):
    known = write_tensors(tmp_path / "a.safetensors", TENSORS)
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert torch.equal(found[name], value), name
    assert known["size"] == (tmp_path / "a.safetensors").stat().st_size


def test_an_empty_group_is_a_file_too(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {})
    assert load_file(tmp_path / "a.safetensors") == {}


def test_nothing_is_copied_before_it_is_written():
    tensor = torch.arange(10.0)
    assert np.shares_memory(np.asarray(view_bytes(tensor)), tensor.numpy())


def test_what_safetensors_cannot_hold_is_an_error(tmp_path):
    with pytest.raises(TypeError, match=r"for x, got torch\.complex64"):
        write_tensors(tmp_path / "a", {"x": torch.zeros(1, dtype=torch.complex64)})


# Folders


def test_what_is_saved_is_loaded(tmp_path):
    state = {"best": float("-inf"), "loss": [1e-17, 0.1 + 0.2], "n": np.int64(3), "none": None}
    path = save_checkpoint(tmp_path / "new", 120, {"model": TENSORS, "random": {}}, state)
    assert path == tmp_path / "new" / "step-00000120"
    assert steps(path) == ["model.safetensors", "random.safetensors", "state.json"]
    found = load_checkpoint(tmp_path / "new")
    assert (found.step, found.path, found.warnings) == (120, path, [])
    assert found.state == state
    assert found.tensors["random"] == {}
    assert all(torch.equal(found.tensors["model"][name], TENSORS[name]) for name in TENSORS)


def test_the_state_is_plain_json(tmp_path):
    state = {"nan": float("nan"), "scale": torch.tensor(2.0)}
    text = (save_checkpoint(tmp_path, 1, {}, state) / "state.json").read_text()

    def refuse(name):
        raise AssertionError(name)

    content = json.loads(text, parse_constant=refuse)
    assert content["state"] == {"nan": {"$float": "nan"}, "scale": 2.0}
    with pytest.raises(TypeError, match=r"wanted what JSON can hold, got .*Path"):
        save_checkpoint(tmp_path, 2, {}, {"path": tmp_path})


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "missing") is None


def test_the_newest_two_are_kept(tmp_path):
    for step in (5, 100, 20, 110):  # 20 follows a resume: 100 is of another past
        save(tmp_path, step)
    assert steps(tmp_path) == ["step-00000020", "step-00000110"]
    save(tmp_path, 120)
    assert steps(tmp_path) == ["step-00000110", "step-00000120"]


def test_the_same_step_is_replaced(tmp_path):
    save(tmp_path, 7)
    save_checkpoint(tmp_path, 7, {}, {"again": True})
    assert load_checkpoint(tmp_path).state == {"again": True}
    assert steps(tmp_path) == ["step-00000007"]


DAMAGE = {
    "a changed byte": lambda path: flip(path / "model.safetensors", -1),
    "a changed state": lambda path: replace(path / "state.json", '"epoch": 2.0', '"epoch": 2.5'),
    "a file cut short": lambda path: os.truncate(path / "model.safetensors", 30),
    "an empty state": lambda path: os.truncate(path / "state.json", 0),
    "no state": lambda path: (path / "state.json").unlink(),
    "no weights": lambda path: (path / "model.safetensors").unlink(),
    "another kind of state": lambda path: (path / "state.json").write_text("[1]"),
}


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path, damage):
    save(tmp_path, 10)
    DAMAGE[damage](save(tmp_path, 20))
    found = load_checkpoint(tmp_path)
    assert found.step == 10
    assert found.tensors["model"]["weight"].tolist() == [10.0] * 5
    (warning,) = found.warnings
    assert str(tmp_path / "step-00000020") in warning
    assert "damaged" in warning
    assert warning.endswith("step-00000010 is used")
    assert "\n" not in warning
    # It does not take the place of a whole one, and goes with the next save.
    save(tmp_path, 30)
    assert steps(tmp_path) == ["step-00000010", "step-00000030"]
    assert load_checkpoint(tmp_path).warnings == []


def spoil(path, rng):
    """One file of a checkpoint with other bytes, cut, empty, with more, gone, or a folder."""
    file = rng.choice(sorted(path.iterdir()))
    data = file.read_bytes()
    at = rng.randrange(len(data))
    file.unlink()
    changed = bytes([data[at] ^ rng.randrange(1, 256)])
    other = (data[:at] + changed + data[at + 1 :], data[:at], b"", data + b" {", None)
    made = rng.choice(other)
    if made is not None:
        file.write_bytes(made)
    elif rng.random() < 0.5:
        file.mkdir()


@pytest.mark.parametrize(
    "times", [30, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.attack])]
)
def test_however_the_newest_is_spoiled_the_one_before_is_used(tmp_path, times, attacked):
    for seed in range(times):
        folder = tmp_path / str(seed)
        save(folder, 10)
        spoil(save(folder, 20), random.Random(seed))
        found = load_checkpoint(folder)
        assert (found.step, len(found.warnings)) == (10, 1), seed
    attacked("damaged checkpoints", times, used=times, refused=0)


def test_nothing_whole_is_an_error_and_not_a_new_start(tmp_path):
    for step in (10, 20):
        flip(save(tmp_path, step) / "model.safetensors", -1)
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"damaged ones .*step-00000020.*step-00000010"
        ) as error:
            load_checkpoint(tmp_path)
        assert error.value.path == tmp_path


def test_a_later_schema_is_refused_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("softf1.training.checkpoint.SCHEMA", 2)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(InputError, match="wanted schema 1, got 2"):
        load_checkpoint(tmp_path)
    assert steps(tmp_path) == ["step-00000001"]


def test_a_file_elsewhere_is_never_read(tmp_path):
    path = save(tmp_path, 1)
    shutil.copy(path / "model.safetensors", tmp_path / "out.safetensors")
    known = json.loads((path / "state.json").read_text())["files"]["model.safetensors"]
    shutil.rmtree(path)
    path.mkdir()
    from softf1.training.checkpoint import write_state

    write_state(path / "state.json", step=1, files={"../out.safetensors": known}, state={})
    with pytest.raises(InputError, match="no file of it"):
        load_checkpoint(tmp_path)


def test_a_full_disk_is_one_line_and_leaves_the_others(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="cannot save a checkpoint") as error:
            save_checkpoint(tmp_path, 3, {"model": {"w": torch.zeros(50_000)}}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.errno == errno.EFBIG
    assert error.value.filename == str(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
    assert steps(tmp_path) == ["step-00000001", "step-00000002"]
    assert load_checkpoint(tmp_path).step == 2


class Killed(BaseException):
    """As sudden as SIGKILL: no handler of the code under test may catch it."""


@pytest.mark.parametrize("same_step", [False, True])
def test_whatever_call_is_the_last_there_is_a_whole_checkpoint(tmp_path, monkeypatch, same_step):
    """Death before each call that touches the disk, one after another."""
    calls = {Path: ["rename", "mkdir", "open"], os: ["fsync"], shutil: ["rmtree"]}
    left = 0

    def before(call):
        def counted(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*arguments, **options)

        return counted

    for number in range(200):
        folder = tmp_path / str(number)
        for step in (1, 2, 3):
            save(folder, step)
        new = 3 if same_step else 4
        with monkeypatch.context() as patch:
            for owner, names in calls.items():
                for name in names:
                    patch.setattr(owner, name, before(getattr(owner, name)))
            left = number
            try:
                save_checkpoint(folder, new, {"model": {"weight": torch.zeros(2)}}, {"new": True})
                done = True
            except Killed:
                done = False
        found = load_checkpoint(folder)
        assert found.warnings == []
        assert (found.step, found.state) in [(3, {"epoch": 0.3}), (new, {"new": True})]
        assert not list(folder.glob(".*"))
        if done:
            assert found.state == {"new": True}
            break
    assert done
    assert number >= 9


LONG = [pytest.mark.slow, pytest.mark.attack]


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=LONG)])
def test_killed_at_random_moments_a_whole_checkpoint_is_left(tmp_path, times, attacked):
    lines = run("tests.training.saver", tmp_path, times, 1).splitlines()
    assert len(lines) == times
    assert int(lines[-1].split()[0]) >= times
    if times > 10:
        assert any(".softf1-" in line for line in lines)  # some of them in the middle of a save
    attacked("SIGKILL at a random moment while checkpoints are saved", times, used=times, refused=0)


# Models and optimizers


def train(model, optimizer, window, seeds):
    return [sharing.step(model, optimizer, window, seed) for seed in seeds]


def parts(seed=0):
    model = sharing.Tagger(seed)
    return model, sharing.make_optimizer(model), sharing.make_window()


def test_a_resumed_run_is_bit_by_bit_the_uninterrupted_one(tmp_path):
    """With dropout, two groups, a loss that moves and one that remembers."""
    whole = parts()
    torch.manual_seed(5)
    wanted = train(*whole, range(8))

    before = parts()
    torch.manual_seed(5)
    found = train(*before, range(4))
    sharing.save(tmp_path, 4, *before)
    torch.rand(7)
    after = parts(seed=9)
    sharing.load(tmp_path, *after)
    found += train(*after, range(4, 8))

    assert found == wanted
    for name, value in whole[0].state_dict().items():
        assert torch.equal(after[0].state_dict()[name], value), name
    assert after[2].loss.step == 8


def test_the_optimizer_is_saved_by_names():
    model, optimizer, window = parts()
    assert optimizer_tensors(model, optimizer) == {}  # and no step is made for it
    train(model, optimizer, window, [0])
    tensors = optimizer_tensors(model, optimizer)
    assert {"exp_avg/head.bias", "exp_avg_sq/words.weight", "step/words.weight"} <= tensors.keys()
    assert "exp_avg/guess.weight" not in tensors  # tied
    rest, head = optimizer_groups(model, optimizer)
    assert head["params"] == ["head.weight", "head.bias"]
    assert (head["lr"], head["weight_decay"], rest["lr"]) == (0.1, 0.0, 0.01)
    assert rest["betas"] == (0.9, 0.999)


def test_options_of_the_groups_come_back(tmp_path):
    model, optimizer, window = parts()
    optimizer.param_groups[0]["lr"] = 0.007
    sharing.save(tmp_path, 1, model, optimizer, window)
    other = parts()
    sharing.load(tmp_path, *other)
    assert other[1].param_groups[0]["lr"] == 0.007
    assert other[1].param_groups[0]["betas"] == (0.9, 0.999)
    assert not other[1].state


def test_loading_keeps_the_addresses_that_graphs_know(tmp_path):
    model, optimizer, window = parts()
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    train(model, optimizer, window, [0])
    sharing.save(tmp_path, 1, model, optimizer, window)
    state = optimizer.state[model.head.weight]
    live = [model.head.weight, state["exp_avg"], state["step"], optimizer.param_groups[0]["lr"]]
    saved = [tensor.clone() for tensor in live]
    train(model, optimizer, window, [1])
    optimizer.param_groups[0]["lr"].fill_(1.0)
    addresses = [tensor.data_ptr() for tensor in live]
    sharing.load(tmp_path, model, optimizer, window)
    state = optimizer.state[model.head.weight]
    now = [model.head.weight, state["exp_avg"], state["step"], optimizer.param_groups[0]["lr"]]
    assert [tensor.data_ptr() for tensor in now] == addresses
    assert all(torch.equal(a, b) for a, b in zip(now, saved, strict=True))


def test_tied_weights_are_saved_once_and_stay_tied():
    model, other = sharing.Tagger(0), sharing.Tagger(1)
    tensors = model_tensors(model)
    assert "words.weight" in tensors
    assert "guess.weight" not in tensors
    load_model_tensors(other, tensors)
    assert other.guess.weight is other.words.weight
    assert torch.equal(other.words.weight, model.words.weight)
    assert not torch.equal(other.words.weight, sharing.Tagger(1).words.weight)


def test_tensors_are_the_live_ones():
    model = sharing.Tagger()
    assert model_tensors(model)["head.bias"].data_ptr() == model.head.bias.data_ptr()


def test_another_model_is_an_error_of_input():
    model = nn.Linear(3, 2)
    with pytest.raises(InputError, match=r"another model: bias is missing \(1 such names\)"):
        load_model_tensors(model, {"weight": torch.zeros(2, 3)})
    with pytest.raises(InputError, match="more is not in the model"):
        load_model_tensors(model, model_tensors(model) | {"more": torch.zeros(1)})
    with pytest.raises(InputError, match=r"bias has shape \(4,\) instead of \(2,\)"):
        load_model_tensors(model, model_tensors(model) | {"bias": torch.zeros(4)})


def test_another_optimizer_is_an_error_of_input():
    model = nn.Linear(3, 2)
    one, two = torch.optim.AdamW(model.parameters()), torch.optim.AdamW([model.weight])
    with pytest.raises(InputError, match="another optimizer"):
        load_optimizer_tensors(model, two, {}, optimizer_groups(model, one))


@pytest.mark.parametrize("fused", [False, True])
def test_the_optimizer_goes_on_exactly_also_fused(fused):
    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters(), fused=fused, amsgrad=not fused)

    def advance(model, optimizer, seed):
        torch.manual_seed(seed)
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = make()
    advance(model, optimizer, 1)
    tensors = {k: v.clone() for k, v in optimizer_tensors(model, optimizer).items()}
    weights = {k: v.clone() for k, v in model_tensors(model).items()}
    other, again = make()
    load_model_tensors(other, weights)
    load_optimizer_tensors(other, again, tensors, optimizer_groups(model, optimizer))
    advance(model, optimizer, 2)
    advance(other, again, 2)
    assert torch.equal(model.weight, other.weight)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
@pytest.mark.parametrize("options", [{"fused": True}, {"capturable": True}], ids=str)
def test_a_resumed_run_on_the_gpu_is_bit_by_bit_the_uninterrupted_one(tmp_path, options):
    """Dropout draws from the generator of the device; LSTM weights lie in one flat buffer there."""

    def make(seed):
        torch.manual_seed(seed)
        model = nn.ModuleList([nn.LSTM(8, 8, batch_first=True), nn.Dropout(0.5), nn.Linear(8, 1)])
        return model.cuda(), torch.optim.AdamW(model.cuda().parameters(), **options)

    def advance(model, optimizer, times):
        for _ in range(times):
            hidden = model[0](torch.ones(4, 3, 8, device="cuda"))[0]
            model[2](model[1](hidden)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def tensors(model, optimizer):
        return {
            "model": model_tensors(model),
            "optimizer": optimizer_tensors(model, optimizer),
            "random": random_state(),
        }

    model, optimizer = make(0)
    advance(model, optimizer, 3)
    save_checkpoint(tmp_path, 3, tensors(model, optimizer), {})
    advance(model, optimizer, 3)
    other, again = make(1)
    found = load_checkpoint(tmp_path).tensors
    load_model_tensors(other, found["model"])
    load_optimizer_tensors(other, again, found["optimizer"], optimizer_groups(model, optimizer))
    set_random_state(found["random"])
    advance(other, again, 3)
    for name, value in model_tensors(model).items():
        assert torch.equal(model_tensors(other)[name], value), name


def test_how_another_device_computed_is_not_taken_over():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    (group,) = optimizer_groups(model, optimizer)
    gpu = [group | {"capturable": True, "fused": True, "lr": 0.25}]
    load_optimizer_tensors(model, optimizer, {}, gpu)
    (own,) = optimizer.param_groups
    assert (own["lr"], own["capturable"], own["fused"]) == (0.25, False, None)


def test_a_gradient_scaler_is_json(tmp_path):
    scaler = torch.amp.GradScaler("cpu", init_scale=3.0)
    scaler.scale(torch.ones(1))
    save_checkpoint(tmp_path, 1, {}, {"scaler": scaler.state_dict()})
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(load_checkpoint(tmp_path).state["scaler"])
    assert other.state_dict() == scaler.state_dict()
    assert other.get_scale() == 3.0


# Random numbers


def draw():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(2)  # noqa: NPY002


def test_all_generators_go_on(tmp_path):
    draw()  # a normal number is kept back, in Python and in numpy
    save_checkpoint(tmp_path, 1, {"random": random_state()}, {})
    *numbers, tensor = draw()
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    set_random_state(load_checkpoint(tmp_path).tensors["random"])
    *again, same = draw()
    assert again == numbers
    assert torch.equal(same, tensor)


# Processes


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    model, optimizer, window = parts()
    train(model, optimizer, window, range(3))
    sharing.save(folder / "single", 1, model, optimizer, window)
    run("tests.training.sharing", folder)
    return folder, (model, optimizer, window)


@pytest.mark.parametrize("way", sharing.WAYS)
def test_from_one_process_to_two_and_on_not_a_bit_changes(shared_run, way):
    folder, _ = shared_run
    first, again = (folder / name / "step-00000001" for name in ("single", way))
    for name in ("model", "optimizer", "loss"):
        file = f"{name}.safetensors"
        assert (again / file).read_bytes() == (first / file).read_bytes(), file
    states = [json.loads((path / "state.json").read_text())["state"] for path in (first, again)]
    assert states[0] == states[1]


@pytest.mark.parametrize("way", sharing.WAYS)
def test_two_processes_go_on_as_one(shared_run, way):
    folder, _ = shared_run
    model, optimizer, window = parts(seed=8)
    sharing.load(folder / way, model, optimizer, window)
    model.eval()
    train(model, optimizer, window, [50])
    after = torch.load(folder / f"{way}.after", weights_only=True)
    for name, value in model_tensors(model).items():
        torch.testing.assert_close(after[name], value.detach(), rtol=1e-5, atol=1e-7, msg=name)


def test_each_rank_has_its_own_random_numbers(shared_run):
    folder, _ = shared_run
    first, second = (torch.load(folder / f"random-{i}", weights_only=True) for i in range(2))
    assert not torch.equal(first, second)


def seconds(work, *arguments):
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def write_plainly(path, data):
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@pytest.mark.slow
def test_270_megabytes_are_on_the_disk_in_a_second_and_a_half(tmp_path):
    """Or, where the disk or the cores are busy, in 3 times what the bytes alone need."""
    size = 270_000_000 // 4 // 60
    groups = {name: {str(i): torch.randn(size) for i in range(20)} for name in ("a", "b", "c")}
    data = torch.randn(270_000_000 // 4).numpy().data
    saved, plain = [], []
    for step in range(4):
        saved.append(seconds(save_checkpoint, tmp_path, step, groups, {}))
        plain.append(seconds(write_plainly, tmp_path / "plain", data))
    assert min(saved) < max(1.5, 3 * min(plain)), (saved, plain)
    assert load_checkpoint(tmp_path).step == 3
