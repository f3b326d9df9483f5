import math

import pytest
import torch
from torch.nn import functional

from softf1.losses import CrossEntropyLoss, cross_entropy_loss
from tests.losses.cases import WEIGHT, batch


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_softmax_equals_torch(reduction, label_smoothing, weight):
    logits, target = batch("softmax")
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    options = {"reduction": reduction, "label_smoothing": label_smoothing, "weight": weight}
    torch.testing.assert_close(
        cross_entropy_loss(logits, target, **options),
        functional.cross_entropy(logits, target, **options),
    )


def test_sigmoid_equals_torch_with_its_pos_weight():
    logits, target = batch("sigmoid")
    target = target.clamp_min(0).double()
    weight = torch.tensor(WEIGHT, dtype=torch.float64)
    torch.testing.assert_close(
        cross_entropy_loss(logits, target, weight=weight),
        functional.binary_cross_entropy_with_logits(logits, target, pos_weight=weight),
    )


def test_equation_1_by_hand():
    # p = (0.9, 0.1), y = class 1: −log 0.1 = 2.3026
    logits = torch.tensor([[0.9, 0.1]]).log()
    assert cross_entropy_loss(logits, torch.tensor([1])).item() == pytest.approx(math.log(10))


def test_equation_2_weighs_rows_by_their_gold_class():
    # rows: −log ¾ with weight 1, −log ¼ with weight 3; (0.2877 + 3 · 1.3863) / 4 = 1.1117
    logits = torch.tensor([[0.75, 0.25], [0.75, 0.25]]).log()
    loss = cross_entropy_loss(logits, torch.tensor([0, 1]), weight=[1.0, 3.0])
    assert loss.item() == pytest.approx((-math.log(0.75) - 3 * math.log(0.25)) / 4)


def test_weights_of_one_change_nothing():
    logits, target = batch("softmax")
    ones = cross_entropy_loss(logits, target, weight=torch.ones(4))
    assert torch.equal(ones, cross_entropy_loss(logits, target))


def test_a_gold_class_that_was_taken_out_leaves_its_row_out():
    logits = torch.tensor([[0.0, -torch.inf], [0.0, 1.0]], requires_grad=True)
    loss = cross_entropy_loss(logits, torch.tensor([1, 0]))
    loss.backward()
    # only the second row: log(1 + e)
    assert loss.item() == pytest.approx(math.log(1 + math.e))
    assert (logits.grad[0] == 0).all()


def test_a_larger_weight_asks_for_more_recall():
    # One feature that cannot tell: 1 of 4 is positive. The optimum is where the weighted classes
    # balance: p = 3 · 1 / (3 · 1 + 3) = ½ with weight 3 for the positive, ¼ without.
    target = torch.tensor([0, 0, 0, 1])
    for weight, expected in ((None, 0.25), ([1.0, 3.0], 0.5)):
        bias = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([bias], lr=1.0)
        for _ in range(200):
            optimizer.zero_grad()
            cross_entropy_loss(bias.expand(4, 2), target, weight=weight).backward()
            optimizer.step()
        assert bias.softmax(-1)[1].item() == pytest.approx(expected, abs=1e-3)


def test_the_weight_follows_the_module():
    module = CrossEntropyLoss(weight=[1.0, 2.0])
    assert module.to("meta").weight.device.type == "meta"
    assert module.state_dict() == {}


def test_smoothing_with_gold_classes_of_weight_0_has_a_mean_of_0_and_not_the_sum():
    logits = torch.randn(3, 3, requires_grad=True)
    target = torch.tensor([0, 0, 0])
    options = {"weight": [0.0, 1.0, 2.0], "label_smoothing": 0.1}
    total = cross_entropy_loss(logits, target, reduction="sum", **options)
    expected = functional.cross_entropy(
        logits, target, torch.tensor(options["weight"]), label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(total, expected)
    mean = cross_entropy_loss(logits, target, **options)
    mean.backward()
    assert mean == 0
    assert (logits.grad == 0).all()
    # One row that weighs something, and the mean is torch's again.
    target[1] = 2
    torch.testing.assert_close(
        cross_entropy_loss(logits, target, **options),
        functional.cross_entropy(
            logits, target, torch.tensor(options["weight"]), label_smoothing=0.1
        ),
    )
