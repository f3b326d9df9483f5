"""LoRA, gradient checkpointing and decoders: what is trained, merged, exact and refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from softf1.errors import InputError
from softf1.models.encoders import AUTO, build_model, make_tokenizer
from softf1.models.lora import add_lora, find_peft, list_frozen, merge_lora
from softf1.recipe import check_recipe, describe_recipe, format_recipe, read_recipe, with_values
from softf1.training.build import make_model
from softf1.training.datasets import load_datasets
from softf1.training.dry_run import activation_bytes, describe_run
from softf1.training.evaluation import predict_logits
from softf1.training.export import export_onnx
from softf1.training.graphs import CastOnce
from softf1.training.objective import make_objective, make_optimizer, parameter_groups
from softf1.training.publish import load_model
from softf1.training.run import train_run
from softf1.training.run_folder import CHECKPOINTS
from softf1.training.step import Attack, Stepper
from softf1.training.trainer import Trainer
from tests.models.families import write_encoder
from tests.training.test_step import make_batches
from tests.training.toys import make_data, make_recipe, read_files

pytest.importorskip("peft")

SIZES = {"train": 12, "dev": 8, "test": 4}
HEADS = {"classification": "text", "tagging": "tokens", "qa": "span"}
CASES = [
    ("qwen2", "classification"),
    ("qwen2", "tagging"),
    ("llama", "classification"),
    ("llama", "tagging"),
    ("llama", "qa"),
    ("roberta", "classification"),
    ("roberta", "tagging"),
    ("roberta", "mrc_ner"),
    ("qwen2", "span_ner"),
]
BATCH = {"name": "ce+dice", "dice": {"over": "batch"}}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    made = {}

    def give(name):
        if name not in made:
            made[name] = write_encoder(name, tmp_path_factory.mktemp(name))
        return made[name]

    return give


def recipe_of(folder, kind="tagging", *, lora=None, loss=None, **values):
    encoder = {"name": str(folder), "lora": {"rank": 4} if lora is None else lora}
    train = {"max_steps": 3, "batch_size": 6, "lr": 0.05}
    recipe = make_recipe({"kind": kind}, encoder=encoder, loss=loss or BATCH, train=train)
    return with_values(recipe, {key.replace("__", "."): value for key, value in values.items()})


def weights_of(folder):
    return load_file(Path(folder) / "model.safetensors")


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_merged_model_is_an_ordinary_one_with_the_scores_of_its_training(
    family, kind, encoders, tmp_path
):
    """Its weights have the names of a model without LoRA, and predict what was written."""
    data, base = make_data(kind, sizes=SIZES), encoders(family)
    checkpointing = {"encoder__gradient_checkpointing": True} if family == "llama" else {}
    loss = {"name": "ce+dice"} if kind == "qa" else BATCH  # positions are no classes
    recipe = recipe_of(base, kind, loss=loss, **checkpointing)
    result = train_run(recipe, tmp_path / "run", data=data, quiet=True)
    full = with_values(recipe, {"encoder.lora": None, "train.max_steps": 1})
    train_run(full, tmp_path / "full", data=data, quiet=True)
    found, usual = (weights_of(tmp_path / name / "model") for name in ("run", "full"))
    assert found.keys() == usual.keys()
    assert not list((tmp_path / "run/model").glob("adapter*"))
    model, task, tokenizer = load_model(tmp_path / "run")
    features = task.encode(data["dev"], tokenizer)
    logits = predict_logits(model, task, features, tokenizer, device="cpu")
    decoded = task.decode(logits, features, data["dev"])
    assert task.score(decoded, data["dev"]) == result["scores"]["dev"]
    if kind in HEADS:
        plain = getattr(transformers, AUTO[HEADS[kind]]).from_pretrained(tmp_path / "run/model")
        same = predict_logits(plain.eval(), task, features, tokenizer, device="cpu")
        for key, values in logits.items():
            np.testing.assert_array_equal(same[key], values, err_msg=key)


@pytest.mark.parametrize("family", ["qwen2", "llama", "roberta"])
def test_only_the_linear_layers_and_the_head_move(family, encoders, tmp_path):
    """Embeddings, norms and biases of the encoder are those of its files, to the bit."""
    base = encoders(family)
    train_run(recipe_of(base), tmp_path, data=make_data(sizes=SIZES), quiet=True)
    before, after = weights_of(base), weights_of(tmp_path / "model")
    prefix = {"roberta": "roberta."}.get(family, "model.")
    moved = {
        name
        for name, value in after.items()
        if name.startswith(prefix) and not torch.equal(value, before[name.removeprefix(prefix)])
    }
    linear = {name for name, value in after.items() if name.startswith(prefix) and value.ndim == 2}
    linear = {name for name in linear if "embed" not in name}
    assert linear
    assert moved == linear
    heads = [name for name in after if not name.startswith(prefix)]
    assert sorted(heads) in (
        ["classifier.bias", "classifier.weight"],
        ["score.bias", "score.weight"],
    )


def test_merging_changes_no_logit(encoders):
    model = adapted(encoders("qwen2"), rank=3, alpha=5.0).double().eval()
    assert list_frozen(model)
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    before = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    merge_lora(model)
    after = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-12)
    assert not list_frozen(model)
    assert all(p.requires_grad for p in model.parameters())
    assert not any("lora" in name for name, _ in model.named_modules())


def adapted(folder, **options):
    """A classifier whose adapters do something: B starts at 0."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(folder)
    model = build_model(folder, head="text", labels=("a", "b"), tokenizer=tokenizer)
    add_lora(model, **options)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                weight.normal_()
    return model


