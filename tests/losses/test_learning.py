"""Every loss learns: made-up data, 1% positive, started from the class prior."""

import pytest
import torch

from softf1.losses import class_weights, make_loss, prior_bias, self_adjusting_dice_loss

ROWS, POSITIVES = 4000, 40


def made_up(distance):
    """Two groups in 8 dimensions, this far apart in each."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(ROWS) % (ROWS // POSITIVES) == 0).long()
    x = torch.randn(ROWS, 8, generator=generator) + distance * target.unsqueeze(1)
    return x, target


def f1_after_training(loss, *, sigmoid, distance=2.5, steps=200, prior=True):
    x, target = made_up(distance)
    counts = torch.bincount(target)
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 1 if sigmoid else 2)
    with torch.no_grad():
        head.bias.copy_(prior_bias(counts, sigmoid=sigmoid)).mul_(prior)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(head(x), target).backward()
        optimizer.step()
    logits = head(x)
    predicted = (logits.squeeze(1) > 0 if sigmoid else logits[:, 1] > logits[:, 0]).long()
    hits = int((predicted & target).sum())
    return 2 * hits / (int(predicted.sum()) + POSITIVES)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize(
    "name", ["ce", "wce", "focal", "wfocal", "la", "dice", "tversky", "dsc", "ce+dice"]
)
def test_every_loss_at_its_defaults_beats_the_majority_baseline(name, sigmoid):
    # The majority baseline predicts no positive at all: F1 0. Calling everything positive gives
    # 2 · 0.01 / 1.01 = 0.02.
    options = {}
    if name in {"wce", "wfocal", "la"}:
        options["weight"] = class_weights([ROWS - POSITIVES, POSITIVES], sigmoid=sigmoid)
    # Logit adjustment adds the prior itself, and then decides for balanced accuracy: more recall
    # and less precision than F1 would have.
    found = f1_after_training(make_loss(name, **options), sigmoid=sigmoid, prior=name != "la")
    assert found > (0.5 if name == "la" else 0.8)


@pytest.mark.parametrize("name", ["tversky", "dsc"])
def test_linear_losses_collapse_where_the_groups_overlap_and_squared_ones_do_not(name):
    """A negative result, kept: at example level p = 0 everywhere is a trap for the linear forms."""
    overlapping = {"sigmoid": False, "distance": 1.6}
    assert f1_after_training(make_loss(name), **overlapping) == 0
    assert f1_after_training(make_loss(name, squared=True), **overlapping) > 0.8


def test_as_printed_the_self_adjusting_loss_stalls_at_one_half():
    """Why decay="paper" is not the default: even separable positives never pass p = 0.5."""
    target = torch.tensor([1, 1, 0, 0])
    final = {}
    for decay in ("paper", "detached"):
        logits = torch.zeros(4, 1, requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=0.1)
        for _ in range(400):
            optimizer.zero_grad()
            self_adjusting_dice_loss(logits, target, alpha=1.0, decay=decay).backward()
            optimizer.step()
        final[decay] = torch.sigmoid(logits.detach()[:2])
    assert final["paper"].tolist() == [[pytest.approx(0.5, abs=1e-3)]] * 2
    assert (final["detached"] > 0.9).all()
