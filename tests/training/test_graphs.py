"""Steps as graphs give what steps give: on the CPU with a graph that is made up, then on a GPU."""

import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from softf1.recipe import with_values
from softf1.tasks.base import Batch
from softf1.training import graphs, packing
from softf1.training.batching import BatchSampler, collate_rows
from softf1.training.build import make_model
from softf1.training.datasets import load_datasets
from softf1.training.graphs import Captured, GraphStepper, copy_batch, shapes_of
from softf1.training.objective import make_objective, make_optimizer, parameter_groups, set_rate
from softf1.training.processes import Processes, make_autocast
from softf1.training.run import train_run
from softf1.training.step import LOSS, RUN, SKIPPED, STEPS, Attack, Stepper
from softf1.training.trainer import Trainer
from tests.training.test_run import CASES, case
from tests.training.toys import make_data, make_recipe, read_files, read_metrics

CUDA = torch.cuda.is_available()
gpu = pytest.mark.skipif(not CUDA, reason="wants a GPU")
SCHEDULED = {"name": "ce+dice", "dice": {"over": "batch"}, "schedule": "linear"}


def make_stepper(
    kind, datasets, recipe, *, device="cpu", precision="fp32", expected=50.0, hardened=False
):
    device = torch.device(device)
    model = make_model(recipe, datasets).to(device)
    task, features = datasets.task, datasets.features["train"]
    objective = make_objective(
        recipe.loss,
        keys=tuple(task.heads(model)),
        counts=task.class_counts(features),
        labels=getattr(task, "labels", ()),
        steps=30,
        expected=expected,
        consistency=1.0 if hardened else 0.0,
    ).to(device)
    optimizer = make_optimizer(
        parameter_groups(model, task, recipe.train),
        recipe.train,
        fused=True,
        capturable=device.type == "cuda",
    )
    return kind(
        model,
        task=task,
        objective=objective,
        optimizer=optimizer,
        device=device,
        clip=1.0,
        alone=True,
        autocast=make_autocast(precision, device),
        attack=Attack(0.5) if hardened else None,
    )


def make_steps(datasets, steps, size=12, widths=3):
    """The batches of so many steps, of few shapes, each of which comes often."""
    features = datasets.features["train"]
    plan = BatchSampler(features["length"], batch_size=size, max_buckets=widths)
    epochs = (plan.epoch(n) for n in range(steps))
    return [
        collate_rows(datasets.task, features, step[0], datasets.tokenizer, epoch=0)
        for epoch in epochs
        for step in epoch
    ][:steps]


def take(stepper, batches, *, seed=1):
    """The loss of every step."""
    torch.manual_seed(seed)
    losses = []
    for number, batch in enumerate(batches):
        set_rate(stepper.optimizer, 1 / (1 + number))
        stepper.step([batch])
        losses.append(stepper.read_meter()[LOSS])
    return losses


def copy(batch):
    """All that a step reads of a batch."""
    return Batch(
        batch.items, *({k: v.clone() for k, v in p.items()} for p in graphs.tensors_of(batch))
    )


class MadeUp:
    """A graph that does again what was done, in Python: on the CPU there is no other."""

    def __init__(self, stepper, batch):
        self.stepper, self.batch, self.replays = stepper, batch, 0

    def replay(self):
        self.replays += 1
        self.stepper.update(self.stepper.gradient([self.batch]))


@pytest.fixture
def on_the_cpu(monkeypatch):
    """What of a GPU a stepper asks for when it is made, and graphs that are made up."""

    def capture(self, batch):
        own = Batch(
            batch.items, *({k: v.clone() for k, v in p.items()} for p in graphs.tensors_of(batch))
        )
        return Captured(MadeUp(self, own), own)

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", SimpleNamespace)
    monkeypatch.setattr(GraphStepper, "_capture", capture)


@pytest.fixture(scope="module")
def toy():
    recipe = make_recipe(loss=SCHEDULED)
    return recipe, load_datasets(recipe, make_data())


