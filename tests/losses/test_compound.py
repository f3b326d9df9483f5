import math

import pytest
import torch

from softf1.losses import CompoundLoss, CrossEntropyLoss, DiceLoss, make_loss
from tests.losses.cases import batch


def test_it_is_the_weighted_sum_of_its_parts():
    logits, target = batch("softmax")
    ce, dice = make_loss("ce"), make_loss("dice", over="batch", smooth=0.5)
    both = make_loss("ce+dice", mix=(1.0, 0.5), dice={"over": "batch", "smooth": 0.5})
    expected = ce(logits, target) + 0.5 * dice(logits, target)
    torch.testing.assert_close(both(logits, target), expected)


def test_common_options_go_to_every_part():
    logits, target = batch("softmax")
    weight, options = [0.0, 0.0, 0.0, 1.0], {"ignore_index": 2, "reduction": "none"}
    both = make_loss("ce+dice", weight=weight, **options)
    parts = [make_loss(name, weight=weight, **options) for name in ("ce", "dice")]
    target = target.clamp_min(0)
    mask = torch.tensor([True] * 6 + [False])
    expected = sum(part(logits, target, mask) for part in parts)
    torch.testing.assert_close(both(logits, target, mask), expected)


def test_linear_moves_from_the_first_part_to_the_second():
    loss = make_loss("ce+dice", mix=(2.0, 0.5), schedule="linear", schedule_steps=4)
    seen = []
    for _ in range(6):
        seen.append(loss.shares().tolist())
        loss.advance()
    assert seen == [[2, 0], [1.5, 0.125], [1, 0.25], [0.5, 0.375], [0, 0.5], [0, 0.5]]


def test_cosine_moves_slowly_at_both_ends():
    loss = make_loss("ce+dice", schedule="cosine", schedule_steps=4)
    loss.advance()
    # (1 − cos(π/4)) / 2 = 0.1464
    first = (1 - math.cos(math.pi / 4)) / 2
    assert loss.shares().tolist() == pytest.approx([1 - first, first])
    loss.advance(3)
    assert loss.shares().tolist() == pytest.approx([0, 1])


def test_the_step_survives_a_checkpoint(tmp_path):
    loss = make_loss("ce+dice", schedule="linear", schedule_steps=10)
    loss.advance(7)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    again = make_loss("ce+dice", schedule="linear", schedule_steps=10)
    again.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert torch.equal(again.shares(), loss.shares())
    again.advance(3)
    assert again.shares().tolist() == [0, 1]


def test_three_parts_without_a_schedule():
    logits, target = batch("softmax")
    loss = make_loss("ce+focal+dice", mix=(1, 2, 3))
    parts = [make_loss(name)(logits, target) for name in ("ce", "focal", "dice")]
    torch.testing.assert_close(loss(logits, target), parts[0] + 2 * parts[1] + 3 * parts[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mix": (1.0,)}, "one mix factor per part"),
        ({"mix": (1.0, -1.0)}, "finite mix factors from 0 up"),
        ({"schedule": "linear"}, "wanted schedule_steps >= 1, got None"),
        ({"schedule_steps": 3}, "schedule_steps needs a schedule"),
        ({"schedule": "step", "schedule_steps": 3}, r"one of \['linear', 'cosine'\], got 'step'"),
        ({"reduction": "none", "dice": {"over": "batch"}}, "refused with a batch-level part"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make_loss("ce+dice", **options)


def test_a_schedule_needs_two_parts():
    with pytest.raises(ValueError, match="wanted 2 parts, got 3"):
        make_loss("ce+focal+dice", schedule="linear", schedule_steps=3)
    with pytest.raises(ValueError, match="one mix factor per part"):
        CompoundLoss([])


def test_modules_can_be_given_directly():
    loss = CompoundLoss([CrossEntropyLoss(), DiceLoss()], mix=[1, 1])
    assert "mix=(1.0, 1.0)" in repr(loss)
