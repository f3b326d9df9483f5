"""Adversarial steps and consistency, against plain references in double precision."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from transformers import AutoConfig, AutoModel

from softf1.errors import InputError
from softf1.losses import make_loss
from softf1.options import OptionError
from softf1.tasks.base import Batch
from softf1.training.adversarial import (
    find_embeddings,
    find_step,
    perturb_embeddings,
    trace_embeddings,
)
from softf1.training.batching import collate_rows
from softf1.training.datasets import load_datasets
from softf1.training.processes import Processes
from softf1.training.run import train_run
from softf1.training.step import SKIPPED, STEPS, Attack
from softf1.training.trainer import InterruptedRunError, Trainer
from tests.training.test_run import CASES, case
from tests.training.test_step import LOSSES, make_batches, make_stepper
from tests.training.toys import make_data, make_recipe, read_files

EPSILON, KAPPA, EXPECTED = 0.7, 1.3, 100.0
DOUBLE = {"dtype": torch.float64, "fused": False}


@pytest.fixture(scope="module")
def datasets():
    return load_datasets(make_recipe(), make_data())


def gradients(stepper, batches, seed=3):
    """The gradient of a step, by name."""
    torch.manual_seed(seed)
    stepper.gradient(batches)
    found = {n: p.grad.clone() for n, p in stepper.model.named_parameters() if p.grad is not None}
    stepper.optimizer.zero_grad()
    return found


def reference(stepper, batch, *, epsilon, kappa):
    """The gradient of one step, as the papers say it, in a few lines of plain PyTorch."""
    model, target = copy.deepcopy(stepper.model), batch.targets["tags"]
    loss = stepper.objective.losses["tags"]
    loss = getattr(loss, "loss", loss)
    kept = target != -100
    inputs = {k: torch.cat([v, v]) if kappa else v for k, v in batch.inputs.items()}

    def backward():
        logits = model(**inputs).logits
        if kappa:
            one, two = logits.chunk(2)
            p, q = (x[kept].log_softmax(-1) for x in (one, two))
            both = [F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))]
            value = (loss(one, target) + loss(two, target)) / 2
            value = value + kappa * sum(both) / 2 / kept.sum()
        else:
            value = loss(logits, target)
        (value * (kept.sum() / EXPECTED)).backward()  # the weight of a step is a float32

    backward()
    if epsilon:
        matrix = model.words.weight
        r = epsilon * matrix.grad / matrix.grad.norm()
        matrix.data += r
        backward()
        matrix.data -= r
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("epsilon", [0.0, EPSILON], ids=["", "adversarial"])
@pytest.mark.parametrize("kappa", [0.0, KAPPA], ids=["", "consistency"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_is_that_of_the_reference(datasets, loss, epsilon, kappa):
    (batch,) = make_batches(datasets)
    how = {"attack": Attack(epsilon) if epsilon else None, "consistency": kappa}
    stepper = make_stepper(datasets, LOSSES[loss], dropout=0.3, expected=EXPECTED, **how, **DOUBLE)
    found = gradients(stepper, [batch])
    torch.manual_seed(3)
    wanted = reference(stepper, batch, epsilon=epsilon, kappa=kappa)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        # One embedding row is restored by subtraction in the reference.
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12, msg=name)


def entropy_and_distance(one, two, target):
    """Cross entropy of two predictions, and how far they are apart, written out in plain PyTorch.

    Over the positions of a text there are logits of −inf, which are no class of their row.
    """
    kept = target != -100
    if target.dim() < one.dim() and one.shape[-1] > 1:  # softmax
        p, q = (x[kept].log_softmax(-1) for x in (one, two))
        entropy = [-x.gather(1, target[kept][:, None]).mean() for x in (p, q)]
        shown = p > -math.inf
        p, q = (torch.where(shown, x, 0.0) for x in (p, q))
        distance = [(shown * a.exp() * (a - b)).sum(-1).mean() for a, b in ((p, q), (q, p))]
    else:
        one, two, y = (x.reshape(target.shape)[kept] for x in (one, two, target.double()))
        entropy = [F.binary_cross_entropy_with_logits(x, y) for x in (one, two)]
        (p, no_p), (q, no_q) = ((F.logsigmoid(x), F.logsigmoid(-x)) for x in (one, two))
        distance = [
            (a.exp() * (a - b) + no_a.exp() * (no_a - no_b)).mean()
            for a, no_a, b, no_b in ((p, no_p, q, no_q), (q, no_q, p, no_p))
        ]
    return sum(entropy) / 2, sum(distance) / 2


WRITTEN_OUT = ("qa", "qa-sigmoid", "multi-label", "mrc_ner-alone", "span_ner", "classification")


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_step_of_other_tasks_is_that_of_the_reference(name, bert, tmp_path):
    """Logits of −inf, sigmoids with ignored entries, several labels, several outputs."""
    train = {"adversarial": EPSILON, "consistency": KAPPA, "step_weights": "equal"}
    recipe, data = case(name, bert, precision="fp32", **train)
    recipe = replace(recipe, loss=make_recipe(loss={"name": "ce"}).loss)
    datasets = load_datasets(recipe, data)
    how = {"folder": tmp_path, "processes": Processes()}
    trainer = Trainer(recipe=recipe, datasets=datasets, **how)
    task, stepper = datasets.task, trainer.stepper
    stepper.model.double().train()
    (micro,) = trainer.batch_sampler.epoch(0)[0]
    batch = collate_rows(task, datasets.features["train"], micro, datasets.tokenizer)
    batch = batch.to(trainer.processes.device)
    model = copy.deepcopy(stepper.model)
    found = gradients(stepper, [batch])

    twice = {key: torch.cat([x, x]) for key, x in batch.inputs.items()}
    masks = {key: torch.cat([x, x]) for key, x in batch.places.items() if x.dtype == torch.bool}
    doubled = Batch(batch.items, twice, batch.targets, batch.places | masks)

    def backward():
        logits = task.logits(model(**twice), doubled)
        for key, target in batch.targets.items():
            entropy, distance = entropy_and_distance(*logits[key].chunk(2), target)
            (entropy + KAPPA * distance).backward(retain_graph=True)
        hidden.append(any(bool(x.isneginf().any()) for x in logits.values()))
        ignored.append(any(bool((y == -100).any()) for y in batch.targets.values()))

    hidden, ignored = [], []
    torch.manual_seed(3)
    backward()
    matrix = find_embeddings(model)
    before = matrix.detach().clone()
    matrix.data += EPSILON * matrix.grad / matrix.grad.norm()
    backward()
    matrix.data = before
    wanted = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-7, atol=1e-10, msg=key)
    assert hidden == [name == "qa"] * 2  # the case tests what it is here for
    assert ignored[0] or name in ("qa", "multi-label", "classification")


@pytest.mark.parametrize("direction", ["gradient", "random"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_plain_loop_takes_the_same_steps(datasets, relative, direction):
    """What `perturb_embeddings` offers for loops of one's own is what training does."""
    attack = Attack(EPSILON, relative, direction)
    stepper = make_stepper(datasets, LOSSES["both"], dropout=0.3, clip=1.0, attack=attack, **DOUBLE)
    model, loss = copy.deepcopy(stepper.model), make_loss(**LOSSES["both"])
    for group in stepper.optimizer.param_groups:
        group["weight_decay"] = 0.0
    train = make_recipe().train
    how = {"lr": train.lr, "betas": train.betas, "eps": train.eps, "weight_decay": 0.0}
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    before = copy.deepcopy(model)

    def backward():
        logits = datasets.task.logits(model(**batch.inputs), batch)["tags"]
        loss(logits, batch.targets["tags"]).backward()

    for step in range(3):
        (batch,) = make_batches(datasets, step=step)
        torch.manual_seed(step)
        stepper.step([batch])
        torch.manual_seed(step)
        backward()
        with perturb_embeddings(model, EPSILON, relative=relative, direction=direction):
            backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    wanted = dict(model.named_parameters())
    for name, value in stepper.model.named_parameters():
        torch.testing.assert_close(value, wanted[name], rtol=1e-9, atol=1e-12, msg=name)
    assert not torch.equal(model.words.weight, before.words.weight)