@pytest.mark.usefixtures("on_the_cpu")
def test_a_shape_is_captured_when_it_comes_for_the_third_time(toy):
    recipe, datasets = toy
    batches = make_steps(datasets, 30)
    plain = take(make_stepper(Stepper, datasets, recipe), batches)
    stepper = make_stepper(GraphStepper, datasets, recipe)
    assert take(stepper, batches) == plain  # the same steps on the same CPU, dropout too
    shapes = [shapes_of(batch) for batch in batches]
    wanted = {shape: shapes.count(shape) - 2 for shape in set(shapes) if shapes.count(shape) > 2}
    assert {s: c.graph.replays for (s, _), c in stepper.captured.items()} == wanted
    assert len(wanted) > 1
    assert stepper.objective.losses["tags"].step == 30


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_rehearsal_computes_the_loss_and_changes_no_step(name, hardened, bert, monkeypatch):
    recipe, data = case(name, bert)
    datasets = load_datasets(recipe, data)
    batches = make_steps(datasets, 3)
    plain = take(make_stepper(Stepper, datasets, recipe, hardened=hardened), batches)
    stepper = make_stepper(GraphStepper, datasets, recipe, hardened=hardened)
    seen, whole = [], stepper.objective.whole

    def watch(logits, targets):
        assert logits.keys() >= targets.keys()
        seen.extend((x.requires_grad, x.is_leaf) for x in logits.values())
        return whole(logits, targets)

    monkeypatch.setattr(stepper.objective, "whole", watch)
    stepper.model.train()
    state = torch.random.get_rng_state()
    stepper.rehearse(batches[0])
    assert {*seen} == {(True, True)}
    assert torch.equal(torch.random.get_rng_state(), state)
    assert stepper.model.training
    assert all(parameter.grad is None for parameter in stepper.parameters)
    assert take(stepper, batches) == plain


CAPTURE = GraphStepper._capture


@pytest.mark.needs_tool
@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("compiling", [True, False])
def test_all_kernels_are_there_before_a_graph_is_captured(compiling, toy, monkeypatch):
    pytest.importorskip("triton", reason="wants Triton")
    from softf1.kernels import _launch

    done = []

    def stop():
        raise InterruptedError

    monkeypatch.setattr(_launch, "await_kernels", lambda: done.append("waited"))
    monkeypatch.setattr(torch.cuda, "synchronize", stop)  # what a capture begins with
    recipe, datasets = toy
    stepper = make_stepper(GraphStepper, datasets, recipe)
    stepper.compiling = compiling
    for _ in range(2):
        with pytest.raises(InterruptedError):
            CAPTURE(stepper, make_steps(datasets, 1)[0])
    assert done == ["waited"] * compiling  # once
    assert not stepper.compiling


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize(
    ("compiling", "way", "rehearsed"),
    [(True, "auto", True), (False, "auto", False), (True, "inductor", False)],
)
def test_the_first_batch_is_rehearsed_while_kernels_are_compiled(
    compiling, way, rehearsed, toy, monkeypatch, tmp_path
):
    recipe, datasets = toy
    recipe = with_values(recipe, {"train.compile": way})
    seen = []
    monkeypatch.setattr(GraphStepper, "compiling", compiling)
    monkeypatch.setattr(GraphStepper, "rehearse", lambda _, batch: seen.append(batch.items))
    monkeypatch.setattr("softf1.training.trainer.uses_graphs", lambda _: True)
    how = {"folder": tmp_path, "datasets": datasets, "processes": Processes()}
    trainer = Trainer(recipe=recipe, **how)
    wanted = [trainer.batch_sampler.epoch(0)[0][0].items] if rehearsed else []
    assert [items.tolist() for items in seen] == [list(items) for items in wanted]


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_gradients_that_adamw_divides_are_clipped(clip, toy):
    """AdamW all but forgets the scale of gradients, but not when it changes from step to step."""
    recipe, datasets = toy
    batches = make_steps(datasets, 8, widths=1)
    plain, stepper = (make_stepper(kind, datasets, recipe) for kind in (Stepper, GraphStepper))
    plain.clip = stepper.clip = clip
    stepper.divide = True
    assert take(stepper, batches) == pytest.approx(take(plain, batches), rel=1e-4)
    moments = [state["exp_avg"] for state in plain.optimizer.state.values()]
    for ours, theirs in zip(stepper.optimizer.state.values(), moments, strict=True):
        torch.testing.assert_close(ours["exp_avg"], theirs, rtol=1e-3, atol=1e-7)
    assert max(moment.abs().max() for moment in moments) > 1e-4