def test_alpha_over_rank_is_the_factor(encoders):
    """W + (alpha / rank)·B·A, alpha twice the rank where nothing is said."""
    for options, factor in (
        ({"rank": 3, "alpha": 6.0}, 2.0),
        ({"rank": 4}, 2.0),
        ({"alpha": 4}, 0.5),
    ):
        model = adapted(encoders("roberta"), targets=["query"], **options)
        layer = model.roberta.encoder.layer[0].attention.self.query
        weight = layer.base_layer.weight.detach().clone()
        delta = layer.lora_B.default.weight @ layer.lora_A.default.weight
        merge_lora(model)
        merged = model.roberta.encoder.layer[0].attention.self.query.weight
        torch.testing.assert_close(merged, weight + factor * delta)


def test_layers_of_gpt2_are_kept_the_other_way_round_and_merge_too():
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=20, n_positions=16)
    config.pad_token_id = 0
    model = transformers.GPT2ForSequenceClassification(config).double().eval()
    add_lora(model, rank=2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                weight.normal_()
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(input_ids=ids).logits
    merge_lora(model)
    torch.testing.assert_close(model(input_ids=ids).logits, before, rtol=1e-9, atol=1e-12)


def make_stepper(recipe, datasets, *, windows=False, attack=None, consistency=0.0):
    """A step in double precision; adapters moved away from where they start."""
    model = make_model(recipe, datasets).double().train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    task, features = datasets.task, datasets.features["train"]
    objective = make_objective(
        recipe.loss,
        keys=tuple(task.heads(model)),
        counts=task.class_counts(features),
        labels=task.labels,
        steps=10,
        expected=50.0,
        consistency=consistency,
    ).double()
    if windows:
        objective.open_windows()
    groups = parameter_groups(model, task, recipe.train)
    return Stepper(
        model,
        task=task,
        objective=objective,
        optimizer=make_optimizer(groups, recipe.train, fused=False, capturable=False),
        device=torch.device("cpu"),
        clip=0.0,
        alone=not windows,
        attack=attack,
    )


def gradients(stepper, batches):
    torch.manual_seed(3)
    stepper.gradient(batches)
    found = {n: p.grad.clone() for n, p in stepper.model.named_parameters() if p.grad is not None}
    stepper.optimizer.zero_grad()
    return found


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-11, msg=name)


