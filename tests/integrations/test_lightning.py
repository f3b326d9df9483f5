"""Lightning modules: the weights of whole batches, however a step is cut."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, DistributedSampler

from softf1.errors import InputError
from softf1.integrations.lightning import ExactLossMixin
from softf1.losses import ConsistentLoss, WindowLoss, make_loss
from softf1.options import OptionError
from softf1.training.adversarial import perturb_embeddings

try:
    from lightning import pytorch as lightning
except ImportError:
    lightning = pytest.importorskip("pytorch_lightning", reason="needs lightning")

ROWS, STEP = 24, 8
LOSSES = {
    "dice": {"over": "batch"},
    "wce": {"weight": [0.5, 1.0, 3.0]},
    "ce+dice": {"dice": {"over": "batch"}, "schedule": "linear", "schedule_steps": 3},
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*isinstance.treespec, LeafSpec"
)


def make_rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 4, 5, generator=generator)
    y = torch.randint(-2, 3, (ROWS, 4), generator=generator).clamp(min=0)
    y[torch.rand(ROWS, 4, generator=generator) < torch.linspace(0, 0.9, ROWS).unsqueeze(1)] = -100
    return list(zip(x, y, strict=True))


class Tagger(ExactLossMixin, lightning.LightningModule):
    def __init__(self, name, *, size=2, accumulate=1, clip=None, drop=0.0):
        super().__init__()
        torch.manual_seed(0)
        layers = torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Dropout(drop)
        self.body = torch.nn.Sequential(*layers, torch.nn.Linear(8, 3))
        self.window = WindowLoss(make_loss(name, **LOSSES[name]))
        self.size, self.accumulate, self.clip = size, accumulate, clip
        self.values = []

    def predict_batch(self, batch):
        x, y = batch
        return self.body(x), y

    def train_dataloader(self):
        # Lightning's own sampler would shuffle: rank r of two gets rows r, r + 2, … in this order.
        ranks = {"num_replicas": self.trainer.world_size, "rank": self.global_rank}
        sampler = DistributedSampler(make_rows(), shuffle=False, **ranks)
        return DataLoader(make_rows(), batch_size=self.size, sampler=sampler)

    def log(self, name, value):
        assert name == "train_loss"
        self.values.append(value.item())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        halve = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": halve}


def fit(model, folder, *, ckpt_path=None, **options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
        **(quiet | {"devices": 1, "max_epochs": 1} | options),
    )
    trainer.fit(model, ckpt_path=ckpt_path)
    return trainer


def whole_batches(name, *, clip=None):
    """Weights and losses of a plain loop over batches of 8."""
    model, loss = Tagger(name), make_loss(name, **LOSSES[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    values = []
    for step, (x, y) in enumerate(DataLoader(make_rows(), batch_size=STEP)):
        optimizer.param_groups[0]["lr"] = 0.5 / 2**step
        optimizer.zero_grad()
        value = loss(model.body(x), y)
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if hasattr(loss, "advance"):
            loss.advance()
        values.append(value.item())
    return parameters_to_vector(model.parameters()), values


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("size", "accumulate"), [(8, 1), (2, 4)])
def test_micro_batches_are_one_batch(name, size, accumulate, tmp_path):
    model = Tagger(name, size=size, accumulate=accumulate)
    trainer = fit(model, tmp_path)
    weights, values = whole_batches(name)
    assert trainer.global_step == 3
    torch.testing.assert_close(parameters_to_vector(model.parameters()), weights, rtol=0, atol=1e-5)
    assert model.values == pytest.approx(values, rel=1e-5)
    assert (weights - parameters_to_vector(Tagger(name).parameters())).abs().max() > 1e-2


def test_the_last_step_takes_what_is_left(tmp_path):
    model = Tagger("dice", accumulate=5)
    assert fit(model, tmp_path).global_step == 3  # 5, 5 and 2 micro-batches


def test_clipping(tmp_path):
    model = Tagger("wce", accumulate=4, clip=0.01)
    fit(model, tmp_path)
    weights, _ = whole_batches("wce", clip=0.01)
    torch.testing.assert_close(parameters_to_vector(model.parameters()), weights, rtol=0, atol=1e-6)


def test_both_passes_have_the_same_dropout(tmp_path):
    model = Tagger("dice", accumulate=4, drop=0.5)
    fit(model, tmp_path)
    assert model.window.mismatch < 1e-6


class Worded(Tagger):
    """The rows are words of a vocabulary, with an embedding to attack."""

    def __init__(
        self, name, *, adversarial=0.0, adversarial_relative=0.0, consistency=0.0, drop=0.0, **rest
    ):
        super().__init__(name, drop=drop, **rest)
        torch.manual_seed(1)
        self.words = torch.nn.Embedding(6, 5)
        self.adversarial, self.adversarial_relative = adversarial, adversarial_relative
        self.consistency = consistency

    def get_input_embeddings(self):
        return self.words

    def predict_batch(self, batch):
        x, y = batch
        return self.body(self.words(x.argmax(-1))), y


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("size", "accumulate"), [(8, 1), (2, 4)])
@pytest.mark.parametrize("size_of", ["adversarial", "adversarial_relative"])
def test_adversarial_steps_are_those_of_a_plain_loop(name, size, accumulate, size_of, tmp_path):
    model = Worded(name, size=size, accumulate=accumulate, **{size_of: 0.5})
    fit(model, tmp_path)
    plain, loss = Worded(name), make_loss(name, **LOSSES[name])
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for step, batch in enumerate(DataLoader(make_rows(), batch_size=STEP)):
        optimizer.param_groups[0]["lr"] = 0.5 / 2**step
        optimizer.zero_grad()
        loss(*plain.predict_batch(batch)).backward()
        with perturb_embeddings(plain, 0.5, relative=size_of == "adversarial_relative"):
            loss(*plain.predict_batch(batch)).backward()
        optimizer.step()
        getattr(loss, "advance", lambda: None)()
    found, wanted = (parameters_to_vector(m.parameters()) for m in (model, plain))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("size", "accumulate"), [(8, 1), (2, 4)])
def test_consistency_is_that_of_a_plain_loop(name, size, accumulate, tmp_path):
    """The second prediction is half of the first, so that no dropout is needed to tell them."""

    class Halved(Worded):
        calls = 0

        def predict_batch(self, batch):
            self.calls += 1
            logits, target = super().predict_batch(batch)
            return logits / (2 - self.calls % 2), target

    model = Halved(name, size=size, accumulate=accumulate, consistency=1.3)
    fit(model, tmp_path)
    plain, loss = Worded(name), ConsistentLoss(make_loss(name, **LOSSES[name]), 1.3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for step, batch in enumerate(DataLoader(make_rows(), batch_size=STEP)):
        optimizer.param_groups[0]["lr"] = 0.5 / 2**step
        optimizer.zero_grad()
        logits, target = plain.predict_batch(batch)
        loss(torch.cat([logits, logits / 2]), target).backward()
        optimizer.step()
        loss.advance()
    found, wanted = (parameters_to_vector(m.parameters()) for m in (model, plain))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_both_passes_have_the_same_dropout_in_both_predictions(tmp_path):
    model = Worded("dice", drop=0.5, consistency=1.0, accumulate=2)
    fit(model, tmp_path)
    assert model._training_window().mismatch < 1e-6


@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_running_statistics_are_those_of_the_clean_passes(consistency, tmp_path):
    """The average has the weight Σ 0.9^age over 12 steps; an attacked pass would add to it."""
    model = Worded("dice", drop=0.5, adversarial=0.5, consistency=consistency)
    model.window = WindowLoss(model.window.loss, statistics="running")
    fit(model, tmp_path)
    weight = model._training_window().get_extra_state()[:, -1]
    torch.testing.assert_close(weight, torch.full_like(weight, (1 - 0.9**12) / (1 - 0.9)))


def trained(model, folder, **options):
    torch.manual_seed(7)
    fit(model, folder, **options)
    return parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize("saved", [0.0, 1.0])
@pytest.mark.parametrize("name", ["ce+dice", "dice"])
def test_checkpoints_load_with_and_without_consistency(name, saved, tmp_path):
    first = Worded(name, drop=0.5, consistency=saved)
    fit(first, tmp_path).save_checkpoint(tmp_path / "saved.ckpt")
    for factor in (0.0, 1.0):
        model = Worded(name, drop=0.5, consistency=factor)
        assert model.state_dict().keys() == first.state_dict().keys()
        whole = fit(model, tmp_path, max_epochs=2, ckpt_path=tmp_path / "saved.ckpt")
        assert whole.global_step == 24
        assert model.state_dict().keys() == first.state_dict().keys()
    assert getattr(model.window.loss, "step", 24) == 24


def test_validation_uses_the_plain_loss(tmp_path):
    class Validated(Worded):
        seen = ()

        def validation_step(self, batch, batch_idx):  # noqa: ARG002
            self.seen = (*self.seen, self.window.loss(*self.predict_batch(batch)).item())

        def val_dataloader(self):
            return DataLoader(make_rows(), batch_size=STEP)

    model = Validated("ce+dice", consistency=1.0)
    fit(model, tmp_path, num_sanity_val_steps=0)
    plain, batches = make_loss("ce+dice", **LOSSES["ce+dice"]), model.val_dataloader()
    plain.step += 12
    wanted = [plain(*model.eval().predict_batch(batch)).item() for batch in batches]
    assert model.seen == pytest.approx(wanted)


@pytest.mark.parametrize("statistics", ["exact", "running"])
@pytest.mark.parametrize(("before", "after"), [(1.0, 0.0), (0.0, 1.0), (1.0, 5.0)])
def test_consistency_can_be_changed_before_another_fit(before, after, statistics, tmp_path):
    def make(factor):
        model = Worded("dice", drop=0.5, consistency=factor)
        model.window = WindowLoss(model.window.loss, statistics=statistics)
        return model

    model, fresh = make(before), make(after)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    other = trained(model, tmp_path)
    model.load_state_dict(start)
    model.consistency = after
    found, wanted = trained(model, tmp_path), trained(fresh, tmp_path)
    assert torch.equal(found, wanted)
    assert (found - other).abs().max() > 1e-3


@pytest.mark.parametrize("value", [-1.0, float("nan"), "0.5"])
@pytest.mark.parametrize("name", ["adversarial", "adversarial_relative", "consistency"])
def test_wrong_sizes_are_refused_before_the_first_step(name, value, tmp_path):
    model = Worded("dice", **{name: value})
    with pytest.raises(OptionError, match=f"option {name} of Worded: wanted a number"):
        fit(model, tmp_path)
    assert not model.values


def test_two_sizes_of_an_adversarial_step_are_refused(tmp_path):
    model = Worded("dice", adversarial=0.5, adversarial_relative=0.5)
    with pytest.raises(OptionError, match="wanted adversarial or adversarial_relative, got both"):
        fit(model, tmp_path)
    assert not model.values


def test_a_module_without_word_embeddings_is_refused(tmp_path):
    model = Tagger("dice")
    model.adversarial = 0.5
    with pytest.raises(InputError, match=r"get_input_embeddings\(\) .* got Tagger"):
        fit(model, tmp_path)
    assert not model.values


def test_predict_batch_is_yours():
    class Empty(ExactLossMixin, lightning.LightningModule):
        pass

    with pytest.raises(NotImplementedError, match="predict_batch"):
        Empty().predict_batch(None)


@pytest.mark.parametrize("name", ["dice", "wce"])
def test_two_processes(name, tmp_path):
    model = Tagger(name, accumulate=2)
    fit(model, tmp_path, devices=2, strategy="ddp_fork")
    weights, _ = whole_batches(name)
    torch.testing.assert_close(parameters_to_vector(model.parameters()), weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["dice", "wce"])
def test_adversarial_steps_of_two_processes(name, tmp_path):
    attacked = {"adversarial": 0.5, "consistency": 1.0}
    model = Worded(name, accumulate=2, **attacked)
    fit(model, tmp_path, devices=2, strategy="ddp_fork")
    one = Worded(name, size=STEP, **attacked)
    fit(one, tmp_path)
    found, wanted = (parameters_to_vector(m.parameters()) for m in (model, one))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