class Layers:
    """Notes the room of each call; texts keep their padding."""

    longest, room = 100, 0

    def __init__(self, run):
        self.run, self.rooms = run, []

    def packs(self, tokens):
        return tokens <= self.longest

    def __call__(self, **inputs):
        self.rooms.append(self.room)
        return self.run(**inputs)


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("hardened", [False, True])
def test_texts_with_much_padding_get_room_for_their_tokens(hardened, toy, monkeypatch):
    monkeypatch.setattr(packing, "ROOM", 8)
    recipe, datasets = toy
    features = datasets.features["train"]
    plan = BatchSampler(features["length"], batch_size=6, by_length=False, max_buckets=4)
    batches = [
        collate_rows(datasets.task, features, step[0], datasets.tokenizer) for step in plan.epoch(0)
    ]
    stepper = make_stepper(GraphStepper, datasets, recipe, hardened=hardened)
    stepper.layers = stepper.run = Layers(stepper.model)
    packed = 0
    for batch in batches:
        stepper.step([batch])
        times = 2 if hardened else 1  # the model sees every row twice
        kept = times * int(batch.inputs["attention_mask"].sum())
        room = -(-kept // 8) * 8
        fits = room <= graphs.WORTH * times * batch.inputs["input_ids"].numel()
        assert set(stepper.layers.rooms) == {room if fits else 0}
        assert (shapes_of(batch), room if fits else 0) in stepper.seen
        assert stepper.layers.room == 0
        stepper.layers.rooms.clear()
        packed += fits
    assert 0 < packed < len(batches)
    one = next(
        batch
        for batch in batches
        if stepper._find_room(stepper.layers, batch.inputs["attention_mask"])
    )
    one.inputs["attention_mask"] = one.inputs["attention_mask"].flip(1)  # padding on the left
    stepper.step([one])
    stepper.layers.longest = 1
    stepper.step([batches[0]])
    stepper.objective.open_windows()
    stepper.step([batches[0], batches[0]])
    assert set(stepper.layers.rooms) == {0}


@pytest.mark.usefixtures("on_the_cpu")
def test_shapes_past_the_most_run_as_they_are(toy, monkeypatch):
    recipe, datasets = toy
    monkeypatch.setattr(graphs, "MOST", 1)
    batches = make_steps(datasets, 20)
    stepper = make_stepper(GraphStepper, datasets, recipe)
    assert take(stepper, batches) == take(make_stepper(Stepper, datasets, recipe), batches)
    assert len(stepper.captured) == 1


@pytest.mark.usefixtures("on_the_cpu")
def test_several_micro_batches_run_as_they_are(toy):
    recipe, datasets = toy
    stepper = make_stepper(GraphStepper, datasets, recipe)
    stepper.objective.open_windows()
    for _ in range(4):
        stepper.step(make_steps(datasets, 2, widths=1))
    assert not stepper.captured
    assert stepper.read_meter()[STEPS] == 4


def test_a_batch_is_copied_whole_into_the_one_that_a_graph_reads(bert):
    """Masks of the logits too, which questions have; other places stay on the host."""
    recipe, data = case("qa", bert)
    datasets = load_datasets(recipe, data)
    first, second = make_steps(datasets, 2, size=8, widths=1)
    assert shapes_of(first) == shapes_of(second)
    own = copy(first)
    assert own.places
    copy_batch(own, second)
    for ours, theirs in zip(graphs.tensors_of(own), graphs.tensors_of(second), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def close(found, wanted, *, rel):
    np.testing.assert_allclose(found, wanted, rtol=rel, atol=rel)


def compare_weights(model, other, tolerance):
    """AdamW makes whole steps of rounding errors: where gradients are about 0, weights may differ.

    A key's bias adds the same to all scores of a row, and the bias of a softmax over positions to
    all positions: their gradients are 0 but for rounding.
    """
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        if not name.endswith(("key.bias", "qa_outputs.bias")):
            assert ((ours - theirs).abs() > tolerance).float().mean() < 0.01, name


@gpu
@pytest.mark.parametrize(
    "name", ["tagging-batch", "qa", "pairs", "mrc_ner", "span_ner", "multi-label"]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "adversarial"])
def test_graphs_give_what_steps_give(name, precision, hardened, bert):
    """30 steps with a schedule, the same up to rounding; fused dropout has numbers of its own."""
    compare_steps(name, bert, device="cuda", precision=precision, hardened=hardened)


@gpu
@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "adversarial"])
def test_graphs_give_what_steps_give_with_lora(hardened, bert):
    pytest.importorskip("peft", reason="peft is not installed")
    how = {"precision": "bf16", "hardened": hardened, "encoder.lora": {"rank": 4}}
    compare_steps("tagging-batch", bert, device="cuda", **how)


