"""The Trainer with two passes: dropout, schedules, running statistics, its own subclasses."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector
from transformers import Trainer

from softf1.integrations.transformers import ExactLossMixin, SoftF1Trainer, loss
from softf1.integrations.transformers.trainer import blank_rows
from softf1.losses import ConsistentLoss, make_loss
from softf1.options import OptionError
from softf1.training.adversarial import perturb_embeddings
from softf1.training.build import set_dropout
from tests.integrations.transformers import cases

BATCH_DICE = cases.Case("tags", "dice", cases.BATCH, exact=True)


class Dropout:
    """A model with dropout."""

    def __init__(self, model, **rest):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5
        super().__init__(model=model, **rest)


class Dropping(Dropout, SoftF1Trainer):
    pass


class PlainDropping(Dropout, Trainer):
    pass


class Once(Dropping):
    """Keeps what every forward pass gave."""

    def _forward(self, model, inputs, **how):
        outputs, logits, target = super()._forward(model, inputs, **how)
        self.seen = [*getattr(self, "seen", []), logits.detach()]
        return outputs, logits, target


def test_both_passes_have_the_same_dropout(tmp_path):
    trainer = cases.make_trainer(BATCH_DICE, tmp_path, size=2, accumulate=4, trainer=Once)
    trainer.train()
    assert len(trainer.seen) == 16  # 2 steps of 4 micro-batches, twice
    for first in (0, 8):
        for one in range(first, first + 4):
            torch.testing.assert_close(trainer.seen[one], trainer.seen[one + 4], rtol=0, atol=0)
    assert trainer._window.mismatch < 1e-6


def test_dropout_goes_on_as_in_one_pass(tmp_path):
    """With a loss that needs no second pass, the masks are those of the plain Trainer."""
    case = cases.Case("tags", "ce", exact=True)
    once, twice = (
        cases.train(case, tmp_path, size=2, accumulate=4, trainer=kind)
        for kind in (PlainDropping, Dropping)
    )
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-5)
    assert (once - cases.whole_batches(case)).abs().max() > 1e-3


def test_a_resumed_run_ends_where_the_whole_one_does(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1, "num_train_epochs": 2}
    whole, again = (
        cases.make_trainer(
            BATCH_DICE, tmp_path / name, size=2, accumulate=4, trainer=Dropping, **saving
        )
        for name in ("a", "b")
    )
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-1"))
    assert again.state.global_step == whole.state.global_step == 4
    found, wanted = (parameters_to_vector(t.model.parameters()) for t in (again, whole))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def hardened(case, *, adversarial, consistency, seed, relative=False):
    """The weights of a plain loop over whole batches, with what the package offers for it."""
    model, batches = cases.make_model(case.kind), cases.make_items(case.kind)
    set_dropout(model, 0.5 if consistency else 0.0)
    loss_of = ConsistentLoss(make_loss(case.loss, **case.options), consistency)
    optimizer = torch.optim.SGD(model.parameters(), lr=cases.LR)
    torch.manual_seed(seed)
    for first in range(0, cases.ITEMS, cases.STEP):
        batch = cases.collate(batches[first : first + cases.STEP])
        inputs = {name: torch.cat([batch[name]] * 2) for name in ("input_ids", "attention_mask")}
        optimizer.zero_grad()
        loss_of(model.train()(**inputs).logits, batch["labels"]).backward()
        with perturb_embeddings(model, adversarial, relative=relative):
            loss_of(model(**inputs).logits, batch["labels"]).backward()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


class Hardened(SoftF1Trainer):
    """With dropout, and a seed that the plain loop has too."""

    def __init__(self, **rest):
        set_dropout(rest["model"], 0.5 if self.consistency else 0.0)
        super().__init__(adversarial=0.5, consistency=self.consistency, **rest)

    def training_step(self, *args, **kwargs):
        if self.state.global_step == self._done == 0:
            torch.manual_seed(7)
        return super().training_step(*args, **kwargs)


class Adversarial(Hardened):
    consistency = 0.0


class Both(Hardened):
    consistency = 1.0


@pytest.mark.parametrize("name", ["ce", "dice"])
def test_adversarial_steps_are_those_of_a_plain_loop_however_they_are_cut(name, tmp_path):
    """Without dropout both copies of an example are alike, and one is as good as two."""
    case = cases.Case("tags", name, cases.BATCH if name == "dice" else {}, exact=True)
    wanted = hardened(case, adversarial=0.5, consistency=0.0, seed=7)
    for size, accumulate in ((8, 1), (2, 4)):
        found = cases.train(case, tmp_path, size=size, accumulate=accumulate, trainer=Adversarial)
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    assert (wanted - cases.whole_batches(case)).abs().max() > 1e-3


def test_the_size_of_an_adversarial_step_may_be_relative(tmp_path):
    case = cases.Case("tags", "ce", exact=True)
    given = {"adversarial_relative": 0.5}
    trainer = cases.make_trainer(case, tmp_path, size=2, accumulate=4, given=given)
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    trainer.train()
    found = parameters_to_vector(trainer.model.parameters()).detach()
    wanted = hardened(case, adversarial=0.5, consistency=0.0, seed=7, relative=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    assert (wanted - hardened(case, adversarial=0.5, consistency=0.0, seed=7)).abs().max() > 1e-4
    with pytest.raises(OptionError, match="wanted adversarial or adversarial_relative, got both"):
        cases.make_trainer(case, tmp_path, size=8, accumulate=1, given=given | {"adversarial": 0.5})


def test_consistency_is_that_of_a_plain_loop(tmp_path):
    case = cases.Case("tags", "ce", exact=True)
    trainer = cases.make_trainer(case, tmp_path, size=8, accumulate=1, trainer=Both)
    trainer._blank = blank_rows(torch.zeros(1, 1, cases.CLASSES), torch.zeros(1, 1))
    trainer.train()
    found = parameters_to_vector(trainer.model.parameters()).detach()
    wanted = hardened(case, adversarial=0.5, consistency=1.0, seed=7)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.filterwarnings("ignore:consistency = 1 only costs time")
def test_consistency_leaves_inputs_without_rows_alone(tmp_path):
    """A number for the whole batch, such as a temperature, is passed on as it is."""
    case = cases.Case("tags", "ce", exact=True)
    given = {"consistency": 1.0}
    trainer = cases.make_trainer(case, tmp_path, size=8, accumulate=1, given=given)
    trainer.data_collator = lambda items: cases.collate(items) | {"temperature": torch.tensor(2.0)}
    forward, seen = trainer.model.forward, []

    def scaled(*, temperature, **inputs):
        seen.append((temperature.shape, inputs["input_ids"].shape[0]))
        outputs = forward(**inputs)
        return type(outputs)(logits=outputs.logits / temperature)

    trainer.model.forward = scaled
    trainer.train()
    assert set(seen) == {((), 16)}


def test_consistency_without_dropout_is_told(tmp_path):
    case, model = cases.Case("tags", "ce", exact=True), cases.make_model("tags")
    set_dropout(model, 0.0)
    trainer = cases.make_trainer(case, tmp_path, size=8, accumulate=1)
    how = {"model": model, "args": trainer.args, "compute_loss_func": loss("ce")}
    SoftF1Trainer(**how)
    with pytest.warns(UserWarning, match="consistency = 1 only costs time here: the model has no"):
        SoftF1Trainer(**how, consistency=1.0)


@pytest.mark.parametrize("value", [-1.0, float("nan"), "0.5"])
@pytest.mark.parametrize("name", ["adversarial", "adversarial_relative", "consistency"])
def test_wrong_sizes_are_refused_before_training(name, value, tmp_path):
    case = cases.Case("tags", "ce", exact=True)
    with pytest.raises(OptionError, match=f"option {name} of SoftF1Trainer: wanted a number"):
        cases.make_trainer(case, tmp_path, size=8, accumulate=1, given={name: value})


def test_a_schedule_follows_the_steps(tmp_path):
    options = {"schedule": "linear", "schedule_steps": 2}
    case = cases.Case("tags", "ce+dice", options, exact=True)
    trainer = cases.make_trainer(case, tmp_path, size=4, accumulate=2)
    trainer.train()
    assert trainer.compute_loss_func.loss.step == 1  # in the second and last step
    cross_entropy_first = cases.train(cases.Case("tags", "ce"), tmp_path, size=8, accumulate=1)
    moved = parameters_to_vector(trainer.model.parameters())
    assert (moved - cross_entropy_first).abs().max() > 1e-3


def test_running_statistics_need_one_pass_after_the_first_step(tmp_path):
    trainer = cases.make_trainer(BATCH_DICE, tmp_path, size=2, accumulate=4, trainer=Once)
    running = loss("dice", over="batch", statistics="running")
    again = Once(
        model=cases.make_model("tags"),
        args=trainer.args,
        train_dataset=trainer.train_dataset,
        data_collator=cases.collate,
        compute_loss_func=running,
    )
    again.train()
    assert len(again.seen) == 12


def test_running_statistics_are_those_of_the_clean_passes(tmp_path):
    """The average has the weight 0.9 + 1 after two steps; an attacked pass would add to it."""
    options = {**cases.BATCH, "statistics": "running"}
    case = cases.Case("tags", "dice", options, exact=True)
    given = {"adversarial": 0.5}
    trainer = cases.make_trainer(case, tmp_path, size=4, accumulate=2, given=given)
    trainer.train()
    weight = trainer._window.get_extra_state()[:, -1]
    torch.testing.assert_close(weight, torch.full_like(weight, 0.9 + 1))


@pytest.mark.parametrize(
    ("case", "passes"),
    [
        (cases.Case("tags", "wce", cases.WEIGHTED, exact=True), 12),
        (cases.Case("sets", "dice", exact=True), 12),
        (cases.Case("answers", "ce", exact=True), 12),
        (BATCH_DICE, 16),
    ],
    ids=lambda case: getattr(case, "id", ""),
)
def test_a_mean_over_rows_needs_no_first_pass_but_once(case, passes, tmp_path):
    trainer = cases.make_trainer(case, tmp_path, size=2, accumulate=4, trainer=Once)
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    trainer.train()
    assert len(trainer.seen) == passes
    weights = parameters_to_vector(trainer.model.parameters())
    torch.testing.assert_close(weights, cases.whole_batches(case), rtol=0, atol=1e-5)


def test_passes_that_differ_are_told(tmp_path):
    class Restless(SoftF1Trainer):
        def _forward(self, model, inputs, **how):
            outputs, logits, target = super()._forward(model, inputs, **how)
            self.calls = getattr(self, "calls", 0) + 1
            return outputs, logits * self.calls, target

    trainer = cases.make_trainer(BATCH_DICE, tmp_path, size=4, accumulate=2, trainer=Restless)
    with pytest.warns(UserWarning, match="two passes of a step differ"):
        trainer.train()


def test_it_mixes_into_another_trainer(tmp_path):
    class Mine(Trainer):
        steps = 0

        def training_step(self, *args, **kwargs):
            self.steps += 1
            return super().training_step(*args, **kwargs)

    class Exact(ExactLossMixin, Mine):
        pass

    trainer = cases.make_trainer(BATCH_DICE, tmp_path, size=2, accumulate=4, trainer=Exact)
    trainer.train()
    weights = parameters_to_vector(trainer.model.parameters())
    assert trainer.steps == 8
    torch.testing.assert_close(weights, cases.whole_batches(BATCH_DICE), rtol=0, atol=1e-5)


def test_it_wants_a_loss_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the Trainer makes its folder
    with pytest.raises(TypeError, match=r"loss\(…\), got NoneType"):
        SoftF1Trainer(model=cases.make_model("tags"))


def test_a_batch_without_labels_is_told(tmp_path):
    trainer = cases.make_trainer(BATCH_DICE, tmp_path, size=8, accumulate=1)
    with pytest.raises(ValueError, match=r"start_positions and end_positions, got input_ids"):
        trainer.compute_loss(trainer.model, {"input_ids": torch.ones(1, 2, dtype=torch.int64)})