@pytest.mark.parametrize("kappa", [0.0, KAPPA])
@pytest.mark.parametrize("loss", LOSSES)
def test_however_a_step_is_cut_the_direction_is_that_of_the_whole(datasets, loss, kappa):
    how = {"attack": Attack(EPSILON), "expected": EXPECTED, "consistency": kappa, **DOUBLE}
    whole = gradients(make_stepper(datasets, LOSSES[loss], **how), make_batches(datasets))
    cut = make_stepper(datasets, LOSSES[loss], windows=True, **how)
    for accumulate in (2, 8):
        found = gradients(cut, make_batches(datasets, accumulate=accumulate))
        for name, value in whole.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_consistency_of_parts_is_that_of_the_whole():
    """Without dropout both halves agree; here they are made to differ."""
    torch.manual_seed(0)
    target = torch.tensor([0, 2, -100, 1, 1, -100, 0, 2])
    logits = torch.randn(2, 8, 3, dtype=torch.float64)
    for name, options in (("ce", {}), ("dice", {"over": "batch"})):
        whole = objective(name, options)
        one = logits.clone().requires_grad_()
        loss, value = whole.whole({"tags": one.flatten(0, 1)}, {"tags": target})
        loss.backward()
        cut = objective(name, options)
        cut.open_windows()
        two = logits.clone().requires_grad_()
        parts = [slice(0, 3), slice(3, 8)]
        cut.count([made_up(target[part]) for part in parts])
        for part in parts:
            cut.collect({"tags": two[:, part].flatten(0, 1)}, {"tags": target[part]})
        cut.reduce()
        for part in parts:
            cut.part({"tags": two[:, part].flatten(0, 1)}, {"tags": target[part]}).backward()
        torch.testing.assert_close(cut.finish(), value, rtol=1e-6, atol=0)
        torch.testing.assert_close(two.grad, one.grad, rtol=1e-9, atol=1e-12)
        assert one.grad[:, 2].abs().sum() == 0