@pytest.mark.usefixtures("on_the_cpu")
def test_steps_with_lora_are_captured(bert):
    pytest.importorskip("peft", reason="peft is not installed")
    how = {"precision": "fp32", "hardened": False, "encoder.lora": {"rank": 4}}
    compare_steps("tagging-batch", bert, device="cpu", **how)


@gpu
@pytest.mark.parametrize("name", ["tagging-batch", "qa", "pairs", "mrc_ner", "multi-label"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "adversarial"])
def test_graphs_without_padding_give_what_steps_give(name, precision, hardened, bert, monkeypatch):
    monkeypatch.setattr(packing, "ROOM", 16)
    monkeypatch.setattr(graphs, "WORTH", 1.0)
    from softf1.training.fusing import FusedLayers  # Triton is not everywhere

    rooms, own = [], FusedLayers.__call__

    def call(self, **inputs):
        rooms.append(self.room)
        return own(self, **inputs)

    monkeypatch.setattr(FusedLayers, "__call__", call)
    how = {"precision": precision, "hardened": hardened, "packs": True}
    compare_steps(name, bert, device="cuda", **how)
    assert any(rooms)


def compare_steps(name, bert, *, device, precision, hardened, packs=False, **values):
    """Takes 30 steps as they are, and as graphs."""
    recipe, data = case(name, bert, lr=1e-3)
    recipe = with_values(recipe, {"encoder.dropout": 0.0, **values})
    datasets = load_datasets(recipe, data)
    batches = make_steps(datasets, 30, size=8, widths=2)
    how = {"device": device, "precision": precision, "hardened": hardened}
    plain = make_stepper(Stepper, datasets, recipe, **how)
    stepper = make_stepper(partial(GraphStepper, packs=packs), datasets, recipe, **how)
    wanted, found = take(plain, batches), take(stepper, batches)
    assert stepper.captured
    close(found, wanted, rel=1e-4 if precision == "fp32" else 5e-2)
    compare_weights(stepper.model, plain.model, 1e-4 if precision == "fp32" else 5e-3)


@gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("hardened", [False, True], ids=["plain", "adversarial"])
def test_graphs_drop_what_steps_drop(precision, hardened, bert, monkeypatch):
    """30 steps with dropout: the seeds of a captured step are those of the same step as it is."""
    recipe, data = case("tagging-batch", bert, lr=1e-3)
    datasets = load_datasets(recipe, data)
    batches = make_steps(datasets, 30, size=8, widths=2)
    how = {"device": "cuda", "precision": precision, "hardened": hardened}
    losses = {}
    for most in (0, graphs.MOST):
        monkeypatch.setattr(graphs, "MOST", most)
        stepper = make_stepper(GraphStepper, datasets, recipe, **how)
        assert len(stepper.run.parts) == 9  # four a layer, and all layers
        losses[most] = take(stepper, batches)
        assert bool(stepper.captured) == bool(most)
    close(losses[graphs.MOST], losses[0], rel=1e-4 if precision == "fp32" else 5e-2)


@gpu
def test_fused_layers_learn_what_plain_ones_learn(bert, tmp_path, monkeypatch):
    """With dropout, to the same loss: the mean of the last 20 of 120 steps."""
    last = {}
    for fuse in (True, False):
        monkeypatch.setattr(graphs, "FUSE", fuse)
        recipe, data = case("tagging-batch", bert, max_steps=120, lr=1e-3)
        train_run(recipe, tmp_path / str(fuse), data=data, quiet=True)
        lines = [line for line in read_metrics(tmp_path / str(fuse)) if line["event"] == "step"]
        last[fuse] = np.mean([line["loss"] for line in lines[-20:]])
    close(last[True], last[False], rel=0.1)


@gpu
def test_a_graph_leaves_out_what_is_not_finite_and_goes_on(bert):
    recipe, data = case("tagging-batch", bert)
    datasets = load_datasets(recipe, data)
    (batch,) = make_steps(datasets, 1, widths=1)
    stepper = make_stepper(GraphStepper, datasets, recipe, device="cuda", precision="bf16")
    for _ in range(4):
        stepper.step([batch])
    assert stepper.captured
    weight = stepper.model.classifier.weight
    good = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] = float("nan")
    before = [p.detach().clone() for p in stepper.model.parameters() if p is not weight]
    stepper.step([batch])
    stepper.step([batch])
    after = [p for p in stepper.model.parameters() if p is not weight]
    assert all(map(torch.equal, before, after))
    meter = stepper.read_meter()
    assert (meter[STEPS], meter[SKIPPED], meter[RUN]) == (6, 2, 2)
    with torch.no_grad():
        weight.copy_(good)
    stepper.step([batch])
    assert stepper.read_meter()[RUN] == 0
    assert not torch.equal(weight, good)


@gpu
def test_a_graph_reads_the_rate_of_each_step(bert):
    recipe, data = case("tagging-batch", bert)
    datasets = load_datasets(recipe, data)
    (batch,) = make_steps(datasets, 1, widths=1)
    stepper = make_stepper(GraphStepper, datasets, recipe, device="cuda")
    for _ in range(4):
        stepper.step([batch])
    before = stepper.model.classifier.weight.detach().clone()
    set_rate(stepper.optimizer, 0.0)
    stepper.step([batch])
    assert torch.equal(stepper.model.classifier.weight, before)
    set_rate(stepper.optimizer, 1.0)
    stepper.step([batch])
    assert not torch.equal(stepper.model.classifier.weight, before)


@gpu
@pytest.mark.parametrize("way", ["auto", "off"])
def test_the_seed_decides_every_bit_on_a_gpu(way, bert, tmp_path):
    recipe, data = case("tagging-batch", bert, compile=way, max_steps=30)
    for name in ("a", "b"):
        train_run(recipe, tmp_path / name, data=data, quiet=True)
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b")


