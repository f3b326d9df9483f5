import pytest
import torch

from softf1.losses import (
    class_weights,
    cross_entropy_loss,
    logit_adjusted_loss,
    make_loss,
    prior_bias,
)
from tests.losses.cases import WEIGHT, batch


def test_prior_is_added_to_the_logits():
    # π = (0.8, 0.2) and equal logits: the adjusted probabilities are π, −log 0.2 = 1.6094
    weight = class_weights([80, 20])
    value = logit_adjusted_loss(torch.zeros(1, 2), torch.tensor([1]), weight=weight)
    assert value.item() == pytest.approx(1.6094, abs=1e-4)


def test_sigmoid_adds_the_log_odds():
    # 90 negatives, 10 positives: an unsure logit of 0 becomes log(1/9), p = 0.1
    weight = class_weights([90, 10], sigmoid=True)
    value = logit_adjusted_loss(torch.zeros(1, 1), torch.tensor([1]), weight=weight)
    assert value.item() == pytest.approx(2.3026, abs=1e-4)


@pytest.mark.parametrize("scheme", ["balanced", "inverse"])
def test_a_common_factor_changes_nothing_for_softmax(scheme):
    logits, target = batch("softmax")
    counts = torch.tensor([70.0, 20.0, 9.0, 1.0])
    found = logit_adjusted_loss(logits, target, weight=class_weights(counts, scheme))
    prior = (counts / counts.sum()).double().log()
    torch.testing.assert_close(found, cross_entropy_loss(logits + prior, target))


def test_special_cases_are_cross_entropy():
    for mode in ("softmax", "sigmoid"):
        logits, target = batch(mode)
        plain = cross_entropy_loss(logits, target)
        assert torch.equal(logit_adjusted_loss(logits, target), plain)
        assert torch.equal(logit_adjusted_loss(logits, target, weight=WEIGHT, tau=0.0), plain)


def test_a_rare_class_is_pushed_harder_and_a_frequent_one_less():
    logits = torch.zeros(2, 2, requires_grad=True)
    weight = class_weights([90, 10])
    logit_adjusted_loss(logits, torch.tensor([0, 1]), weight=weight, reduction="sum").backward()
    # p of the gold class is 0.9 for the frequent one and 0.1 for the rare one: pushes 1 − p
    torch.testing.assert_close(logits.grad[0, 0], torch.tensor(-0.1))
    torch.testing.assert_close(logits.grad[1, 1], torch.tensor(-0.9))


def test_more_tau_finds_more_of_a_rare_class():
    """One constant logit pair is learned: what it says after training depends on tau alone."""
    target = torch.tensor([0] * 90 + [1] * 10)
    weight = class_weights([90, 10])

    def margin(tau):
        bias = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.LBFGS([bias], max_iter=100)

        def closure():
            optimizer.zero_grad()
            value = logit_adjusted_loss(bias.expand(100, 2), target, weight=weight, tau=tau)
            value.backward()
            return value

        optimizer.step(closure)
        return (bias[1] - bias[0]).item()

    # The optimum is log(10/90) = −2.197 for cross entropy, and (1 − tau) times that
    assert margin(0.0) == pytest.approx(-2.197, abs=0.01)
    assert margin(0.5) == pytest.approx(-1.099, abs=0.01)
    assert margin(1.0) == pytest.approx(0.0, abs=0.01)


def test_start_without_bias_is_the_start_of_cross_entropy_at_the_prior():
    logits, target = torch.zeros(3, 3), torch.tensor([0, 1, 2])
    counts = [7000, 2000, 1000]  # large, since prior_bias adds one to each
    adjusted = logit_adjusted_loss(logits, target, weight=class_weights(counts))
    at_prior = cross_entropy_loss(logits + prior_bias(counts), target)
    torch.testing.assert_close(adjusted, at_prior, atol=1e-3, rtol=0)


def test_a_class_that_was_never_seen_is_as_the_rarest():
    weight = class_weights([90, 10, 0])
    assert weight[2] == 0
    logits, target = torch.zeros(1, 3), torch.tensor([1])
    found = logit_adjusted_loss(logits, target, weight=weight)
    same = logit_adjusted_loss(logits, target, weight=[weight[0], weight[1], weight[1]])
    assert torch.equal(found, same)


def test_weights_are_asked_for_and_tau_is_checked():
    with pytest.raises(ValueError, match="la needs class weights"):
        make_loss("la")
    with pytest.raises(ValueError, match="wanted tau >= 0, got -1"):
        logit_adjusted_loss(torch.zeros(1, 2), torch.tensor([0]), tau=-1)