def objective(name, options):
    from softf1.training.objective import Objective

    return Objective(
        {"tags": make_loss(name, **options)}, weights={}, counts={}, expected=5.0, consistency=KAPPA
    )


def made_up(target):
    return Batch(target.numpy(), {}, {"tags": target}, {})


def test_off_means_one_forward_and_one_backward(datasets, monkeypatch):
    stepper = make_stepper(datasets, LOSSES["rows"])
    calls = []
    monkeypatch.setattr(stepper, "run", lambda **kw: calls.append(1) or stepper.model(**kw))
    stepper.gradient(make_batches(datasets))
    assert len(calls) == 1
    assert make_recipe().train.adversarial is make_recipe().train.consistency is None


@pytest.mark.parametrize("off", [{"adversarial": 0.0}, {"adversarial_relative": 0.0}])
def test_0_is_the_same_run_to_the_bit(off, tmp_path):
    weights = []
    for name, train in (("unset", {}), ("zero", off | {"consistency": 0.0})):
        recipe = make_recipe(train={"max_steps": 4} | train)
        train_run(recipe, tmp_path / name, data=make_data(), quiet=True)
        weights.append((tmp_path / name / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_the_matrix_comes_back_to_the_bit():
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(50, 7)
    embedding(torch.tensor([3, 4, 4])).square().sum().backward()
    before = embedding.weight.detach().clone()
    gradient = embedding.weight.grad.clone()
    with perturb_embeddings(embedding, 0.3):
        moved = (embedding.weight - before).detach()
    assert moved.norm().item() == pytest.approx(0.3, rel=1e-5)
    assert torch.cosine_similarity(moved.flatten(), gradient.flatten(), 0) > 0.9999
    assert torch.equal(embedding.weight, before)
    with pytest.raises(ZeroDivisionError), perturb_embeddings(embedding, 0.3):
        raise ZeroDivisionError
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
def test_a_gradient_of_nothing_or_without_bounds_moves_nothing(value):
    weight, gradient = torch.ones(4, 2), torch.full((4, 2), value)
    for direction in ("gradient", "random"):
        step = find_step(weight, gradient, 0.5, relative=False, direction=direction)
        assert torch.equal(step, torch.zeros(4, 2))


@pytest.mark.parametrize("relative", [False, True])
def test_tiny_and_huge_gradients_have_a_direction_too(relative):
    """The square of 1e-24 is 0 in float32, that of 1e19 infinite."""
    torch.manual_seed(0)
    weight, gradient = torch.randn(40, 10), torch.randn(40, 10)
    how = {"relative": relative, "direction": "gradient"}
    size = weight.norm(dim=1).square().mean().sqrt() if relative else torch.ones(())
    for exponent in (-146, -100, -80, 0, 60, 124):
        scaled = gradient * 2.0**exponent
        assert 0 < scaled.abs().max() < math.inf
        step = find_step(weight, scaled, 0.5, **how)
        assert step.norm().item() == pytest.approx(0.5 * size.item(), rel=1e-5)
        cosine = torch.cosine_similarity(step.flatten(), gradient.flatten(), 0)
        assert cosine > (0.9 if exponent == -146 else 0.99999)  # three digits of a float are left


@pytest.mark.parametrize("relative", [False, True])
def test_an_ordinary_step_has_the_bits_of_the_formula(relative):
    for seed in range(20):
        torch.manual_seed(seed)
        weight, gradient = torch.randn(90, 33), torch.randn(90, 33) * 10.0 ** -(seed % 6)
        length = gradient.norm()
        if relative:
            length = length / (weight.norm() / 90**0.5)
        step = find_step(weight, gradient, 0.7, relative=relative, direction="gradient")
        assert torch.equal(step, gradient * (0.7 / length))


def test_noise_is_as_long_and_on_the_same_rows():
    torch.manual_seed(0)
    gradient = torch.zeros(9, 3)
    gradient[[2, 5]] = torch.tensor([[0.0, 1.0, 0.0], [1e-3, 0.0, 0.0]])
    how = {"relative": False, "direction": "random"}
    steps = [find_step(torch.ones(9, 3), gradient, 0.5, **how) for _ in range(2)]
    for step in steps:
        assert step.norm().item() == pytest.approx(0.5, rel=1e-5)
        assert (step.any(-1)).nonzero().flatten().tolist() == [2, 5]
    assert not torch.equal(*steps)


def test_a_relative_step_follows_the_scale_of_the_embeddings():
    torch.manual_seed(0)
    weight, gradient = torch.randn(40, 100), torch.randn(40, 100)
    how = {"relative": True, "direction": "gradient"}
    rows = weight.norm(dim=1).square().mean().sqrt()
    for scale in (1.0, 3.0):
        step = find_step(scale * weight, gradient, 0.5, **how)
        torch.testing.assert_close(step.norm(), 0.5 * scale * rows)


def test_with_a_scaler_the_gradient_is_the_same(datasets):
    batches = make_batches(datasets)
    how = {"attack": Attack(EPSILON), "fused": False}
    plain = gradients(make_stepper(datasets, LOSSES["batch"], **how), batches)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaled = gradients(make_stepper(datasets, LOSSES["batch"], scaler=scaler, **how), batches)
    for name, value in plain.items():
        torch.testing.assert_close(scaled[name] / 1024, value, rtol=1e-4, atol=1e-7, msg=name)


def test_frozen_embeddings_give_the_direction_and_stay(datasets):
    """As under adapters: the gradient is taken at the matrix, which is not trained."""
    batches = make_batches(datasets)
    free = make_stepper(datasets, LOSSES["rows"], attack=Attack(EPSILON), **DOUBLE)
    frozen = make_stepper(datasets, LOSSES["rows"], attack=Attack(EPSILON), **DOUBLE)
    frozen.model.words.weight.requires_grad_(False)
    wanted, found = gradients(free, batches), gradients(frozen, batches)
    assert wanted.keys() - found.keys() == {"words.weight"}
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], msg=name)
    before = frozen.model.words.weight.detach().clone()
    frozen.step(batches)
    assert torch.equal(frozen.model.words.weight, before)
    assert not frozen.model.words.weight.requires_grad


