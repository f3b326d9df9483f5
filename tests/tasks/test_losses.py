"""Every loss takes the logits and targets of every task, and learns from what counts only."""

import pytest
import torch

from softf1.losses import make_loss
from tests.tasks.cases import OPTIONS, SCRATCH, build_case

NAMES = ["ce", "focal", "dice", "tversky", "dsc", "ce+dice"]
LOSSES = {name: (name, {}) for name in NAMES} | {
    "dice-batch": ("dice", {"over": "batch"}),
    "tversky-batch": ("tversky", {"over": "batch"}),
    "dsc-batch": ("dsc", {"over": "batch"}),
    "ce+dice-batch": ("ce+dice", {"dice": {"over": "batch"}}),
}
CASES = [
    pytest.param((kind, options, encoder), id=f"{kind}-{encoder}-{number}")
    for number, (kind, options) in enumerate(OPTIONS)
    for encoder in ["bert", *SCRATCH.get(kind, [])]
]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    task, features, tokenizer, model, _ = build_case(*request.param, request)
    width = int(features["length"].max()) + 3
    return task, task.collate(features, range(len(features)), tokenizer, width=width), model.eval()


def counting_places(task, batch):
    """(B, L), by the rows alone: texts but no padding, in QA and MRC the context but no query."""
    places = batch.inputs["attention_mask"].bool()
    if task.kind in ("qa", "mrc_ner"):
        places = places & batch.inputs["token_type_ids"].bool()
    if task.kind == "qa":  # [CLS] stands for no answer
        places[torch.arange(len(places)), batch.places["cls"]] = True
    return places


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_finite_and_only_of_what_counts(case, loss):
    task, batch, model = case
    if loss.endswith("-batch") and task.kind == "qa" and task.positions == "softmax":
        pytest.skip("positions of two texts are not one class")
    name, options = LOSSES[loss]
    logits = task.logits(model(**batch.inputs), batch)
    for key in batch.targets:
        logits[key].retain_grad()
    criterion = make_loss(name, **options)
    total = sum(criterion(logits[key], target) for key, target in batch.targets.items())
    model.zero_grad()
    total.backward()
    assert total.isfinite()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)
    assert any(grad.abs().sum() > 0 for grad in grads)
    places = counting_places(task, batch)
    for key, target in batch.targets.items():
        grad = logits[key].grad
        assert grad.isfinite().all()
        assert grad.abs().sum() > 0, key
        assert (grad[target == -100] == 0).all()
        if grad.shape[:2] == places.shape:
            assert (grad[~places] == 0).all(), key
