"""What the Trainer's `compute_loss_func` gives, takes and refuses."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer
from transformers.modeling_outputs import CausalLMOutput, MaskedLMOutput

from softf1.integrations.transformers import SoftF1Trainer, loss
from softf1.losses import make_loss
from tests.integrations.transformers import cases

LOGITS = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]]])
LABELS = torch.tensor([[0, 1, -100], [-100, 1, 0]])


@pytest.mark.parametrize("case", cases.FUNCTION[:1], ids=["tags"])
@pytest.mark.parametrize("trainer", [Trainer, SoftF1Trainer])
@pytest.mark.parametrize(("size", "accumulate"), [(8, 1), (2, 4)])
def test_the_log_has_the_loss_of_the_step(case, trainer, size, accumulate, tmp_path):
    found = cases.make_trainer(
        case,
        tmp_path,
        size=size,
        accumulate=accumulate,
        trainer=trainer,
        logging_strategy="steps",
        logging_steps=1,
    )
    found.train()
    batch = cases.collate(cases.make_items("tags")[: cases.STEP])
    labels = batch.pop("labels")
    wanted = make_loss("ce")(cases.make_model("tags")(**batch).logits, labels)
    # The log keeps four digits.
    assert found.state.log_history[0]["loss"] == pytest.approx(wanted.item(), rel=1e-3)


@pytest.mark.parametrize("name", ["ce", "dice"])
@pytest.mark.parametrize("trainer", [Trainer, SoftF1Trainer])
def test_evaluation_gives_the_loss(name, trainer, tmp_path):
    options = {} if name == "ce" else {"over": "batch"}
    case = cases.Case("tags", name, options)
    found = cases.make_trainer(
        case, tmp_path, size=8, accumulate=4, trainer=trainer, per_device_eval_batch_size=8
    )
    metrics = found.evaluate(cases.make_items("tags")[:8])
    batch = cases.collate(cases.make_items("tags")[:8])
    labels = batch.pop("labels")
    wanted = make_loss(name, **options)(found.model(**batch).logits, labels)
    assert metrics["eval_loss"] == pytest.approx(wanted.item(), rel=1e-4)


def test_without_a_number_of_items_it_is_the_plain_loss():
    wanted = make_loss("tversky", alpha=0.3, beta=0.7)(LOGITS, LABELS)
    found = loss("tversky", alpha=0.3, beta=0.7)({"logits": LOGITS}, LABELS)
    torch.testing.assert_close(found, wanted)
    given = loss(make_loss("tversky", alpha=0.3, beta=0.7))(LOGITS, LABELS)
    torch.testing.assert_close(given, wanted)


def test_shifted_labels_stand_under_their_own_token():
    found = loss("ce", shift=True)(CausalLMOutput(logits=LOGITS), LABELS)
    wanted = make_loss("ce")(LOGITS[:, :-1], LABELS[:, 1:])
    torch.testing.assert_close(found, wanted)
    moved = loss("ce", shift=False)(CausalLMOutput(logits=LOGITS), LABELS)
    torch.testing.assert_close(moved, make_loss("ce")(LOGITS, LABELS))


def test_whether_to_shift_is_not_guessed():
    with pytest.raises(ValueError, match="shift=True"):
        loss("ce")(CausalLMOutput(logits=LOGITS), LABELS)
    loss("ce")(MaskedLMOutput(logits=LOGITS), LABELS)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (cases.Case("tags", "dice", cases.BATCH), 'over="batch"'),
        (cases.Case("tags", "ce+dsc", {"dsc": cases.BATCH}), 'over="batch"'),
        (cases.Case("tags", "wce", cases.WEIGHTED), "CrossEntropyLoss with class weights"),
        (cases.Case("classes", "wfocal", cases.WEIGHTED), "FocalLoss with class weights"),
    ],
    ids=lambda case: getattr(case, "id", ""),
)
def test_what_takes_two_passes_raises_and_names_the_mixin(case, reason, tmp_path):
    with pytest.raises(ValueError, match=f"{reason}.*SoftF1Trainer.*ExactLossMixin"):
        cases.train(case, tmp_path, size=2, accumulate=4)
    cases.train(case, tmp_path, size=8, accumulate=1)


def test_a_schedule_needs_the_mixin(tmp_path):
    options = {"schedule": "linear", "schedule_steps": 2}
    with pytest.raises(ValueError, match=r"schedule.*SoftF1Trainer"):
        cases.train(cases.Case("tags", "ce+dice", options), tmp_path, size=8, accumulate=1)


def test_labels_that_miss_in_a_row_need_the_mixin():
    compute = loss("dice")
    labels = torch.tensor([[1.0, 0.0], [1.0, -100.0]])
    logits = torch.zeros(2, 2, requires_grad=True)
    with pytest.raises(ValueError, match=r"all of its labels or none.*SoftF1Trainer"):
        compute(logits, labels, num_items_in_batch=torch.tensor(8))


class GPT2(Trainer):
    """The Trainer takes GPT-2's labels for labels that are not shifted."""

    def __init__(self, **rest):
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": cases.VOCABULARY}
        torch.manual_seed(0)
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        model = GPT2LMHeadModel(GPT2Config(n_positions=9, **sizes, **still))
        super().__init__(**(rest | {"model": model}))
        assert not self._loss_shifts_labels


class ExactGPT2(SoftF1Trainer, GPT2):
    pass


def test_another_count_than_the_loss_has_is_noticed(tmp_path):
    case = cases.Case("language", "ce")
    with pytest.raises(ValueError, match="the Trainer counted"):
        cases.train(case, tmp_path, size=2, accumulate=4, trainer=GPT2)
    # One micro-batch is the whole step, whatever is counted.
    one = cases.train(case, tmp_path, size=8, accumulate=1, trainer=GPT2)
    four = cases.train(case, tmp_path, size=2, accumulate=4, trainer=ExactGPT2)
    torch.testing.assert_close(four, one, rtol=0, atol=1e-5)


def test_options_that_the_trainer_cannot_keep():
    with pytest.raises(ValueError, match="reduction='mean'"):
        loss("dice", reduction="sum")
    with pytest.raises(ValueError, match="ignore_index=-100"):
        loss("ce+dice", ignore_index=0)


def test_answers_need_labels_and_have_no_classes():
    row = torch.zeros(2, 5)
    output = {"start_logits": row, "end_logits": row}
    with pytest.raises(ValueError, match=r"AnswerLabels.*SoftF1Trainer"):
        loss("ce")(output, None)
    with pytest.raises(ValueError, match="position 7"):
        loss("dice", over="batch")(output, torch.tensor([[0, 1], [2, 2]]))
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        loss("ce")(output, torch.tensor([0, 1]))


def test_data_parallel_is_refused():
    with pytest.raises(ValueError, match="one process per GPU"):
        loss("ce")(LOGITS, LABELS, num_items_in_batch=torch.tensor([[4], [4]]))


def test_a_model_without_logits_is_told():
    with pytest.raises(TypeError, match="last_hidden_state"):
        loss("ce")({"last_hidden_state": LOGITS}, LABELS)