@pytest.mark.parametrize("attack", [None, Attack(0.7)], ids=["", "adversarial"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("family", ["qwen2", "llama", "roberta"])
def test_a_batch_level_loss_is_exact_however_a_step_is_cut(family, checkpointing, attack, encoders):
    """8 parts of 1, 2 of 4, and one of 8 have the same gradient, that of the adapters too."""
    recipe = recipe_of(encoders(family), encoder__dropout=0.0)
    datasets = load_datasets(recipe, make_data(sizes=SIZES | {"train": 8}))
    if checkpointing:
        recipe = with_values(recipe, {"encoder.gradient_checkpointing": True})
    wanted = gradients(
        make_stepper(recipe, datasets, attack=attack), make_batches(datasets, size=8)
    )
    frozen = list_frozen(make_model(recipe, datasets))
    assert frozen
    assert not wanted.keys() & frozen
    adapters = {name for name in wanted if ".lora_" in name}
    assert max(wanted[name].abs().max() for name in adapters) > 1e-4
    cut = make_stepper(recipe, datasets, windows=True, attack=attack)
    for accumulate in (2, 8):
        batches = make_batches(datasets, size=8, accumulate=accumulate)
        assert len(batches) == accumulate
        same(gradients(cut, batches), wanted)


def test_layers_that_are_computed_again_see_the_same_dropout(encoders):
    recipe = recipe_of(encoders("roberta"), encoder__dropout=0.3, lora={"rank": 4, "dropout": 0.2})
    datasets = load_datasets(recipe, make_data(sizes=SIZES))
    again = with_values(recipe, {"encoder.gradient_checkpointing": True})
    for windows, accumulate in ((False, 1), (True, 2)):
        batches = make_batches(datasets, size=8, accumulate=accumulate)
        found, wanted = (
            gradients(make_stepper(one, datasets, windows=windows), batches)
            for one in (again, recipe)
        )
        same(found, wanted)


def test_frozen_embeddings_give_the_adversarial_direction_and_stay(encoders):
    """The step with LoRA is that of free embeddings, but for their own gradient."""
    recipe = recipe_of(encoders("roberta"), encoder__dropout=0.0)
    datasets = load_datasets(recipe, make_data(sizes=SIZES))
    batches = make_batches(datasets, size=8)
    stepper, free = (make_stepper(recipe, datasets, attack=Attack(0.7)) for _ in range(2))
    plain = gradients(make_stepper(recipe, datasets), batches)
    words = free.model.get_input_embeddings().weight.requires_grad_()
    wanted = gradients(free, batches)
    assert words.grad is not None
    wanted.pop("roberta.embeddings.word_embeddings.weight")
    found = gradients(stepper, batches)
    same(found, wanted)
    assert any(not torch.allclose(found[name], 2 * plain[name]) for name in plain)
    weight = stepper.model.get_input_embeddings().weight
    before = weight.detach().clone()
    stepper.step(batches)
    assert torch.equal(weight, before)
    assert not weight.requires_grad


def test_checkpoints_hold_what_is_trained_and_nothing_else(encoders, tmp_path):
    recipe = recipe_of(encoders("qwen2"), train__checkpoint_seconds=0)
    trainer = stop_after(recipe, tmp_path, 2)
    tensors = load_file(next((tmp_path / CHECKPOINTS).glob("step-00000002")) / "model.safetensors")
    model = trainer.stepper.model
    assert tensors.keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    assert {n for n in tensors if ".lora_" not in n} == {"score.weight", "score.bias"}
    assert trainer.best.keys() <= tensors.keys()


class StoppedError(Exception):
    """A training that ends in the middle."""


def stop_after(recipe, folder, steps):
    """Ends a training as a kill would: nothing is saved or closed on the way out."""
    with pytest.MonkeyPatch.context() as patch:
        kept, step = [], Trainer.step

        def end(self, batches):
            kept[:] = [self]
            if self.state.step == steps:
                raise StoppedError
            step(self, batches)

        patch.setattr(Trainer, "step", end)
        with pytest.raises(StoppedError):
            train_run(recipe, folder, data=make_data(sizes=SIZES), quiet=True)
    return kept[0]


HARD = {
    "encoder__dropout": 0.2,
    "encoder__gradient_checkpointing": True,
    "train__adversarial": 0.5,
    "train__accumulate": 2,
    "train__epochs": 3.0,
    "train__max_steps": 6,
    "train__checkpoint_seconds": 0,
}


def test_stopped_anywhere_and_resumed_it_ends_with_the_same_bits(encoders, tmp_path):
    recipe = recipe_of(encoders("roberta"), lora={"rank": 4, "dropout": 0.1}, **HARD)
    train_run(recipe, tmp_path / "whole", data=make_data(sizes=SIZES), quiet=True)
    for step in (1, 4):
        stop_after(recipe, tmp_path / str(step), step)
        again = {"data": make_data(sizes=SIZES), "quiet": True, "resume": True}
        train_run(recipe, tmp_path / str(step), **again)
        assert read_files(tmp_path / str(step)) == read_files(tmp_path / "whole")


KILLED = """
import os, signal, sys
from softf1.recipe import read_recipe
from softf1.training.run import train_run
from softf1.training.trainer import Trainer
from tests.models.test_lora import SIZES
from tests.training.toys import make_data

step = Trainer.step
def die(self, batches):
    step(self, batches)
    if self.state.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Trainer.step = die
train_run(read_recipe(sys.argv[1]), sys.argv[2], data=make_data(sizes=SIZES), quiet=True)
"""


@pytest.mark.slow
def test_killed_and_resumed_it_ends_with_the_same_bits(encoders, tmp_path):
    recipe = recipe_of(encoders("qwen2"), lora={"rank": 4, "dropout": 0.1}, **HARD)
    path = tmp_path / "toy.toml"
    path.write_text(format_recipe(recipe), "utf-8")
    recipe = read_recipe(path)
    train_run(recipe, tmp_path / "whole", data=make_data(sizes=SIZES), quiet=True)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(root)])}
    command = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=root, env=environment, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    again = {"data": make_data(sizes=SIZES), "quiet": True, "resume": True}
    train_run(recipe, tmp_path / "run", **again)
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole")