@pytest.mark.parametrize("name", CASES)
def test_every_task_loss_and_encoder_trains_with_both(name, bert, tmp_path):
    """Questions have logits of −inf, whose divergence must not be NaN."""
    recipe, data = case(name, bert, adversarial=0.5, consistency=1.0)
    trainer = Trainer(
        recipe=recipe,
        folder=tmp_path,
        datasets=load_datasets(recipe, data),
        processes=Processes(),
    )
    weights = find_embeddings(trainer.stepper.model)
    before = weights.detach().clone()
    (micro,) = trainer.batch_sampler.epoch(0)[0]
    features, tokenizer = trainer.datasets.features["train"], trainer.datasets.tokenizer
    trainer.stepper.step([collate_rows(trainer.datasets.task, features, micro, tokenizer)])
    meter = trainer.stepper.read_meter()
    assert (meter[STEPS], meter[SKIPPED]) == (1, 0)
    assert not torch.equal(weights, before)


@pytest.mark.parametrize("given", [{"micro_tokens": 60}, {}], ids=["given", "default"])
@pytest.mark.parametrize("consistency", [None, 1.0])
def test_micro_tokens_bound_a_forward_pass(consistency, given, tmp_path, monkeypatch):
    """With consistency the model sees every row twice, which counts twice."""
    monkeypatch.setattr("softf1.training.build.MICRO_TOKENS", {"cpu": 60, "cuda": 60})
    trainer = Trainer(
        recipe=make_recipe(train=given | {"consistency": consistency}),
        folder=tmp_path,
        datasets=load_datasets(make_recipe(), make_data()),
        processes=Processes(),
    )
    seen = []
    trainer.stepper.model.register_forward_pre_hook(
        lambda _, __, inputs: seen.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    features, tokenizer = trainer.datasets.features["train"], trainer.datasets.tokenizer
    for step in trainer.batch_sampler.epoch(0):
        trainer.stepper.step(
            [collate_rows(trainer.datasets.task, features, micro, tokenizer) for micro in step]
        )
    assert 50 <= max(seen) <= 60


def test_a_row_longer_than_micro_tokens_has_a_pass_of_its_own_with_consistency(tmp_path):
    recipe = make_recipe(train={"micro_tokens": 1, "consistency": 1.0, "max_steps": 2})
    result = train_run(recipe, tmp_path, data=make_data(), quiet=True)
    assert result["steps"] == 2


@pytest.mark.parametrize(
    "encoder",
    [
        pytest.param(
            "bilstm",
            marks=pytest.mark.skipif(
                torch.cuda.is_available(), reason="not so on a GPU, as docs/reliability.md says"
            ),
        ),
        "bert",
    ],
)
@pytest.mark.parametrize(
    "train",
    [
        {},
        {"adversarial": 0.5, "consistency": 1.0},
        {"adversarial": 0.5, "adversarial_direction": "random"},
    ],
    ids=["plain", "both", "noise"],
)
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(
    train, encoder, bert, tmp_path, monkeypatch
):
    own = None if encoder == "bilstm" else {"name": str(bert)}
    train = train | {"epochs": 2.0, "checkpoint_seconds": 0.0}
    recipe = make_recipe(train=train, encoder=own)
    train_run(recipe, tmp_path / "whole", data=make_data(), quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(
            "softf1.training.trainer.Trainer._show",
            lambda self, _: setattr(self.stop, "asked", self.state.step >= 5),
        )
        patch.setattr("softf1.training.trainer.LEAST", 1)
        with pytest.raises(InterruptedRunError):
            train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    train_run(recipe, tmp_path / "run", data=make_data(), quiet=True, resume=True)
    whole, run = read_files(tmp_path / "whole"), read_files(tmp_path / "run")
    assert run["model/model.safetensors"] == whole["model/model.safetensors"]


def test_they_change_what_is_learned(tmp_path):
    weights = set()
    for name, train in {
        "plain": {},
        "adversarial": {"adversarial": 0.5},
        "consistency": {"consistency": 1.0},
        "relative": {"adversarial_relative": 0.5},
    }.items():
        recipe = make_recipe(train=train | {"max_steps": 3})
        train_run(recipe, tmp_path / name, data=make_data(), quiet=True)
        weights.add((tmp_path / name / "model/model.safetensors").read_bytes())
    assert len(weights) == 4


def test_two_sizes_at_once_and_negative_ones_are_refused():
    with pytest.raises(OptionError, match="adversarial or adversarial_relative"):
        make_recipe(train={"adversarial": 0.5, "adversarial_relative": 0.5})
    with pytest.raises(OptionError, match="adversarial"):
        make_recipe(train={"adversarial": -0.5})
    with pytest.raises(OptionError, match="consistency"):
        make_recipe(train={"consistency": -1.0})


def test_a_model_without_word_embeddings_is_refused():
    with pytest.raises(InputError, match=r"get_input_embeddings\(\) .* got Linear"):
        find_embeddings(torch.nn.Linear(2, 2))
    with (
        pytest.raises(RuntimeError, match=r"backward\(\) first"),
        perturb_embeddings(torch.nn.Embedding(3, 2), 0.5),
    ):
        pass


def test_an_encoder_without_word_embeddings_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.delattr("softf1.models.bilstm.BiLstm.get_input_embeddings")
    monkeypatch.setattr("softf1.training.step.Stepper.step", None)
    for train in ({"adversarial": 0.5}, {"adversarial_relative": 0.5}):
        with pytest.raises(InputError, match=r"^an adversarial step needs a model whose get_input"):
            train_run(make_recipe(train=train), tmp_path, data=make_data(), quiet=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": -0.5}, "epsilon of perturb_embeddings: wanted a number from 0, got -0.5"),
        ({"epsilon": math.nan}, "epsilon .* wanted a number from 0, got nan"),
        ({"epsilon": math.inf}, "epsilon .* wanted a number from 0, got inf"),
        ({"epsilon": "0.5"}, "epsilon .* wanted a number, got '0.5'"),
        ({"epsilon": True}, "epsilon .* wanted a number, got True"),
        ({"relative": "yes"}, "relative .* wanted true or false, got 'yes'"),
        ({"direction": "sideways"}, "direction .* wanted gradient or random, got 'sideways'"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_and_move_nothing(given, message):
    embedding = torch.nn.Embedding(3, 2)
    embedding(torch.tensor([1])).sum().backward()
    before = embedding.weight.detach().clone()
    with (
        pytest.raises(OptionError, match=message),
        perturb_embeddings(embedding, **({"epsilon": 0.5} | given)),
    ):
        pytest.fail("it was entered")
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("direction", ["gradient", "random"])
def test_sparse_gradients_give_the_same_step(frozen, direction):
    ids, moved = torch.tensor([3, 4, 4]), []
    for sparse in (False, True):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(50, 7, sparse=sparse)
        embedding.weight.requires_grad_(not frozen)
        before = embedding.weight.detach().clone()
        with trace_embeddings(embedding) as traced:
            embedding(ids).square().sum().backward()
        gradient = traced[0] if traced else None
        torch.manual_seed(1)
        with perturb_embeddings(embedding, 0.3, direction=direction, gradient=gradient):
            moved.append((embedding.weight - before).detach())
        assert torch.equal(embedding.weight, before)
    assert moved[0].any(-1).nonzero().flatten().tolist() == [3, 4]
    torch.testing.assert_close(*moved)


TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "vocab_size": 33,
}


FAMILIES = (
    *("albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "llama", "modernbert"),
    *("mpnet", "qwen2", "roberta", "t5", "xlm-roberta", "xlnet"),
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch by transformers
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_says_where_its_word_embeddings_are(kind):
    names = {
        "distilbert": {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "vocab_size": 33},
        "xlnet": {"d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8, "vocab_size": 33},
        "t5": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8, "vocab_size": 33},
    }
    config = AutoConfig.for_model(kind, pad_token_id=0, **names.get(kind, TINY))
    assert find_embeddings(AutoModel.from_config(config)).shape[0] == 33
