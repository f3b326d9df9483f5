"""Rows that only fill up a batch: no task and no loss knows of them."""

import numpy as np
import pytest
import torch

from softf1.losses import make_loss
from softf1.tasks import join
from softf1.training.batching import MicroBatch, collate_rows
from tests.tasks.cases import CASES, OPTIONS, build_case
from tests.tasks.conftest import bert, xlnet  # noqa: F401 - fixtures

LOSSES = {
    "focal+dice": ("focal+dice", {}),
    "ce+dice-batch": ("ce+dice", {"dice": {"over": "batch"}}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    task, features, tokenizer, model, examples = build_case(*request.param, request)
    return task, features, tokenizer, model.eval(), examples


def everything(features, rows=None, items=None):
    items = np.arange(len(features)) if items is None else np.array(items, np.int64)
    return MicroBatch(items, int(features["length"].max()) + 3, rows or len(items))


def loss_and_gradients(task, model, batch, loss):
    name, options = LOSSES[loss]
    if "batch" in loss and task.kind == "qa" and task.positions == "softmax":
        name, options = "ce+dice", {}  # positions of two texts are not one class
    criterion = make_loss(name, **options)
    model.zero_grad()
    logits = task.logits(model(**batch.inputs), batch)
    total = sum(criterion(logits[key], target) for key, target in batch.targets.items())
    total.backward()
    return total, {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }


@pytest.mark.parametrize("loss", LOSSES)
def test_more_rows_change_neither_loss_nor_gradient(case, loss):
    task, features, tokenizer, model, _ = case
    plain = collate_rows(task, features, everything(features), tokenizer)
    padded = collate_rows(task, features, everything(features, rows=len(features) + 3), tokenizer)
    assert all(len(value) == len(features) + 3 for value in padded.inputs.values())
    assert all(len(value) == len(features) + 3 for value in padded.targets.values())
    value, wanted = loss_and_gradients(task, model, plain, loss)
    again, found = loss_and_gradients(task, model, padded, loss)
    assert again.item() == pytest.approx(value.item(), rel=1e-5)
    assert any(grad.abs().sum() > 0 for grad in wanted.values())
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_rank_without_data_adds_exactly_nothing(case, loss):
    task, features, tokenizer, model, _ = case
    batch = collate_rows(task, features, everything(features, rows=2, items=[]), tokenizer)
    assert len(batch.items) == 0
    assert all(len(value) == 2 for value in batch.inputs.values())
    assert all((target == -100).all() and len(target) == 2 for target in batch.targets.values())
    value, gradients = loss_and_gradients(task, model, batch, loss)
    assert value.item() == 0
    assert all((grad == 0).all() for grad in gradients.values())


def test_padded_batches_and_ranks_without_data_decode_to_the_same(case):
    task, features, tokenizer, model, examples = case

    def predict(micros):
        found = []
        for micro in micros:
            batch = collate_rows(task, features, micro, tokenizer)
            with torch.no_grad():
                found.append(task.gather(task.logits(model(**batch.inputs), batch), batch))
        return task.decode(join(found), features, examples)

    one = [everything(features, items=[i]) for i in range(len(features))]
    several = [everything(features, rows=4, items=[i]) for i in reversed(range(len(features)))]
    empty = everything(features, rows=2, items=[])
    wanted, found = predict(one), predict([several[0], empty, *several[1:]])
    assert rounded(found) == rounded(wanted)


def rounded(value):
    """The same with numbers of 4 digits: other shapes sum in another order."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, 4) if isinstance(value, float) else value


def test_every_row_has_a_token(case):
    task, features, tokenizer, _, _ = case
    for items in ([0], []):
        batch = collate_rows(task, features, everything(features, rows=5, items=items), tokenizer)
        assert (batch.inputs["attention_mask"].sum(1) > 0).all()


def test_the_width_of_a_batch_without_items_is_kept_by_the_shortest_item(case):
    task, features, tokenizer, _, _ = case
    width = int(features["length"].min())
    batch = collate_rows(task, features, MicroBatch(np.zeros(0, np.int64), width, 1), tokenizer)
    assert batch.inputs["input_ids"].shape == (1, width)


def test_a_full_batch_is_as_the_task_made_it(case):
    task, features, tokenizer, _, _ = case
    micro = everything(features)
    batch = collate_rows(task, features, micro, tokenizer, epoch=3)
    wanted = task.collate(features, micro.items.tolist(), tokenizer, width=micro.width, epoch=3)
    for part in ("inputs", "targets", "places"):
        for name, value in getattr(wanted, part).items():
            assert torch.equal(getattr(batch, part)[name], value), name


@pytest.mark.parametrize("index", [i for i, (kind, _) in enumerate(OPTIONS) if kind == "mrc_ner"])
def test_pairs_of_spans_come_in_few_shapes(index, request):
    task, features, tokenizer, _, _ = build_case(*OPTIONS[index], "bert", request)
    for epoch in range(5):
        batch = collate_rows(task, features, everything(features), tokenizer, epoch=epoch)
        if "pairs" in batch.inputs:
            most = batch.inputs["pairs"].shape[1]
            assert most == batch.targets["span"].shape[1]
            assert most & (most - 1) == 0