TOGETHER = """
import sys
from softf1.recipe import read_recipe
from softf1.training.processes import close_process_group
from softf1.training.run import train_run
from tests.models.test_lora import SIZES
from tests.training.toys import make_data

train_run(read_recipe(sys.argv[1]), sys.argv[2], data=make_data(sizes=SIZES), quiet=True)
close_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["copied", "sharded"])
def test_two_processes_give_the_weights_of_one(sharded, encoders, tmp_path):
    """DDP and FSDP, the adversarial step at frozen embeddings included."""
    values = HARD | {"encoder__dropout": 0.0, "train__accumulate": 1, "train__eps": 1e-6}
    recipe = recipe_of(encoders("roberta"), **values)
    path, script = tmp_path / "toy.toml", tmp_path / "together.py"
    path.write_text(format_recipe(recipe), "utf-8")
    script.write_text(TOGETHER, "utf-8")
    train_run(read_recipe(path), tmp_path / "one", data=make_data(sizes=SIZES), quiet=True)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(root)])}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {"ACCELERATE_USE_FSDP": str(sharded).lower()}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launch, str(script), str(path), str(tmp_path / "two")]
    subprocess.run(command, cwd=root, env=environment, check=True, timeout=600)
    one, two = (weights_of(tmp_path / name / "model") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_decoder_decides_the_same_whatever_it_is_padded_with(family, encoders):
    """The last token of a text decides, not the padding behind it."""
    folder = encoders(family)
    tokenizer = make_tokenizer(folder)
    model = build_model(folder, head="text", labels=("a", "b"), tokenizer=tokenizer).eval()
    assert model.config.pad_token_id == tokenizer.pad_id
    alone = torch.tensor([[7, 8, 9]])
    padded = torch.tensor([[7, 8, 9, *[tokenizer.pad_id] * 4]])
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0]])
    wanted = model(input_ids=alone, attention_mask=torch.ones_like(alone)).logits
    torch.testing.assert_close(model(input_ids=padded, attention_mask=mask).logits, wanted)
    other = model(input_ids=torch.tensor([[7, 8, 10]]), attention_mask=torch.ones_like(alone))
    assert not torch.allclose(other.logits, wanted)


def test_the_padding_of_the_tokenizer_is_that_of_the_model(encoders, tmp_path):
    """A configuration that names another padding would have a padding token decide."""
    import shutil

    folder = shutil.copytree(encoders("qwen2"), tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 5}))
    tokenizer = make_tokenizer(folder)
    model = build_model(folder, head="text", labels=("a", "b"), tokenizer=tokenizer)
    assert model.config.pad_token_id == tokenizer.pad_id == 0


def test_whether_a_decoder_finds_an_answer_is_read_off_its_last_token(encoders):
    from softf1.models.mrc import MrcNer

    tokenizer = make_tokenizer(encoders("llama"))
    model = MrcNer.build(encoders("llama"), tokenizer, match="none", answerable=True).eval()
    ids = torch.tensor([[2, 7, 8, 9], [2, 7, 8, 10]])
    rest = {"attention_mask": torch.ones_like(ids), "context": torch.ones_like(ids)}
    first, second = model(input_ids=ids, cls=torch.zeros(2, dtype=torch.long), **rest)["answerable"]
    assert first != second
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    first, second = model(
        input_ids=ids, cls=torch.zeros(2, dtype=torch.long), attention_mask=mask, context=mask
    )["answerable"]
    torch.testing.assert_close(first, second)


def test_a_captured_step_casts_frozen_layers_once_and_gives_them_no_gradient(encoders):
    """On a CPU: what a CUDA graph would replay."""
    model = adapted(encoders("qwen2"), rank=3)
    half = CastOnce(model, torch.bfloat16)
    frozen = list_frozen(model)
    assert half.frozen.keys() == {n for n in frozen if "proj" in n}
    assert not frozen & set(half.names)
    ids = torch.tensor([[5, 6, 7, 8]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    results = []
    for run in (half, model):
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(**inputs).logits
        logits.float().sum().backward()
        found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        results.append((logits, found))
        model.zero_grad()
    (logits, found), (wanted, expected) = results
    assert torch.equal(logits, wanted)
    assert found.keys() == expected.keys()
    assert not found.keys() & frozen


def test_a_dry_run_counts_what_is_trained(encoders, tmp_path):
    """Rank 4 beside a layer of n inputs and m outputs is 4·(n + m) numbers."""
    from tests.training.toys import write_files

    base = make_recipe(encoder={"name": str(encoders("qwen2")), "lora": {"rank": 4}})
    values = dict(word.split("=", 1) for word in write_files(tmp_path, sizes=SIZES))
    recipe = with_values(base, {key: json.loads(value) for key, value in values.items()})
    text = describe_run(recipe, tmp_path / "run")
    datasets = load_datasets(recipe)
    model = make_model(recipe, datasets)
    total = sum(p.numel() for p in model.parameters())
    # q 16→16, k and v 16→8, o 16→16, gate and up 16→32, down 32→16, and the head of 3 labels.
    trained = 4 * (32 + 24 + 24 + 32 + 48 + 48 + 48) + 3 * 16 + 3
    assert f"({total / 1e6:.1f} M parameters, {trained / 1e6:.2f} M of them trained)" in text
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained
    fixed = 16 * trained + 4 * (total - trained)
    assert f"{fixed / 2**20:.1f} MiB of them weights and optimizer" in text


def test_gradient_checkpointing_keeps_the_input_of_each_layer():
    """12 layers · 768 numbers, and one layer as a whole, of 4 bytes."""
    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig())
    model.gradient_checkpointing_enable()
    assert activation_bytes(model, 128) == 4 * (12 * 768 + 17 * 768 + 2 * 12 * 128)


@pytest.mark.slow
def test_an_export_has_the_merged_weights(encoders, tmp_path):
    pytest.importorskip("onnxscript")
    train_run(recipe_of(encoders("roberta")), tmp_path, data=make_data(sizes=SIZES), quiet=True)
    assert export_onnx(tmp_path).difference < 1e-4


def test_the_card_says_that_the_adapters_are_merged(encoders, tmp_path):
    train_run(recipe_of(encoders("qwen2")), tmp_path, data=make_data(sizes=SIZES), quiet=True)
    card = (tmp_path / "model/README.md").read_text("utf-8")
    assert "LoRA of rank 4; the adapters are merged into the weights" in card
    assert "[encoder.lora]\nrank = 4" in card


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rank": 0}, r"encoder.lora.rank: wanted a number from 1, got 0"),
        ({"rank": 2.5}, r"encoder.lora.rank: wanted a whole number, got 2.5"),
        ({"alpha": 0.0}, r"encoder.lora.alpha: wanted a number above 0, got 0.0"),
        ({"dropout": 1.0}, r"encoder.lora.dropout: wanted a number from 0, below 1, got 1.0"),
        ({"targets": "q_proj"}, r"encoder.lora.targets: wanted all-linear or a list, got 'q_proj'"),
        ({"targets": []}, r"encoder.lora.targets: wanted one name or more, got none"),
        ({"targets": [""]}, r"encoder.lora.targets: wanted a string that is not empty, got ''"),
        (
            {"rnak": 4},
            r"encoder.lora.rnak: unknown key \(did you mean rank\?\); known: rank, alpha",
        ),
        (8, r"encoder.lora: wanted a table, got 8"),
    ],
)
def test_wrong_options_are_one_line(values, message):
    with pytest.raises(InputError, match=message):
        make_recipe(encoder={"name": "some", "lora": values})


def test_a_wrong_option_names_the_line(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        '[task]\nkind = "tagging"\ntrain = "x"\n[encoder]\nname = "a"\nlora = {rank = 0}\n'
    )
    with pytest.raises(InputError) as raised:
        read_recipe(path)
    assert (raised.value.line, raised.value.path) == (6, path)


@pytest.mark.parametrize("key", ["lora", "gradient_checkpointing"])
def test_encoders_from_scratch_are_refused(key):
    recipe = make_recipe(encoder={"name": "bilstm", key: {} if key == "lora" else True})
    with pytest.raises(
        InputError, match=rf"encoder.{key}: wanted a pretrained encoder, got bilstm"
    ):
        check_recipe(recipe)


def test_a_saved_encoder_from_scratch_is_refused_too(tmp_path):
    data = make_data(sizes=SIZES)
    train_run(make_recipe(train={"max_steps": 1}), tmp_path / "first", data=data, quiet=True)
    recipe = recipe_of(tmp_path / "first/model")
    with pytest.raises(
        InputError, match="wanted a pretrained encoder with linear layers, got BiLs"
    ):
        train_run(recipe, tmp_path / "run", data=data, quiet=True)


def test_layers_that_are_not_there_are_refused_before_training(encoders, tmp_path):
    recipe = recipe_of(encoders("roberta"), lora={"targets": ["query", "q_proj"]})
    message = "no linear layer of the encoder is named 'q_proj'; known: query, key, value, dense"
    with pytest.raises(InputError, match=message):
        train_run(recipe, tmp_path / "run", data=make_data(sizes=SIZES), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_family_that_cannot_compute_layers_again_says_so(encoders, tmp_path):
    values = {"encoder__gradient_checkpointing": True}
    recipe = recipe_of(encoders("mpnet"), **values)
    with pytest.raises(InputError, match="gradient_checkpointing: MPNetModel cannot"):
        train_run(recipe, tmp_path / "run", data=make_data(sizes=SIZES), quiet=True)


def test_without_peft_a_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r'needs the package peft: pip install "softf1\[lora\]"'):
        find_peft()


def test_a_recipe_with_lora_is_written_and_read_back(tmp_path):
    recipe = make_recipe(encoder={"name": "a", "lora": {"rank": 4, "targets": ["q_proj"]}})
    path = tmp_path / "toy.toml"
    path.write_text(format_recipe(recipe), "utf-8")
    assert read_recipe(path).encoder == recipe.encoder
    assert describe_recipe(recipe)["encoder"]["lora"] == {
        "rank": 4,
        "dropout": 0.0,
        "targets": ["q_proj"],
    }
    changed = read_recipe(path, ["encoder.lora.rank=16"])
    assert (changed.encoder.lora.rank, changed.encoder.lora.targets) == (16, ("q_proj",))
    assert read_recipe(path, ["encoder.lora="]).encoder.lora is None