COLD = """
import sys
from threading import current_thread

from triton import knobs
from softf1.kernels import autograd
from softf1.training import run
from softf1.training.graphs import wake_triton
from softf1.training.step import Stepper
from tests.training.test_run import case

slow = []

def note(*, src, **_):
    if not current_thread().name.startswith("ThreadPool"):
        slow.append(src.name)

def load(*args, **options):
    print("woken:", wake_triton.cache_info().currsize)
    return load_datasets(*args, **options)

def step(self, batches):
    print("loss compiled ahead:", bool(autograd._rehearsed))
    own(self, batches)

knobs.compilation.listener = note
own, Stepper.step = Stepper.step, step
load_datasets, run.load_datasets = run.load_datasets, load
recipe, data = case("tagging-batch", sys.argv[1], max_steps=1)
run.train_run(recipe, sys.argv[2], data=data, quiet=True)
print(slow)
"""


@gpu
def test_a_training_compiles_nothing_while_it_waits(bert, tmp_path):
    """In a process of its own, which has compiled nothing yet."""
    said = subprocess.run(
        [sys.executable, "-c", COLD, str(bert), str(tmp_path / "run")],
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines() == ["woken: 1", "loss compiled ahead: True", "[]"]


@gpu
@pytest.mark.parametrize("batch", [{"batch_size": 8}, {"batch_tokens": 128}])
def test_compiling_changes_no_more_than_rounding(batch, bert, tmp_path):
    found = {}
    for way in ("graphs", "off"):
        recipe, data = case("tagging-batch", bert, compile=way, max_steps=30, lr=1e-3, **batch)
        recipe = with_values(recipe, {"encoder.dropout": 0.0})
        result = train_run(recipe, tmp_path / way, data=data, quiet=True)
        lines = read_metrics(tmp_path / way)
        found[way] = [line["loss"] for line in lines if line["event"] == "step"]
        assert result["precision"] == "bf16"
        assert (result["seconds"]["warmup"] > 0) == (way == "graphs")
    close(found["graphs"], found["off"], rel=5e-2)


def stop_and_go_on(recipe, data, folder, monkeypatch):
    """Trains in one go, and again with a stop at the first evaluation; returns both folders."""
    whole, stopped = folder / "whole", folder / "stopped"
    train_run(recipe, whole, data=data, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("softf1.training.trainer.Trainer.keep_best", None)
        with pytest.raises(TypeError):
            train_run(recipe, stopped, data=data, quiet=True)
    train_run(recipe, stopped, data=data, resume=True, quiet=True)
    return whole, stopped


@gpu
def test_a_run_goes_on_with_graphs(bert, tmp_path, monkeypatch):
    recipe, data = case("tagging-batch", bert, max_steps=30, checkpoint_seconds=0.0)
    losses = [
        [line["loss"] for line in read_metrics(one) if line["event"] == "step"]
        for one in stop_and_go_on(recipe, data, tmp_path, monkeypatch)
    ]
    close(losses[1], losses[0], rel=5e-2)


@gpu
@pytest.mark.parametrize("name", ["tagging-batch", "tagging"])
def test_a_run_that_was_stopped_goes_on_to_the_bit(name, bert, tmp_path, monkeypatch):
    recipe, data = case(name, bert, max_steps=30, checkpoint_seconds=0.0, deterministic=True)
    whole, stopped = stop_and_go_on(recipe, data, tmp_path, monkeypatch)
    weights = "model/model.safetensors"
    assert (whole / weights).read_bytes() == (stopped / weights).read_bytes()


@gpu
def test_half_precision_of_the_other_kind_trains(bert, tmp_path):
    recipe, data = case("tagging-batch", bert, precision="fp16", max_steps=30, lr=1e-3)
    train_run(recipe, tmp_path / "fp16", data=data, quiet=True)
    plain = with_values(recipe, {"train.precision": "fp32"})
    train_run(plain, tmp_path / "fp32", data=data, quiet=True)
    last = [
        [line["loss"] for line in read_metrics(tmp_path / name) if line["event"] == "step"][-1]
        for name in ("fp16", "fp32")
    ]
    close(last[0], last[1], rel=0.1)
